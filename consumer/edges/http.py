"""What all HTTP edges share."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache

import aiohttp
import certifi
from yarl import URL

CONNECT_TIMEOUT_S = 5.0
KEPT_ALIVE_S = 5.0
# Longer than any deadline; a server's absurd wish must not become an absurd number.
LONGEST_RETRY_AFTER_S = 86_400.0


@dataclass(slots=True, kw_only=True)
class Client:
    """One server, without retries, redirects and cookies. `timeout_s` is for a whole call: whoever
    makes it keeps to it. `more_headers` are asked for with each request.
    """

    base_url: URL
    timeout_s: float
    session: aiohttp.ClientSession
    more_headers: Callable[[], Mapping[str, str]] = dict

    def request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer, whose body is read in the context; an unread rest is not waited for.

        `path` is encoded, and goes behind the base URL's; an empty one adds nothing. Raises
        aiohttp.ClientError.
        """
        return self.session.request(
            method,
            self._url(path),
            data=content,
            headers={**(headers or {}), **self.more_headers()},
            allow_redirects=False,
        )

    def _url(self, path: str) -> URL:
        if not path:
            return self.base_url
        return URL(f"{str(self.base_url).rstrip('/')}/{path.lstrip('/')}", encoded=True)


@asynccontextmanager
async def open_client(
    base_url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str],
    connect_s: float = CONNECT_TIMEOUT_S,
) -> AsyncIterator[Client]:
    """A client with as many connections as there are calls."""
    # httpx on top of it, or in its place, takes two to three times the CPU.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_ALIVE_S, ssl=_trusted())
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
    ) as session:
        yield Client(base_url=URL(base_url), timeout_s=timeout_s, session=session)


@cache
def _trusted() -> ssl.SSLContext:
    """SSL_CERT_FILE, SSL_CERT_DIR, or else Mozilla's certificates."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    return ssl.create_default_context(cafile=certifi.where())


async def body_of(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """The whole body; None where it is longer: a huge one shall not fill the memory."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds from now, in either form (RFC 9110, 10.2.3); None where unreadable."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    wait_s = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(0.0, wait_s), LONGEST_RETRY_AFTER_S)
