"""`make bench-peers`: the consumer beside what else one could judge sessions with, in one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from tests.bench.figures import shown
from tests.bench.judged import MEAN_S, Load, load
from tests.bench.machine import machine
from tests.bench.peers import SET
from tests.bench.peers.running import Outcome, Pass, judged_by
from tests.bench.peers.task import MARK
from tests.bench.stand_in import Plan
from tests.bench.world import World, world

SLOTS = 64
OURS = "score-consumer"
# The judge sets the pace of all: of 640 sessions chance alone makes a difference of 0.1 %.
SESSIONS = SLOTS * 40
FAULTY_SESSIONS = SLOTS * 30
# Phoenix then goes on with about one call at a time, and would take a quarter of an hour.
FEWER_FAULTY_SESSIONS = {"phoenix": SLOTS * 3}
PLAIN = Plan(mean_s=MEAN_S)
FAULTY = Plan(mean_s=MEAN_S, rate_limited=0.05, broken=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One of them: rounds without faults, and one with them."""

    name: str
    rounds: Sequence[Pass]
    faulty: Pass

    def middle(self, figure: str) -> float:
        return float(statistics.median(getattr(made, figure) for made in self.rounds))

    def as_json(self) -> dict[str, object]:
        figures = ("per_second", "efficiency", "cpu_ms", "peak_mib")
        return {
            "name": self.name,
            "set": SET.get(self.name, {}),
            "median": {figure: self.middle(figure) for figure in figures},
            "rounds": [asdict(made) for made in self.rounds],
            "faulty": asdict(self.faulty),
        }


async def compare(around: World, name: str, prompt: str, python: Path) -> Compared:
    """All rounds of one of them, on the same stand-in."""

    async def judged(plan: Plan, sessions: int) -> Pass:
        count = around.amount(sessions)
        if name == OURS:
            return _ours(await load(around, SLOTS, count, plan, warm=True))
        return await judged_by(
            name, around.stand_in, plan, prompt, slots=SLOTS, count=count, python=python
        )

    rounds = [await judged(PLAIN, SESSIONS) for _ in range(around.rounds)]
    with_faults = FEWER_FAULTY_SESSIONS.get(name, FAULTY_SESSIONS)
    return Compared(name=name, rounds=rounds, faulty=await judged(FAULTY, with_faults))


def _ours(made: Load) -> Pass:
    """Without the session before it counts. All others have their own score, says `load`."""
    began_s = sorted(made.finished.received_s)[1]
    return Pass(
        outcome=Outcome(scored=len(made.finished.scores) - 1),
        per_second=made.finished.per_second(),
        efficiency=made.efficiency(SLOTS),
        cpu_ms=made.cpu_ms,
        peak_mib=made.peak_mib,
        took_s=max(made.finished.finished_s) - began_s,
        calls=made.calls - 1,
        most_at_once=made.most_at_once,
    )


async def _prompt(around: World) -> str:
    """What the consumer asks of one session, MARK in place of the session's own."""
    await load(around, SLOTS, 1, Plan(mean_s=0.01, cv=0))
    messages = around.stand_in.asked()["messages"]
    return "\n\n".join(str(message["content"]) for message in messages).replace("[b-0]", MARK)


async def run(
    names: Sequence[str], python: Path, *, quick: bool, say: Callable[[str], None]
) -> list[Compared]:
    """Compares these, one after the other."""
    found = []
    async with world(size="quick" if quick else "usual") as around:
        prompt = await _prompt(around)
        for name in names:
            began = monotonic()
            found.append(await compare(around, name, prompt, python))
            say(f"{name} ({monotonic() - began:.0f} s)")
    return found


def _plain_row(made: Compared) -> list[str]:
    figures = ("per_second", "efficiency", "cpu_ms", "peak_mib")
    at_once = max(judged.most_at_once for judged in (*made.rounds, made.faulty))
    return [made.name, *(shown(made.middle(figure)) for figure in figures), str(at_once)]


def _faulty_row(made: Compared) -> list[str]:
    judged, told = made.faulty, made.faulty.outcome
    counts = map(str, (told.scored, told.failed, told.wrong, told.missing))
    per_second, calls = told.scored / judged.took_s, judged.calls / sum(asdict(told).values())
    figures = (per_second, judged.efficiency, judged.cpu_ms, calls)
    return [made.name, *counts, *map(shown, figures)]


def _tables(found: Sequence[Compared]) -> list[Table]:
    told = ("sessions/s", "slot efficiency", "CPU ms", "peak MiB", "calls at once, at most")
    plain = Table("", *told, title="Side by side")
    counts = ("scored", "failed", "wrong", "missing")
    measured = ("scored/s", "slot efficiency", "CPU ms", "calls")
    faulty = Table("", *counts, *measured, title="A tenth 429 or 500")
    for made in found:
        plain.add_row(*_plain_row(made))
        faulty.add_row(*_faulty_row(made))
    return [plain, faulty]


def _versions(found: Sequence[Compared]) -> Mapping[str, str]:
    every = chain.from_iterable(made.rounds for made in found)
    return {name: told for made in every for name, told in made.versions.items()}


def main() -> None:
    """Prints two tables; writes JSON where told."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join([OURS, *SET])}")
    parser.add_argument("--python", type=Path, required=True, help="of the peers' environment")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--quick", action="store_true", help="once each, a fifth of the work")
    arguments = parser.parse_args()
    known = [OURS, *SET]
    if unknown := set(arguments.names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    out, about = Console(), machine()
    names = arguments.names or known
    found = asyncio.run(
        run(names, arguments.python.absolute(), quick=arguments.quick, say=out.print)
    )
    out.print(*_tables(found))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        told = {
            "machine": about,
            "peers": _versions(found),
            "quick": arguments.quick,
            "slots": SLOTS,
            "plans": {"plain": asdict(PLAIN), "faulty": asdict(FAULTY)},
            "compared": [made.as_json() for made in found],
        }
        arguments.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
