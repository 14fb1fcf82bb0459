"""The HTTP client that all edges share."""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from consumer.demo.world import served
from consumer.edges.http import Client, body_of, open_client

# aiohttp's own limit is 100.
CALLS = 130


async def asked(client: Client, path: str) -> bytes | None:
    async with client.request("GET", path) as response:
        return await body_of(response, 1000)


async def test_as_many_calls_at_a_time_as_there_are() -> None:
    waiting = asyncio.Barrier(CALLS)

    async def together(_: Request) -> PlainTextResponse:
        await waiting.wait()
        return PlainTextResponse("all are here")

    app = Starlette(routes=[Route("/base/calls", together)])
    async with (
        served(app) as url,
        open_client(f"{url}/base/", timeout_s=10, headers={}) as client,
        asyncio.timeout(10),
    ):
        answers = await asyncio.gather(*(asked(client, "/calls") for _ in range(CALLS)))
    assert answers == [b"all are here"] * CALLS


async def test_a_path_is_taken_as_it_is_encoded() -> None:
    async def path(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.scope["raw_path"])

    app = Starlette(routes=[Route("/{rest:path}", path)])
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        assert await asked(client, "/sessions/a%2Fb%20c") == b"/sessions/a%2Fb%20c"
        assert await asked(client, "") == b"/"
