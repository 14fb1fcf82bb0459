"""A score: the immutable result of one scoring of one session, as it is stored and published."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consumer.scoring.aggregate import RiskReason, Total
from consumer.scoring.profile import Method, Profile
from consumer.scoring.scorers.base import Subject
from consumer.scoring.session import Session
from consumer.scoring.text import storable, storable_json
from consumer.scoring.verdict import Approach, MissingTool, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and what it took: tokens and USD over all calls made for it, retries included."""

    verdict: Verdict
    provider: str
    model: str
    samples: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    nonce: str
    prompt_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeUsage:
    """What the judge cost; no provider where none was asked, no cost where the price is unknown."""

    provider: str | None = None
    model: str | None = None
    samples: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What a score keeps of its session, for analytics."""

    agent: str
    model: str | None
    provider: str | None
    classification_label: str
    total_tokens: int | None
    cost_usd: float | None
    duration_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One row of session_scores with its children; `scored_at` is None until it is stored."""

    score_id: UUID
    request_id: UUID
    session_id: str
    criteria_hash: str
    profile_id: str
    profile_version: int
    method: Method
    total_score: int
    breakdown: dict[str, float]
    details: tuple[dict[str, Any], ...]
    reasoning: str | None
    confidence: float
    ranking: float | None
    gates: tuple[dict[str, Any], ...]
    failed_gates: tuple[str, ...]
    disqualified: bool
    disqualifier_triggered: str | None
    tool_report: dict[str, Any]
    risk: tuple[RiskReason, ...]
    risk_threshold: float
    weakest: tuple[str, ...]
    judge: JudgeUsage
    samples: tuple[dict[str, Any], ...]
    injection_suspected: bool
    facts: SessionFacts
    missing_tools: tuple[MissingTool, ...]
    approaches: tuple[Approach, ...]
    triggered_by: str
    duration_ms: int
    scored_at: datetime | None = None


def new_score(
    *,
    score_id: UUID,
    request_id: UUID,
    triggered_by: str,
    subject: Subject,
    profile: Profile,
    criteria_hash: str,
    total: Total,
    judgement: Judgement | None,
    duration_ms: int,
) -> Score:
    """The score that this scoring came to."""
    verdict = judgement.verdict if judgement else None
    return Score(
        score_id=score_id,
        request_id=request_id,
        session_id=subject.session.id,
        criteria_hash=criteria_hash,
        profile_id=profile.id,
        profile_version=profile.version,
        method=profile.method,
        total_score=total.total,
        breakdown=total.scores,
        details=_details(total, verdict),
        reasoning=verdict.reasoning if verdict else None,
        confidence=total.confidence,
        ranking=total.ranking,
        gates=tuple(storable_json(asdict(gate)) for gate in total.gates),
        failed_gates=total.failed_gates,
        disqualified=total.disqualifier is not None,
        disqualifier_triggered=storable(total.disqualifier) if total.disqualifier else None,
        tool_report=storable_json(asdict(subject.report)),
        risk=total.risk,
        risk_threshold=profile.quality_risk_threshold,
        weakest=total.weakest,
        judge=_usage(judgement),
        samples=_samples(judgement),
        injection_suspected=verdict.injection_suspected if verdict else False,
        facts=_facts(subject.session, subject.cost_usd),
        missing_tools=verdict.missing_tools if verdict else (),
        approaches=verdict.approaches if verdict else (),
        triggered_by=triggered_by,
        duration_ms=duration_ms,
    )


def _details(total: Total, verdict: Verdict | None) -> tuple[dict[str, Any], ...]:
    """The breakdown with its weights, the reasons for what was left out, and the evidence."""
    judged = verdict.criteria if verdict else {}
    details = []
    for line in total.breakdown:
        entry: dict[str, Any] = {"id": line.id, "weight": line.weight, "score": line.score}
        if line.not_applicable:
            entry["not_applicable"] = storable(line.not_applicable)
        if line.places:
            entry["places"] = storable_json([asdict(place) for place in line.places])
        if said := judged.get(line.id):
            entry["reasoning"] = said.reasoning
            entry["evidence"] = [
                {"step": e.step, "quote": e.quote, "verified": e.verified} for e in said.evidence
            ]
        details.append(entry)
    return tuple(details)


def _usage(judgement: Judgement | None) -> JudgeUsage:
    if judgement is None:
        return JudgeUsage()
    return JudgeUsage(
        provider=judgement.provider,
        model=judgement.model,
        samples=judgement.samples,
        input_tokens=judgement.input_tokens,
        output_tokens=judgement.output_tokens,
        cost_usd=judgement.cost_usd,
    )


def _samples(judgement: Judgement | None) -> tuple[dict[str, Any], ...]:
    if judgement is None:
        return ()
    return (
        {
            "points": judgement.verdict.points or judgement.verdict.score_breakdown,
            "calls": judgement.calls,
            "verified_quotes": judgement.verdict.verified_share,
            "nonce": judgement.nonce,
            "prompt_sha256": judgement.prompt_sha256,
        },
    )


def _facts(session: Session, cost_usd: float | None) -> SessionFacts:
    model, provider = session.model
    return SessionFacts(
        agent=session.agent,
        model=model,
        provider=provider,
        classification_label=session.label,
        total_tokens=session.total_tokens,
        cost_usd=cost_usd,
        duration_ms=session.duration_ms,
    )
