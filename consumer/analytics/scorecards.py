"""Scorecards: single scores, and requests that have none, as lists and exports give them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from consumer.analytics.selection import Cursor

# What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Scorecard(BaseModel):
    """A score, or a request that has none: then all that only a score has is null."""

    model_config = ConfigDict(frozen=True)

    at: datetime = Field(description="when it was scored; without a score, when it was received")
    state: str
    session_id: str
    request_id: UUID
    score_id: UUID | None
    profile_id: str | None
    profile_version: int | None
    method: str | None
    criteria_hash: str | None
    is_current: bool | None = Field(description="false: a former score of the session")
    label: str | None
    agent: str | None
    agent_provider: str | None
    agent_model: str | None
    score: int | None = Field(description="the override, where there is one, else the total")
    total_score: int | None
    override_score: int | None
    override_by: str | None
    band: str | None = Field(description="of `score`")
    ranking: float | None
    confidence: float | None
    disqualified: bool | None
    disqualifier_triggered: str | None
    gate_passed: bool | None
    quality_risk: list[str] | None
    score_breakdown: dict[str, float] | None
    score_reasoning: str | None
    missing_tools: list[str] | None
    tool_effectiveness: int | None
    injection_suspected: bool | None
    judge_provider: str | None
    judge_model: str | None
    judge_cost_usd: float | None
    session_cost_usd: float | None
    session_total_tokens: int | None
    session_duration_ms: int | None
    triggered_by: str
    error_code: str | None
    error_message: str | None


class Scorecards(BaseModel):
    """A page, the newest first; `next` asks for the one below it, and is null on the last."""

    model_config = ConfigDict(frozen=True)

    items: list[Scorecard]
    next: str | None = Field(description="give it as `cursor`, with the same filters")


def page(rows: Sequence[Mapping[str, Any]], limit: int) -> Scorecards:
    """Up to `limit` of these rows, of which one more was asked for."""
    shown = rows[:limit]
    more = len(rows) > limit
    return Scorecards(
        items=[Scorecard.model_validate(row) for row in shown],
        next=Cursor(at=shown[-1]["at"], id=shown[-1]["id"]).encode() if more else None,
    )


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """One object a line."""
    return "".join(f"{Scorecard.model_validate(row).model_dump_json()}\n" for row in rows)


def csv_header() -> str:
    """The names of the columns."""
    return _csv([list(Scorecard.model_fields)])


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """One line a card (RFC 4180). Null is empty; lists and maps are JSON. Text that a spreadsheet
    would run as a formula begins with an apostrophe.
    """
    cards = (Scorecard.model_validate(row).model_dump(mode="json") for row in rows)
    return _csv([_cell(value) for value in card.values()] for card in cards)


def _csv(lines: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
