"""How much is asked over HTTP, and how long it takes."""

from __future__ import annotations

from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer import metrics

OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measured:
    """Counts and times what the API answers, by the template of its route: ids make no series."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # When the answer begins: a stream lasts as long as its reader likes.
                metrics.HTTP_SECONDS.labels(*_route(scope)).observe(perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            metrics.HTTP_REQUESTS.labels(*_route(scope), str(status)).inc()


def _route(scope: Scope) -> tuple[str, str]:
    path = getattr(scope.get("route"), "path", OTHER)
    method = scope["method"]
    return path, method if method in METHODS else OTHER
