"""Scorecards: single scores and requests without one, page by page or all at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from consumer.analytics.scorecards import Scorecards, csv_header, csv_lines, json_lines, page
from consumer.analytics.selection import Band, CardFilter, Cursor
from consumer.api.access import Scope, needs
from consumer.api.ports import Cards, Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX, Limit, Name, ProfileId, Time
from consumer.error_codes import State
from consumer.events import SessionId

router = APIRouter(prefix=PREFIX, tags=["scorecards"], dependencies=[needs(Scope.READ)])


class Format(StrEnum):
    """What an export is written in."""

    CSV = "csv"
    JSONL = "jsonl"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.JSONL: "application/jsonl"}


def card_filter(
    session_id: SessionId | None = None,
    agent: Name | None = None,
    label: Name | None = None,
    model: Annotated[Name | None, Query(description="The agent's model.")] = None,
    profile_id: ProfileId | None = None,
    criteria_hash: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")] = None,
    band: Annotated[
        Band | None, Query(description="Of the override, where there is one, else of the total.")
    ] = None,
    state: Annotated[
        State | None, Query(description="All but `completed` are requests without a score.")
    ] = None,
    since: Annotated[Time | None, Query(alias="from", description="From this time on.")] = None,
    until: Annotated[Time | None, Query(alias="to", description="Before this time.")] = None,
    text: Annotated[
        Name | None, Query(description="All of these words are in the score's reasoning.")
    ] = None,
    history: Annotated[
        bool, Query(description="Former scores too, not only current ones.")
    ] = False,
) -> CardFilter:
    """What is asked for."""
    return CardFilter(
        session=session_id,
        agent=agent,
        label=label,
        model=model,
        profile=profile_id,
        criteria_hash=criteria_hash,
        band=band,
        state=state,
        since=since,
        until=until,
        text=text,
        history=history,
    )


Wanted = Annotated[CardFilter, Depends(card_filter)]


@router.get("/scorecards")
async def scorecards(
    wanted: Wanted,
    wired: Wired,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next` of the page above.")
    ] = None,
    limit: Limit = 50,
) -> Scorecards:
    """Scores, the newest first; and requests without one, unless something is asked that only a
    score has. A page's `next` goes on below it, whatever came in above meanwhile.
    """
    below = _cursor(cursor) if cursor is not None else None
    rows = await wired.cards.scorecards(wanted, below=below, limit=limit + 1)
    return page(rows, limit)


def _cursor(text: str) -> Cursor:
    try:
        return Cursor.decode(text)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from error


@router.get(
    "/scorecards/export",
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in MEDIA_TYPES.values()}}},
)
async def export(
    wanted: Wanted, wired: Wired, written: Annotated[Format, Query(alias="format")] = Format.CSV
) -> StreamingResponse:
    """All of these scorecards, as they are now. An answer that ends without its last chunk was cut
    off. In CSV, text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    lines = _lines(wired.cards, wanted, written)
    # The first lines are waited for: what goes wrong by then is told as a problem.
    first = await anext(lines, "")
    name = f"attachment; filename=scorecards.{written}"
    return StreamingResponse(
        _after(first, lines),
        media_type=MEDIA_TYPES[written],
        headers={"content-disposition": name},
    )


async def _after(first: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for text in lines:
        yield text


async def _lines(cards: Cards, wanted: CardFilter, written: Format) -> AsyncIterator[str]:
    write: Callable[..., str] = csv_lines if written is Format.CSV else json_lines
    head = csv_header() if written is Format.CSV else ""
    async with aclosing(cards.export(wanted)) as batches:  # type: ignore[type-var]
        async for rows in batches:
            yield head + write(rows)
            head = ""
    if head:
        yield head
