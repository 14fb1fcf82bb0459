"""TARSy's Python History API: the calls, and their errors as ours. It never retries by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from consumer import metrics
from consumer.edges.history.tarsy_python_shape import (
    Detail,
    FinalAnalysis,
    parse,
    session,
)
from consumer.edges.http import retry_after_s
from consumer.errors import (
    HistoryInvalid,
    HistoryUnavailable,
    SessionEnded,
    SessionNotCompleted,
    SessionNotFound,
)
from consumer.scoring.session import Session

BASE_PATH = "/api/v1/history"
COMPLETED = "completed"
RUNNING = frozenset({"pending", "in_progress", "paused", "canceling"})
ENDED = frozenset({"failed", "cancelled", "timed_out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TarsyPythonHistory:
    """Fetches sessions. `client` has the service's base URL; each of the one or two calls may
    take `timeout_s` and answer `max_bytes`.
    """

    client: httpx.AsyncClient
    labels: Mapping[str, str]
    max_bytes: int
    timeout_s: float

    async def fetch(self, session_id: str) -> Session:
        """See ports.History."""
        place = f"{BASE_PATH}/sessions/{quote(session_id, safe='')}"
        detail = parse(Detail, await self._get(place, session_id))
        if detail.session_id != session_id:
            raise HistoryInvalid(f"session_id: asked for {session_id!r}, got {detail.session_id!r}")
        _require_completed(detail)
        final_analysis = detail.final_analysis
        if final_analysis is None:
            answer = await self._get(f"{place}/final-analysis", session_id)
            final_analysis = parse(FinalAnalysis, answer).final_analysis
        return session(detail, final_analysis=final_analysis, labels=self.labels)

    async def _get(self, path: str, session_id: str) -> bytes:
        with metrics.history_call():
            try:
                # httpx's own limits are for each read: a server that drips would pass them.
                async with (
                    asyncio.timeout(self.timeout_s),
                    self.client.stream("GET", path) as response,
                ):
                    _require_ok(response, session_id)
                    return await self._body(response)
            except (httpx.HTTPError, TimeoutError) as error:
                raise HistoryUnavailable(
                    f"the History Service does not answer: {type(error).__name__}"
                ) from error

    async def _body(self, response: httpx.Response) -> bytes:
        """The whole body; a huge one is refused before it fills the memory."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self.max_bytes:
                raise HistoryInvalid(f"the session is larger than {self.max_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


def _require_ok(response: httpx.Response, session_id: str) -> None:
    code = response.status_code
    if code == httpx.codes.OK:
        return
    if code == httpx.codes.NOT_FOUND:
        raise SessionNotFound(f"the History Service knows no session {session_id!r}")
    if code >= 500 or code in {401, 403, 408, 425, 429}:
        raise HistoryUnavailable(
            f"the History Service answers {code}", retry_after=retry_after_s(response.headers)
        )
    raise HistoryInvalid(f"the History Service answers {code} to the request for a session")


def _require_completed(detail: Detail) -> None:
    if detail.status in RUNNING:
        raise SessionNotCompleted(f"the session is {detail.status}, not {COMPLETED}")
    if detail.status in ENDED:
        raise SessionEnded(f"the session ended as {detail.status}; only completed ones are scored")
    if detail.status != COMPLETED:
        known = ", ".join(sorted({COMPLETED, *RUNNING, *ENDED}))
        raise HistoryInvalid(f"status: {detail.status[:40]!r} is unknown; known are {known}")
