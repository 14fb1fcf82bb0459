"""How sure a figure is: 95 % percentile bootstrap intervals (Efron and Tibshirani, An Introduction
to the Bootstrap, 1993, chapter 13). The same values in the same order give the same interval.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from random import Random
from statistics import NormalDist
from typing import NamedTuple

REPLICATES = 1000
# So many values are drawn one by one; more are drawn in as many groups, each a random share of
# them. An interval's width is then known to 1/sqrt(2 * GROUPS), 7 %, and its cost does not grow.
GROUPS = 100
LOW_TAIL, HIGH_TAIL = 0.025, 0.975
_SEED = 20_260_301
# Up to here the binomial distribution is summed up exactly; above, the normal one is as good.
_EXACT = 200

Sums = Sequence[float]
Statistics = Callable[[Sums], Sequence[float | None]]
Pick = Callable[[Sequence[int]], tuple[int, ...]]


class Interval(NamedTuple):
    """Where the figure lies in 95 of 100 repetitions."""

    low: float
    high: float


def intervals(rows: Sequence[Sequence[float]], statistics: Statistics) -> list[Interval | None]:
    """An interval for each figure that `statistics` makes of the columns' sums over all rows.

    None with less than two rows, which tell nothing of how much they vary, and for a figure that is
    None in any repetition. Answers nothing where there is no row at all.
    """
    columns = _grouped(rows)
    size = len(columns[0]) if columns else 0
    if size < 2:
        return [None for _ in statistics([column[0] for column in columns])] if size else []
    lanes = _Lanes([*map(_Lane.of, columns)])
    packed = [lanes.pack(values) for values in zip(*columns, strict=True)]
    repeated = [statistics(lanes.sums(sum(pick(packed)), size)) for pick in _draws(size)]
    return [_percentiles(figures) for figures in zip(*repeated, strict=True)]


def _grouped(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """The columns; of many rows the sums of each group. Rows come in no order of their values."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if len(rows) <= GROUPS:
        return columns
    return [[sum(column[group::GROUPS]) for group in range(GROUPS)] for column in columns]


class _Lane(NamedTuple):
    """How a column's values become whole numbers of 40 bits: exact to 10^-12 of their range."""

    low: float
    scale: float

    @classmethod
    def of(cls, column: Sequence[float]) -> _Lane:
        low, high = min(column), max(column)
        scale = 2**40 / (high - low) if high > low else math.inf
        # Values that lie closer together than a scale can tell apart are one value.
        return cls(low, scale if math.isfinite(scale) else 1.0)


class _Lanes(NamedTuple):
    """All columns of a row in one integer, 64 bits each: one addition adds them all. Drawing is
    nearly all that a report does, and this is several times as quick as a sum for each column.
    """

    columns: Sequence[_Lane]

    def pack(self, values: Sequence[float]) -> int:
        lanes = zip(self.columns, values, strict=True)
        return int.from_bytes(
            b"".join(round((v - lane.low) * lane.scale).to_bytes(8, "little") for lane, v in lanes),
            "little",
        )

    def sums(self, total: int, size: int) -> list[float]:
        """The columns' sums out of a sum of `size` packed rows; it has room for millions."""
        width = len(self.columns)
        summed = struct.unpack(f"<{width}Q", total.to_bytes(8 * width, "little"))
        lanes = zip(self.columns, summed, strict=True)
        return [value / lane.scale + size * lane.low for lane, value in lanes]


@lru_cache(maxsize=16)
def _draws(size: int) -> tuple[Pick, ...]:
    """Which of `size` values each repetition draws, with replacement."""
    draw = Random(_SEED)  # noqa: S311 - statistics, no secret
    return tuple(itemgetter(*draw.choices(range(size), k=size)) for _ in range(REPLICATES))


def _percentiles(figures: Iterable[float | None]) -> Interval | None:
    known = sorted(figure for figure in figures if figure is not None)
    if len(known) < REPLICATES:
        return None
    return Interval(
        known[math.ceil(LOW_TAIL * REPLICATES) - 1], known[math.ceil(HIGH_TAIL * REPLICATES) - 1]
    )


def median_interval(values: Sequence[float]) -> Interval | None:
    """The bootstrap interval of the median, without drawing: how an order statistic is distributed
    over all possible resamples is known (Efron, Annals of Statistics 7, 1979, remark C):
    P(k-th smallest <= x) = P(Binomial(n, share of values <= x) >= k).

    Of an even number of values the lower end is that of the lower middle one, the upper end that of
    the upper one. None with less than two values.
    """
    size = len(values)
    if size < 2:
        return None
    counts = Counter(values)
    low = _order_statistic(counts, size, (size + 1) // 2, LOW_TAIL)
    return Interval(low, _order_statistic(counts, size, size // 2 + 1, HIGH_TAIL))


def _order_statistic(counts: Counter[float], size: int, rank: int, tail: float) -> float:
    """The smallest value that the `rank`-th of a resample does not exceed with this probability."""
    below, value = 0, 0.0
    for value in sorted(counts):
        below += counts[value]
        if _at_least(rank, size, below / size) >= tail:
            break
    return value


@cache
def _log_choose(size: int, count: int) -> float:
    return math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)


def _at_least(count: int, size: int, share: float) -> float:
    """P(Binomial(size, share) >= count), for a share above 0."""
    if share >= 1:
        return 1.0
    if size > _EXACT:
        spread = math.sqrt(size * share * (1 - share))
        return NormalDist().cdf((size * share - count + 0.5) / spread)
    yes, no = math.log(share), math.log1p(-share)
    return math.fsum(
        math.exp(_log_choose(size, k) + k * yes + (size - k) * no) for k in range(count, size + 1)
    )
