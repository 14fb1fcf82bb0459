"""How many calls at a time: found out by trying, as TCP does (additive increase, multiplicative
decrease: Chiu and Jain, 1989).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from consumer.limits.turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One call's place. Tell one of the two once, as the last thing before leaving; or neither,
    where the call says nothing about the provider's load.
    """

    succeeded: Callable[[], None]
    congested: Callable[[], None]


class AdaptiveConcurrency:
    """At most `limit` calls at a time, from 1 to `ceiling`; it starts at `start`, or the ceiling.

    A round is as many calls as the limit. If more than a share of `tolerance` of it meet congestion
    (429, overload), the limit is halved at once; a round that ends without raises it by one. A call
    from before the last halving does neither: it was made under another limit, and all calls of one
    round usually fail together. After a halving no call starts until enough have ended. Calls are
    let in as they came.

    Why a tolerance: some providers turn away a few calls whatever the load. To halve at each of
    them would hold the limit near sqrt(2 / share): 4 calls at a time where a tenth is turned away.
    """

    def __init__(self, ceiling: int, *, start: int | None = None, tolerance: float = 0.0) -> None:
        self.limit = ceiling if start is None else start
        self._tolerance = tolerance
        self._congestions = 0
        self.in_flight = 0
        self._ceiling = ceiling
        self._turns = Turns()
        self._successes = 0
        self._halvings = 0

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return len(self._turns)

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        """Waits for a free slot, and holds it. Cancellation at any moment loses none."""
        await self._turns.wait(self._take, self._give_back)
        try:
            yield Slot(
                succeeded=partial(self._succeeded, self._halvings),
                congested=partial(self._congested, self._halvings),
            )
        finally:
            self._give_back()
            self._turns.serve()

    def _take(self) -> bool:
        if self.in_flight >= self.limit:
            return False
        self.in_flight += 1
        return True

    def _give_back(self) -> None:
        self.in_flight -= 1

    def _succeeded(self, halvings: int) -> None:
        if halvings != self._halvings:
            return
        self._successes += 1
        self._end_round()

    def _congested(self, halvings: int) -> None:
        if halvings != self._halvings:
            return
        self._congestions += 1
        if self._congestions <= self._tolerance * self.limit:
            self._end_round()
            return
        self._halvings += 1
        self._successes = self._congestions = 0
        self.limit = max(self.limit // 2, 1)

    def _end_round(self) -> None:
        if self._successes + self._congestions >= self.limit:
            self._successes = self._congestions = 0
            self.limit = min(self.limit + 1, self._ceiling)
