"""How often what the rules say of a session is true, by what people say of it.

    python -m tests.labelled.findings [--json] [--sessions FOLDER]

For each kind of finding: how many there are, how many of them are true (precision), and how many of
what is true is found (recall), with Wilson's 95 % intervals. Labels are those on which two readers
agree, or a third one's where they do not (tests/labelled/README.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from consumer.desk import read_subject
from consumer.edges.prices import PriceList
from consumer.resources import resource
from consumer.scoring.profile import parse_profile
from consumer.scoring.scorers import SCORERS, citations, grounding, names, numbers
from consumer.scoring.scorers.base import Subject
from consumer.scoring.text import Spot
from tests.labelled import items

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "data" / "sessions"
DEMO = ("adequate", "contradiction", "good", "injection", "parallel", "simple", "tool-loop", "weak")
PROFILE = parse_profile(
    yaml.safe_load((resource("config") / "profiles" / "efficiency-simple.yaml").read_text("utf-8"))
)
Z = 1.959964  # of a standard normal distribution, for 95 %
MARK, ENOUGH = 0.9, 20

Json = Mapping[str, Any]
Labels = Mapping[str, Json]  # by item


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of finding: the items that it names in a session, and whether a label agrees."""

    name: str
    of: str  # call, figure or name
    found: Callable[[Subject], set[str]]
    true: Callable[[Json], bool]
    accuses: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kind's counts over all labelled sessions."""

    kind: Kind
    right: int
    found: int
    true: int

    @property
    def mark(self) -> str:
        """What is to be said of the kind."""
        if not self.kind.accuses:
            return "neutral"
        if self.found < ENOUGH:
            return "not verified"
        return "met" if self.right >= MARK * self.found else "MISSED"

    def as_json(self) -> Json:
        return {
            "kind": self.kind.name,
            "n": self.found,
            "precision": share(self.right, self.found),
            "precision_95": wilson(self.right, self.found),
            "true": self.true,
            "recall": share(self.right, self.true),
            "recall_95": wilson(self.right, self.true),
            "mark": self.mark,
        }


def share(part: int, whole: int) -> float | None:
    """The part of the whole, to three digits; None of nothing."""
    return round(part / whole, 3) if whole else None


def wilson(part: int, whole: int) -> tuple[float, float] | None:
    """The score interval of a share (Wilson 1927)."""
    if not whole:
        return None
    p, n = part / whole, whole
    middle, half = p + Z * Z / (2 * n), Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    low, high = (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)
    return round(low, 3), round(high, 3)


# ── what the rules say ───────────────────────────────────────────────────────


def _calls(ids: Iterable[str]) -> set[str]:
    return {f"call:{call_id}" for call_id in ids}


def _corrections(subject: Subject, kind: str) -> set[str]:
    return _calls(pair.call_id for pair in subject.report.corrections if pair.kind == kind)


def _wrong(scorer: str, subject: Subject) -> set[str]:
    """Places of the final analysis that this scorer turns down, all of them."""
    spots: list[Spot] = []

    def kept(text: str, wrong: list[Spot], total: int) -> Any:
        spots.extend(wrong)
        return grounding.share(text, wrong, total)

    rule = SCORERS[scorer]
    with (
        mock.patch.object(numbers, "share", kept),
        mock.patch.object(names, "share", kept),
        mock.patch.object(citations, "share", kept),
    ):
        rule.score(subject, rule.params())
    return {f"{start}-{end}" for start, end in spots}


KINDS = (
    Kind(
        name="failed",
        of="call",
        found=lambda s: _calls(call.call_id for call in s.report.failed),
        true=lambda label: bool(label["failed"]),
    ),
    Kind(
        name="retry",
        of="call",
        found=lambda s: _corrections(s, "retry_with_different_params"),
        true=lambda label: bool(label["correction"]),
    ),
    Kind(
        name="fallback",
        of="call",
        found=lambda s: _corrections(s, "fallback_after_error"),
        true=lambda label: bool(label["correction"]),
    ),
    Kind(
        name="repeated",
        of="call",
        found=lambda s: _calls(i for group in s.report.repeated for i in group.call_ids[1:]),
        true=lambda label: bool(label["repeated"]),
    ),
    Kind(
        name="wasted",
        of="call",
        found=lambda s: _calls(call.call_id for call in s.report.wasted),
        true=lambda label: bool(label["wasted"]),
    ),
    Kind(
        name="not_cited",
        of="call",
        found=lambda s: _calls(call.call_id for call in s.report.not_cited),
        true=lambda label: label["use"] == "unused",
        accuses=False,
    ),
    Kind(
        name="ungrounded figure",
        of="figure",
        found=lambda s: _wrong("numeric_grounding", s),
        true=lambda label: label["grounded"] is False,
    ),
    Kind(
        name="ungrounded name",
        of="name",
        found=lambda s: _wrong("entity_grounding", s),
        true=lambda label: label["grounded"] is False,
    ),
)


