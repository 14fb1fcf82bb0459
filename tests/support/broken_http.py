"""Servers that do not keep to HTTP, for whoever calls one."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass

from consumer.demo.servers import HOST

_OK = b"HTTP/1.1 200 OK\r\n"
_PACKED = gzip.compress(b'{"a": "some text, to be packed"}')
_HALF = _PACKED[: len(_PACKED) // 2]

# What is no whole answer.
BROKEN: dict[str, bytes] = {
    "hangs up": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "HTTP/0.9": b"{}",
    "no status": b"HTTP/1.1 fine\r\n\r\n{}",
    "no version": b"HTTP/x.y 200 OK\r\n\r\n{}",
    "half a head": _OK + b"content-le",
    "half a body": _OK + b"content-length: 100\r\n\r\n{",
    "more than its length": _OK + b"content-length: 1\r\n\r\n{} and more",
    "two lengths": _OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a negative length": _OK + b"content-length: -2\r\n\r\n{}",
    "no number for a length": _OK + b"content-length: two\r\n\r\n{}",
    "a length of 30 digits": _OK + b"content-length: " + b"9" * 30 + b"\r\n\r\n{}",
    "length and chunks": _OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    "broken chunks": _OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n{",
    "half a chunk": _OK + b"transfer-encoding: chunked\r\n\r\n9\r\n{",
    "no last chunk": _OK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "a huge header": _OK + b"x: " + b"x" * 100_000 + b"\r\n\r\n{}",
    "a huge reason": b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n{}",
    "many headers": _OK + b"x: x\r\n" * 40_000 + b"\r\n{}",
    "no header": _OK + b"no header\r\n\r\n{}",
    "half of what is packed": _OK
    + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(_HALF)
    + _HALF,
    "nothing packed": _OK + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
}

# A whole answer, with a reason phrase in Latin-1.
NO_UTF_8 = b"HTTP/1.1 503 momentan\xe9ment\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class RawServer:
    """Answers each request with these bytes, and hangs up."""

    said: bytes
    url: str = ""
    asked: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        writer.write(self.said)
        with contextlib.suppress(ConnectionError):  # who has read enough hangs up first
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def saying(said: bytes) -> AsyncIterator[RawServer]:
    """Such a server, on a port of its own."""
    raw = RawServer(said=said)
    async with await asyncio.start_server(raw.answer, HOST, 0) as server:
        raw.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield raw
