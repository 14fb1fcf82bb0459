"""Adaptive concurrency: never too many, none lost, in order, and as many as go well."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from consumer.limits.concurrency import AdaptiveConcurrency, Slot
from tests.unit.virtual_time import VirtualLoop


class Call:
    """A call that goes on until it is told how it ended."""

    def __init__(self, loop: VirtualLoop, limiter: AdaptiveConcurrency) -> None:
        self._limiter = limiter
        self._end: asyncio.Future[str] = loop.create_future()
        self.slot: Slot | None = None
        self.task = loop.create_task(self._run())

    async def _run(self) -> None:
        async with self._limiter.slot() as self.slot:
            outcome = await self._end
            if outcome == "succeeded":
                self.slot.succeeded()
            if outcome == "congested":
                self.slot.congested()

    @property
    def started(self) -> bool:
        return self.slot is not None

    @property
    def running(self) -> bool:
        return self.started and not self.task.done() and not self._end.done()

    def end(self, outcome: str = "neither") -> None:
        self._end.set_result(outcome)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def calls(loop: VirtualLoop, limiter: AdaptiveConcurrency, count: int) -> list[Call]:
    made = [Call(loop, limiter) for _ in range(count)]
    loop.settle()
    return made


def end_all(loop: VirtualLoop, some: list[Call], outcome: str = "neither") -> None:
    for call in some:
        call.end(outcome)
    loop.settle()


def one_after_the_other(
    loop: VirtualLoop, limiter: AdaptiveConcurrency, count: int, outcome: str
) -> None:
    for _ in range(count):
        end_all(loop, calls(loop, limiter, 1), outcome)


def test_it_starts_at_the_ceiling_or_where_told() -> None:
    assert AdaptiveConcurrency(8).limit == 8
    assert AdaptiveConcurrency(8, start=2).limit == 2


def test_the_others_wait_in_order(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(2)
    some = calls(loop, limiter, 5)
    assert [call.started for call in some] == [True, True, False, False, False]
    assert (limiter.in_flight, limiter.waiting) == (2, 3)
    end_all(loop, some[1:2])
    assert [call.started for call in some] == [True, True, True, False, False]
    end_all(loop, [some[0], some[2]])
    end_all(loop, some[3:])
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_a_round_of_successes_adds_one_up_to_the_ceiling(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(4, start=2)
    one_after_the_other(loop, limiter, 1, "succeeded")
    one_after_the_other(loop, limiter, 3, "neither")
    assert limiter.limit == 2
    one_after_the_other(loop, limiter, 1, "succeeded")
    assert limiter.limit == 3
    one_after_the_other(loop, limiter, 2, "succeeded")
    assert limiter.limit == 3
    one_after_the_other(loop, limiter, 1, "succeeded")
    assert limiter.limit == 4
    one_after_the_other(loop, limiter, 9, "succeeded")
    assert limiter.limit == 4


def test_a_higher_limit_is_used_at_once(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(2, start=1)
    first, *waiting = calls(loop, limiter, 3)
    end_all(loop, [first], "succeeded")
    assert [call.started for call in waiting] == [True, True]
    end_all(loop, waiting)


def test_one_round_that_fails_together_halves_once(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(8)
    some = calls(loop, limiter, 8)
    end_all(loop, some, "congested")
    assert limiter.limit == 4
    end_all(loop, calls(loop, limiter, 4), "congested")
    assert limiter.limit == 2
    one_after_the_other(loop, limiter, 5, "congested")
    assert limiter.limit == 1


def test_successes_from_before_the_halving_do_not_raise_the_limit(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(4)
    first, *others = calls(loop, limiter, 4)
    end_all(loop, [first], "congested")
    end_all(loop, others, "succeeded")
    assert limiter.limit == 2
    one_after_the_other(loop, limiter, 1, "succeeded")
    assert limiter.limit == 2
    one_after_the_other(loop, limiter, 1, "succeeded")
    assert limiter.limit == 3


def test_halving_starts_the_round_anew(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(8, start=4)
    one_after_the_other(loop, limiter, 3, "succeeded")
    one_after_the_other(loop, limiter, 1, "congested")
    one_after_the_other(loop, limiter, 1, "succeeded")
    assert limiter.limit == 2


def test_none_starts_above_a_lowered_limit(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(4)
    some = calls(loop, limiter, 5)
    end_all(loop, some[:1], "congested")  # the limit is 2 and three are in flight
    assert not some[4].started
    end_all(loop, some[1:2])
    assert not some[4].started
    end_all(loop, some[2:3])
    assert some[4].started
    end_all(loop, some[3:])


def test_a_waiter_cancelled_while_it_wakes_up_passes_its_slot_on(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(1)
    first, second, third = calls(loop, limiter, 3)
    first.end()
    while limiter.waiting == 2:
        loop.one_pass()
    assert not second.started
    second.task.cancel()
    loop.settle()
    assert (second.started, third.started) == (False, True)
    end_all(loop, [third])
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


def test_an_error_frees_the_slot(loop: VirtualLoop) -> None:
    limiter = AdaptiveConcurrency(1)

    async def fail() -> None:
        async with limiter.slot():
            raise LookupError

    with pytest.raises(LookupError):
        loop.run_until_complete(fail())
    assert limiter.in_flight == 0


class ConcurrencyMachine(RuleBasedStateMachine):
    """Calls come, end and are cancelled at any moment, between the loop's passes too."""

    @initialize(ceiling=st.integers(1, 5), data=st.data())
    def begin(self, ceiling: int, data: st.DataObject) -> None:
        start = data.draw(st.integers(1, ceiling))
        self.ceiling = ceiling
        self.loop = VirtualLoop()
        self.limiter = AdaptiveConcurrency(ceiling, start=start)
        self.calls: list[Call] = []

    @property
    def alive(self) -> list[Call]:
        return [call for call in self.calls if not call.task.done()]

    @property
    def running(self) -> list[Call]:
        return [call for call in self.calls if call.running]

    @rule(count=st.integers(1, 4))
    def come(self, count: int) -> None:
        self.calls += [Call(self.loop, self.limiter) for _ in range(count)]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "congested", "neither"]))
    def end(self, data: st.DataObject, outcome: str) -> None:
        data.draw(st.sampled_from(self.running)).end(outcome)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.alive)).task.cancel()

    @rule()
    def one_pass(self) -> None:
        before, limit = self.limiter.in_flight, self.limiter.limit
        self.loop.one_pass()
        # A limit may rise and fall within one pass.
        most = max(limit + 1, self.limiter.limit)
        assert self.limiter.in_flight <= max(before, most)

    @rule()
    def settle(self) -> None:
        self.loop.settle()
        held = [call for call in self.alive if call.started]
        waiting = [call for call in self.alive if not call.started]
        assert self.limiter.in_flight == len(held)
        assert self.limiter.waiting == len(waiting)
        assert not waiting or len(held) >= self.limiter.limit
        # Who waits came after all who were let in.
        assert not waiting or not held or _last(self.calls, held) < self.calls.index(waiting[0])

    @invariant()
    def the_limit_is_within_bounds(self) -> None:
        assert 1 <= self.limiter.limit <= self.ceiling
        assert 0 <= self.limiter.in_flight <= self.ceiling

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        while self.alive:  # would go on forever, had one slot been lost
            for call in self.running:
                call.end()
            self.loop.settle()
            assert self.running or not self.alive
        assert (self.limiter.in_flight, self.limiter.waiting) == (0, 0)
        for call in self.calls:
            assert call.task.cancelled() or call.task.exception() is None
        self.loop.close()


def _last(calls: list[Call], some: list[Call]) -> int:
    return max(calls.index(call) for call in some)


TestConcurrency = ConcurrencyMachine.TestCase
