"""A session's scores: the current one, and all there ever were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from consumer.api.access import Scope, needs
from consumer.api.ports import Criteria, Row, Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX, Limit, ProfileId
from consumer.batches import Time
from consumer.events import SessionId

router = APIRouter(prefix=PREFIX, tags=["scores"])


class MissingTool(BaseModel):
    """A tool that the judge missed."""

    tool_name: str
    rationale: str
    availability: Literal["exists_unused", "exists_used", "does_not_exist", "unknown"]


class Approach(BaseModel):
    """Another way to do the agent's work; its steps are in order."""

    name: str
    description: str
    steps: list[str]


class Sample(BaseModel):
    """One judge's accepted answer: the total that it alone comes to, what was really sent, and
    which model says that it answered. A `temperature` of null: none was sent, since the model
    takes none; or, as of `fingerprint`, `dialect` and `max_tokens`: a former version scored it.
    """

    provider: str
    asked_model: str
    model: str
    fingerprint: str | None = None
    dialect: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    total: int
    points: dict[str, int]
    calls: int
    verified_quotes: float | None
    request_sha256: str


class Override(BaseModel):
    """A human's score. The judge's stays what it is."""

    override_id: UUID
    override_score: int
    annotator: str
    reason: str
    created_at: datetime


class Score(BaseModel):
    """A score in full. `total_score` is the judge's or the rules'; `override` is a human's."""

    score_id: UUID
    session_id: str
    request_id: UUID
    criteria_hash: str
    is_current: bool
    is_current_criteria: bool
    judge_profile_id: str
    judge_profile_version: int
    method: Literal["heuristic", "llm", "hybrid", "two_tier"]
    total_score: int
    ranking: float | None
    score_breakdown: dict[str, float]
    score_details: list[dict[str, Any]]
    score_reasoning: str | None
    confidence: float
    gate: dict[str, Any]
    disqualified: bool
    disqualifier_triggered: str | None
    quality_risk: list[str]
    quality_risk_threshold: float
    weakest_criteria: list[str]
    missing_tools: list[MissingTool]
    alternative_approaches: list[Approach]
    tool_report: dict[str, Any] | None
    override: Override | None
    judge_provider: str | None
    judge_model: str | None
    judge_samples: int
    judge_input_tokens: int
    judge_output_tokens: int
    judge_cost_usd: float | None
    judge_skipped: str | None
    samples: list[Sample]
    injection_suspected: bool
    injection_flags: list[dict[str, Any]]
    agent: str
    agent_model: str | None
    agent_provider: str | None
    classification_label: str
    session_total_tokens: int | None
    session_cost_usd: float | None
    session_duration_ms: int | None
    scored_triggered_by: str
    scored_at: datetime
    duration_ms: int


class Scores(BaseModel):
    """A session's scores, the newest first. `next_before` as `before` asks for the next ones."""

    scores: list[Score]
    next_before: datetime | None


def score_of(row: Row, criteria: Criteria) -> Score:
    """A stored score, with what is known of it today."""
    now = criteria.hash_of(row["judge_profile_id"])
    return Score.model_validate({**row, "is_current_criteria": row["criteria_hash"] == now})


@router.get("/sessions/{session_id}/score", dependencies=[needs(Scope.READ)])
async def current_score(
    session_id: SessionId, wired: Wired, profile_id: ProfileId | None = None
) -> Score:
    """The session's current score: by this profile, else the newest by any.

    404 says why there is none: `never_requested`, `being_scored`, or `failed` and its cause.
    """
    row = await wired.answers.current_score(session_id, profile_id)
    if row is None:
        request = await wired.answers.last_request(session_id)
        raise why_no_score(session_id, profile_id, request)
    return score_of(row, wired.criteria)


@router.get("/sessions/{session_id}/scores", dependencies=[needs(Scope.READ)])
async def scores(
    session_id: SessionId,
    wired: Wired,
    before: Annotated[Time | None, Query(description="Only scores made before this time.")] = None,
    limit: Limit = 20,
) -> Scores:
    """All scores of the session, under whatever criteria, the newest first."""
    rows: Sequence[Row] = await wired.answers.scores(session_id, before=before, limit=limit)
    return Scores(
        scores=[score_of(row, wired.criteria) for row in rows],
        next_before=rows[-1]["scored_at"] if len(rows) == limit else None,
    )


@router.get("/scores/{score_id}", dependencies=[needs(Scope.READ)])
async def score(score_id: UUID, wired: Wired) -> Score:
    """One score by its id."""
    row = await wired.answers.score(score_id)
    if row is None:
        raise unknown_score(score_id)
    return score_of(row, wired.criteria)


def unknown_score(score_id: UUID) -> Problem:
    """404."""
    return Problem(404, "unknown_score", f"there is no score {score_id}")


def why_no_score(session_id: str, profile_id: str | None, request: Row | None) -> Problem:
    """404 with the session's last request, if there is one."""
    by = f" by profile {profile_id!r}" if profile_id else ""
    if request is None:
        return Problem(404, "never_requested", f"session {session_id!r} was never requested")
    about = {"request_id": str(request["request_id"]), "state": request["state"]}
    if request["state"] in {"pending", "in_progress"}:
        return Problem(404, "being_scored", f"session {session_id!r} is being scored", **about)
    if request["state"] == "completed":
        return Problem(404, "no_score_by_profile", f"session {session_id!r} has no score{by}")
    about |= {"error_code": request["error_code"], "error_message": request["error_message"]}
    return Problem(
        404,
        "failed",
        f"session {session_id!r} got no score: {request['error_code']}: {request['error_message']}",
        **about,
    )
