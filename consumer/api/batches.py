"""Many scores at once: sessions by name, or of History by time and filters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse, Response

from consumer.api.access import Caller, Scope, needs
from consumer.api.ports import Ports, Row, Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX, Limit, ProfileId
from consumer.batches import Chosen, NewBatch, Plan, Selection, State, Time, TooMany, plan
from consumer.errors import HistoryUnavailable, ScoringError
from consumer.events import SessionId

router = APIRouter(prefix=PREFIX, tags=["batches"])

MAX_NAMED = 7000  # what a body has room for


class Ask(BaseModel):
    """Which sessions are to be scored, and how. Give `sessions` or `history`."""

    model_config = ConfigDict(extra="forbid")

    sessions: tuple[SessionId, ...] = Field(default=(), max_length=MAX_NAMED)
    history: Selection | None = None
    profile_id: Annotated[
        ProfileId | None, Field(description="Default: chosen by each session's label.")
    ] = None
    force_rescore: Annotated[bool, Field(strict=True)] = False
    priority: Annotated[int, Field(ge=0, le=9, strict=True, description="9 first.")] = 3
    per_second: Annotated[
        float | None,
        Field(ge=0.01, le=100_000, allow_inf_nan=False, description="Requests; default: no limit."),
    ] = None
    dry_run: Annotated[
        bool, Field(strict=True, description="Only tell how many, and about what they cost.")
    ] = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.sessions) == (self.history is not None):
            raise ValueError("give either sessions or history")
        return self


class Progress(BaseModel):
    """How many sessions a batch has so far, and what became of their requests."""

    sessions: int
    published: int
    pending: int
    in_progress: int
    completed: int
    failed: int
    skipped: int
    cancelled: int


class Batch(BaseModel):
    """A batch. `completed`: everything is asked for; `progress` tells what is answered."""

    batch_id: UUID
    state: State
    history: dict[str, Any] | None
    profile_id: str | None
    force_rescore: bool
    priority: int
    per_second: float | None
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    error_message: str | None
    progress: Progress | None = Field(description="Null in lists.")


class Batches(BaseModel):
    """Batches, the newest first. `next_before` as `before` asks for the next ones."""

    batches: list[Batch]
    next_before: datetime | None


@router.post(
    "/batches",
    dependencies=[needs(Scope.SCORE)],
    response_model=Plan,
    responses={202: {"model": Batch, "description": "Stored; Location tells where to look"}},
)
async def create(ask: Ask, wired: Wired, caller: Caller) -> Plan | Response:
    """Asks for many scores, at a rate. 200 with the plan for a dry run, else 202 with the batch."""
    if ask.profile_id is not None and wired.criteria.by_id(ask.profile_id) is None:
        known = ", ".join(wired.criteria.ids)
        raise Problem(
            422, "unknown_profile", f"there is no profile {ask.profile_id!r}; there are: {known}"
        )
    if ask.dry_run:
        return await _plan(ask, wired)
    batch_id = await wired.batches.create(
        NewBatch(
            sessions=ask.sessions,
            selection=ask.history,
            profile_id=ask.profile_id,
            force_rescore=ask.force_rescore,
            priority=ask.priority,
            per_second=ask.per_second,
            created_by=caller,
        )
    )
    made = (await _shown(batch_id, wired)).model_dump(mode="json")
    return JSONResponse(made, 202, headers={"location": f"{PREFIX}/batches/{batch_id}"})


@router.get("/batches", dependencies=[needs(Scope.READ)])
async def batches(
    wired: Wired,
    before: Annotated[Time | None, Query(description="Only those made before this time.")] = None,
    limit: Limit = 20,
) -> Batches:
    """All batches, the newest first."""
    rows = await wired.batches.batches(before=before, limit=limit)
    return Batches(
        batches=[_batch(row, None) for row in rows],
        next_before=rows[-1]["created_at"] if len(rows) == limit else None,
    )


@router.get("/batches/{batch_id}", dependencies=[needs(Scope.READ)])
async def batch(batch_id: UUID, wired: Wired) -> Batch:
    """One batch, and how far it is."""
    return await _shown(batch_id, wired)


@router.post("/batches/{batch_id}/cancel", dependencies=[needs(Scope.SCORE)])
async def cancel(batch_id: UUID, wired: Wired, caller: Caller) -> Batch:
    """Publishes no more, and cancels the batch's requests that wait; what is being scored goes on.

    409 where the batch ended otherwise already.
    """
    cancelled = await wired.batches.cancel(batch_id, by=caller)
    found = await _shown(batch_id, wired)
    if not cancelled and found.state != "cancelling":
        raise Problem(
            409, "already_finished", f"batch {batch_id} is {found.state}", state=found.state
        )
    return found


async def _plan(ask: Ask, wired: Ports) -> Plan:
    """Raises Problem where History does not answer, or the batch would be too large."""
    try:
        return await plan(wired.selecting, _chosen(ask, wired))
    except TooMany as error:
        raise Problem(422, "too_many_sessions", str(error)) from error
    except HistoryUnavailable as error:
        raise Problem(503, error.code.value, str(error)) from error
    except ScoringError as error:
        raise Problem(502, error.code.value, str(error)) from error


async def _chosen(ask: Ask, wired: Ports) -> AsyncIterator[Sequence[Chosen]]:
    if ask.history is None:
        yield await wired.selecting.named(list(dict.fromkeys(ask.sessions)), ask.profile_id)
        return
    async for page in wired.selecting.pages(ask.history, ask.profile_id, datetime.now(UTC)):
        yield page


async def _shown(batch_id: UUID, wired: Ports) -> Batch:
    row = await wired.batches.batch(batch_id)
    if row is None:
        raise Problem(404, "unknown_batch", f"there is no batch {batch_id}")
    return _batch(row, await wired.batches.progress(batch_id))


def _batch(row: Row, progress: Row | None) -> Batch:
    return Batch.model_validate({**row, "history": row["selection"], "progress": progress})
