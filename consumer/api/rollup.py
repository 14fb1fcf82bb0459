"""Keeps the figures of finished days, so that reports need not count them each time.

Reports are right without: an open day is counted when it is asked for. So nothing depends on how
often this runs, or on how many processes do it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

from consumer.loops import Backoff, Heartbeat

EVERY_S = 60.0
# Days at a time: between two a process that is told to stop stops.
BATCH = 1
SILENT_S = 300.0


class Days(Protocol):
    """The days whose figures are to be kept. Raises NotReachable."""

    async def roll_up(self, *, limit: int) -> int:
        """Keeps the figures of up to `limit` finished days; answers of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUp:
    """One loop of a process that serves the API."""

    days: Days
    every_s: float = EVERY_S

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        backoff = Backoff("rollup", Heartbeat("rollup", limit_s=SILENT_S), stop)
        while not stop.is_set():
            async with backoff.bear():
                while await self.days.roll_up(limit=BATCH) and not stop.is_set():
                    pass
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.every_s):
                    await stop.wait()
