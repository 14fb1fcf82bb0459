"""What many scores tell; docs/analytics.md says what each figure means."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from consumer.analytics import reports
from consumer.analytics.selection import NAMES_DAYS, Availability, Selection, days
from consumer.api.access import Scope, needs
from consumer.api.ports import Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX, CriteriaHash, Day, Name, ProfileId, utc_today
from consumer.events import SessionId

router = APIRouter(prefix=PREFIX, tags=["analytics"], dependencies=[needs(Scope.READ)])

From = Annotated[
    Day | None, Query(alias="from", description="First UTC day; thirty days up to the last.")
]
To = Annotated[Day | None, Query(alias="to", description="Last UTC day; today.")]
Most = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]


def selection(
    first: From = None,
    last: To = None,
    profile_id: ProfileId | None = None,
    label: Name | None = None,
    agent: Name | None = None,
    model: Annotated[Name | None, Query(description="The agent's model.")] = None,
    criteria_hash: CriteriaHash | None = None,
    profile_version: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="Of profile_id, which must be given.")
    ] = None,
) -> Selection:
    """What a report is about."""
    try:
        begin, end = days(first, last, today=utc_today())
        return Selection(
            first=begin,
            last=end,
            profile=profile_id,
            label=label,
            agent=agent,
            model=model,
            criteria_hash=criteria_hash,
            profile_version=profile_version,
        )
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from error


Wanted = Annotated[Selection, Depends(selection)]


def names_selection(wanted: Wanted) -> Selection:
    """The same for reports on names, which look at fewer days."""
    try:
        days(wanted.first, wanted.last, today=utc_today(), at_most=NAMES_DAYS)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from error
    return wanted


WantedNames = Annotated[Selection, Depends(names_selection)]


class SessionTools(BaseModel):
    """The tool report of a session, as its newest score keeps it."""

    session_id: str
    score_id: UUID
    scored_at: datetime
    tool_report: dict[str, Any] = Field(
        description="docs/scoring.md. Scores of version 1 have neither `actions` nor `not_cited`, "
        "and may call calls `wasted` with the reason `unreferenced`: most of these were not"
    )


@router.get("/analytics/trend")
async def trend(wanted: Wanted, wired: Wired) -> reports.Trend:
    """Average scores and bands by day."""
    return await reports.trend(wired.figures, wanted)


@router.get("/analytics/distribution")
async def distribution(wanted: Wanted, wired: Wired) -> reports.Distribution:
    """Scores by band, in all and by criterion."""
    return await reports.distribution(wired.figures, wanted)


@router.get("/analytics/missing-tools")
async def missing_tools(
    wanted: WantedNames,
    wired: Wired,
    availability: Availability | None = None,
    limit: Most = 50,
) -> reports.MissingTools:
    """Tools that judges missed, the most often named first; 92 days at most."""
    return await reports.missing_tools(
        wired.figures, wanted, limit=limit, availability=availability
    )


@router.get("/analytics/approaches")
async def approaches(wanted: WantedNames, wired: Wired, limit: Most = 50) -> reports.Approaches:
    """Alternative approaches, the most often named first; 92 days at most."""
    return await reports.approaches(wired.figures, wanted, limit=limit)


@router.get("/analytics/criteria")
async def criteria(wanted: Wanted, wired: Wired) -> reports.CriteriaHistory:
    """Which criteria scores were made by, and which share of them is up to date."""
    current = {name: wired.criteria.hash_of(name) or "" for name in wired.criteria.ids}
    return await reports.criteria(wired.figures, wanted, current=current)


@router.get("/analytics/models")
async def models(wanted: Wanted, wired: Wired) -> reports.ModelComparison:
    """Agents' models compared. Give a label: models that do other work do not compare."""
    return await reports.models(wired.figures, wanted)


@router.get("/analytics/tools")
async def tools(wanted: Wanted, wired: Wired) -> reports.Tools:
    """What became of agents' tool calls."""
    return await reports.tools(wired.figures, wanted)


@router.get("/analytics/cost")
async def cost(wanted: Wanted, wired: Wired) -> reports.Cost:
    """What judges cost, by day and model."""
    return await reports.cost(wired.figures, wanted)


@router.get("/analytics/agreement")
async def agreement(wanted: Wanted, wired: Wired) -> reports.AgreementReport:
    """Judge against human: how near totals are to overrides."""
    return await reports.judge_and_human(wired.figures, wanted)


@router.get("/sessions/{session_id}/tool-report")
async def session_tools(session_id: SessionId, wired: Wired) -> SessionTools:
    """What became of one session's tool calls."""
    row = await wired.cards.session_tools(session_id)
    if row is None or row["tool_report"] is None:
        raise Problem(404, "no_tool_report", f"session {session_id!r} has no score with one")
    return SessionTools.model_validate({**row, "session_id": session_id})
