"""Values to rows and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from asyncpg import Record

from consumer.outgoing import Asked, OutboxRow
from consumer.ports import ClaimedRequest
from consumer.scoring.score import JudgeUsage, Score, SessionFacts
from consumer.scoring.verdict import Approach, MissingTool

# A statement ends by a gigabyte, and is in memory several times.
STATEMENT_BYTES = 8 * 1024 * 1024


def trace(row: Record) -> dict[str, str]:
    """The trace context that came with the request."""
    return {name: row[name] for name in ("traceparent", "tracestate") if row[name]}


def claimed_request(row: Record) -> ClaimedRequest:
    """A row of the claim query."""
    names = set(ClaimedRequest.__slots__) - {"trace"}
    return ClaimedRequest(**{name: row[name] for name in names}, trace=trace(row))


def asked(request: ClaimedRequest) -> Asked:
    """What an answer needs to know of a request that we hold."""
    return Asked(
        request_id=request.request_id,
        session_id=request.session_id,
        triggered_by=request.triggered_by,
        attempts=request.attempt,
        trace=request.trace,
    )


def waiting(row: Record) -> Asked:
    """What an answer needs to know of a request that waited for another's."""
    return Asked(
        request_id=row["request_id"],
        session_id=row["session_id"],
        triggered_by=row["triggered_by"],
        attempts=row["attempt"],
        trace=trace(row),
    )


def outbox_row(row: Record) -> OutboxRow:
    """An event on its way."""
    return OutboxRow(**{name: row[name] for name in OutboxRow.__slots__})


def portions(events: Sequence[OutboxRow]) -> Iterator[list[OutboxRow]]:
    """The events in their order, as many at a time as a statement takes without trouble."""
    some: list[OutboxRow] = []
    size = 0
    for event in events:
        if some and size + event.size > STATEMENT_BYTES:
            yield some
            some, size = [], 0
        some.append(event)
        size += event.size
    if some:
        yield some


def outbox_columns(events: Sequence[OutboxRow]) -> tuple[list[Any], ...]:
    """The events as the arrays that insert_outbox takes, in its order."""
    return (
        [event.event_id for event in events],
        [event.topic for event in events],
        [event.key for event in events],
        [event.type for event in events],
        [event.payload for event in events],
        [json.dumps(event.headers) for event in events],
    )


def score_columns(score: Score) -> tuple[Any, ...]:
    """The parameters of insert_score, in its order."""
    facts, judge = score.facts, score.judge
    return (
        score.score_id,
        score.session_id,
        score.request_id,
        score.criteria_hash,
        score.profile_id,
        score.profile_version,
        score.method,
        score.total_score,
        score.breakdown,
        list(score.details),
        score.reasoning,
        score.confidence,
        {"passed": not score.failed_gates, "results": list(score.gates)},
        score.disqualified,
        score.disqualifier_triggered,
        list(score.risk),
        score.risk_threshold,
        list(score.weakest),
        judge.provider,
        judge.model,
        judge.samples,
        judge.input_tokens,
        judge.output_tokens,
        judge.cost_usd,
        list(score.samples),
        score.injection_suspected,
        facts.agent,
        facts.model,
        facts.provider,
        facts.classification_label,
        facts.total_tokens,
        facts.cost_usd,
        facts.duration_ms,
        score.triggered_by,
        score.duration_ms,
        score.ranking,
        score.tool_report,
        score.judge_skipped,
        score.elision,
        list(score.injection_flags),
        [asdict(tool) for tool in score.missing_tools],
        [{"position": n, **asdict(a)} for n, a in enumerate(score.approaches, start=1)],
        [content.sha256 for content in score.sent],
        [content.packed for content in score.sent],
    )


def stored(score: Score, at: datetime) -> Score:
    """The score as it is once stored."""
    return replace(score, scored_at=at)


def score_of(row: Record) -> Score:
    """A row of the view score_cards."""
    return Score(
        score_id=row["score_id"],
        request_id=row["request_id"],
        session_id=row["session_id"],
        criteria_hash=row["criteria_hash"],
        profile_id=row["judge_profile_id"],
        profile_version=row["judge_profile_version"],
        method=row["method"],
        total_score=row["total_score"],
        breakdown=row["score_breakdown"],
        details=tuple(row["score_details"]),
        reasoning=row["score_reasoning"],
        confidence=row["confidence"],
        ranking=row["ranking"],
        gates=tuple(row["gate"]["results"]),
        failed_gates=tuple(g["id"] for g in row["gate"]["results"] if not g["passed"]),
        tool_report=row["tool_report"],
        disqualified=row["disqualified"],
        disqualifier_triggered=row["disqualifier_triggered"],
        risk=tuple(row["quality_risk"]),
        risk_threshold=row["quality_risk_threshold"],
        weakest=tuple(row["weakest_criteria"]),
        judge=JudgeUsage(
            provider=row["judge_provider"],
            model=row["judge_model"],
            samples=row["judge_samples"],
            input_tokens=row["judge_input_tokens"],
            output_tokens=row["judge_output_tokens"],
            cost_usd=row["judge_cost_usd"],
        ),
        judge_skipped=row["judge_skipped"],
        samples=tuple(row["samples"]),
        elision=row["elision"],
        injection_suspected=row["injection_suspected"],
        injection_flags=tuple(row["injection_flags"]),
        facts=SessionFacts(
            agent=row["agent"],
            model=row["agent_model"],
            provider=row["agent_provider"],
            classification_label=row["classification_label"],
            total_tokens=row["session_total_tokens"],
            cost_usd=row["session_cost_usd"],
            duration_ms=row["session_duration_ms"],
        ),
        missing_tools=tuple(MissingTool(**tool) for tool in row["missing_tools"]),
        approaches=tuple(
            Approach(name=a["name"], description=a["description"], steps=tuple(a["steps"]))
            for a in row["alternative_approaches"]
        ),
        triggered_by=row["scored_triggered_by"],
        duration_ms=row["duration_ms"],
        scored_at=row["scored_at"],
    )
