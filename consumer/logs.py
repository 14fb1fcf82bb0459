"""Logs: one JSON object a line on standard error, with the ids that are bound to the task."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from collections import Counter
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import structlog

from consumer import metrics

# Libraries that say at INFO what our own lines say better.
QUIET = ("aiokafka", "httpx", "uvicorn.access", "asyncio")
# The one warns of how it is set up, which is meant so; the other that it can't connect again, with
# a trace and the ids of a request that has nothing to do with it: our own lines tell that.
ONLY_ERRORS = ("consumer.faststream", "asyncpg.pool")


# Of such a library's lines each place in its code has one in so many seconds: they tell of a broker
# that is away fifty times a second, and thousands of times that no file can be opened any more.
BOUNDED = ("aiokafka", "asyncio")
BOUNDED_EVERY_S = 10.0


class Bounded(logging.Filter):
    """Leaves out what a bounded library repeats, and tells how much that was."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told_at: dict[tuple[str, int, str], float] = {}
        self._left_out = Counter[tuple[str, int, str]]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to tell it."""
        if not record.name.startswith(BOUNDED):
            return True
        # asyncio tells all its errors in one place; the first line, a constant, says of which kind.
        kind = str(record.msg).partition("\n")[0] if record.name == "asyncio" else ""
        place, now = (record.pathname, record.lineno, kind), self._clock()
        if now - self._told_at.get(place, -inf) < BOUNDED_EVERY_S:
            self._left_out[place] += 1
            return False
        self._told_at[place] = now
        if more := self._left_out.pop(place, 0):
            record.msg, record.args = f"{record.getMessage()} ({more} more such lines)", ()
        return True


# Of lines that nobody reads so many bytes wait; and a reader that is slow has a moment at the end.
MOST_WAITING = 1024 * 1024
LAST_MOMENT_S = 1.0


class NeverBlocking(logging.Handler):
    """Writes lines to a file, at once where it takes them. Where it does not, such as a pipe whose
    reader stands still, lines wait, and beyond `most` bytes they are dropped and counted: the event
    loop, and with it all work and probes, would stand still as well.
    """

    def __init__(self, fd: int, most: int = MOST_WAITING) -> None:
        super().__init__()
        self._fd, self._most = fd, most
        self._waiting = bytearray()
        self._dropped = 0
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes or keeps the line, or drops it."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)
            return
        if len(self._waiting) + len(line) > self._most:
            self._drop(1)
        else:
            self._waiting += line
        self._write()

    def flush(self) -> None:
        """Writes what waits, as far as it is taken."""
        with self.lock or contextlib.nullcontext():
            self._write()

    def close(self) -> None:
        """Writes what waits; not for long."""
        self._write(until=monotonic() + LAST_MOMENT_S)
        super().close()

    def _write(self, until: float = 0.0) -> None:
        while self._waiting and self._room.poll(max(0.0, until - monotonic()) * 1000):
            try:
                # No more than a pipe that has room takes without blocking.
                written = os.write(self._fd, self._waiting[: select.PIPE_BUF])
            except BlockingIOError:
                return
            except OSError:  # nobody will ever read it
                self._drop(self._waiting.count(b"\n"))
                self._waiting.clear()
                return
            del self._waiting[:written]
            if self._dropped and not self._waiting:
                self._waiting += self._told()

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        metrics.LOG_LINES_DROPPED.inc(lines)

    def _told(self) -> bytes:
        text = f"{self._dropped} log line(s) dropped: nobody read them"
        self._dropped = 0
        about = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
        return f"{self.format(logging.makeLogRecord(about))}\n".encode()


def catch_up() -> None:
    """Writes what waits: without new lines nobody else would."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def set_up(level: str, log_format: str, *, handler: logging.Handler | None = None) -> None:
    """Sends our own and all libraries' log lines through one formatter, to standard error where
    there is no `handler`.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if log_format == "json" else _as_is,
    ]
    structlog.configure(
        # First of all: what is not told shall cost nothing.
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.addFilter(Bounded())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ONLY_ERRORS:
        logging.getLogger(name).setLevel(logging.ERROR)


def _as_is(_logger: Any, _method: str, event: Any) -> Any:
    return event
