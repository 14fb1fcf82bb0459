"""A TCP proxy that can harm a connection: between the consumer and its broker, database, servers.

It tells apart what clients notice at once (`cut`, `reset`) from what they do not (`half_open`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer.demo.servers import HOST, free_port

CHUNK = 64 * 1024
# SO_LINGER on, for no time: closing sends RST, and what was not sent is thrown away.
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class _Link:
    """One client's connection, and ours to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.close()

    def reset(self) -> None:
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class TcpProxy:
    """Passes bytes on to `port` of this machine, as it is told.

    `half_open` and `delay` hold for the connections there are and for new ones, until `restore`.
    """

    port: int
    upstream: int
    connections: int = 0
    cuts: int = 0
    _links: set[_Link] = field(default_factory=set)
    _flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _refusing: bool = False
    _delay_s: float = 0.0
    _fatal: bytes = b""
    _fatal_left: int = 0

    @property
    def address(self) -> str:
        """The proxy as host:port."""
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """Closes every connection, and refuses new ones until `restore`."""
        self._refusing = True
        self._drop(_Link.close)

    def reset(self) -> None:
        """Breaks every connection by RST. New ones are welcome."""
        self._drop(_Link.reset)

    def half_open(self) -> None:
        """Passes nothing on any more, in either direction; all sockets stay open."""
        self._flowing.clear()

    def delay(self, seconds: float) -> None:
        """Holds everything back for so long, in each direction."""
        self._delay_s = seconds

    def cut_at(self, word: bytes, times: int = 1) -> None:
        """The next `times` that a client sends this word, the server still gets it, and the client
        no answer: its connection breaks.
        """
        self._fatal, self._fatal_left = word, times

    def restore(self) -> None:
        """All is well again. Connections that were cut or reset stay so."""
        self._refusing, self._delay_s, self._fatal_left = False, 0.0, 0
        self._flowing.set()

    def _drop(self, how: Callable[[_Link], None]) -> None:
        for link in list(self._links):
            self.cuts += 1
            how(link)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if self._refusing:
                raise ConnectionRefusedError
            answers, server = await asyncio.open_connection(HOST, self.upstream)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(client=writer, server=server)
        self._links.add(link)
        try:
            ways = [self._pass(reader, server, link), self._pass(answers, writer, None)]
            await _first_of(ways)
        finally:
            self._links.discard(link)
            link.close()

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asking: _Link | None
    ) -> None:
        """One direction, until either side ends; `asking` where it is the client's."""
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flowing.wait()
                fatal = asking is not None and self._fatal_left > 0 and self._fatal in chunk
                if fatal:
                    self._fatal_left -= 1
                    await self._let_in(chunk, target, asking)
                    return
                target.write(chunk)
                await target.drain()

    async def _let_in(self, chunk: bytes, server: asyncio.StreamWriter, link: _Link | None) -> None:
        """The server gets its word, and time to act on it; the client gets a broken connection."""
        assert link is not None
        self.cuts += 1
        link.client.transport.abort()
        server.write(chunk)
        await server.drain()
        await asyncio.sleep(0.2)


async def _first_of(ways: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def tcp_proxy(upstream: int, *, port: int | None = None) -> AsyncIterator[TcpProxy]:
    """A proxy to this port, on a free port unless one is given."""
    proxy = TcpProxy(port=port or free_port(), upstream=upstream)
    proxy.restore()
    server = await asyncio.start_server(proxy._serve, HOST, proxy.port)
    try:
        yield proxy
    finally:
        server.close()
        proxy.restore()
        proxy.reset()
        await server.wait_closed()
