"""Figures that nobody was given, and nobody invented: rounded, computed from seen ones, or counted.

What a sum is made of stands beside it, and sums of whole numbers are exact: where there is much to
choose from, chance would ground any figure. Of a text with very many figures only the first are
looked at. The time is linear in the texts.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any

from consumer.scoring.quantities import values
from consumer.scoring.scorers.base import Subject
from consumer.scoring.text import Spot

Key = tuple[tuple[float, ...], bool]
Range = tuple[float, float, Key]

MOST_FIGURES = 1000
_BEFORE, _AFTER, _NEAR_CHARACTERS = 6, 3, 600
_NEAR_TIMES = 2
_BEFORE_PERCENT, _AFTER_PERCENT = 3, 2
_MOST_COUNTED = 10_000
_LEAST_END_DIGITS = 4
_EXACT = 1e-9
# 3 is no rounding of 2.6: it was counted.
_LEAST_ROUNDED = 10

_DIGITS = re.compile(r"\d{5,40}")
_TIME = re.compile(r"(?<![\d:])(\d{1,2}):(\d\d)(?::(\d\d))?(?![\d:])")
_UNIT = re.compile(r"[\d.,]+[\s-]?(s|m|h|d)(?:ec|in|r|our|ay|inute|econd)?s?\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BULLETS = re.compile(
    r"[^\n.:]{0,80}:[ \t*]{0,9}\n{1,3}"
    r"((?:[ \t]{0,20}(?:[-*+\u2022]|\d{1,2}[.)])[ \t][^\n]{0,300}(?:\n|\Z)){1,50})"
)
_LISTED = re.compile(r"[^\n.:(]{0,60}[:(]([^\n:()]{3,300})")
_BETWEEN_ITEMS = re.compile(r", and |, or |, | and | or |; |、")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of the analysis: its readings, the first as it is written, and where it stands.

    `step` is a unit of its last digit; `plain` numbers have no decimals, unit or currency.
    """

    values: tuple[float, ...]
    percent: bool
    step: float
    plain: bool
    spot: Spot

    @property
    def key(self) -> Key:
        """What tells it from other figures."""
        return self.values, self.percent


def derived(
    subject: Subject,
    figures: Sequence[Figure],
    found: AbstractSet[Key],
    numbers: Collection[tuple[str, ...]],
    *,
    thoughts: Callable[[], Sequence[Figure]],
    occurring: Callable[[Iterable[Key]], AbstractSet[Key]],
) -> set[Key]:
    """Which of the analysis' figures come from what was seen: those `found` there, and more.

    `numbers` are the evidence's; `thoughts` are the figures of what the agent said on its way, and
    of these `occurring` tells those that the evidence has.
    """
    left = [n for n, figure in enumerate(figures) if figure.key not in found][:MOST_FIGURES]
    missing = [figures[n] for n in left]
    known = set(found)
    known |= _within([r for figure in missing for r in _ranges(figure, subject.own_text)], numbers)
    known |= _counted(missing, subject)
    times = _Times(subject)
    known |= {figure.key for figure in missing if times.differ_by(figure)}
    _compute(figures, left, known)
    if any(figure.key not in known for figure in missing):
        known |= _thought_out({figure.key for figure in missing} - known, thoughts(), occurring)
    return known


def _compute(figures: Sequence[Figure], left: Iterable[int], known: set[Key]) -> None:
    """Adds to those known what is computed from them, in the order of the text."""
    for n in left:
        if figures[n].key not in known and _is_computed(figures[n], *_beside(figures, n, known)):
            known.add(figures[n].key)


def _thought_out(
    wanted: AbstractSet[Key],
    thoughts: Sequence[Figure],
    occurring: Callable[[Iterable[Key]], AbstractSet[Key]],
) -> set[Key]:
    """Those wanted that the agent computed before, from what it had seen."""
    places = [n for n, figure in enumerate(thoughts) if figure.key in wanted][:MOST_FIGURES]
    beside = {m for n in places for m in range(max(0, n - _BEFORE), n + _AFTER + 1)}
    known = set(occurring({thoughts[n].key for n in beside if n < len(thoughts)} - wanted))
    _compute(thoughts, places, known)
    return known & wanted


