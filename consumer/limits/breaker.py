"""A circuit breaker: a provider that is unwell is left alone, then asked by one call at a time.

Own code: the libraries let every waiter through when half-open, or count cancellations as failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial

THRESHOLD = 5
OPEN_S = 30.0


class State(StrEnum):
    """Closed: calls go. Open: none does. Half-open: one does, the probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class _Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DROPPED = "dropped"


class Permit:
    """Leave to make one call. Settle it once, however the call ends: an unsettled probe keeps all
    others out. A second time raises RuntimeError.
    """

    def __init__(self, settle: Callable[[_Outcome], None]) -> None:
        self._settle = settle
        self._settled = False

    def succeeded(self) -> None:
        """The provider answered as it should."""
        self._end(_Outcome.SUCCEEDED)

    def failed(self) -> None:
        """The provider is unwell: overloaded, broken, too slow or out of reach."""
        self._end(_Outcome.FAILED)

    def dropped(self) -> None:
        """The call says nothing about the provider: cancelled, refused, too long for its context.
        It never counts; after a dropped probe the next may go at once.
        """
        self._end(_Outcome.DROPPED)

    def _end(self, outcome: _Outcome) -> None:
        if self._settled:
            raise RuntimeError("a permit is settled once")
        self._settled = True
        self._settle(outcome)


class Breaker:
    """Opens after `threshold` failures in a row, for `open_s` seconds; then a probe may go. Its
    success closes the breaker, its failure opens it for as long again.

    What was let through before the breaker last opened no longer counts, however it ends.
    """

    def __init__(
        self,
        *,
        threshold: int = THRESHOLD,
        open_s: float = OPEN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.opened_total = 0
        """How often it opened, a failed probe's times included."""
        self._threshold = threshold
        self._open_s = open_s
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> State:
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN

    @property
    def retry_after_s(self) -> float:
        """Seconds until a call may go; 0 exactly where `enter` would let one through now. While a
        probe is under way, what it would be if the probe failed now.
        """
        if self._open_until is None:
            return 0.0
        if self._probing:
            return self._open_s
        return max(0.0, self._open_until - self._clock())

    def enter(self) -> Permit | None:
        """Leave to make one call; None where the breaker is open or a probe is under way."""
        state = self.state
        if state is State.OPEN or self._probing:
            return None
        self._probing = state is State.HALF_OPEN
        return Permit(partial(self._settle, self.opened_total))

    def _settle(self, opened_before: int, outcome: _Outcome) -> None:
        if opened_before != self.opened_total:
            return
        # Unless closed, this is the probe: nobody else was let through since it last opened.
        self._probing = False
        if outcome is _Outcome.SUCCEEDED:
            self._failures = 0
            self._open_until = None
        elif outcome is _Outcome.FAILED:
            self._failures += 1  # a failed probe is one more in the same row
            if self._failures >= self._threshold:
                self._open()

    def _open(self) -> None:
        self._open_until = self._clock() + self._open_s
        self.opened_total += 1
