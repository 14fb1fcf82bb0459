"""What a request may cost before anyone looks at what it asks."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumer.api import problems

# What people and scripts send here are names, reasons and numbers. Sessions come from History.
MAX_BODY_BYTES = 1024 * 1024


class BodyLimit:
    """Answers 413 to a body above `max_bytes`: at once where its length is told, else as soon as a
    route has read that much. No route needs a limit of its own.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _told_length(scope) > self._max_bytes:
            problem = problems.Problem(413, "content_too_large", self._told)
            await problems.answer(problem)(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                # Starlette and FastAPI answer this as it is, wherever a route reads its body.
                raise HTTPException(413, self._told)
            return message

        return counted

    @property
    def _told(self) -> str:
        return f"the body is larger than {self._max_bytes} bytes"


def _told_length(scope: Scope) -> int:
    """The Content-Length; 0 where there is none, for servers refuse one that is no number."""
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isdecimal() else 0
