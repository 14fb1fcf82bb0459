"""A score: the immutable result of one scoring of one session, as it is stored and published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

from consumer.scoring.aggregate import RiskReason, Total
from consumer.scoring.judgement import Judgement, Sample, total_cost_usd
from consumer.scoring.profile import Method, Profile
from consumer.scoring.scorers.base import Subject
from consumer.scoring.sent import Content
from consumer.scoring.session import Session
from consumer.scoring.text import storable, storable_json
from consumer.scoring.verdict import Approach, MissingTool


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
    """One row of session_scores with its children; `scored_at` is None until it is stored.

    `sent` is what judges were sent, on its way to the store.
    """

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
    judge_skipped: str | None
    samples: tuple[dict[str, Any], ...]
    elision: dict[str, Any] | None
    injection_suspected: bool
    injection_flags: tuple[dict[str, Any], ...]
    facts: SessionFacts
    missing_tools: tuple[MissingTool, ...]
    approaches: tuple[Approach, ...]
    triggered_by: str
    duration_ms: int
    scored_at: datetime | None = None
    sent: tuple[Content, ...] = ()


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
    judge_skipped: str | None = None,
) -> Score:
    """The score that this scoring came to. `judge_skipped`: why a judge was not asked who should
    have been.
    """
    verdict = judgement.verdict if judgement else None
    elision = judgement.elision if judgement else None
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
        details=_details(total, judgement),
        reasoning=verdict.reasoning if verdict else None,
        confidence=total.confidence,
        ranking=total.ranking,
        gates=tuple(_plain(gate) for gate in total.gates),
        failed_gates=total.failed_gates,
        disqualified=total.disqualifier is not None,
        disqualifier_triggered=storable(total.disqualifier) if total.disqualifier else None,
        tool_report=_plain(subject.report),
        risk=total.risk,
        risk_threshold=profile.quality_risk_threshold,
        weakest=total.weakest,
        judge=_usage(judgement),
        judge_skipped=judge_skipped,
        samples=_samples(judgement),
        elision=elision.as_json() if elision else None,
        injection_suspected=judgement.injection_suspected if judgement else False,
        injection_flags=tuple(map(_plain, judgement.flags if judgement else ())),
        facts=_facts(subject.session, subject.cost_usd),
        missing_tools=judgement.missing_tools if judgement else (),
        approaches=judgement.approaches if judgement else (),
        triggered_by=triggered_by,
        duration_ms=duration_ms,
        sent=judgement.contents if judgement else (),
    )


def _plain(value: Any) -> Any:
    """Objects of ours as JSON values that can be stored."""
    return storable_json(to_jsonable_python(value))  # several times as quick as dataclasses.asdict


def _details(total: Total, judgement: Judgement | None) -> tuple[dict[str, Any], ...]:
    """The breakdown with its weights, the reasons for what was left out, and the evidence."""
    judged = judgement.verdict.criteria if judgement else {}
    spread = judgement.spread if judgement else {}
    details = []
    for line in total.breakdown:
        entry: dict[str, Any] = {"id": line.id, "weight": line.weight, "score": line.score}
        if line.not_applicable:
            entry["not_applicable"] = storable(line.not_applicable)
        if line.places:
            entry["places"] = _plain(line.places)
        if line.id in spread:
            entry["points_sd"] = round(spread[line.id], 4)
        if said := judged.get(line.id):
            entry["reasoning"] = said.reasoning
            entry["evidence"] = _plain(said.evidence)
        details.append(entry)
    return tuple(details)


def _usage(judgement: Judgement | None) -> JudgeUsage:
    """Of a panel the first judge is named; `samples` tells of each."""
    if judgement is None:
        return JudgeUsage()
    samples = judgement.samples
    return JudgeUsage(
        provider=samples[0].provider,
        model=samples[0].model,
        samples=len(samples),
        input_tokens=sum(sample.input_tokens for sample in samples),
        output_tokens=sum(sample.output_tokens for sample in samples),
        cost_usd=total_cost_usd(samples),
    )


def _samples(judgement: Judgement | None) -> tuple[dict[str, Any], ...]:
    if judgement is None:
        return ()
    pairs = zip(judgement.samples, judgement.totals, strict=True)
    return tuple(_sample(sample, total) for sample, total in pairs)


def _sample(sample: Sample, total: int) -> dict[str, Any]:
    """What is kept of one sample, and what it takes to ask the same again."""
    verdict = sample.verdict
    return {
        "provider": sample.provider,
        "model": sample.model,
        "fingerprint": sample.fingerprint,
        "asked_model": sample.asked_model,
        "dialect": sample.dialect,
        "max_tokens": sample.max_tokens,
        "temperature": sample.temperature,
        "total": total,
        "points": verdict.points or verdict.score_breakdown,
        "calls": sample.calls,
        "verified_quotes": verdict.verified_share,
        "nonce": sample.nonce,
        "request_sha256": sample.request.sha256,
        "sent_sha256": [content.sha256 for content in sample.request.contents],
    }


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
