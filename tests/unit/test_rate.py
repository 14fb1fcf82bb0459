"""The rate limiter: never more than the rate and a burst, in order, and no later than needed."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import combinations_with_replacement
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.limits.rate import BURST_S, RateLimiter
from tests.unit.virtual_time import in_virtual_time

# One a second, so that amounts are seconds; the bucket holds ten.
PER_MINUTE = 60.0
BURST = 10.0
TOLERANCE = 1e-6

Arrivals = list[tuple[float, float]]
rates = st.sampled_from([3.0, 60.0, 500.0, 90_000.0])
# In shares of what the bucket holds: crumbs, some that fill it, and some that it can't hold.
shares = st.sampled_from([0.01, 0.1, 0.3, 0.5, 1.0, 1.7, 4.0])
gaps_s = st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, 7.5, 20.0])
arrivals = st.lists(st.tuples(gaps_s, shares), min_size=1, max_size=12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    at: float
    amount: float
    number: int


class Gate:
    """A limiter, and what passed it when."""

    def __init__(self, per_minute: float = PER_MINUTE) -> None:
        self._loop = asyncio.get_running_loop()
        self.limiter = RateLimiter(per_minute, clock=self._loop.time)
        self.passed: list[Passed] = []
        self.tasks: list[asyncio.Task[None]] = []

    def arrive(self, amount: float) -> asyncio.Task[None]:
        task = self._loop.create_task(self._pass(amount, len(self.tasks)))
        self.tasks.append(task)
        return task

    async def _pass(self, amount: float, number: int) -> None:
        await self.limiter.acquire(amount)
        self.passed.append(Passed(at=self._loop.time(), amount=amount, number=number))

    @property
    def now(self) -> float:
        return self._loop.time()

    async def finish(self) -> None:
        await asyncio.gather(*self.tasks, return_exceptions=True)

    @property
    def times(self) -> list[float]:
        return [one.at for one in self.passed]


Scenario = Callable[[Gate], Coroutine[Any, Any, None]]


def play(scenario: Scenario, per_minute: float = PER_MINUTE) -> None:
    async def main() -> None:
        await scenario(Gate(per_minute))

    in_virtual_time(main())


class Bucket:
    """The textbook's token bucket: a level that rises with time, up to what it holds."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self.holds = self.level = self.rate * BURST_S
        self.at = 0.0

    def advance(self, at: float) -> None:
        self.level = min(self.holds, self.level + (at - self.at) * self.rate)
        self.at = at

    def earliest(self, arrived: float, amount: float) -> float:
        self.advance(max(arrived, self.at))
        missing = min(amount, self.holds) - self.level
        return self.at + max(0.0, missing / self.rate)


def in_bounds(passed: list[Passed], per_minute: float) -> None:
    """In no window passes more than its share of the rate, and the burst or the last amount."""
    rate = per_minute / 60
    for first, last in combinations_with_replacement(range(len(passed)), 2):
        window_s = passed[last].at - passed[first].at
        total = sum(one.amount for one in passed[first : last + 1])
        bound = rate * window_s + max(rate * BURST_S, passed[last].amount)
        assert total <= bound * (1 + TOLERANCE)


@given(per_minute=rates, script=arrivals)
def test_all_pass_in_order_within_the_rate_and_no_later_than_needed(
    per_minute: float, script: Arrivals
) -> None:
    async def scenario(gate: Gate) -> None:
        bucket = Bucket(per_minute)
        expected = []
        arrived = 0.0
        for gap_s, share in script:
            await asyncio.sleep(gap_s)
            arrived += gap_s
            gate.arrive(share * bucket.holds)
            bucket.advance(bucket.earliest(arrived, share * bucket.holds))
            bucket.level -= share * bucket.holds
            expected.append(bucket.at)
        await gate.finish()
        assert [one.number for one in gate.passed] == list(range(len(script)))
        assert gate.times == pytest.approx(expected, abs=TOLERANCE)
        in_bounds(gate.passed, per_minute)

    play(scenario, per_minute)


disturbances = st.one_of(
    st.tuples(st.just("arrive"), shares),
    st.tuples(st.just("cancel"), st.integers(0, 11)),
    st.tuples(st.just("charge"), shares),
    st.tuples(st.just("pause"), st.sampled_from([0.5, 5.0, 60.0])),
)


class Disturbed(Gate):
    """Also keeps what was charged and when it paused."""

    def __init__(self, per_minute: float) -> None:
        super().__init__(per_minute)
        self.charged: list[tuple[float, float]] = []
        self.pauses: list[tuple[float, float]] = []

    async def suffer(self, kind: str, value: float, holds: float) -> None:
        match kind:
            case "arrive":
                self.arrive(value * holds)
            case "cancel":
                for task in self.tasks[int(value) : int(value) + 1]:
                    task.cancel()
            case "charge":
                self.limiter.charge(value * holds)
                self.charged.append((self.now, value * holds))
            case _:
                await asyncio.sleep(0.001)  # what was let in before it has passed
                self.limiter.pause(value)
                self.pauses.append((self.now, self.now + value))

    def level(self, bucket: Bucket) -> float:
        """What the textbook's bucket has left after all that passed or was charged."""
        for at, amount in sorted(self.charged + [(one.at, one.amount) for one in self.passed]):
            bucket.advance(at)
            bucket.level -= amount
        bucket.advance(self.now)
        return bucket.level


