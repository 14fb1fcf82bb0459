"""Asking for a score over HTTP: through Kafka, as everyone does, and acknowledged by it."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID, uuid4

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from consumer.api import requests
from consumer.api.access import Caller, Scope, needs
from consumer.api.ports import Ports, Row, Wired
from consumer.api.problems import Problem
from consumer.api.scores import Score, score_of
from consumer.api.values import PREFIX, ProfileId, Wait
from consumer.cloudevents import trace_context
from consumer.error_codes import ErrorCode
from consumer.events import ScoreRequested, SessionId, asked_anew, retry_id


async def _trace_of(request: Request) -> dict[str, str]:
    return trace_context(request.headers)


# The caller's W3C trace context goes on to the request, and from there to its events.
Trace = Annotated[dict[str, str], Depends(_trace_of)]

router = APIRouter(prefix=PREFIX, tags=["requests"])

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 1.0
_UNFINISHED = frozenset({"pending", "in_progress"})


class Ask(BaseModel):
    """How the session shall be scored."""

    model_config = ConfigDict(extra="forbid")

    force_rescore: Annotated[
        bool, Field(strict=True, description="Score again even where a current score exists.")
    ] = False
    profile_id: Annotated[
        ProfileId | None, Field(description="Default: chosen by the session's label.")
    ] = None
    priority: Annotated[int, Field(ge=0, le=9, strict=True, description="9 first.")] = 5


class Asked(BaseModel):
    """A request under way. `requested`: Kafka has it, and intake has not stored it yet."""

    request_id: UUID
    session_id: str
    state: Literal["requested"] | requests.State


# What a wait comes to where there is no score: the status that says whose turn it is.
_STATUS = {
    ErrorCode.SESSION_NOT_FOUND: 404,
    ErrorCode.SESSION_NOT_COMPLETED: 409,
    ErrorCode.CANCELLED: 409,
    ErrorCode.SCORING_DISABLED: 409,
    ErrorCode.NO_MATCHING_PROFILE: 422,
    ErrorCode.CONTEXT_OVERFLOW: 422,
    ErrorCode.JUDGE_REFUSED: 502,
    ErrorCode.JUDGE_INVALID_OUTPUT: 502,
    ErrorCode.HISTORY_INVALID: 502,
    ErrorCode.HISTORY_UNAVAILABLE: 503,
    ErrorCode.JUDGE_UNAVAILABLE: 503,
    ErrorCode.BUDGET_EXHAUSTED: 503,
    ErrorCode.INTERNAL_ERROR: 500,
}


@router.post(
    "/sessions/{session_id}/score",
    dependencies=[needs(Scope.SCORE)],
    response_model=Score,
    responses={202: {"model": Asked, "description": "Asked for; Location tells where to look"}},
)
async def ask_for_score(
    session_id: SessionId,
    wired: Wired,
    caller: Caller,
    trace: Trace,
    ask: Annotated[Ask, Body()] = Ask(),  # noqa: B008  frozen by nobody, changed by nobody
    wait: Wait = 0,
) -> Score | Response:
    """200 with the score where a current one was made under today's criteria; else asks for one.

    With `wait` the answer may come within this call: 200 with the score, or the problem why there
    is none; 202 with the state where it takes longer.
    """
    _require_profile(ask.profile_id, wired)
    if not ask.force_rescore and (row := await _answering(session_id, ask.profile_id, wired)):
        return score_of(row, wired.criteria)
    requested = ScoreRequested(
        session_id=session_id,
        request_id=uuid4(),
        triggered_by=caller,
        requested_at=datetime.now(UTC),
        **ask.model_dump(),
    )
    return await _asked(requested, wired, wait, trace)


@router.post(
    "/requests/{request_id}/retry",
    status_code=202,
    dependencies=[needs(Scope.SCORE)],
    response_model=Asked,
    responses={200: {"model": Score, "description": "The score, where it came within `wait`"}},
)
async def retry(
    request_id: UUID, wired: Wired, caller: Caller, trace: Trace, wait: Wait = 0
) -> Score | Response:
    """Asks anew for what a request that ended without a score had asked for; asked for twice
    meanwhile, it is one request.

    409 where it is not finished or has its score.
    """
    row = await requests.known_request(request_id, wired)
    if row["state"] in _UNFINISHED or row["state"] == "completed":
        raise Problem(
            409,
            "not_to_be_retried",
            f"request {request_id} is {row['state']}; only what ended without a score is asked "
            "for again (for another score of a session ask with force_rescore)",
            state=row["state"],
        )
    while (later := await wired.answers.request(retry_id(row["request_id"]))) and (
        later["state"] not in _UNFINISHED and later["state"] != "completed"
    ):
        row = later  # it was asked anew before, and failed once more
    return await _asked(asked_anew(row, triggered_by=caller), wired, wait, trace)


@router.post("/requests/{request_id}/cancel", dependencies=[needs(Scope.SCORE)])
async def cancel(request_id: UUID, wired: Wired, caller: Caller) -> requests.Request:
    """Ends a request that is not finished; `score.failed` tells of it. 409 where it is finished.

    Whoever works on it writes nothing more. Requests that waited for its answer go on without it.
    """
    cancelled = await wired.answers.cancel(request_id, by=caller)
    row = await requests.known_request(request_id, wired)
    if not cancelled:
        raise Problem(
            409,
            "already_finished",
            f"request {request_id} is {row['state']} already",
            state=row["state"],
        )
    return requests.Request.model_validate(row)


def _require_profile(profile_id: str | None, wired: Ports) -> None:
    if profile_id is not None and wired.criteria.by_id(profile_id) is None:
        known = ", ".join(wired.criteria.ids)
        raise Problem(
            422, "unknown_profile", f"there is no profile {profile_id!r}; there are: {known}"
        )


async def _answering(session_id: str, profile_id: str | None, wired: Ports) -> Row | None:
    """The current score that the pipeline would answer such a request from.

    Which profile a label selects is decided by the label that the session had when it was scored.
    """
    row = await wired.answers.current_score(session_id, profile_id)
    if row and profile_id is None:
        chosen = wired.criteria.for_label(row["classification_label"])
        if chosen is None:
            return None
        if chosen.id != row["judge_profile_id"]:
            row = await wired.answers.current_score(session_id, chosen.id)
    if row is None or row["judge_skipped"] is not None:
        return None
    return row if row["criteria_hash"] == wired.criteria.hash_of(row["judge_profile_id"]) else None


async def _asked(
    requested: ScoreRequested, wired: Ports, wait_s: float, trace: dict[str, str]
) -> Score | Response:
    """Publishes, and answers with what is known after `wait_s`."""
    await wired.asking.publish([requested], trace=trace)
    request_id = requested.request_id or uuid4()
    row = await _finished(request_id, wired, wait_s) if wait_s else None
    if row is None or row["state"] in _UNFINISHED:
        asked = Asked(
            request_id=request_id,
            session_id=requested.session_id,
            state=row["state"] if row else "requested",
        )
        where = f"{PREFIX}/requests/{request_id}"
        return JSONResponse(asked.model_dump(mode="json"), 202, headers={"location": where})
    return await _score_of(row, wired)


async def _score_of(row: Row, wired: Ports) -> Response:
    """The score of a finished request. Raises Problem where it has none."""
    score = row["score_id"] and await wired.answers.score(row["score_id"])
    if score:
        return JSONResponse(score_of(score, wired.criteria).model_dump(mode="json"))
    code = ErrorCode(row["error_code"])
    raise Problem(
        _STATUS[code],
        code.value,
        row["error_message"] or code.value,
        request_id=str(row["request_id"]),
        state=row["state"],
    )


async def _finished(request_id: UUID, wired: Ports, wait_s: float) -> Row | None:
    """The request's row once it is finished, or as it is after `wait_s`, or when we stop."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    pause_s = FIRST_PAUSE_S
    while True:
        row = await wired.answers.request(request_id)
        left_s = deadline - loop.time()
        finished = row is not None and row["state"] not in _UNFINISHED
        if finished or left_s <= 0 or wired.stopping.is_set():
            return row
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(pause_s, left_s)):
                await wired.stopping.wait()
        pause_s = min(pause_s * 1.5, LAST_PAUSE_S)
