"""What happens, live: server-sent events that a client can go on with after a break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from consumer.api.access import Scope, needs
from consumer.api.feed import Feed
from consumer.api.ports import Wired
from consumer.api.problems import Problem
from consumer.api.values import PREFIX
from consumer.errors import NotReachable
from consumer.events import SessionId
from consumer.ports import Cursor

router = APIRouter(prefix=PREFIX, tags=["live"])

MEDIA_TYPE = "text/event-stream"
# How soon a client shall come back after the stream has ended.
RETRY_MS = 2000
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.get(
    "/events",
    dependencies=[needs(Scope.READ)],
    response_class=StreamingResponse,
    responses={200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}},
)
async def events(
    wired: Wired,
    session_id: SessionId | None = None,
    last_event_id: Annotated[
        str | None, Header(max_length=64, description="Go on after this event (one hour back).")
    ] = None,
) -> StreamingResponse:
    """Server-sent events: `request` for each state that a request comes to, with the score where it
    has one, and `override`. Each has an id; a client that comes back with `Last-Event-ID`, to any
    replica, gets what it missed.

    `ready` comes first, with the id to begin from; `gap` in its place where what was missed is no
    longer kept: then ask for the current state. A client that reads too slowly is disconnected.
    """
    changes = wired.feed.changes
    after = _cursor(last_event_id) if last_event_id else await changes.now()
    if last_event_id and await changes.missed(after):
        begin, after = "gap", await changes.now()
    else:
        begin = "ready"
    first = f"retry: {RETRY_MS}\nid: {after}\nevent: {begin}\ndata: {{}}\n\n"
    return StreamingResponse(
        _texts(wired.feed, first, after, session_id), media_type=MEDIA_TYPE, headers=HEADERS
    )


def _cursor(text: str) -> Cursor:
    try:
        return Cursor.parse(text)
    except ValueError as error:
        raise Problem(422, "invalid", f"header.last-event-id: {error}") from error


async def _texts(
    feed: Feed, first: str, after: Cursor, session_id: str | None
) -> AsyncIterator[str]:
    yield first
    try:
        async with aclosing(feed.listen(after)) as changes:
            async for change in changes:
                if change is None:
                    yield ": nothing new\n\n"
                elif session_id in (None, change.session_id):
                    yield change.text
    except NotReachable:
        return  # the client comes back, and is told then
