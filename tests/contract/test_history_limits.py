"""What the History Service may answer: so much, and for so long."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from consumer.demo.world import served
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.http import open_client
from consumer.errors import HistoryInvalid, HistoryUnavailable


async def fetch(answer: AsyncIterator[bytes], *, timeout_s: float, max_bytes: int) -> None:
    async def session(_: Request) -> StreamingResponse:
        return StreamingResponse(answer, media_type="application/json")

    app = Starlette(routes=[Route("/api/v1/history/sessions/s-1", session)])
    async with served(app) as url, open_client(url, timeout_s=timeout_s, headers={}) as client:
        history = TarsyPythonHistory(
            client=client, labels={}, max_bytes=max_bytes, timeout_s=timeout_s
        )
        await history.fetch("s-1")


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
            await history.fetch("s-1")
