"""Judge against human: how near stored totals are to what reviewers gave instead."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from consumer.analytics.bootstrap import Interval, Sums, intervals
from consumer.scoring.aggregate import BANDS, band

NAMES = tuple(name for _, name in reversed(BANDS))
LOW_N = 20


class Agreement(BaseModel):
    """Figures over the newest override of each score; null where there is nothing to tell."""

    model_config = ConfigDict(frozen=True)

    n: int
    low_n: bool = Field(description=f"fewer than {LOW_N}: do not conclude anything from it")
    mean_absolute_error: float | None = Field(description="points; 0 is perfect")
    mean_absolute_error_95: Interval | None
    bias: float | None = Field(description="override less total: above 0, humans are kinder")
    bias_95: Interval | None
    kappa: float | None = Field(
        description="quadratic-weighted, on bands; 1 is perfect, 0 is chance"
    )
    kappa_95: Interval | None
    bands: tuple[str, ...] = NAMES
    table: list[list[int]] = Field(description="rows: band of the total; columns: of the override")


def agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """How well these (total, override) pairs agree."""
    rows = [_row(total, override) for total, override in pairs]
    width = 2 + len(NAMES) ** 2
    sums = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * width
    error, bias, kappa = _figures(sums)
    found = intervals(rows, _figures) or [None, None, None]
    return Agreement(
        n=len(pairs),
        low_n=len(pairs) < LOW_N,
        mean_absolute_error=error,
        mean_absolute_error_95=found[0],
        bias=bias,
        bias_95=found[1],
        kappa=kappa,
        kappa_95=found[2],
        table=[[int(cell) for cell in line] for line in _table(sums)],
    )


def _row(total: int, override: int) -> list[float]:
    """Absolute difference, difference, and a 1 in the pair's cell of the table of bands."""
    cells = [0.0] * len(NAMES) ** 2
    cells[NAMES.index(band(total)) * len(NAMES) + NAMES.index(band(override))] = 1.0
    return [abs(override - total), override - total, *cells]


def _table(sums: Sums) -> list[Sums]:
    width = len(NAMES)
    return [sums[2 + width * line : 2 + width * (line + 1)] for line in range(width)]


def _figures(sums: Sums) -> tuple[float | None, float | None, float | None]:
    size = sum(sums[2:])
    if not size:
        return None, None, None
    return sums[0] / size, sums[1] / size, weighted_kappa(_table(sums))


def weighted_kappa(table: Sequence[Sequence[float]]) -> float | None:
    """Cohen's kappa with quadratic weights (Cohen, Psychological Bulletin 70, 1968):
    1 - sum(w * observed) / sum(w * expected), w = ((i - j) / (k - 1))^2, expected from margins.

    `table` holds counts: first rater's class by second rater's. None where both used one class
    only, the same: then nothing was expected to differ.
    """
    first = [sum(line) for line in table]
    second = [sum(column) for column in zip(*table, strict=True)]
    size, last = sum(first), len(table) - 1
    observed = expected = 0.0
    for i, line in enumerate(table):
        for j, count in enumerate(line):
            weight = ((i - j) / last) ** 2
            observed += weight * count
            expected += weight * first[i] * second[j] / size
    return 1 - observed / expected if expected else None
