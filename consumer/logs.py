"""Logs: one JSON object a line on standard error, with the ids that are bound to the task."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import structlog

# Libraries that say at INFO what our own lines say better.
QUIET = ("aiokafka", "httpx", "uvicorn.access", "asyncio")
# It warns of how it is set up, which is meant so.
ONLY_ERRORS = ("consumer.faststream",)


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


def set_up(level: str, log_format: str) -> None:
    """Sends our own and all libraries' log lines through one formatter."""
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
    handler = logging.StreamHandler(sys.stderr)
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
