"""Rule scorers: pure functions from a session to 0-1, by the formulas of scoring.md.

A scorer that has nothing to measure answers `NotApplicable` with the reason: its criterion is
then left out of the total, never scored "in the middle".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from consumer.scoring.session import Session


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why a criterion could not be computed for this session."""

    reason: str


# Exact where a formula allows it: 1 - 9/10 is 0.09999999999999998 in binary floating point.
RuleResult = float | Fraction | NotApplicable


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScorer:
    """A named rule scorer: its function and the parameters it takes, with their defaults."""

    name: str
    score: Callable[[Session], RuleResult]
    params: Mapping[str, float]


def _falling(value: Fraction, *, best: Fraction, worst: Fraction) -> Fraction:
    """1 up to `best`, 0 from `worst`, linear between."""
    return min(Fraction(1), max(Fraction(0), (worst - value) / (worst - best)))


def response_time(session: Session) -> RuleResult:
    """1 up to 10 000 ms, 0 from 120 000 ms, linear between (of the whole session)."""
    if session.duration_ms is None:
        return NotApplicable("the session has no duration")
    return _falling(Fraction(session.duration_ms), best=Fraction(10_000), worst=Fraction(120_000))


def token_efficiency(session: Session) -> RuleResult:
    """By r = output/input tokens: 1 up to 0.5, 0 from 5, linear between; no input tokens: 1."""
    if session.input_tokens is None or session.output_tokens is None:
        return NotApplicable("the session has no token counts")
    if session.input_tokens == 0:
        return Fraction(1)
    ratio = Fraction(session.output_tokens, session.input_tokens)
    return _falling(ratio, best=Fraction(1, 2), worst=Fraction(5))


def tool_count(session: Session) -> RuleResult:
    """1 - n/10 for n tool calls, not below 0."""
    return max(Fraction(0), 1 - Fraction(len(session.tool_calls), 10))


SCORERS: Mapping[str, RuleScorer] = {
    scorer.__name__: RuleScorer(name=scorer.__name__, score=scorer, params={})
    for scorer in (response_time, token_efficiency, tool_count)
}
