"""What went wrong, as RFC 9457 problem JSON: the HTTP status' words, what and where, and a code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

MEDIA_TYPE = "application/problem+json"
SHOWN_CHARACTERS = 80
RETRY_AFTER_S = 5


class Problem(Exception):
    """Ends a request with this status. `code` is for programs, `detail` for people; `more` are the
    problem's own members, such as the state that a request is in.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.more = headers, more


class _ProblemResponse(JSONResponse):
    """In ASCII: somebody's input may hold what is no UTF-8, such as half a surrogate pair."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, default=str).encode()


def answer(problem: Problem) -> Response:
    """The problem as it is sent."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.more,
    }
    headers = dict(problem.headers or {})
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("retry-after", str(RETRY_AFTER_S))
    return _ProblemResponse(body, status_code=problem.status, headers=headers)


async def answered(_: Request, error: Exception) -> Response:
    """The handler of Problem."""
    assert isinstance(error, Problem)  # noqa: S101  Starlette calls it with nothing else
    return answer(error)


def invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """What pydantic found in path, query, headers or body: each place with what is allowed."""
    if broken := next((e for e in errors if e["type"] == "json_invalid"), None):
        why = broken.get("ctx", {}).get("error", broken["msg"])
        return Problem(400, "not_json", f"the body is not JSON: {shown(why)}")
    found = [
        {
            "where": shown(".".join(map(str, e["loc"]))),
            "problem": e["msg"],
            "got": shown(e.get("input")),
        }
        for e in errors
    ]
    first = found[0]
    return Problem(422, "invalid", f"{first['where']}: {first['problem']}", errors=found)


def shown(value: Any, limit: int = SHOWN_CHARACTERS) -> str:
    """Somebody's input as it may be told: short, and printable whatever it holds."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:
        return "something nested very deeply"
    return ascii(text[:limit])[1:-1]