# --- Rounded, or in another unit of time -------------------------------------------------------


def _ranges(figure: Figure, text: str) -> Iterator[Range]:
    """Where a number lies of which this is a rounding, or which is this in another unit."""
    value, half = figure.values[0], figure.step / 2
    if abs(value) >= 10 or half < 0.5:
        yield value - half, value + half, figure.key
    if unit := _unit(figure, text):
        for factor in {_SECONDS[unit] / other for other in (*_SECONDS.values(), 0.001)}:
            yield (value - half) * factor, (value + half) * factor, figure.key


def _unit(figure: Figure, text: str) -> str | None:
    match = _UNIT.match(text, figure.spot[0], figure.spot[1] + 10)
    return match[1] if match else None


def _within(ranges: list[Range], runs: Iterable[tuple[str, ...]]) -> set[Key]:
    """Keys of those ranges that a number lies in. Each number costs one search."""
    edges = sorted({edge for low, high, _ in ranges for edge in (low, high)})
    if not edges:
        return set()
    # Two places an edge: below it, and on it.
    places = [0] * (2 * len(edges) + 2)
    for run in runs:
        for value, _ in values(*run):
            below = bisect_left(edges, value)
            on = below < len(edges) and edges[below] == value
            places[2 * below + on] = 1
    before = [0, *accumulate(places)]
    return {
        key
        for low, high, key in ranges
        if before[2 * bisect_left(edges, high) + 2] > before[2 * bisect_left(edges, low) + 1]
    }


# --- Counted, or the end of an identifier ------------------------------------------------------


def _counted(figures: Iterable[Figure], subject: Subject) -> set[Key]:
    plain = [figure for figure in figures if figure.plain]
    if not plain:
        return set()
    text = subject.own_text
    counts = set(_counts(subject))
    ends = _ends(plain, subject)
    return {
        figure.key
        for figure in plain
        if figure.values[0] in counts
        or figure.values[0] in set(_listed(text, figure.spot[1]))
        or text[slice(*figure.spot)] in ends
    }


def _counts(subject: Subject) -> Iterator[int]:
    """How much there is of what was seen: lines of a result, items of a list."""
    session = subject.session
    yield from _lengths(dict(session.alert_data))
    for call in session.tool_calls:
        lines = sum(1 for line in call.result.splitlines() if line.strip())
        if lines > 1:
            yield lines
            yield lines - 1  # under a heading
        if call.result[:1] in {"[", "{"}:
            with suppress(ValueError, RecursionError):
                yield from _lengths(json.loads(call.result))


def _lengths(value: Any) -> Iterator[int]:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            yield len(inner)
            waiting += inner
        elif isinstance(inner, dict):
            waiting += inner.values()


def _listed(text: str, end: int) -> Iterator[int]:
    """How many things the text lists after this place."""
    if bullets := _BULLETS.match(text, end):
        lines = bullets[1].splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        yield len(lines)
        yield sum(not line[indent : indent + 1].isspace() for line in lines)
    if listed := _LISTED.match(text, end):
        yield len(_BETWEEN_ITEMS.split(listed[1]))


def _ends(figures: Iterable[Figure], subject: Subject) -> set[str]:
    """Digits by which people tell cards and accounts: "ending in 1784"."""
    text = subject.own_text
    wanted = {text[slice(*figure.spot)] for figure in figures}
    wanted = {digits for digits in wanted if len(digits) >= _LEAST_END_DIGITS}
    lengths = {len(digits) for digits in wanted}
    found: set[str] = set()
    if wanted:
        for match in _DIGITS.finditer(subject.evidence):
            run = match[0]
            found |= {run[-length:] for length in lengths if length < len(run)} & wanted
    return found