@given(per_minute=rates, script=st.lists(st.tuples(gaps_s, disturbances), max_size=20))
def test_cancellations_take_nothing_and_nobody_is_forgotten(
    per_minute: float, script: list[tuple[float, tuple[str, float]]]
) -> None:
    async def scenario() -> None:
        gate, bucket = Disturbed(per_minute), Bucket(per_minute)
        for gap_s, (kind, value) in script:
            await asyncio.sleep(gap_s)
            await gate.suffer(kind, value, bucket.holds)
        await gate.finish()
        numbers = [one.number for one in gate.passed]
        assert numbers == [n for n, task in enumerate(gate.tasks) if not task.cancelled()]
        in_bounds(gate.passed, per_minute)
        for start, end in gate.pauses:
            assert not [at for at in gate.times if start < at < end - TOLERANCE]
        left = gate.level(bucket)
        assert gate.limiter.available == pytest.approx(left, rel=TOLERANCE, abs=TOLERANCE)
        assert gate.limiter.waiting == 0

    in_virtual_time(scenario())


def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    async def scenario(gate: Gate) -> None:
        for _ in range(12):
            gate.arrive(1)
        await gate.finish()
        assert gate.times == pytest.approx([0.0] * 10 + [1.0, 2.0])

    play(scenario)


def test_small_amounts_do_not_overtake_a_large_one() -> None:
    async def scenario(gate: Gate) -> None:
        for amount in (6, 9, 1, 1):
            gate.arrive(amount)
        await gate.finish()
        assert gate.times == pytest.approx([0.0, 5.0, 6.0, 7.0])

    play(scenario)


def test_more_than_the_bucket_holds_passes_when_full_and_is_paid_off_by_those_behind() -> None:
    async def scenario(gate: Gate) -> None:
        for amount in (4, 25, 1, 25):
            gate.arrive(amount)
        await gate.finish()
        # Full again at 4; then 15 of debt and 1; then, empty, full after 10.
        assert gate.times == pytest.approx([0.0, 4.0, 20.0, 30.0])
        assert gate.limiter.available == pytest.approx(-15.0)

    play(scenario)


def test_a_refund_is_of_use_to_who_waits() -> None:
    async def scenario(gate: Gate) -> None:
        for amount in (10, 8):
            gate.arrive(amount)
        await asyncio.sleep(2)
        gate.limiter.refund(5)
        assert gate.limiter.available == pytest.approx(7.0)
        await gate.finish()
        assert gate.times == pytest.approx([0.0, 3.0])
        gate.arrive(2)
        await asyncio.sleep(1)
        gate.limiter.refund(4)
        await gate.finish()
        assert gate.times[2] == pytest.approx(4.0)

    play(scenario)


def test_a_refund_does_not_fill_it_above_its_burst() -> None:
    async def scenario(gate: Gate) -> None:
        gate.limiter.refund(100)
        assert gate.limiter.available == BURST
        for _ in range(11):
            gate.arrive(1)
        await gate.finish()
        assert gate.times[-1] == pytest.approx(1.0)

    play(scenario)


def test_a_charge_puts_off_who_waits() -> None:
    async def scenario(gate: Gate) -> None:
        for amount in (10, 2):
            gate.arrive(amount)
        await asyncio.sleep(1)
        gate.limiter.charge(20)
        assert gate.limiter.available == pytest.approx(-19.0)
        await gate.finish()
        assert gate.times == pytest.approx([0.0, 22.0])

    play(scenario)


def test_a_pause_holds_everyone_and_a_shorter_one_does_not_end_it() -> None:
    async def scenario(gate: Gate) -> None:
        assert gate.limiter.paused_s == 0.0
        gate.limiter.pause(30)
        gate.limiter.pause(5)
        for _ in range(3):
            gate.arrive(1)
        await asyncio.sleep(10)
        assert gate.limiter.waiting == 3
        assert gate.limiter.paused_s == pytest.approx(20.0)
        gate.limiter.pause(25)
        await gate.finish()
        assert gate.times == pytest.approx([35.0] * 3)

    play(scenario)


def test_a_cancelled_head_lets_the_next_pass() -> None:
    async def scenario(gate: Gate) -> None:
        gate.arrive(10)
        large = gate.arrive(9)
        gate.arrive(1)
        await asyncio.sleep(3)
        large.cancel()
        await gate.finish()
        assert gate.times == pytest.approx([0.0, 3.0])
        assert gate.limiter.available == pytest.approx(2.0)

    play(scenario)


def test_a_waiter_cancelled_while_it_wakes_up_takes_nothing() -> None:
    async def scenario(gate: Gate) -> None:
        gate.arrive(10)
        second, third = gate.arrive(2), gate.arrive(5)
        await asyncio.sleep(1)
        gate.limiter.refund(3)  # four are free: the second is served, and has not run yet
        assert gate.limiter.waiting == 1
        second.cancel()
        await third
        assert gate.times == pytest.approx([0.0, 2.0])

    play(scenario)


async def test_it_keeps_time_with_the_real_clock_too() -> None:
    limiter = RateLimiter(60 * 1000)
    started = monotonic()
    await limiter.acquire(1000 * BURST_S)
    for _ in range(20):
        await limiter.acquire()
    assert 0.02 <= monotonic() - started < 5
