"""What happens, live: server-sent events that a client can go on with after a break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from consumer import metrics
from consumer.api.access import Scope, needs
from consumer.api.feed import MAX_LISTENERS, Feed
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
    Where too many listen already, the answer is 503 `too_many_listeners`.
    """
    if wired.feed.full:
        metrics.HTTP_LISTENERS_REFUSED.inc()
        told = f"{MAX_LISTENERS} clients follow this process' events; come back later, or poll"
        raise Problem(503, "too_many_listeners", told)
    changes = wired.feed.changes
    after = _cursor(last_event_id) if last_event_id else await changes.now()
    if last_event_id and await changes.missed(after):
        begin, after = "gap", await changes.now()
    else:
        begin = "ready"
    first = f"retry: {RETRY_MS}\nid: {after}\nevent: {begin}\ndata: {{}}\n\n".encode()
    return StreamingResponse(
        _texts(wired.feed, first, after, session_id), media_type=MEDIA_TYPE, headers=HEADERS
    )


def _cursor(text: str) -> Cursor:
    try:
        return Cursor.parse(text)
    except ValueError as error:
        raise Problem(422, "invalid", f"header.last-event-id: {error}") from error


async def _texts(
    feed: Feed, first: bytes, after: Cursor, session_id: str | None
) -> AsyncIterator[bytes]:
    yield first
    try:
        async with aclosing(feed.listen(after)) as pages:
            async for page in pages:
                told = [c.text for c in page if session_id in (None, c.session_id)]
                if told:
                    yield b"".join(told)
                elif not page:
                    yield b": nothing new\n\n"
    except NotReachable:
        return  # the client comes back, and is told then
