"""The configured History Service, put together: for the consumer, and for `check`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from consumer.addresses import header
from consumer.edges.history.access import TokenFile
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.http import open_client
from consumer.settings import Settings


@contextlib.asynccontextmanager
async def open_history(
    settings: Settings, labels: Mapping[str, str]
) -> AsyncIterator[TarsyPythonHistory]:
    """The service over a client of its own, which tells it who we are."""
    token, other = settings.history_token, settings.history_header
    headers = dict(header(other.get_secret_value())) if other else {}
    if token:
        headers["authorization"] = f"Bearer {token.get_secret_value()}"
    limit_s = settings.history_timeout_seconds
    async with open_client(settings.history_url, timeout_s=limit_s, headers=headers) as client:
        if token and (path := settings.history_token_file):
            renewed = TokenFile(path, token.get_secret_value())
            client.event_hooks["request"].append(renewed.authorize)
        yield TarsyPythonHistory(
            client=client,
            labels=labels,
            max_bytes=settings.history_max_bytes,
            timeout_s=limit_s,
        )
