"""Logs: one JSON object a line on standard error, with the ids that are bound to the task."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

# Libraries that say at INFO what our own lines say better.
QUIET = ("aiokafka", "httpx", "uvicorn.access", "asyncio")
# It warns of how it is set up, which is meant so.
ONLY_ERRORS = ("consumer.faststream",)


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
