"""From criterion scores to the total, the confidence and the risk.

Formulas: scoring.md, "Aggregation". Rounding is half up, never to even, so that a score can be
computed again by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from consumer.scoring.profile import Profile, Scale
from consumer.scoring.rounding import exact, round_half_up
from consumer.scoring.rules import SCORERS, NotApplicable
from consumer.scoring.session import Session

RULE_CONFIDENCE = 0.9
ONE_SAMPLE_CONFIDENCE = 0.6
WEAKEST_SHOWN = 3

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
class CriterionScore:
    """One line of the breakdown: a score on the profile's scale, or why there is none."""

    id: str
    weight: float
    score: int | None
    not_applicable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What a session's scoring came to."""

    total: int
    breakdown: tuple[CriterionScore, ...]
    confidence: float
    risk: tuple[RiskReason, ...]

    @property
    def scores(self) -> dict[str, float]:
        """Criterion id to score, of those that applied."""
        return {c.id: c.score for c in self.breakdown if c.score is not None}

    @property
    def weakest(self) -> tuple[str, ...]:
        """Up to three criteria, the lowest score first; profile order on a tie."""
        applied = [c for c in self.breakdown if c.score is not None]
        applied.sort(key=lambda c: c.score if c.score is not None else 0)
        return tuple(c.id for c in applied[:WEAKEST_SHOWN])


def on_scale(x: float | Fraction, scale: Scale) -> int:
    """round_half_up(min + x * (max - min)) for x in 0-1."""
    # Exact arithmetic: 0.285 * 100 is 28.499999999999996 in binary floating point.
    return round_half_up(scale.min + exact(x) * (scale.max - scale.min))


def rule_scores(profile: Profile, session: Session) -> tuple[CriterionScore, ...]:
    """Every rule criterion of the profile, scored."""
    return tuple(
        CriterionScore(id=c.id, weight=c.weight, score=None, not_applicable=result.reason)
        if isinstance(result := SCORERS[c.scorer].score(session), NotApplicable)
        else CriterionScore(id=c.id, weight=c.weight, score=on_scale(result, profile.scale))
        for c in profile.rule_criteria
    )


def judge_scores(profile: Profile, points: Mapping[str, int]) -> tuple[CriterionScore, ...]:
    """Every judge criterion of the profile: points / max_points on the scale."""
    return tuple(
        CriterionScore(
            id=c.id,
            weight=c.weight,
            score=on_scale(Fraction(points[c.id], c.max_points), profile.scale),
        )
        for c in profile.judge_criteria
    )


def weighted_mean(scores: tuple[CriterionScore, ...]) -> int:
    """round_half_up(sum(score * weight) / sum(weight)) over the criteria that apply.

    Raises NothingToScore with the reasons where none does.
    """
    applied = [(Fraction(c.score), exact(c.weight)) for c in scores if c.score is not None]
    if not applied:
        reasons = "; ".join(f"{c.id}: {c.not_applicable}" for c in scores)
        raise NothingToScore(f"no criterion applies to this session ({reasons})")
    return round_half_up(sum(s * w for s, w in applied) / sum(w for _, w in applied))


def aggregate(
    profile: Profile, scores: tuple[CriterionScore, ...], *, disqualified: bool = False
) -> Total:
    """The total of these criterion scores; a disqualified session gets the scale's minimum."""
    total = profile.scale.min if disqualified else weighted_mean(scores)
    return Total(
        total=total,
        breakdown=scores,
        confidence=ONE_SAMPLE_CONFIDENCE if profile.needs_judge else RULE_CONFIDENCE,
        risk=_risk(profile, total, disqualified=disqualified),
    )


def free_form(
    profile: Profile, total: int, breakdown: Mapping[str, int], *, disqualified: bool = False
) -> Total:
    """The total of a profile without criteria: the judge's own, on 0-100."""
    scores = tuple(CriterionScore(id=i, weight=1, score=s) for i, s in sorted(breakdown.items()))
    total = profile.scale.min if disqualified else on_scale(Fraction(total, 100), profile.scale)
    return Total(
        total=total,
        breakdown=scores,
        confidence=ONE_SAMPLE_CONFIDENCE,
        risk=_risk(profile, total, disqualified=disqualified),
    )


def _risk(profile: Profile, total: int, *, disqualified: bool) -> tuple[RiskReason, ...]:
    """Strictly below the threshold is a risk, and so is every disqualified session."""
    reasons: list[RiskReason] = []
    if total < profile.quality_risk_threshold:
        reasons.append("below_threshold")
    if disqualified:
        reasons.append("disqualified")
    return tuple(reasons)
