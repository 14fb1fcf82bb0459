"""What all HTTP edges share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from httpx_aiohttp import AiohttpTransport

# Longer than any deadline; a server's absurd wish must not become an absurd number.
LONGEST_RETRY_AFTER_S = 86_400.0


def open_client(
    base_url: str, *, timeout_s: float, headers: Mapping[str, str]
) -> httpx.AsyncClient:
    """A client without retries and redirects, on aiohttp's connection pool: httpx's own costs
    10-25 ms CPU a request at 100 connections and more.
    """
    return httpx.AsyncClient(
        base_url=base_url,
        timeout=httpx.Timeout(timeout_s, connect=5.0),
        headers=dict(headers),
        follow_redirects=False,
        transport=AiohttpTransport(
            # aiohttp's word for no limit; None would leave its own of 100 in force.
            limits=httpx.Limits(max_connections=0, max_keepalive_connections=256)
        ),
    )


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
