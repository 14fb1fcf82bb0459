"""Agents' models compared: what they score, cost and take (docs/analytics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from consumer.analytics.bootstrap import Interval, Sums, intervals, median_interval

LOW_N = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one model, column by column; None where a run's fact is unknown."""

    provider: str | None
    model: str | None
    scores: Sequence[int]
    costs_usd: Sequence[float | None]
    tokens: Sequence[float | None]
    durations_ms: Sequence[float | None]


class ModelFigures(BaseModel):
    """One model. Averages are over the runs whose figure is known; null where none is."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    provider: str | None
    model: str | None
    n: int = Field(description="runs that the figures are about")
    low_n: bool = Field(description=f"fewer than {LOW_N}: do not conclude anything from it")
    disqualified: int = Field(description="counted apart, in no average")
    gate_failed: int = Field(description="counted apart, in no average")
    average_score: float
    average_score_95: Interval | None
    median_score: float
    median_score_95: Interval | None
    cost_n: int = Field(description="runs whose cost is known")
    average_cost_usd: float | None
    average_cost_usd_95: Interval | None
    average_tokens: float | None
    average_tokens_95: Interval | None
    average_duration_ms: float | None
    average_duration_ms_95: Interval | None
    score_per_dollar: float | None = Field(
        description="average score / average cost; null where the cost is unknown or 0"
    )
    score_per_dollar_95: Interval | None


def compare(runs: Runs, *, disqualified: int = 0, gate_failed: int = 0) -> ModelFigures:
    """The figures of one model; there is at least one run."""
    rows = [
        [1.0, score, *_known(cost), *_known(tokens), *_known(duration)]
        for score, cost, tokens, duration in zip(
            runs.scores, runs.costs_usd, runs.tokens, runs.durations_ms, strict=True
        )
    ]
    figures = _figures([sum(column) for column in zip(*rows, strict=True)])
    found = intervals(rows, _figures)
    return ModelFigures(
        provider=runs.provider,
        model=runs.model,
        n=len(rows),
        low_n=len(rows) < LOW_N,
        disqualified=disqualified,
        gate_failed=gate_failed,
        average_score=sum(runs.scores) / len(rows),
        average_score_95=found[0],
        median_score=median(runs.scores),
        median_score_95=median_interval(runs.scores),
        cost_n=sum(cost is not None for cost in runs.costs_usd),
        average_cost_usd=figures[1],
        average_cost_usd_95=found[1],
        average_tokens=figures[2],
        average_tokens_95=found[2],
        average_duration_ms=figures[3],
        average_duration_ms_95=found[3],
        score_per_dollar=figures[4],
        score_per_dollar_95=found[4],
    )


def _known(value: float | None) -> tuple[float, float]:
    """How many values this is, and their sum."""
    return (0.0, 0.0) if value is None else (1.0, value)


def _figures(sums: Sums) -> tuple[float | None, ...]:
    """Average score, cost, tokens and duration, and score per dollar."""
    score, cost, tokens, duration = (
        sums[i + 1] / sums[i] if sums[i] else None for i in (0, 2, 4, 6)
    )
    return score, cost, tokens, duration, score / cost if score is not None and cost else None
