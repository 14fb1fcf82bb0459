"""Score requests: what became of one."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from consumer.api.access import Scope, needs
from consumer.api.ports import Row, Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX

router = APIRouter(prefix=PREFIX, tags=["requests"])

State = Literal["pending", "in_progress", "completed", "failed", "skipped", "cancelled"]


class Request(BaseModel):
    """A request as it stands. `error_code` of an unfinished one is its last trouble."""

    request_id: UUID
    session_id: str
    profile_id: str | None
    force_rescore: bool
    triggered_by: str
    priority: int
    state: State
    attempt: int
    next_attempt_at: datetime
    coalesced_into: UUID | None
    score_id: UUID | None
    error_code: str | None
    error_message: str | None
    requested_at: datetime
    received_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@router.get("/requests/{request_id}", dependencies=[needs(Scope.READ)])
async def request(request_id: UUID, wired: Wired) -> Request:
    """One request. 404 right after it was asked for: it is on its way through Kafka then."""
    return Request.model_validate(await known_request(request_id, wired))


async def known_request(request_id: UUID, wired: Wired) -> Row:
    """The request's row. Raises Problem 404."""
    row = await wired.answers.request(request_id)
    if row is None:
        raise Problem(
            404,
            "unknown_request",
            f"no request {request_id} is stored: it never was, was deleted long after its end "
            "(prune), or was published a moment ago and is still on its way",
        )
    return row
