"""The HTTP API: its rooms, how it answers what goes wrong, and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from consumer import __version__
from consumer.api import (
    asking,
    batches,
    events,
    overrides,
    problems,
    profiles,
    reports,
    requests,
    scorecards,
    scores,
)
from consumer.api.access import Gate
from consumer.api.measure import Measured
from consumer.api.ports import Ports
from consumer.api.problems import Problem
from consumer.errors import NotReachable

OPENAPI = "/api/v1/openapi.json"
ROOMS = (
    scores.router,
    asking.router,
    requests.router,
    overrides.router,
    profiles.router,
    batches.router,
    events.router,
    scorecards.router,
    reports.router,
)
ABOUT = """Ask for scores of agent sessions, read them, and put your own beside them.

Errors are RFC 9457 problem JSON with a `code` for programs and a `detail` for people. In whose name
something is done is told by `X-Forwarded-User`, else `X-Forwarded-Email`. Where tokens are set,
every call needs `Authorization: Bearer`; scopes are read, score, override, admin."""


def build(ports: Ports | None, *, gate: Gate | None = None, origins: Sequence[str] = ()) -> FastAPI:
    """The API over these ports; without any it is good for its document only.

    Pages of these `origins` may call it.
    """
    api = FastAPI(
        title="score-consumer",
        version=__version__,
        description=ABOUT,
        openapi_url=OPENAPI,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.ports, api.state.gate = ports, gate or Gate()
    for room in ROOMS:
        api.include_router(room)
    api.add_exception_handler(Problem, problems.answered)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(NotReachable, _not_reachable)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(Exception, _bug)
    api.add_middleware(Measured)
    if origins:
        api.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
        )
    api.openapi = partial(document, api)  # type: ignore[method-assign]
    return api


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    return problems.answer(problems.invalid(error.errors()))


async def _not_reachable(_: Request, error: Exception) -> Response:
    return problems.answer(Problem(503, "not_reachable", str(error)))


async def _http(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: unknown paths, methods, bodies."""
    assert isinstance(error, HTTPException)  # noqa: S101
    detail = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = (
            f"nothing is at {problems.shown(request.url.path)}; session ids have letters, digits "
            "and . _ : - only, 128 at most"
        )
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return problems.answer(Problem(error.status_code, code, detail, headers=error.headers))


async def _bug(_: Request, __: Exception) -> Response:
    """The trace is in the log: Starlette raises it again after this answer."""
    return problems.answer(Problem(500, "internal_error", "a bug of ours; the log tells more"))


def document(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: every error is a problem, whatever FastAPI thinks of it."""
    if api.openapi_schema is None:
        made = get_openapi(
            title=api.title, version=api.version, description=ABOUT, routes=api.routes
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = _PROBLEM
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{}, {"token": []}]
        for methods in made["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _DEFAULT
        api.openapi_schema = made
    return api.openapi_schema


_DEFAULT = {
    "description": "What went wrong",
    "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457. `code` is stable; more members tell more, such as `errors`.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}
