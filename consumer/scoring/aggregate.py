"""From findings and a verdict to criterion scores, total, confidence and risk.

Formulas: docs/scoring.md. Rounding is half up, never to even, so that a score can be
computed again by hand. The rules are scored first: what they refuse is never paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from consumer.scoring.gates import GateResult, check_gates
from consumer.scoring.patterns import find
from consumer.scoring.profile import Criterion, Profile, Scale
from consumer.scoring.rounding import Exact, ratio, rounded, weighted
from consumer.scoring.scorers import Measurements
from consumer.scoring.scorers.base import Measured, NotApplicable, Place, Result, Subject, excerpt
from consumer.scoring.session import ToolCall

RULE_CONFIDENCE = 0.9
WEAKEST_SHOWN = 3
RANKING_DIGITS = 4

RiskReason = Literal["below_threshold", "disqualified", "gate_failed"]

BANDS: tuple[tuple[int, str], ...] = (
    (90, "near-perfect"),
    (75, "good"),
    (60, "adequate"),
    (45, "weak"),
    (0, "failed"),
)


def band(total: int) -> str:
    """The total's band, as the judge's prompt names it."""
    return next(name for lowest, name in BANDS if total >= lowest)


class NothingToScore(ValueError):
    """No criterion of the profile applies to this session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What code alone found, before any judge: rule results by criterion, gates, a disqualifier."""

    results: Mapping[str, tuple[Result, ...]]
    gates: tuple[GateResult, ...] = ()
    disqualifier: str | None = None

    @property
    def refused(self) -> str | None:
        """Why the judge need not be asked, where a gate failed or a pattern disqualifies."""
        if failed := [gate.id for gate in self.gates if not gate.passed]:
            return f"gate failed: {', '.join(failed)}"
        return f"disqualified: {self.disqualifier}" if self.disqualifier else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """What the judge said, as far as totals go. `total` is set for profiles without criteria."""

    points: Mapping[str, Exact]
    total: Exact | None = None
    breakdown: Mapping[str, int] | None = None
    disqualifier: str | None = None
    confidence: float = 0.6


class CriterionScore(NamedTuple):
    """One line of the breakdown: a score on the profile's scale, or why there is none.

    A tuple, as there are many, and a frozen dataclass takes several times as long to make.
    `x` is the unrounded share (0-1) behind the score; `places` show what cost points.
    """

    id: str
    weight: float
    score: int | None
    x: float | Fraction | None = None
    confidence: float = RULE_CONFIDENCE
    not_applicable: str | None = None
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What a session's scoring came to. `ranking` (0-1) is for two-tier profiles."""

    total: int
    ranking: float | None
    breakdown: tuple[CriterionScore, ...]
    confidence: float
    gates: tuple[GateResult, ...]
    disqualifier: str | None
    risk: tuple[RiskReason, ...]

    @property
    def scores(self) -> dict[str, float]:
        """Criterion id to score, of those that applied."""
        return {c.id: c.score for c in self.breakdown if c.score is not None}

    @property
    def weakest(self) -> tuple[str, ...]:
        """Up to three criteria, the lowest score first; profile order on a tie."""
        applied = [(c.score, c.id) for c in self.breakdown if c.score is not None]
        applied.sort(key=lambda pair: pair[0])
        return tuple(name for _, name in applied[:WEAKEST_SHOWN])

    @property
    def failed_gates(self) -> tuple[str, ...]:
        return tuple(gate.id for gate in self.gates if not gate.passed)


def look(profile: Profile, subject: Subject) -> Findings:
    """All that code can tell: gates, disqualifying patterns, and every rule criterion."""
    measurements = Measurements(subject)
    return Findings(
        results=_results(profile, measurements),
        gates=check_gates(profile.gates, measurements),
        disqualifier=_disqualifier(profile, subject),
    )


def _results(profile: Profile, measurements: Measurements) -> dict[str, tuple[Result, ...]]:
    """Rule results by criterion, in order: what comes later may ask for the quality so far."""
    results: dict[str, tuple[Result, ...]] = {}
    points = weights = 0.0
    for criterion in profile.criteria:
        quality = points / weights if weights else None
        found = tuple(
            measurements.result(use.scorer, use.typed_params, quality_so_far=quality)
            for use in criterion.uses
            if not use.by_judge
        )
        results[criterion.id] = found
        if measured := [float(r.score) for r in found if isinstance(r, Measured)]:
            points += criterion.weight * sum(measured) / len(measured)
            weights += criterion.weight
    return results


def _disqualifier(profile: Profile, subject: Subject) -> str | None:
    """The first disqualifying pattern that the agent's own words match, with the place."""
    if not profile.disqualifying_patterns:
        return None
    said = [
        s.text
        for s in subject.session.steps
        if not isinstance(s, ToolCall) and s.role == "assistant"
    ]
    for pattern in profile.disqualifying_patterns:
        # One by one: no match may reach from one message into the next.
        for text in (*said, subject.session.final_analysis):
            if spot := find(pattern, text):
                return f"pattern:{pattern} ({excerpt(text, *spot)})"
    return None