# --- Computed ----------------------------------------------------------------------------------


def _beside(
    figures: Sequence[Figure], n: int, known: AbstractSet[Key]
) -> tuple[list[Figure], list[Figure]]:
    """Known figures that stand before and after this one, and near."""
    start, end = figures[n].spot

    def near(some: Sequence[Figure]) -> list[Figure]:
        return [
            one
            for one in some
            if one.key in known
            and end - _NEAR_CHARACTERS <= one.spot[0] <= start + _NEAR_CHARACTERS
        ]

    return near(figures[max(0, n - _BEFORE) : n]), near(figures[n + 1 : n + 1 + _AFTER])


def _is_computed(figure: Figure, before: Sequence[Figure], after: Sequence[Figure]) -> bool:
    for start in range(len(before) - 2):  # two: as a pair
        for end in range(start + 3, len(before) + 1):
            added = before[start:end]
            if _is_sum(figure, sum(one.values[0] for one in added), added):
                return True
    if figure.percent and figure.step >= 1:  # of many pairs, one gives nearly any whole per cent
        before, after = before[-_BEFORE_PERCENT:], after[:_AFTER_PERCENT]
    return any(_is_of_two(figure, *two) for two in combinations([*before, *after], 2))


def _is_sum(figure: Figure, value: float, operands: Sequence[Figure]) -> bool:
    """Whether it is this value, rounded where something in it is written to more decimals."""
    finer = any(one.step < figure.step for one in operands)
    known = abs(figure.values[0])
    return abs(known - abs(value)) <= (figure.step / 2 if finer else 0) + _EXACT * known


def _is_of_two(figure: Figure, one: Figure, other: Figure) -> bool:
    a, b = one.values[0], other.values[0]
    results = [a + b, a - b, a * b, (a + b) / 2]
    if one.percent or other.percent:
        results.append(a * b / 100)
    if any(_is_sum(figure, value, (one, other)) for value in results):
        return True
    # 512Mi of 1Gi are 50 %: each scaled by its own unit.
    pairs = {(a, b), (one.values[-1], other.values[-1])}
    return any(_is_ratio(figure, *p) or _is_ratio(figure, *p[::-1]) for p in pairs)


def _is_ratio(figure: Figure, over: float, under: float) -> bool:
    """Whether it is over / under, rounded where it has decimals; in per cent a change, too."""
    if not under:
        return False
    value, step = abs(figure.values[0]), figure.step
    if figure.percent:
        shares = (abs(100 * over / under), abs(100 * (over - under) / under))
        return any(abs(share - value) <= step / 2 for share in shares)
    return abs(abs(over / under) - value) <= (step / 2 if step < 1 else _EXACT)


class _Times:
    """Times of the day that the analysis mentions and the evidence has."""

    def __init__(self, subject: Subject) -> None:
        self._text = subject.own_text
        self._evidence = subject.evidence
        self._known: list[tuple[int, int]] | None = None

    def differ_by(self, figure: Figure) -> bool:
        """Whether two times beside it lie this far apart: "from 12:55 to 13:03, 8 minutes"."""
        if not (unit := _unit(figure, self._text)):
            return False
        near = self._near(figure.spot[0])
        return any(
            abs(abs(one - other) / _SECONDS[unit] - figure.values[0]) <= figure.step
            for one, other in combinations(near, 2)
        )

    def _near(self, at: int) -> list[int]:
        if self._known is None:
            seen = {match.groups()[:2] for match in _TIME.finditer(self._evidence)}
            self._known = [
                (m.start(), 3600 * int(m[1]) + 60 * int(m[2]) + int(m[3] or 0))
                for m in _TIME.finditer(self._text)
                if m.groups()[:2] in seen
            ]
        place = bisect_right(self._known, (at, 0))
        return [time for _, time in self._known[max(0, place - _NEAR_TIMES) : place + _NEAR_TIMES]]
