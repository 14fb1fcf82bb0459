"""A History Service that serves sample sessions: TARSy's API as far as the consumer uses it.

    GET /api/v1/history/sessions                         a page of sessions, newest first
    GET /api/v1/history/sessions/{id}                    everything about one session
    GET /api/v1/history/sessions/{id}/final-analysis     its result, on request with conversation

Errors answer `{"detail": "<what is wrong>"}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from consumer.demo.sample_sessions import SampleSession

MAX_PAGE_SIZE = 100

# What the list shows of a session: an overview, without alert, conversation and analysis.
OVERVIEW = (
    "session_id",
    "alert_type",
    "agent_type",
    "status",
    "author",
    "started_at_us",
    "completed_at_us",
    "error_message",
    "llm_interaction_count",
    "mcp_communication_count",
    "total_interactions",
    "session_input_tokens",
    "session_output_tokens",
    "session_total_tokens",
    "chain_id",
    "current_stage_index",
    "duration_ms",
)


def app(sessions: Mapping[str, SampleSession]) -> Starlette:
    """The service over `sessions`, which is read anew for every request."""

    def find(request: Request) -> SampleSession:
        session_id = request.path_params["session_id"]
        if session_id not in sessions:
            raise HTTPException(404, f"Session {session_id} not found")
        return sessions[session_id]

    async def list_sessions(request: Request) -> Response:
        return JSONResponse(_Query.parse(request.query_params).page_of(sessions))

    async def session_detail(request: Request) -> Response:
        return JSONResponse(find(request).detail)

    async def final_analysis(request: Request) -> Response:
        final = find(request).final
        if request.query_params.get("include_conversation", "").lower() not in ("true", "1"):
            final = final | {"llm_conversation": None, "chat_conversation": None}
        return JSONResponse(final)

    routes = [
        Route("/sessions", list_sessions),
        Route("/sessions/{session_id}", session_detail),
        Route("/sessions/{session_id}/final-analysis", final_analysis),
    ]
    return Starlette(
        routes=[Mount("/api/v1/history", routes=routes)],
        exception_handlers={HTTPException: _error},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """The list's filters; all that are given must hold. Times compare with a session's start."""

    statuses: frozenset[str]
    alert_type: str | None
    start_date_us: int | None
    end_date_us: int | None
    page: int
    page_size: int

    @classmethod
    def parse(cls, params: QueryParams) -> Self:
        """The query of a URL.

        Raises HTTPException 422 for a value out of range, 400 for a start not before the end.
        """
        start_us, end_us = _integer(params, "start_date_us"), _integer(params, "end_date_us")
        if start_us is not None and end_us is not None and start_us >= end_us:
            raise HTTPException(400, "start_date_us must be before end_date_us")
        return cls(
            statuses=frozenset(filter(None, params.getlist("status"))),
            alert_type=params.get("alert_type") or None,
            start_date_us=start_us,
            end_date_us=end_us,
            page=_integer(params, "page", at_least=1) or 1,
            page_size=_integer(params, "page_size", at_least=1, at_most=MAX_PAGE_SIZE) or 20,
        )

    def page_of(self, sessions: Mapping[str, SampleSession]) -> dict[str, Any]:
        found = [session.detail for session in sessions.values() if self._matches(session.detail)]
        found.sort(key=lambda detail: int(detail["started_at_us"]), reverse=True)
        first = (self.page - 1) * self.page_size
        shown = found[first : first + self.page_size]
        return {
            "sessions": [{name: detail[name] for name in OVERVIEW} for detail in shown],
            "pagination": {
                "page": self.page,
                "page_size": self.page_size,
                "total_pages": -(-len(found) // self.page_size),
                "total_items": len(found),
            },
        }

    def _matches(self, detail: dict[str, Any]) -> bool:
        started_us = detail["started_at_us"]
        return (
            (not self.statuses or detail["status"] in self.statuses)
            and self.alert_type in (None, detail["alert_type"])
            and (self.start_date_us is None or started_us >= self.start_date_us)
            and (self.end_date_us is None or started_us <= self.end_date_us)
        )


def _integer(
    params: QueryParams, name: str, *, at_least: int = 0, at_most: int | None = None
) -> int | None:
    text = params.get(name)
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise HTTPException(422, f"{name} must be an integer, not {text!r}") from None
    if value < at_least or (at_most is not None and value > at_most):
        upper = "" if at_most is None else f" and at most {at_most}"
        raise HTTPException(422, f"{name} must be at least {at_least}{upper}")
    return value


async def _error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code)
