"""Loops that must not die unseen: each ticks, and what does not tick takes the process down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from time import monotonic

import structlog

from consumer import metrics
from consumer.errors import NotReachable

log = structlog.get_logger()

FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 15.0
STANDSTILL_S = 2.0
LOOK_EVERY_S = 1.0


class Heartbeat:
    """When a loop last showed that it is alive. `limit_s` is how long it may be silent."""

    def __init__(self, name: str, *, limit_s: float) -> None:
        self.name = name
        self.limit_s = limit_s
        self._at = monotonic()

    def tick(self) -> None:
        """The loop is alive."""
        self._at = monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the last tick."""
        return monotonic() - self._at

    @property
    def alive(self) -> bool:
        return self.age_s <= self.limit_s


@contextlib.contextmanager
def standstills(woken: Callable[[float], None]) -> Iterator[None]:
    """Tells of a process that stood still (was frozen, or its loop was held up), and for how many
    seconds, before any task that waited for a time goes on: nobody could tick meanwhile.
    """
    loop, due = asyncio.get_running_loop(), monotonic()
    timer: asyncio.Handle

    def look() -> None:
        nonlocal due, timer
        late_s = monotonic() - due
        if late_s > STANDSTILL_S:
            woken(late_s)
        due = monotonic() + LOOK_EVERY_S
        timer = loop.call_later(LOOK_EVERY_S, look)

    timer = loop.call_soon(look)
    try:
        yield
    finally:
        timer.cancel()


class Signal:
    """Wakes a loop before its next poll. Setting it twice wakes once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """There is something to do."""
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Returns when set, or after `timeout_s`; clears itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        self._event.clear()


class Backoff:
    """Growing pauses while a server is away, and one log line for each. `stop` ends a pause."""

    def __init__(self, loop: str, heartbeat: Heartbeat, stop: asyncio.Event) -> None:
        self._loop = loop
        self._heartbeat = heartbeat
        self._stop = stop
        self._delay_s = FIRST_BACKOFF_S

    @contextlib.asynccontextmanager
    async def bear(self) -> AsyncIterator[None]:
        """Swallows NotReachable, and pauses; anything else passes. A success resets the pause."""
        try:
            yield
        except NotReachable as error:
            metrics.SERVER_UNREACHABLE.labels(self._loop, error.server).inc()
            log.warning(
                "server_not_reachable", loop=self._loop, error=str(error), again_in_s=self._delay_s
            )
            self._heartbeat.tick()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._delay_s):
                    await self._stop.wait()
            self._delay_s = min(self._delay_s * 2, LAST_BACKOFF_S)
        else:
            self._delay_s = FIRST_BACKOFF_S
