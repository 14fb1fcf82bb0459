"""Humans' scores. They stand beside the judge's, and replace nothing."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from consumer.api.access import Caller, Scope, needs
from consumer.api.ports import Wired
from consumer.api.scores import Override, unknown_score
from consumer.api.values import PREFIX, Reason

router = APIRouter(prefix=PREFIX, tags=["overrides"])


class NewOverride(BaseModel):
    """What a human thinks the total score should be, and why."""

    model_config = ConfigDict(extra="forbid")

    override_score: Annotated[int, Field(ge=0, le=100, strict=True)]
    reason: Reason


class Overrides(BaseModel):
    """All overrides of a score; the first is the newest, and counts."""

    overrides: list[Override]


@router.post("/scores/{score_id}/override", status_code=201, dependencies=[needs(Scope.OVERRIDE)])
async def override(score_id: UUID, new: NewOverride, wired: Wired, annotator: Caller) -> Override:
    """Puts a human's score beside the judge's, and sends `score.overridden`."""
    row = await wired.overrides.add(
        score_id, score=new.override_score, annotator=annotator, reason=new.reason
    )
    if row is None:
        raise unknown_score(score_id)
    return Override.model_validate(dict(row))


@router.get("/scores/{score_id}/overrides", dependencies=[needs(Scope.READ)])
async def overrides(score_id: UUID, wired: Wired) -> Overrides:
    """Every override of a score, the newest first."""
    rows = await wired.overrides.of(score_id)
    if not rows and await wired.answers.score(score_id) is None:
        raise unknown_score(score_id)
    return Overrides(overrides=[Override.model_validate(dict(row)) for row in rows])
