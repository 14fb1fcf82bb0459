"""What all HTTP edges share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

# Longer than any deadline; a server's absurd wish must not become an absurd number.
LONGEST_RETRY_AFTER_S = 86_400.0
# No longer than servers keep theirs: what they closed can't be asked.
KEEP_ALIVE_S = 5.0


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
        headers=dict(headers),
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
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


@cache
def _tls() -> ssl.SSLContext:
    """One for all: to read the authorities' certificates takes 20 to 30 ms."""
    return httpx.create_ssl_context()


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
