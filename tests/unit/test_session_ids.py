"""What may be asked for as a session: nothing that leads elsewhere within an address."""

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic import ValidationError

from consumer.edges.history.tarsy_python_shape import SessionPage, parse
from consumer.error_codes import ErrorCode, FailedState
from consumer.events import ScoreFailed, ScoreRequested

GOOD = ["a", "-", ".a", "..a", "a.", "a..b", "2026:11:23_s-1", "a" * 128, "." * 127 + "a"]
BAD = ["", ".", "..", "...", "." * 128, "a/b", "a b", "a\n", "\u00e9", "a" * 129, "." * 128 + "a"]


def listed(session_id: str) -> bool:
    """Whether a session of History's list can be asked for."""
    page = {"sessions": [{"session_id": session_id}], "pagination": {"total_pages": 1}}
    (one,) = parse(SessionPage, json.dumps(page).encode()).sessions
    return one.can_be_asked_for


@pytest.mark.parametrize("session_id", GOOD)
def test_an_id_that_can_be_asked_for(session_id: str) -> None:
    assert ScoreRequested(session_id=session_id).session_id == session_id
    assert listed(session_id)


@pytest.mark.parametrize("session_id", BAD)
def test_an_id_that_cannot(session_id: str) -> None:
    with pytest.raises(ValidationError):
        ScoreRequested(session_id=session_id)
    assert not listed(session_id)


def test_a_request_that_was_accepted_before_is_answered_all_the_same() -> None:
    event = ScoreFailed(
        request_id=uuid4(),
        session_id="..",
        state=FailedState.FAILED,
        error_code=ErrorCode.HISTORY_INVALID,
        message="no session",
        attempts=1,
        failed_at=datetime.now(UTC),
        triggered_by="tests",
    )
    assert event.session_id == ".."
