"""The HTTP client that all edges share."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from consumer.demo.world import served
from consumer.edges.http import open_client

# aiohttp's own limit is 100.
CALLS = 130


async def test_as_many_calls_at_a_time_as_there_are() -> None:
    waiting = asyncio.Barrier(CALLS)

    async def together(_: Request) -> PlainTextResponse:
        await waiting.wait()
        return PlainTextResponse("all are here")

    app = Starlette(routes=[Route("/calls", together)])
    async with (
        served(app) as url,
        open_client(url, timeout_s=10, headers={}) as client,
        asyncio.timeout(10),
    ):
        answers = await asyncio.gather(*(client.get("/calls") for _ in range(CALLS)))
    assert [answer.text for answer in answers] == ["all are here"] * CALLS
