"""An HTTP server inside a process that has other things to do."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from consumer import metrics
from consumer.api import problems
from consumer.api.health import PROBES

# As uvicorn has it with h11. With httptools, which takes a sixth less CPU for all that a request
# takes, it has none.
MAX_HEAD_BYTES = 64 * 1024
# So long may a client take for a request's head, and for its body; between two requests uvicorn
# waits for 5 s.
HEAD_S = 10.0
BODY_S = 60.0
# So long may what we sent wait to be read, where it is more than 64 KiB.
UNREAD_S = 60.0
MAX_CONNECTIONS = 4096
# Above the limit so many more are let in where all others have a request under way: a probe may
# come by one of them.
SPARE = 64


def most_connections() -> int:
    """How many a process has at a time: half of the files that it may open are left for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 by httptools; answers 400 to a head that grows above MAX_HEAD_BYTES.

    Of too many connections those without a whole request are closed, the oldest first. Where all
    have one under way, 503 is the answer, but to probes.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0
        # Since when a request is waited for, or what is missing of it; None: it is whole.
        self._waiting_since: float | None = self.loop.time()
        self._unread_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        most = most_connections()
        if len(self.connections) > most:
            self._make_room(most)
        if len(self.connections) > most + min(SPARE, most):
            self.let_go("refused")

    def _make_room(self, most: int) -> None:
        """Lets some go at once: looking for them takes its time."""
        others = (c for c in self.connections if isinstance(c, Protocol) and c is not self)
        idle = sorted((c for c in others if not c.owed), key=lambda c: c.idle_since)
        for connection in idle[: 1 + most // 16]:
            connection.let_go("crowded")

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def owed(self) -> bool:
        """Whether it is for us to act: the request is whole, and not answered yet."""
        return self.busy and self._waiting_since is None

    @property
    def idle_since(self) -> float:
        """Since when a request is waited for; one that was answered is thought to come again."""
        return self.loop.time() if self._waiting_since is None else self._waiting_since

    def let_go(self, why: str) -> None:
        """Closes the connection at once."""
        metrics.HTTP_CLOSED.labels(why).inc()
        self.connections.discard(self)  # it counts no more
        self.transport.abort()

    def let_go_if_late(self) -> None:
        """Closes it where what is missing of a request does not come, but not while we do not read;
        and where nobody reads the answer.
        """
        if self._unread_since is not None and self.loop.time() - self._unread_since > UNREAD_S:
            self.let_go("unread")
        elif self._waiting_since is not None and not self.flow.read_paused:
            waited_s = self.loop.time() - self._waiting_since
            if self._in_body:
                if waited_s > BODY_S:
                    self.let_go("body")
            elif waited_s > HEAD_S and (self._in_head or not self.busy):
                self.let_go("head")

    def pause_writing(self) -> None:
        """Called by the transport."""
        super().pause_writing()
        self._unread_since = self.loop.time()

    def resume_writing(self) -> None:
        """Called by the transport."""
        super().resume_writing()
        self._unread_since = None

    def on_message_begin(self) -> None:
        """Called by the parser."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head, self._in_body = False, True
        path = self.url.partition(b"?")[0].decode("latin-1")
        crowded = len(self.connections) > most_connections() and path not in PROBES
        self.app = _too_many if crowded else self.config.loaded_app
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        super().on_message_complete()
        self._in_body, self._waiting_since = False, None

    def data_received(self, data: bytes) -> None:
        """Called by the transport with at most 256 KiB."""
        if self._waiting_since is None:
            self._waiting_since = self.loop.time()
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"path and headers take more than {MAX_HEAD_BYTES} bytes")


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer where all connections have a request under way."""
    metrics.HTTP_CLOSED.labels("busy").inc()
    told = f"this process has more than {most_connections()} connections; come back later"
    problem = problems.Problem(503, "too_many_connections", told, headers={"connection": "close"})
    await problems.answer(problem)(scope, receive, send)


class Server(uvicorn.Server):
    """uvicorn without signal handlers: its owner decides when everything stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves all signals as they are."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Protocol):
                    connection.let_go_if_late()
        return await super().on_tick(counter)
