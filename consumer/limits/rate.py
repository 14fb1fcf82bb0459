"""How many requests, or tokens, a minute.

Own code rather than aiolimiter, which can't give back what an estimate took too much, can't pause
for a Retry-After, lets small amounts overtake a large one, and refuses amounts over its capacity.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from consumer.limits.turns import Turns

# Providers enforce a limit per minute over shorter windows too (OpenAI's guide to rate limits:
# 60,000 a minute may be 1,000 a second), so an idle minute is not saved up: only this much of it.
BURST_S = 10.0


class RateLimiter:
    """A token bucket, kept as the time when it is full again (GCRA, ITU-T I.371, annex A).

    It holds `BURST_S` of its rate. An amount passes when the bucket holds it; a larger one than it
    can hold passes when it is full, and leaves a debt that those behind it wait for. So in any
    window of W seconds at most rate * W + max(burst, the last amount) passes, and nothing waits
    longer than that asks for. First come, first served.
    """

    def __init__(self, per_minute: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`per_minute` is above 0. The clock runs as fast as the event loop's."""
        self._clock = clock
        self._rate = per_minute / 60
        self._full_at = clock()
        self._paused_until = clock()
        self._turns = Turns()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def available(self) -> float:
        """What would pass now were nobody waiting and no pause; below 0 it is a debt."""
        return (BURST_S - max(0.0, self._full_at - self._clock())) * self._rate

    @property
    def paused_s(self) -> float:
        """Seconds left of a pause, or 0."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def waiting(self) -> int:
        """Callers that wait for their turn."""
        return len(self._turns)

    async def acquire(self, amount: float = 1.0) -> None:
        """Waits until `amount` may pass, and takes it; nothing is taken where it is cancelled."""
        await self._turns.wait(partial(self._take, amount), partial(self.charge, -amount))

    def try_acquire(self, amount: float = 1.0) -> float:
        """Takes `amount` and answers 0, or takes nothing and answers how many seconds too early it
        is. For limiters that nobody waits at: it looks at no queue.
        """
        wait_s = self._wait_s(amount)
        if wait_s <= 0:
            self.charge(amount)
        return max(0.0, wait_s)

    def charge(self, amount: float) -> None:
        """Takes `amount` more, without waiting: an estimate was too low. May leave a debt."""
        self._full_at = max(self._full_at, self._clock()) + amount / self._rate

    def refund(self, amount: float) -> None:
        """Gives `amount` back: an estimate was too high. What no longer fits in is lost."""
        self.charge(-amount)
        self._turns.serve()

    def pause(self, seconds: float) -> None:
        """Nobody passes for so long, as a 429's Retry-After wishes. A longer pause stays."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _take(self, amount: float) -> bool:
        if (wait_s := self._wait_s(amount)) > 0:
            self._serve_in(wait_s)
            return False
        self.charge(amount)
        return True

    def _wait_s(self, amount: float) -> float:
        """Seconds until `amount` may pass; 0 or less: now."""
        cost_s = amount / self._rate
        bearable_at = self._full_at - max(0.0, BURST_S - cost_s)
        return max(bearable_at, self._paused_until) - self._clock()

    def _serve_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # May come early, after a charge or a pause; the head is then asked again, and waits on.
        self._timer = asyncio.get_running_loop().call_later(seconds, self._turns.serve)
