"""What goes into the outbox: the events that answer requests, and records nobody could accept."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from consumer.error_codes import FailedState, failed_state
from consumer.events import (
    DLQ_TYPE,
    GateOutcome,
    GateResult,
    JudgeUse,
    QualityRisk,
    ScoreCompleted,
    ScoredSession,
    ScoreFailed,
    ScoreOverridden,
    event_id,
    headers,
)
from consumer.pipeline import Failed
from consumer.scoring.score import Score

# What is kept of a dead letter that is too large for its topic: enough to see what it was, and far
# less than any topic takes.
KEPT_VALUE_BYTES = 65_536
KEPT_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an answer needs to know of its request."""

    request_id: UUID
    session_id: str
    triggered_by: str
    attempts: int
    trace: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """One Kafka record to be sent."""

    event_id: UUID
    topic: str
    key: bytes | None
    type: str
    payload: bytes | None
    headers: list[list[Any]]

    @property
    def size(self) -> int:
        """Bytes of key, payload and headers."""
        sent = (part or b"" for header in self.headers for part in sent_header(header))
        return len(self.key or b"") + len(self.payload or b"") + sum(map(len, sent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where events go: the topic of each type, and our name in `ce_source`."""

    source: str
    topics: Mapping[str, str]


def completed(addresses: Addresses, asked: Asked, score: Score, *, reused: bool) -> OutboxRow:
    """score.completed for this request."""
    event = ScoreCompleted(
        request_id=asked.request_id,
        score_id=score.score_id,
        session_id=score.session_id,
        total_score=score.total_score,
        score_breakdown=score.breakdown,
        confidence=score.confidence,
        gate=GateOutcome(
            passed=not score.failed_gates,
            results=tuple(GateResult.model_validate(gate) for gate in score.gates),
        ),
        disqualified=score.disqualified,
        disqualifier_triggered=score.disqualifier_triggered,
        quality_risk=bool(score.risk),
        quality_risk_threshold=score.risk_threshold,
        judge_profile_id=score.profile_id,
        judge_profile_version=score.profile_version,
        criteria_hash=score.criteria_hash,
        method=score.method,
        judge=_judge(score),
        session=_session(score),
        missing_tools_count=len(score.missing_tools),
        alternative_approaches_count=len(score.approaches),
        tool_effectiveness=_effectiveness(score),
        reused=reused,
        triggered_by=asked.triggered_by,
        scored_at=stored_time(score),
        duration_ms=score.duration_ms,
    )
    return _answer(addresses, event, asked, stored_time(score))


def quality_risk(addresses: Addresses, asked: Asked, score: Score) -> OutboxRow | None:
    """quality_risk for a new score, where it is one."""
    if not score.risk:
        return None
    event = QualityRisk(
        request_id=asked.request_id,
        score_id=score.score_id,
        session_id=score.session_id,
        agent=score.facts.agent,
        total_score=score.total_score,
        threshold=score.risk_threshold,
        reasons=score.risk,
        weakest_criteria=score.weakest,
        failed_gates=score.failed_gates,
        judge_profile_id=score.profile_id,
        criteria_hash=score.criteria_hash,
        scored_at=stored_time(score),
    )
    return _answer(addresses, event, asked, stored_time(score))


def failed(addresses: Addresses, asked: Asked, outcome: Failed, at: datetime) -> OutboxRow:
    """score.failed for this request."""
    event = ScoreFailed(
        request_id=asked.request_id,
        session_id=asked.session_id,
        state=FailedState(failed_state(outcome.code)),
        error_code=outcome.code,
        message=outcome.message,
        attempts=asked.attempts,
        failed_at=at,
        triggered_by=asked.triggered_by,
    )
    return _answer(addresses, event, asked, at)


def overridden(addresses: Addresses, event: ScoreOverridden, override_id: UUID) -> OutboxRow:
    """score.overridden for this override."""
    return _row(addresses, event, about=override_id, time=event.overridden_at, trace={})


def stored_time(score: Score) -> datetime:
    """When the score was stored. Raises ValueError for one that was not."""
    if score.scored_at is None:
        raise ValueError("a score is published only after it was stored")
    return score.scored_at


def shorter(row: OutboxRow) -> tuple[OutboxRow, ...]:
    """What to send of a dead letter that Kafka refuses as too large: the beginning of its value, or
    else only what we say about it. No event but a dead letter can be shortened.
    """
    if row.type != DLQ_TYPE:
        return ()
    value = row.payload or b""
    ours = [header for header in row.headers if str(header[0]).startswith("dlq_")]
    about = [
        ["dlq_original_size", str(len(value))],
        ["dlq_original_sha256", hashlib.sha256(value).hexdigest()],
    ]
    key = row.key if len(row.key or b"") <= KEPT_KEY_BYTES else None
    return tuple(
        replace(row, key=key, payload=value[:kept], headers=[*ours, *about])
        for kept in (KEPT_VALUE_BYTES, 0)
    )


def stored_header(name: str, value: bytes | None) -> list[Any]:
    """A header as the outbox's JSON holds it: text where it is text, else base64, or null.

    A name that is no UTF-8 comes with lone surrogates for its bytes (PEP 383).
    """
    in_bytes = name.encode(errors="surrogateescape")
    return [_stored(in_bytes), None if value is None else _stored(value)]


def sent_header(stored: list[Any]) -> tuple[str, bytes | None]:
    """The header as aiokafka can send it: a byte in a name that is no UTF-8 becomes its number,
    such as `xff` behind a backslash.
    """
    name, value = stored
    if not isinstance(name, str):
        name = _sent(name).decode(errors="backslashreplace")
    return name, None if value is None else _sent(value)


def _stored(data: bytes) -> str | dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    # PostgreSQL's jsonb can't hold U+0000.
    if "\0" in text:
        return {"base64": base64.b64encode(data).decode("ascii")}
    return text


def _sent(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def _answer(
    addresses: Addresses,
    event: ScoreCompleted | QualityRisk | ScoreFailed,
    asked: Asked,
    time: datetime,
) -> OutboxRow:
    return _row(addresses, event, about=asked.request_id, time=time, trace=dict(asked.trace))


def _row(
    addresses: Addresses,
    event: ScoreCompleted | QualityRisk | ScoreFailed | ScoreOverridden,
    *,
    about: UUID,
    time: datetime,
    trace: dict[str, str],
) -> OutboxRow:
    ce_id = event_id(about, event.type)
    all_headers = headers(event, ce_id=ce_id, time=time, source=addresses.source, trace=trace)
    return OutboxRow(
        event_id=ce_id,
        topic=addresses.topics[event.type],
        key=event.session_id.encode(),
        type=event.type,
        payload=event.model_dump_json().encode(),
        headers=[[name, value] for name, value in all_headers.items()],
    )


def _effectiveness(score: Score) -> float | None:
    """0-100; null where no tool was called."""
    report = score.tool_report
    return float(report["effectiveness"]) if report and report["calls"] else None


def _judge(score: Score) -> JudgeUse:
    use = score.judge
    return JudgeUse(
        provider=use.provider,
        model=use.model,
        samples=use.samples,
        input_tokens=use.input_tokens,
        output_tokens=use.output_tokens,
        cost_usd=use.cost_usd,
    )


def _session(score: Score) -> ScoredSession:
    facts = score.facts
    return ScoredSession(
        agent=facts.agent,
        model=facts.model,
        provider=facts.provider,
        classification_label=facts.classification_label,
        total_tokens=facts.total_tokens,
        cost_usd=facts.cost_usd,
        duration_ms=facts.duration_ms,
    )
