"""HTTP bodies are bounded, on a real server, whatever a route does."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI, Request
from pydantic import BaseModel

from consumer.api.limits import BodyLimit
from consumer.demo.world import served

LIMIT = 1000


class _Note(BaseModel):
    text: str


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    app = FastAPI()

    @app.post("/note")
    async def note(body: _Note) -> int:
        return len(body.text)

    @app.post("/raw")
    async def raw(request: Request) -> int:
        return len(await request.body())

    async with served(BodyLimit(app, max_bytes=LIMIT)) as address:
        yield address


async def in_chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(10):
        yield b"x" * (size // 10)
        await asyncio.sleep(0)


@pytest.mark.parametrize(("size", "status"), [(LIMIT, 200), (LIMIT + 100, 413), (10**6, 413)])
async def test_bodies(url: str, size: int, status: int) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        told = await client.post("/raw", content=b"x" * size)
        untold = await client.post("/raw", content=in_chunks(size))
        assert (told.status_code, untold.status_code) == (status, status)
        if status == 413:
            assert told.json()["detail"] == "the body is larger than 1000 bytes"
            assert untold.json() == {"detail": told.json()["detail"]}


async def test_json_bodies(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post("/note", json={"text": "x" * 900})).json() == 900
        assert (await client.post("/note", json={"text": "x" * 1000})).status_code == 413
        chunked = await client.post(
            "/note", content=in_chunks(LIMIT * 2), headers={"content-type": "application/json"}
        )
        assert chunked.status_code == 413
