"""Why a request ended without a score, as the wire says it. Apart from the events, because every
error carries one, and a command that only prints its help shall not load all the models.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Why a request ended without a score."""

    SESSION_NOT_FOUND = "session_not_found"
    SESSION_NOT_COMPLETED = "session_not_completed"
    HISTORY_UNAVAILABLE = "history_unavailable"
    HISTORY_INVALID = "history_invalid"
    NO_MATCHING_PROFILE = "no_matching_profile"
    JUDGE_UNAVAILABLE = "judge_unavailable"
    JUDGE_INVALID_OUTPUT = "judge_invalid_output"
    JUDGE_REFUSED = "judge_refused"
    CONTEXT_OVERFLOW = "context_overflow"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SCORING_DISABLED = "scoring_disabled"
    INTERNAL_ERROR = "internal_error"
    CANCELLED = "cancelled"


class State(StrEnum):
    """How a request stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class FailedState(StrEnum):
    """How a request without a score ended."""

    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


_STATES = {
    ErrorCode.NO_MATCHING_PROFILE: FailedState.SKIPPED,
    ErrorCode.SCORING_DISABLED: FailedState.SKIPPED,
    ErrorCode.CANCELLED: FailedState.CANCELLED,
}


def failed_state(code: ErrorCode) -> FailedState:
    """The request state that an error code ends in."""
    return _STATES.get(code, FailedState.FAILED)
