"""TARSy's Python History API: the calls, and their errors as ours. It never retries by itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from consumer import metrics
from consumer.batches import Listed
from consumer.edges.history.tarsy_python_shape import (
    Detail,
    FinalAnalysis,
    SessionPage,
    listed,
    parse,
    session,
)
from consumer.edges.http import (
    FAILURES,
    BodyRefused,
    NoRoom,
    elsewhere,
    media_type,
    read_body,
    retry_after_s,
    why,
)
from consumer.errors import (
    HistoryInvalid,
    HistoryUnavailable,
    SessionEnded,
    SessionNotCompleted,
    SessionNotFound,
)
from consumer.limits.room import Place
from consumer.scoring.session import Session
from consumer.together import beside, let_others

BASE_PATH = "/api/v1/history"
PAGE_SIZE = 100  # what the service gives at most
# No model writes a longer analysis. There is room for it only once it is there, as it is little.
MAX_FINAL_BYTES = 2 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
# Its words for a session that is not there. FastAPI says "Not Found" of an unknown path.
_NO_SESSION = re.compile(r"session\b.*\bnot found\W*", re.IGNORECASE | re.DOTALL)
# Whoever answers these does not speak about the session.
_NOT_ABOUT_IT = frozenset({401, 403, 404, 405, 407, 408, 421, 425, 429, 451})
_REFUSED = ": it does not let us in; see HISTORY_TOKEN and HISTORY_HEADER"
_HINTS = {401: _REFUSED, 403: _REFUSED, 404: ": it has no such path; see HISTORY_URL"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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

    async def fetch(self, session_id: str, place: Place) -> Session:
        """See ports.History."""
        path = f"{BASE_PATH}/sessions/{quote(session_id, safe='')}"
        missing = f"the History Service knows no session {session_id!r}"
        answer = await self._in_place(place, path, missing)
        await let_others()
        detail = parse(Detail, answer)
        if detail.session_id != session_id:
            raise HistoryInvalid(f"session_id: asked for {session_id!r}, got {detail.session_id!r}")
        _require_completed(detail)
        final_analysis = detail.final_analysis
        if final_analysis is None:
            answer = await self._get(f"{path}/final-analysis", missing, most=MAX_FINAL_BYTES)
            final_analysis = parse(FinalAnalysis, answer).final_analysis
            if not place.grow(both := place.size + len(answer)):
                await place.resize(both)
        return await beside(place.size, self._session, detail, final_analysis)

    def _session(self, detail: Detail, final_analysis: str | None) -> Session:
        return session(detail, final_analysis=final_analysis, labels=self.labels)

    async def pages(
        self, *, start: datetime | None, end: datetime, alert_type: str | None
    ) -> AsyncIterator[list[Listed]]:
        """See batches.Sessions. Sessions that nobody could ask for, because of their ids, are left
        out; one that completes while pages are read may move another past us: it is the next run's.
        """
        query: dict[str, str | int] = {"status": COMPLETED, "end_date_us": _microseconds(end)}
        if start is not None:
            query["start_date_us"] = _microseconds(start)
        if alert_type is not None:
            query["alert_type"] = alert_type
        number, of = 1, 1
        while number <= of:
            asked = urlencode(query | {"page": number, "page_size": PAGE_SIZE})
            answer = await self._get(f"{BASE_PATH}/sessions?{asked}", "it lists no sessions")
            page = parse(SessionPage, answer)
            yield [listed(one, self.labels) for one in page.sessions if one.can_be_asked_for]
            number, of = number + 1, page.pagination.total_pages

    async def probe(self) -> None:
        """Asks for one listed session, as `pages` does for many. Raises what `fetch` does."""
        asked = urlencode({"status": COMPLETED, "page": 1, "page_size": 1})
        parse(SessionPage, await self._get(f"{BASE_PATH}/sessions?{asked}", "it lists no sessions"))

    async def _in_place(self, place: Place, path: str, missing: str) -> bytes:
        """Where there is no room for the answer now, it is asked for again once there is: nobody
        waits with half of one.
        """
        while True:
            try:
                answer = await self._get(path, missing, place.grow)
            except NoRoom as error:
                wanted = error.size  # and not the error, which holds what was read
            else:
                place.shrink(len(answer))
                return answer
            await place.resize(wanted)

    async def _get(
        self,
        path: str,
        missing: str,
        fits: Callable[[int], bool] = lambda _: True,
        most: int | None = None,
    ) -> bytes:
        with metrics.history_call():
            try:
                # httpx's own limits are for each read: a server that drips would pass them.
                async with (
                    asyncio.timeout(self.timeout_s),
                    self.client.stream("GET", path) as response,
                ):
                    await _require_ok(response, missing)
                    return await self._body(response, fits, most or self.max_bytes)
            except TimeoutError as error:
                raise HistoryUnavailable("the History Service does not answer in time") from error
            except FAILURES as error:
                raise HistoryUnavailable(
                    f"the History Service does not answer: {why(error)}"
                ) from error

    async def _body(
        self, response: httpx.Response, fits: Callable[[int], bool], most: int
    ) -> bytes:
        try:
            return await read_body(response, most, fits)
        except BodyRefused as error:
            raise HistoryInvalid(f"the History Service's answer {error}") from error


def _microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


async def _require_ok(response: httpx.Response, missing: str) -> None:
    """Final is only what History itself says: all else a gateway may say as well, of any session,
    and it passes.
    """
    code, other = response.status_code, elsewhere(response.status_code, response.headers)
    if code == httpx.codes.OK and not other:
        return
    detail = await _detail(response) if 400 <= code < 500 and not other else None
    if code == httpx.codes.NOT_FOUND and _NO_SESSION.fullmatch(str(detail)):
        raise SessionNotFound(missing)
    if detail is None or code in _NOT_ABOUT_IT:
        told = other or media_type(response.headers) or "no content type"
        raise HistoryUnavailable(
            f"the History Service answers {code} ({told}){_HINTS.get(code, '')}",
            retry_after=retry_after_s(response.headers),
        )
    raise HistoryInvalid(f"the History Service answers {code} to the request for a session")


async def _detail(response: httpx.Response) -> Any:
    """What the error says, where it has History's shape: {"detail": ...}; else None."""
    try:
        body = json.loads(await read_body(response, MAX_ERROR_BYTES))
    except (BodyRefused, RecursionError, ValueError):
        return None
    return body.get("detail") if isinstance(body, dict) else None


def _require_completed(detail: Detail) -> None:
    if detail.status in RUNNING:
        raise SessionNotCompleted(f"the session is {detail.status}, not {COMPLETED}")
    if detail.status in ENDED:
        raise SessionEnded(f"the session ended as {detail.status}; only completed ones are scored")
    if detail.status != COMPLETED:
        known = ", ".join(sorted({COMPLETED, *RUNNING, *ENDED}))
        raise HistoryInvalid(f"status: {detail.status[:40]!r} is unknown; known are {known}")
