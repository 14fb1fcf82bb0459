"""The wire contracts: what other teams read and write on Kafka.

`schemas/` is generated from these models (`score-consumer schemas --write`); a change here that
breaks a reader fails `make test` until the major version is raised. Readers ignore unknown fields.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from consumer.error_codes import ErrorCode, FailedState

# Dots alone are none: within an address, "." and ".." lead elsewhere.
SESSION_ID_PATTERN = r"^\.*[A-Za-z0-9_:-][A-Za-z0-9._:-]*$"
MAX_SESSION_ID = 128
# In what we send, as it was released: requests that were accepted before are answered, too.
SENT_SESSION_ID_PATTERN = r"^[A-Za-z0-9._:-]{1,128}$"
# PostgreSQL stores no U+0000, and a record that can't be stored would stop intake for good.
StorableText = Annotated[str, Field(pattern=r"^[^\x00]*$")]
SessionId = Annotated[
    str,
    Field(
        pattern=SESSION_ID_PATTERN,
        max_length=MAX_SESSION_ID,
        description="The session in the History Service.",
    ),
]
SentSessionId = Annotated[
    str,
    Field(pattern=SENT_SESSION_ID_PATTERN, description="The session in the History Service."),
]

# The namespace of every derived id: a request and an event type always give the same ce_id,
# so that a reader can recognise a duplicate after a crash.
ID_NAMESPACE = uuid.UUID("5c0d2a1e-7f0b-5a57-9c55-0d1f6b1f2e11")


class Event(BaseModel):
    """Base of all events; `type` is the CloudEvents type and the default topic."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    type: ClassVar[str]
    version: ClassVar[int] = 1


class ScoreRequested(Event):
    """Someone wishes that a session be scored."""

    type: ClassVar[str] = "score.requested"

    session_id: SessionId
    request_id: UUID | None = Field(
        default=None,
        description="Default: derived from ce_source and ce_id, else from the record's place.",
    )
    force_rescore: bool = Field(
        default=False, description="Score again even where a current score exists."
    )
    profile_id: Annotated[StorableText, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Default: chosen by the session's label."
    )
    triggered_by: StorableText = Field(default="api-client", max_length=255)
    priority: int = Field(default=5, ge=0, le=9, description="9 first.")
    requested_at: AwareDatetime | None = Field(
        default=None, description="Default: the record's timestamp."
    )


class GateResult(BaseModel):
    """One gate's outcome."""

    model_config = ConfigDict(frozen=True)

    id: str
    passed: bool
    score: float | None = None
    threshold: float | None = None
    message: str = ""


class GateOutcome(BaseModel):
    """All gates' outcome; `passed` is true when there are none."""

    model_config = ConfigDict(frozen=True)

    passed: bool
    results: tuple[GateResult, ...] = ()


class JudgeUse(BaseModel):
    """What the judge cost; `provider` and `model` are null where no judge was asked."""

    model_config = ConfigDict(frozen=True)

    provider: str | None
    model: str | None
    samples: int = Field(ge=0)
    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cost_usd: float | None = Field(description="Null where the model's price is unknown, never 0.")


class ScoredSession(BaseModel):
    """The session that was scored, as the History Service told it."""

    model_config = ConfigDict(frozen=True)

    agent: str
    model: str | None
    provider: str | None
    classification_label: str
    total_tokens: int | None
    cost_usd: float | None
    duration_ms: int | None


class ScoreCompleted(Event):
    """A request was answered with a score."""

    type: ClassVar[str] = "score.completed"

    request_id: UUID
    score_id: UUID
    session_id: SentSessionId
    total_score: int = Field(ge=0, le=100)
    score_breakdown: dict[str, float] = Field(description="Criterion id to score.")
    confidence: float = Field(ge=0, le=1)
    gate: GateOutcome
    disqualified: bool
    disqualifier_triggered: str | None
    quality_risk: bool
    quality_risk_threshold: float
    judge_profile_id: str
    judge_profile_version: int
    criteria_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    method: Literal["heuristic", "llm", "hybrid", "two_tier"]
    judge: JudgeUse
    session: ScoredSession
    missing_tools_count: int = Field(ge=0)
    alternative_approaches_count: int = Field(ge=0)
    tool_effectiveness: float | None = Field(description="0-100, null where there was no report.")
    reused: bool = Field(
        description="An existing score under the same criteria answered; no judge call was made."
    )
    triggered_by: str
    scored_at: AwareDatetime
    duration_ms: int = Field(ge=0, description="From claiming the request to its score.")


