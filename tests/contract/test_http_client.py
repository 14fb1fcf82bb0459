"""The HTTP client that all edges share."""

import asyncio
from base64 import b64encode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Route

from consumer.demo.world import served
from consumer.edges.http import open_client
from tests.support.broken_http import NO_UTF_8, saying

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


async def test_no_cookie_is_sent_back() -> None:
    async def cookies(request: Request) -> PlainTextResponse:
        answer = PlainTextResponse(repr(dict(request.cookies)))
        answer.set_cookie("stick", "to-this-server")
        return answer

    app = Starlette(routes=[Route("/", cookies)])
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        answers = [await client.get("/") for _ in range(2)]
    assert [answer.headers["set-cookie"][:5] for answer in answers] == ["stick"] * 2
    assert [answer.text for answer in answers] == ["{}"] * 2


async def test_no_redirect_is_followed() -> None:
    async def away(_: Request) -> RedirectResponse:
        return RedirectResponse("/elsewhere")

    app = Starlette(routes=[Route("/", away)])
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/elsewhere")


async def test_a_reason_phrase_may_be_in_any_encoding() -> None:
    async with (
        saying(NO_UTF_8) as server,
        open_client(server.url, timeout_s=10, headers={}) as client,
    ):
        answer = await client.get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")


async def test_every_request_has_the_clients_headers() -> None:
    async def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.headers["x-key"])

    app = Starlette(routes=[Route("/under/this", told)])
    headers = {"x-key": "of the client"}
    async with (
        served(app) as url,
        open_client(f"{url}/under", timeout_s=10, headers=headers) as client,
        client.stream("GET", "/this") as answer,
    ):
        assert await answer.aread() == b"of the client"


async def test_credentials_in_the_address_are_sent() -> None:
    async def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.headers["authorization"])

    app = Starlette(routes=[Route("/", told)])
    async with served(app) as url:
        address = url.replace("http://", "http://me:se%3Acret@")
        async with open_client(address, timeout_s=10, headers={}) as client:
            answer = await client.get("/")
    assert answer.text == f"Basic {b64encode(b'me:se:cret').decode()}"


async def test_gzip_alone_is_asked_for() -> None:
    async def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.headers["accept-encoding"])

    app = Starlette(routes=[Route("/", told)])
    async with served(app) as url, open_client(url, timeout_s=10, headers={}) as client:
        assert (await client.get("/")).text == "gzip"
