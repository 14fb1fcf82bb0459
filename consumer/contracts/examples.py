"""A few realistic events of each kind, for those who read the contracts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consumer.error_codes import ErrorCode, FailedState
from consumer.events import (
    Event,
    GateOutcome,
    JudgeUse,
    QualityRisk,
    ScoreCompleted,
    ScoredSession,
    ScoreFailed,
    ScoreOverridden,
    ScoreRequested,
)

_REQUEST_ID = UUID("4f6f0f5e-3c0b-4a39-9a53-0d2b4a1c7e01")
_SCORE_ID = UUID("a3d1c5b2-71f4-5c1e-8e0a-6b9a54d2f310")
_SESSION_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
_CRITERIA_HASH = "8d0c3a5b1f7e42964c8be05d7a31f9265e4b80c7d2136fa94b7e1c0d5a682f93"


def examples() -> Iterable[tuple[str, Event]]:
    """Name and event; the names are unique within an event type."""
    return [
        ("minimal", ScoreRequested(session_id=_SESSION_ID)),
        ("full", _full_request()),
        ("new", _new_score()),
        ("reused", _reused_score()),
        ("rules-only", _rules_only_score()),
        ("below-threshold", _below_threshold()),
        ("judge-unavailable", _judge_unavailable()),
        ("no-matching-profile", _no_matching_profile()),
        ("lowered", _lowered()),
    ]


def as_sent(event: Event) -> Any:
    """A request says only what its sender cares for; our own events say everything."""
    return json.loads(event.model_dump_json(exclude_unset=isinstance(event, ScoreRequested)))


def _at_minute(minute: int, second: int = 0) -> datetime:
    return datetime(2026, 1, 5, 9, minute, second, tzinfo=UTC)


def _full_request() -> ScoreRequested:
    return ScoreRequested(
        session_id=_SESSION_ID,
        request_id=_REQUEST_ID,
        force_rescore=True,
        profile_id="alert-investigation",
        triggered_by="alice@example.com",
        priority=9,
        requested_at=_at_minute(30),
    )


def _new_score() -> ScoreCompleted:
    return ScoreCompleted(
        request_id=_REQUEST_ID,
        score_id=_SCORE_ID,
        session_id=_SESSION_ID,
        total_score=79,
        score_breakdown={
            "logical_flow": 80,
            "consistency": 72,
            "tool_relevance": 88,
            "synthesis_quality": 76,
        },
        confidence=0.6,
        gate=GateOutcome(passed=True),
        disqualified=False,
        disqualifier_triggered=None,
        quality_risk=False,
        quality_risk_threshold=40,
        judge_profile_id="alert-investigation",
        judge_profile_version=1,
        criteria_hash=_CRITERIA_HASH,
        method="llm",
        judge=JudgeUse(
            provider="anthropic",
            model="claude-sonnet-4-5",
            samples=1,
            input_tokens=18_412,
            output_tokens=1_206,
            cost_usd=0.073326,
        ),
        session=_session(label="investigation"),
        missing_tools_count=1,
        alternative_approaches_count=2,
        tool_effectiveness=None,
        reused=False,
        triggered_by="alice@example.com",
        scored_at=_at_minute(30, 14),
        duration_ms=13_480,
    )


def _reused_score() -> ScoreCompleted:
    """The same score answers somebody else's request."""
    changes = {
        "request_id": UUID("c2b7d9d0-5a5e-4f0e-8f43-91f4c8f5b602"),
        "triggered_by": "api-client",
        "reused": True,
    }
    return _new_score().model_copy(update=changes)


def _rules_only_score() -> ScoreCompleted:
    changes = {
        "request_id": UUID("e0a4c1f7-2b9d-4d6e-b1c8-7f3a5e9d0403"),
        "score_id": UUID("5b0e7f92-0c3d-5e48-9f16-d8c2a7b4e611"),
        "session_id": "routine-2026-01-05.17",
        "total_score": 80,
        "score_breakdown": {"response_time": 90.0, "token_efficiency": 60.0, "tool_count": 80.0},
        "confidence": 0.9,
        "judge_profile_id": "efficiency-simple",
        "criteria_hash": "1b6e0f84c2d95a737e4f8a20bd61c3950f7d2e48a96b3c14e58d7f02c9a1b643",
        "method": "heuristic",
        "judge": JudgeUse(
            provider=None, model=None, samples=0, input_tokens=0, output_tokens=0, cost_usd=None
        ),
        "session": _session(label="simple"),
        "missing_tools_count": 0,
        "alternative_approaches_count": 0,
        "triggered_by": "api-client",
        "duration_ms": 212,
    }
    return _new_score().model_copy(update=changes)


def _session(*, label: str) -> ScoredSession:
    return ScoredSession(
        agent="KubernetesAgent",
        model="gemini-2.5-pro",
        provider="google",
        classification_label=label,
        total_tokens=9_450,
        cost_usd=0.0213,
        duration_ms=13_000,
    )


def _below_threshold() -> QualityRisk:
    return QualityRisk(
        request_id=UUID("9d8e3b61-4c7f-4b02-a6d5-2e1f0c9b8704"),
        score_id=UUID("d47a2c90-86e1-5b3f-a05d-3c9e8f1b7212"),
        session_id="8f14e45f-ceea-467f-a0b1-6c1d2e3f4a05",
        agent="KubernetesAgent",
        total_score=31,
        threshold=40,
        reasons=("below_threshold",),
        weakest_criteria=("synthesis_quality", "logical_flow", "consistency"),
        failed_gates=(),
        judge_profile_id="alert-investigation",
        criteria_hash=_CRITERIA_HASH,
        scored_at=_at_minute(42, 7),
    )


def _judge_unavailable() -> ScoreFailed:
    return ScoreFailed(
        request_id=UUID("17c5f0ab-6d3e-4e94-8b2a-f90d1e7c3505"),
        session_id=_SESSION_ID,
        state=FailedState.FAILED,
        error_code=ErrorCode.JUDGE_UNAVAILABLE,
        message="judge anthropic answers 529",
        attempts=12,
        failed_at=_at_minute(51),
        triggered_by="alice@example.com",
    )


def _no_matching_profile() -> ScoreFailed:
    return ScoreFailed(
        request_id=UUID("b8216d4e-9f50-4c7a-91e3-05a7d2c8f606"),
        session_id="routine-2026-01-05.18",
        state=FailedState.SKIPPED,
        error_code=ErrorCode.NO_MATCHING_PROFILE,
        message="no profile covers label 'chat'; there are: alert-investigation, efficiency-simple",
        attempts=1,
        failed_at=_at_minute(52, 3),
        triggered_by="api-client",
    )


def _lowered() -> ScoreOverridden:
    return ScoreOverridden(
        score_id=_SCORE_ID,
        session_id=_SESSION_ID,
        total_score=79,
        override_score=55,
        annotator="bob@example.com",
        reason="The pod was deleted before anybody verified that it was mining.",
        overridden_at=_at_minute(58, 30),
    )