def aggregate(
    profile: Profile,
    findings: Findings,
    judge: JudgeView | None,
    *,
    unasked: str = "rules only",
) -> Total:
    """The total. A disqualified session, or one behind a failed gate, gets the scale's minimum.

    `unasked` is why there is no judge's word, where the rules are not the reason. Raises
    NothingToScore where no criterion applies, with the reasons.
    """
    if judge is not None and judge.total is not None:
        lines = tuple(
            CriterionScore(id=i, weight=1, score=s, confidence=judge.confidence)
            for i, s in sorted((judge.breakdown or {}).items())
        )
        x = Fraction(judge.total, 100)
    else:
        why = findings.refused or unasked
        lines = tuple(_line(profile, c, findings, judge, why) for c in profile.criteria)
        x = None
    disqualifier = findings.disqualifier or (judge.disqualifier if judge else None)
    refused = findings.refused is not None or disqualifier is not None
    total = profile.scale.min if refused else _total(profile, lines, x)
    return Total(
        total=total,
        ranking=_ranking(profile, lines, refused=refused),
        breakdown=lines,
        confidence=_confidence(lines, judge if x is not None else None),
        gates=findings.gates,
        disqualifier=disqualifier,
        risk=_risk(profile, total, findings, disqualifier),
    )


def _line(
    profile: Profile,
    criterion: Criterion,
    findings: Findings,
    judge: JudgeView | None,
    unasked: str,
) -> CriterionScore:
    """The mean of those of the criterion's scorers that apply."""
    shares: list[tuple[float | Fraction, float]] = []
    reasons: list[str] = []
    places: tuple[Place, ...] = ()
    for result in findings.results.get(criterion.id, ()):
        if isinstance(result, NotApplicable):
            reasons.append(result.reason)
        else:
            shares.append((result.score, RULE_CONFIDENCE))
            places += result.places
    if criterion.by_judge:
        if judge is not None:
            points = Fraction(judge.points[criterion.id], criterion.max_points)
            shares.append((points, judge.confidence))
        else:
            reasons.append(f"the judge was not asked ({unasked})")
    if not shares:
        return CriterionScore(
            id=criterion.id,
            weight=criterion.weight,
            score=None,
            not_applicable="; ".join(reasons),
        )
    x = shares[0][0] if len(shares) == 1 else Fraction(*weighted((x, 1) for x, _ in shares))
    return CriterionScore(
        id=criterion.id,
        weight=criterion.weight,
        score=on_scale(x, profile.scale),
        x=x,
        confidence=sum([confidence for _, confidence in shares]) / len(shares),
        places=places,
    )


def on_scale(x: float | Fraction, scale: Scale) -> int:
    """round_half_up(min + x * (max - min)) for x in 0-1."""
    # Exact arithmetic: 0.285 * 100 is 28.499999999999996 in binary floating point.
    n, d = ratio(x)
    return rounded(scale.min * d + n * (scale.max - scale.min), d)


def _total(profile: Profile, lines: tuple[CriterionScore, ...], x: Exact | None) -> int:
    return on_scale(x, profile.scale) if x is not None else weighted_mean(lines)


def weighted_mean(scores: tuple[CriterionScore, ...]) -> int:
    """round_half_up(sum(score * weight) / sum(weight)) over the criteria that apply.

    Raises NothingToScore with the reasons where none does.
    """
    applied = [(c.score, c.weight) for c in scores if c.score is not None]
    if not applied:
        reasons = "; ".join(f"{c.id}: {c.not_applicable}" for c in scores)
        raise NothingToScore(f"no criterion applies to this session ({reasons})")
    return rounded(*weighted(applied))


def _ranking(profile: Profile, lines: tuple[CriterionScore, ...], *, refused: bool) -> float | None:
    """The weighted mean of the unrounded shares, 0-1, of two-tier profiles; 0 where refused."""
    if profile.method != "two_tier":
        return None
    applied = [(c.x, c.weight) for c in lines if c.x is not None]
    if refused or not applied:
        return 0.0
    n, d = weighted(applied)
    return round(n / d, RANKING_DIGITS)


def _confidence(lines: tuple[CriterionScore, ...], free_form: JudgeView | None) -> float:
    """The criteria's confidences, weighted as their scores are."""
    if free_form is not None:
        return free_form.confidence
    applied = [(c.confidence, c.weight) for c in lines if c.score is not None]
    if not applied:
        return RULE_CONFIDENCE
    n, d = weighted(applied)
    return round(n / d, 4)


def _risk(
    profile: Profile, total: int, findings: Findings, disqualifier: str | None
) -> tuple[RiskReason, ...]:
    """Strictly below the threshold, disqualified, or behind a failed gate."""
    reasons: list[RiskReason] = []
    if total < profile.quality_risk_threshold:
        reasons.append("below_threshold")
    if disqualifier is not None:
        reasons.append("disqualified")
    if any(not gate.passed for gate in findings.gates):
        reasons.append("gate_failed")
    return tuple(reasons)
