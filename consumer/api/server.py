"""An HTTP server inside a process that has other things to do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import uvicorn


class Server(uvicorn.Server):
    """uvicorn without signal handlers: its owner decides when everything stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves all signals as they are."""
        yield