class QualityRisk(Event):
    """A new score below its profile's threshold, disqualified, or behind a failed gate."""

    type: ClassVar[str] = "quality_risk"

    request_id: UUID
    score_id: UUID
    session_id: SentSessionId
    agent: str
    total_score: int = Field(ge=0, le=100)
    threshold: float
    reasons: tuple[Literal["below_threshold", "disqualified", "gate_failed"], ...] = Field(
        min_length=1
    )
    weakest_criteria: tuple[str, ...] = Field(max_length=3)
    failed_gates: tuple[str, ...]
    judge_profile_id: str
    criteria_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    scored_at: AwareDatetime


class ScoreFailed(Event):
    """A request was answered without a score. It never carries one."""

    type: ClassVar[str] = "score.failed"

    request_id: UUID
    session_id: SentSessionId
    state: FailedState
    error_code: ErrorCode
    message: str
    attempts: int = Field(ge=0)
    failed_at: AwareDatetime
    triggered_by: str


class ScoreOverridden(Event):
    """A human put their own score next to the judge's."""

    type: ClassVar[str] = "score.overridden"

    score_id: UUID
    session_id: SentSessionId
    total_score: int = Field(ge=0, le=100, description="The judge's.")
    override_score: int = Field(ge=0, le=100)
    annotator: str
    reason: str
    overridden_at: AwareDatetime


OUTGOING: tuple[type[Event], ...] = (ScoreCompleted, QualityRisk, ScoreFailed, ScoreOverridden)
ALL: tuple[type[Event], ...] = (ScoreRequested, *OUTGOING)
_ASKED_ANEW = ("session_id", "profile_id", "force_rescore", "priority")
DLQ_TYPE = "score.requested.dlq"


def event_id(subject: UUID, event_type: str) -> UUID:
    """The deterministic ce_id of the event of this type about this request (or override)."""
    return uuid.uuid5(ID_NAMESPACE, f"{event_type}:{subject}")


def asked_anew(request: Mapping[str, Any], *, triggered_by: str) -> ScoreRequested:
    """Asks again for what this stored request asked for. The new id comes of the former one: asked
    for twice, it is one request.
    """
    return ScoreRequested(
        request_id=retry_id(request["request_id"]),
        triggered_by=triggered_by,
        requested_at=datetime.now(UTC),
        **{name: request[name] for name in _ASKED_ANEW},
    )


def retry_id(request_id: UUID) -> UUID:
    """The id of the request that asks again for what this one asked for."""
    return uuid.uuid5(ID_NAMESPACE, f"retry:{request_id}")


def headers(
    event: Event, *, ce_id: UUID, time: datetime, source: str, trace: dict[str, str]
) -> dict[str, str]:
    """CloudEvents 1.0 Kafka headers, binary mode, with the request's trace context."""
    return {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": str(ce_id),
        "ce_source": source,
        "ce_type": event.type,
        "ce_time": time.isoformat(),
        "ce_subject": str(getattr(event, "session_id", "")),
        "ce_dataschema": f"{event.type}.v{event.version}.schema.json",
        **trace,
    }


def json_schema(event: type[Event]) -> dict[str, Any]:
    """JSON Schema 2020-12 of an event's data, as `schemas/` holds it."""
    mode: Literal["validation", "serialization"] = (
        "validation" if event is ScoreRequested else "serialization"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{event.type}.v{event.version}.schema.json",
        **event.model_json_schema(mode=mode),
    }
