"""The HTTP server by real sockets: connections that say nothing, and more than it may have."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from consumer.api import server as module
from consumer.api.server import Protocol, Server
from consumer.demo.servers import free_port
from tests.unit.judges import measured

HOST = "127.0.0.1"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Served:
    """A server whose app answers at once, but /wait, and reads the body of /read."""

    server: Server
    connections: list[Connection] = field(default_factory=list)
    wait: asyncio.Event = field(default_factory=asyncio.Event)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            await self.wait.wait()
        while scope["path"] == "/read" and (await receive()).get("more_body"):
            pass
        much = 10_000_000 if scope["path"] == "/large" else 1
        await PlainTextResponse("well" * much)(scope, receive, send)

    async def sent(self, data: bytes) -> Connection:
        made = await asyncio.open_connection(HOST, self.server.config.port)
        self.connections.append(made)
        made[1].write(data)
        await made[1].drain()
        return made

    async def asked(self, path: str) -> bytes:
        reader, _ = await self.sent(get(path))
        async with asyncio.timeout(20):
            return await reader.readline()

    async def until(self, *, connections: int, at_work: int = 0) -> None:
        state = self.server.server_state
        async with asyncio.timeout(20):
            while (len(state.connections), len(state.tasks)) != (connections, at_work):
                await asyncio.sleep(0.01)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    made: Served

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await made.app(scope, receive, send)

    made = Served(
        Server(
            uvicorn.Config(
                app, host=HOST, port=free_port(), log_config=None, http=Protocol, lifespan="off"
            )
        )
    )
    running = asyncio.create_task(made.server.serve())
    while not made.server.started:
        await asyncio.sleep(0.01)
    yield made
    made.wait.set()
    for _, writer in made.connections:
        writer.close()
    made.server.should_exit = True
    await running


async def is_closed(connection: Connection) -> bool:
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(20):
            await connection[0].read()
    return True


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (get("/read"), b"\r\n"),
        (get("/read"), b"GET / HTTP/1.1\r\n"),
    ],
    ids=["nothing", "half a head", "an empty line after a request", "half a head after a request"],
)
async def test_who_sends_no_whole_head_is_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch, first: bytes, then: bytes
) -> None:
    before = measured("http_connections_closed_total", why="head")
    connection = await served.sent(first)
    if then:
        assert await connection[0].readuntil(b"well")
        connection[1].write(then)
    monkeypatch.setattr(module, "HEAD_S", 0.1)
    assert await is_closed(connection)
    assert measured("http_connections_closed_total", why="head") == before + 1


async def test_who_sends_no_whole_body_is_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = measured("http_connections_closed_total", why="body")
    part = b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
    connection = await served.sent(part)
    await served.until(connections=1, at_work=1)
    monkeypatch.setattr(module, "BODY_S", 0.1)
    assert await is_closed(connection)
    assert measured("http_connections_closed_total", why="body") == before + 1


async def test_who_does_not_read_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = measured("http_connections_closed_total", why="unread")
    reader, _ = await served.sent(get("/large"))
    assert await reader.readline()  # and no more
    monkeypatch.setattr(module, "UNREAD_S", 0.1)
    await served.until(connections=0)
    assert measured("http_connections_closed_total", why="unread") == before + 1


async def test_who_waits_for_us_is_not_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, _ = await served.sent(get("/wait") + b"\r\n")
    await served.until(connections=1, at_work=1)
    monkeypatch.setattr(module, "HEAD_S", 0.0)
    monkeypatch.setattr(module, "BODY_S", 0.0)
    await asyncio.sleep(2.2)  # each is looked at once a second
    served.wait.set()
    assert await waiting.readuntil(b"well")


@pytest.mark.parametrize(
    "part",
    [b"GET / HT", b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["half a head", "half a body"],
)
async def test_of_too_many_connections_the_idle_ones_make_room(
    served: Served, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(module, "most_connections", lambda: 20)
    waiting, _ = await served.sent(get("/wait"))
    await served.until(connections=1, at_work=1)
    idle = [await served.sent(part) for _ in range(100)]
    assert b" 200 " in await served.asked("/any")
    assert len(served.server.server_state.connections) <= 20
    assert await is_closed(idle[0])
    served.wait.set()
    assert await waiting.readuntil(b"well")


async def test_where_all_are_at_work_probes_alone_are_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "most_connections", lambda: 20)
    monkeypatch.setattr(module, "SPARE", 3)
    busy = [await served.sent(get("/wait")) for _ in range(20)]
    await served.until(connections=20, at_work=20)
    reader, _ = await served.sent(get("/any"))
    refused = (await reader.read()).decode()  # and closed
    assert refused.startswith("HTTP/1.1 503 ")
    assert "retry-after: 5" in refused
    assert '"too_many_connections"' in refused
    assert b" 200 " in await served.asked("/healthz")
    served.wait.set()
    for reader, _ in busy:
        assert await reader.readuntil(b"well")


def test_half_of_the_files_are_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((200, 100), (1_000_000, module.MAX_CONNECTIONS), (-1, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert module.most_connections() == most
