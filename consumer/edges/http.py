"""What all HTTP edges share."""

from __future__ import annotations

import os
import re
import ssl
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
from aiohttp.connector import Connection
from httpx_aiohttp import AiohttpTransport

# Longer than any deadline; a server's absurd wish must not become an absurd number.
LONGEST_RETRY_AFTER_S = 86_400.0
# No longer than servers keep theirs: what they closed can't be asked.
KEEP_ALIVE_S = 5.0
# What a client raises while a call fails. The transport lets some of aiohttp's own errors through:
# those of a broken protocol.
FAILURES = (httpx.HTTPError, aiohttp.ClientError)

_HOST = re.compile(r"[A-Za-z0-9.-]{1,100}")
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,50}/[a-z0-9.+-]{1,50}")
_WEB_PAGES = {"text/html", "application/xhtml+xml"}
# The special ones first: some are kinds of others.
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorDNSError, "its host's name is not known"),
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted"),
    (aiohttp.ClientConnectorSSLError, "it speaks no TLS that we speak"),
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (aiohttp.ServerTimeoutError, "no answer in time"),
    (aiohttp.ServerDisconnectedError, "it hung up without an answer"),
    (aiohttp.ClientPayloadError, "its answer broke off"),
    (aiohttp.ClientResponseError, "its answer is no HTTP"),
    (httpx.DecodingError, "its answer can't be unpacked"),
)
_PACKED = {"gzip", "x-gzip", "deflate"}
_UNPACKED = {"", "identity"}
_GZIP_OR_ZLIB = 47  # zlib's word for either, by what the data begin with


def open_client(
    base_url: str, *, timeout_s: float, headers: Mapping[str, str]
) -> httpx.AsyncClient:
    """A client without retries, redirects and cookies, on aiohttp's connection pool: httpx's own
    costs 10-25 ms CPU a request at 100 connections and more.
    """
    return _Direct(
        AiohttpTransport(client=_session, verify=_tls()),
        base_url=base_url,
        timeout=httpx.Timeout(timeout_s, connect=5.0),
        # What `read_body` can unpack piece by piece.
        headers={"accept-encoding": "gzip", **headers},
    )


class _Direct(httpx.AsyncClient):
    """Requests go to the transport as they are, but for what a hook adds: the arguments `auth` and
    `follow_redirects` do nothing.

    A load balancer's cookie, sent back, would bind all calls of this process to one server.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, **settings: Any) -> None:
        super().__init__(transport=transport, **settings)
        self._direct = transport

    async def send(
        self, request: httpx.Request, *, stream: bool = False, **_: Any
    ) -> httpx.Response:
        for hook in self.event_hooks["request"]:
            await hook(request)
        response = await self._direct.handle_async_request(request)
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response


def _session() -> aiohttp.ClientSession:
    """Without a limit of connections: who calls has one."""
    connector = aiohttp.TCPConnector(limit=0, ssl=_tls(), keepalive_timeout=KEEP_ALIVE_S)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), response_class=_Response
    )


class _Response(aiohttp.ClientResponse):
    """Without a reason phrase: it may be in any encoding, and the transport fails at all but
    UTF-8. The status tells as much.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.reason = None
        return self


@cache
def _tls() -> ssl.SSLContext:
    """One for all: to read the authorities' certificates takes 20 to 30 ms."""
    return httpx.create_ssl_context()


class BodyRefused(Exception):
    """A body that is not read. The message goes on after "the answer"."""


class NoRoom(Exception):
    """A body for which there is no room now; `size` is what to ask for."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"no room for {size} bytes")


async def read_body(
    response: httpx.Response, max_bytes: int, fits: Callable[[int], bool] = lambda _: True
) -> bytes:
    """The whole body, unpacked; no memory is spent on what goes beyond `max_bytes`. `fits`: whether
    there is room for so many bytes; asked before they are read where the length is told.

    Raises BodyRefused where it is larger, or packed otherwise than by gzip, NoRoom, and one of
    FAILURES where it is cut off or broken.
    """
    unpacker = _unpacker(response.headers.get("content-encoding", ""))
    if not fits(told := min(_told_size(response), max_bytes)):
        raise NoRoom(told)
    pieces: list[bytes] = []
    received = size = 0
    async for chunk in response.aiter_raw():
        received += len(chunk)
        piece = _unpacked(unpacker, chunk, max_bytes + 1 - size) if unpacker else chunk
        size += len(piece)
        if max(size, received) > max_bytes:
            raise BodyRefused(f"is larger than {max_bytes} bytes")
        if not fits(size):
            raise NoRoom(2 * size)  # the length is not told: it may be any
        pieces.append(piece)
    if unpacker and received and not unpacker.eof:
        raise httpx.DecodingError("the body ends before what is packed in it")
    return b"".join(pieces)


def _told_size(response: httpx.Response) -> int:
    """Bytes on the way, 0 where that is not told."""
    told = response.headers.get("content-length", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 20 else 0


def _unpacker(encoding: str) -> zlib._Decompress | None:
    """None for what is not packed."""
    encoding = encoding.strip().lower()
    if encoding in _UNPACKED:
        return None
    if encoding not in _PACKED:
        raise BodyRefused("has a Content-Encoding that was not asked for; gzip was")
    return zlib.decompressobj(wbits=_GZIP_OR_ZLIB)


def _unpacked(unpacker: zlib._Decompress, chunk: bytes, most: int) -> bytes:
    if unpacker.eof:
        return b""
    try:
        return unpacker.decompress(chunk, most)
    except zlib.error as error:
        # Not as its cause, whose name says nothing.
        raise httpx.DecodingError(f"the body can't be unpacked: {error}") from None


def elsewhere(status: int, headers: Mapping[str, str]) -> str:
    """What shows that something else answers, such as a proxy; empty where nothing does."""
    if 300 <= status < 400:
        return f"a redirect to {_host(headers.get('location', ''))}"
    if (kind := media_type(headers)) in _WEB_PAGES:
        return f"a web page ({kind}), maybe a proxy's, and no API"
    return ""


def media_type(headers: Mapping[str, str]) -> str:
    """The media type alone, empty where it is none: a header may hold anything."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind if _MEDIA_TYPE.fullmatch(kind) else ""


def _host(url: str) -> str:
    """The host alone, where it is a plain one: all else may hold what is secret."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    return host if _HOST.fullmatch(host) else "elsewhere"


def why(error: Exception) -> str:
    """What went wrong, in words: the transport has one name for a refused connection, an unknown
    host, a wrong certificate and a hang-up.
    """
    for cause in (error, error.__cause__):
        for kind, words in _WORDS:
            if isinstance(cause, kind):
                return words
        if isinstance(cause, OSError) and (cause.errno or 0) > 0:
            return os.strerror(cause.errno or 0).lower()  # such as "connection refused"
    return type(error.__cause__ or error).__name__


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds from now, in either form (RFC 9110, 10.2.3); None where unreadable."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(value)
        wait_s = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a year of twenty digits, say
        return None
    return min(max(0.0, wait_s), LONGEST_RETRY_AFTER_S)