# ── beside what people say ───────────────────────────────────────────────────


def lines(sessions: Sequence[tuple[Subject, Labels]]) -> Iterator[Line]:
    """The table over these sessions."""
    for kind in KINDS:
        right = found = true = 0
        for subject, labels in sessions:
            own = {item: one for item, one in labels.items() if item.startswith(f"{kind.of}:")}
            named = _items(kind.found(subject), own)
            wanted = {item for item, label in own.items() if kind.true(label)}
            right, found = right + len(named & wanted), found + len(named)
            true += len(wanted)
        yield Line(kind=kind, right=right, found=found, true=true)


def _items(named: set[str], labels: Labels) -> set[str]:
    """What a rule names, as items: a place is the item that it overlaps, or else one of its own."""
    if not any("-" in one and ":" not in one for one in named):
        return named & labels.keys()
    places = {item: tuple(map(int, item.partition(":")[2].split("-"))) for item in labels}
    found = set()
    for place in named:
        start, end = map(int, place.split("-"))
        over = [item for item, (low, high) in places.items() if start < high and low < end]
        found.add(over[0] if over else place)
    return found


def agreed(folder: Path = HERE) -> dict[str, dict[str, Json]]:
    """By session and item, the labels that stand."""
    read = {reader: labels_of(folder / reader) for reader in "abc"}
    known: dict[str, dict[str, Json]] = defaultdict(dict)
    for key in read["a"].keys() & read["b"].keys():
        one, other = read["a"][key], read["b"][key]
        if key in read["c"]:
            known[key[0]][key[1]] = read["c"][key]
        elif _plain(one) == _plain(other):
            known[key[0]][key[1]] = one
    return known


def differing(folder: Path = HERE) -> list[tuple[Json, Json]]:
    """The labels of both readers where they differ and nobody has decided yet."""
    read = {reader: labels_of(folder / reader) for reader in "abc"}
    return [
        (read["a"][key], read["b"][key])
        for key in sorted(read["a"].keys() & read["b"].keys() - read["c"].keys())
        if _plain(read["a"][key]) != _plain(read["b"][key])
    ]


def labels_of(folder: Path) -> dict[tuple[str, str], Json]:
    """One reader's labels, by session and item."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            label = json.loads(line)
            found[label["session"], label["item"]] = label
    return found


def _plain(label: Json) -> dict[str, Any]:
    return {name: value for name, value in label.items() if name != "reason"}


def labelled(folder: Path, known: Mapping[str, Labels]) -> list[tuple[Subject, Labels]]:
    """Every labelled session that is here, and the demo's, as the rules see it."""
    with tempfile.TemporaryDirectory() as made:
        for session in map(items.demo_session, DEMO):
            (Path(made) / f"{session['session_id']}.json").write_text(json.dumps(session))
        paths = [*sorted(folder.glob("*.json")), *sorted(Path(made).glob("*.json"))]
        return [
            (read_subject(path, PROFILE, {}, PriceList(overrides={})), labels)
            for path in paths
            if (labels := known.get(items.session_in(path)["session_id"]))
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--sessions", type=Path, default=Path(os.environ.get("LABELLED_SESSIONS", SHARED))
    )
    asked = parser.parse_args()
    table = [line.as_json() for line in lines(labelled(asked.sessions, agreed()))]
    if asked.json:
        sys.stdout.write(json.dumps(table, indent=1) + "\n")
        return
    form = "{:<18}{:>5} {:>9} {:<16}{:>5} {:>7} {:<16}{}\n"
    sys.stdout.write(form.format("finding", "n", "precision", "", "true", "recall", "", "mark"))
    for row in table:
        cells = [row[name] for name in ("kind", "n", "precision", "precision_95", "true", "recall")]
        shown = ["-" if cell is None else str(cell) for cell in (*cells, row["recall_95"])]
        sys.stdout.write(form.format(*shown, row["mark"]))
    if any(row["mark"] == "MISSED" for row in table):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
