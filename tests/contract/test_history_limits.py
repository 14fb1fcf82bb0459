"""What the History Service may answer: so much, and for so long."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from consumer.demo.world import served
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.http import open_client
from consumer.errors import HistoryInvalid, HistoryUnavailable
from consumer.limits.room import Place, Room


async def fetch(answer: AsyncIterator[bytes], *, timeout_s: float, max_bytes: int) -> None:
    async def session(_: Request) -> StreamingResponse:
        return StreamingResponse(answer, media_type="application/json")

    app = Starlette(routes=[Route("/api/v1/history/sessions/s-1", session)])
    async with served(app) as url, open_client(url, timeout_s=timeout_s, headers={}) as client:
        history = TarsyPythonHistory(
            client=client, labels={}, max_bytes=max_bytes, timeout_s=timeout_s
        )
        await history.fetch("s-1", Place(Room(1_000_000)))


async def dripping() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.05)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 1000
        await asyncio.sleep(0)  # once nobody reads, nothing else would let the server notice


async def test_an_answer_that_drips_ends_with_the_time_for_a_call() -> None:
    started = time.monotonic()
    with pytest.raises(HistoryUnavailable, match="does not answer in time"):
        await fetch(dripping(), timeout_s=0.5, max_bytes=10_000)
    assert 0.4 < time.monotonic() - started < 3


async def test_an_answer_that_grows_too_long_is_not_read_to_its_end() -> None:
    with pytest.raises(HistoryInvalid, match="larger than 10000 bytes"):
        await fetch(endless(), timeout_s=20, max_bytes=10_000)


async def test_what_is_packed_otherwise_is_no_session() -> None:
    async def packed(_: Request) -> PlainTextResponse:
        return PlainTextResponse("x", headers={"content-encoding": "br"})

    app = Starlette(routes=[Route("/api/v1/history/sessions/s-1", packed)])
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=1000, timeout_s=10)
        with pytest.raises(HistoryInvalid, match="Content-Encoding that was not asked for"):
            await history.fetch("s-1", Place(Room(1_000_000)))


def session(session_id: str, size: int) -> bytes:
    """A completed session of about so many bytes."""
    detail = {
        "session_id": session_id,
        "status": "completed",
        "agent_type": "a",
        "alert_data": {"text": "x" * size},
        "final_analysis": "done",
        "stages": [],
    }
    return json.dumps(detail).encode()


@pytest.mark.parametrize("told", [True, False], ids=["length told", "length not told"])
async def test_no_more_is_read_than_there_is_room_for(told: bool) -> None:
    """Nobody waits with an answer half read: it is asked for again."""
    asked = Counter[str]()

    async def detail(request: Request) -> Response:
        name = request.path_params["name"]
        asked[name] += 1
        body = session(name, 60_000)
        return Response(body) if told else StreamingResponse(iter([body[:9000], body[9000:]]))

    app = Starlette(routes=[Route("/api/v1/history/sessions/{name}", detail)])
    room = Room(100_000)
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=100_000, timeout_s=10)
        with room.place() as second:
            with room.place() as first:
                await history.fetch("first", first)
                assert first.size == room.taken == len(session("first", 60_000))
                fetching = asyncio.create_task(history.fetch("second", second))
                while not room.waiting:
                    await asyncio.sleep(0.01)
                assert (asked["second"], second.size) == (1, 0)
            assert (await fetching).id == "second"
            assert second.size == room.taken == len(session("second", 60_000))
    assert asked == {"first": 1, "second": 2}
    assert room.taken == 0


@pytest.mark.parametrize(("size", "fits"), [(2_000_000, True), (3_000_000, False)])
async def test_a_final_analysis_asked_for_by_itself_counts_as_its_sessions(
    size: int, fits: bool
) -> None:
    detail = session("s-1", 10).replace(b'"done"', b"null")
    final = json.dumps({"final_analysis": "x" * size}).encode()

    async def answer(request: Request) -> Response:
        return Response(final if request.url.path.endswith("/final-analysis") else detail)

    app = Starlette(routes=[Route("/api/v1/history/sessions/{rest:path}", answer)])
    room = Room(10_000_000)
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        history = TarsyPythonHistory(client=client, labels={}, max_bytes=9_000_000, timeout_s=10)
        with room.place() as place:
            fetching = history.fetch("s-1", place)
            if not fits:
                with pytest.raises(HistoryInvalid, match="larger than 2097152 bytes"):
                    await fetching
                return
            assert len((await fetching).final_analysis) == size
            assert place.size == room.taken == len(detail) + len(final)
