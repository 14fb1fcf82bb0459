"""Who we are to the History Service: a bearer token that somebody renews."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx
import structlog

from consumer.addresses import bearer_token
from consumer.environment import text_in

log = structlog.get_logger()


@dataclass(slots=True)
class TokenFile:
    """A bearer token in a file that somebody renews, such as Kubernetes. Where it can't be read any
    more, the last one is sent: the service will say what it thinks of it.
    """

    path: Path
    token: str
    _seen: tuple[int, int] | None = field(default=None, init=False)

    async def authorize(self, request: httpx.Request) -> None:
        """A hook for requests of a client."""
        request.headers["authorization"] = f"Bearer {self._current()}"

    def _current(self) -> str:
        try:
            found = self.path.stat()
            if (seen := (found.st_mtime_ns, found.st_size)) != self._seen:
                self.token = bearer_token(text_in(self.path))
                self._seen = seen
        except (OSError, ValueError) as error:
            log.warning("history_token_unreadable", error=type(error).__name__)
        return self.token
