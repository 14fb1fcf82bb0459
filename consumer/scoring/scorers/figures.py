"""Scorers of figures: time, tokens, tool calls, cost. Formulas: docs/scoring.md."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from consumer.scoring.scorers.base import (
    MAX_PLACES,
    Measured,
    NoParams,
    NotApplicable,
    Params,
    Place,
    Result,
    Subject,
)

MS_PER_S = 1000
# Bands are given in points of 100.
BAND_POINTS = (100, 85, 70, 50)
EXTRA_CALLS_COST = 10


def _share(part: int, whole: int) -> Fraction:
    """The part of the whole, but not below 0 nor above 1."""
    return Fraction(min(max(0, part), whole), whole)


def response_time(subject: Subject, _: NoParams) -> Result:
    """1 up to 10 000 ms, 0 from 120 000 ms, linear between (of the whole session)."""
    duration_ms = subject.session.duration_ms
    if duration_ms is None:
        return NotApplicable("the session has no duration")
    return Measured(_share(120_000 - duration_ms, 120_000 - 10_000))


def token_efficiency(subject: Subject, _: NoParams) -> Result:
    """By r = output/input tokens: 1 up to 0.5, 0 from 5, linear between; no input tokens: 1."""
    read, written = subject.session.input_tokens, subject.session.output_tokens
    if read is None or written is None:
        return NotApplicable("the session has no token counts")
    if read == 0:
        return Measured(Fraction(1))
    # (5 - r) / (5 - 1/2), in whole numbers.
    return Measured(_share(10 * read - 2 * written, 9 * read))


def tool_count(subject: Subject, _: NoParams) -> Result:
    """1 - n/10 for n tool calls, not below 0."""
    return Measured(_share(10 - len(subject.numbered_calls), 10))


def tool_effectiveness(subject: Subject, _: NoParams) -> Result:
    """The tool report's effectiveness / 100."""
    if not subject.numbered_calls:
        return NotApplicable("the session has no tool calls")
    return Measured(Fraction(subject.report.effectiveness, 100))


def tool_error_rate(subject: Subject, _: NoParams) -> Result:
    """1 - failed/total tool calls."""
    calls = subject.numbered_calls
    if not calls:
        return NotApplicable("the session has no tool calls")
    failed = [(number, call) for number, call in calls if call.failure]
    places = tuple(
        Place(step=number, excerpt=f"{call.name}: {(call.error or '')[:120]}")
        for number, call in failed[:MAX_PLACES]
    )
    return Measured(Fraction(len(calls) - len(failed), len(calls)), places)


class _Bands(Params):
    @model_validator(mode="after")
    def _rising(self) -> Self:
        bounds = [getattr(self, name) for name in type(self).model_fields if "_up_to" in name]
        if not all(one < other for one, other in pairwise(bounds)):
            raise ValueError(f"the bands must rise: {bounds}")
        return self


class LatencyBands(_Bands):
    """Upper bounds in seconds of the bands of 100, 85 and 70 points."""

    best_up_to_s: float = Field(default=5, gt=0)
    good_up_to_s: float = Field(default=10, gt=0)
    fair_up_to_s: float = Field(default=20, gt=0)


class CostBands(_Bands):
    """Upper bounds in USD of the bands of 100, 85 and 70 points."""

    best_up_to_usd: float = Field(default=0.05, gt=0)
    good_up_to_usd: float = Field(default=0.10, gt=0)
    fair_up_to_usd: float = Field(default=0.20, gt=0)
    max_llm_calls: int | None = Field(default=None, ge=1)


class ReferenceEfficiency(Params):
    """Points of quality (of 100) per USD that earn the full score."""

    reference_points_per_usd: float = Field(default=1000, gt=0)


def _band(value: float, bounds: tuple[float, ...]) -> int:
    for bound, points in zip(bounds, BAND_POINTS, strict=False):
        if value <= bound:
            return points
    return BAND_POINTS[-1]


def latency_band(subject: Subject, params: LatencyBands) -> Result:
    """100/85/70/50 points at <= 5/10/20/more seconds of the whole session."""
    duration_ms = subject.session.duration_ms
    if duration_ms is None:
        return NotApplicable("the session has no duration")
    bounds = (params.best_up_to_s, params.good_up_to_s, params.fair_up_to_s)
    return Measured(Fraction(_band(duration_ms / MS_PER_S, bounds), 100))


def cost_band(subject: Subject, params: CostBands) -> Result:
    """100/85/70/50 points at <= 0.05/0.10/0.20/more USD; 10 less for too many model calls."""
    if subject.cost_usd is None:
        return NotApplicable("the session's cost is unknown")
    bounds = (params.best_up_to_usd, params.good_up_to_usd, params.fair_up_to_usd)
    points = _band(subject.cost_usd, bounds)
    if params.max_llm_calls is not None and len(subject.session.llm_calls) > params.max_llm_calls:
        points -= EXTRA_CALLS_COST
    return Measured(Fraction(points, 100))


def cost_efficiency(subject: Subject, params: ReferenceEfficiency) -> Result:
    """Quality so far (points of 100) per USD, over the reference; at most 1. Free is 1."""
    if subject.cost_usd is None:
        return NotApplicable("the session's cost is unknown")
    if subject.quality_so_far is None:
        return NotApplicable("no criterion before this one tells the quality")
    if subject.cost_usd == 0:
        return Measured(1.0)
    per_usd = 100 * subject.quality_so_far / subject.cost_usd
    return Measured(min(1.0, per_usd / params.reference_points_per_usd))
