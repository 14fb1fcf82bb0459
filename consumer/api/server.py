"""An HTTP server inside a process that has other things to do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# As uvicorn has it with h11. With httptools, which takes a sixth less CPU for all that a request
# takes, it has none.
MAX_HEAD_BYTES = 64 * 1024


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 by httptools; answers 400 to a head that grows above MAX_HEAD_BYTES."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._in_head = False
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """Called by the parser."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        super().on_headers_complete()
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Called by the transport with at most 256 KiB."""
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"path and headers take more than {MAX_HEAD_BYTES} bytes")


class Server(uvicorn.Server):
    """uvicorn without signal handlers: its owner decides when everything stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leaves all signals as they are."""
        yield
