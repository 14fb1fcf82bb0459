"""The circuit breaker, against a model that knows no more than the rules."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from consumer.limits.breaker import Breaker, Permit, State

OPEN_S = 30.0
THRESHOLD = 5


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def breaker(threshold: int = THRESHOLD) -> tuple[Breaker, Clock]:
    clock = Clock()
    return Breaker(threshold=threshold, open_s=OPEN_S, clock=clock), clock


def entered(breaker: Breaker) -> Permit:
    permit = breaker.enter()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = THRESHOLD) -> None:
    for _ in range(times):
        entered(breaker).failed()


def half_open() -> tuple[Breaker, Clock]:
    one, clock = breaker()
    fail(one)
    clock.now += OPEN_S
    return one, clock


def test_it_opens_after_the_threshold_and_not_before() -> None:
    one, _ = breaker()
    fail(one, THRESHOLD - 1)
    assert (one.state, one.retry_after_s, one.opened_total) == (State.CLOSED, 0.0, 0)
    fail(one, 1)
    assert (one.state, one.retry_after_s, one.opened_total) == (State.OPEN, OPEN_S, 1)
    assert one.enter() is None


def test_a_success_in_between_starts_the_count_anew() -> None:
    one, _ = breaker()
    fail(one, THRESHOLD - 1)
    entered(one).succeeded()
    fail(one, THRESHOLD - 1)
    assert one.state is State.CLOSED


def test_dropped_calls_neither_count_nor_start_the_count_anew() -> None:
    one, _ = breaker()
    fail(one, THRESHOLD - 1)
    for _ in range(THRESHOLD):
        entered(one).dropped()
    assert one.opened_total == 0
    fail(one, 1)
    assert one.opened_total == 1


def test_it_stays_open_for_its_time() -> None:
    one, clock = breaker()
    fail(one)
    clock.now += OPEN_S - 1
    assert (one.state, one.retry_after_s, one.enter()) == (State.OPEN, 1.0, None)
    clock.now += 1
    assert (one.state, one.retry_after_s) == (State.HALF_OPEN, 0.0)


def test_half_open_lets_exactly_one_through() -> None:
    one, clock = half_open()
    probe = entered(one)
    clock.now += 10 * OPEN_S
    assert [one.enter() for _ in range(3)] == [None] * 3
    assert (one.state, one.retry_after_s) == (State.HALF_OPEN, OPEN_S)
    probe.succeeded()
    assert (one.state, one.retry_after_s) == (State.CLOSED, 0.0)
    fail(one, THRESHOLD - 1)
    assert one.state is State.CLOSED


def test_a_failed_probe_opens_it_for_as_long_again() -> None:
    one, clock = half_open()
    probe = entered(one)
    clock.now += 7
    probe.failed()
    assert (one.state, one.retry_after_s, one.opened_total) == (State.OPEN, OPEN_S, 2)


def test_after_a_dropped_probe_the_next_may_go_at_once() -> None:
    one, _ = half_open()
    entered(one).dropped()
    assert (one.state, one.retry_after_s) == (State.HALF_OPEN, 0.0)
    entered(one)
    assert one.enter() is None


@pytest.mark.parametrize("late", ["succeeded", "failed", "dropped"])
@pytest.mark.parametrize("when", ["open", "half_open", "probing", "closed"])
def test_a_call_from_before_no_longer_counts(when: str, late: str) -> None:
    one, clock = breaker()
    old = entered(one)
    fail(one)
    if when != "open":
        clock.now += OPEN_S
    if when in {"probing", "closed"}:
        probe = entered(one)
    if when == "closed":
        probe.succeeded()
        fail(one, THRESHOLD - 1)
    before = (one.state, one.retry_after_s, one.opened_total)
    getattr(old, late)()
    assert (one.state, one.retry_after_s, one.opened_total) == before
    if when == "probing":
        assert one.enter() is None
    if when == "closed":  # the four failures before it still stand
        fail(one, 1)
        assert one.state is State.OPEN


def test_a_permit_is_settled_once() -> None:
    one, _ = breaker(threshold=2)
    permit = entered(one)
    permit.failed()
    for again in (permit.failed, permit.succeeded, permit.dropped):
        with pytest.raises(RuntimeError):
            again()
    assert one.opened_total == 0


@dataclass(eq=False)
class Call:
    """A permit, and what the model knows of it: the number of turns when it was given."""

    permit: Permit
    turns: int
    probe: bool


class BreakerMachine(RuleBasedStateMachine):
    """The model: failures in a row, when it opened, and which call probes."""

    @initialize(threshold=st.integers(1, 4))
    def begin(self, threshold: int) -> None:
        self.threshold = threshold
        self.breaker, self.clock = breaker(threshold)
        self.calls: list[Call] = []
        self.in_a_row = 0
        self.opened_at: float | None = None
        self.turns = 0
        self.opened = 0

    @property
    def expected(self) -> State:
        if self.opened_at is None:
            return State.CLOSED
        waited = self.clock.now - self.opened_at
        return State.HALF_OPEN if waited >= OPEN_S else State.OPEN

    @property
    def probes(self) -> list[Call]:
        return [call for call in self.calls if call.probe]

    @rule()
    def call(self) -> None:
        admits = self.expected is State.CLOSED or (
            self.expected is State.HALF_OPEN and not self.probes
        )
        permit = self.breaker.enter()
        assert (permit is not None) == admits
        if permit is not None:
            probe = self.expected is State.HALF_OPEN
            self.calls.append(Call(permit=permit, turns=self.turns, probe=probe))

    # Whole and half opening times: the moment itself is met, and missed on either side.
    @rule(halves=st.integers(1, 3))
    def time_passes(self, halves: int) -> None:
        self.clock.now += halves * OPEN_S / 2

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def success(self, data: st.DataObject) -> None:
        call = self._end(data)
        call.permit.succeeded()
        if call.turns == self.turns:
            self.in_a_row = 0
            if call.probe:
                self._turn(None)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def failure(self, data: st.DataObject) -> None:
        call = self._end(data)
        call.permit.failed()
        if call.turns == self.turns:
            self.in_a_row += 1
            if call.probe or self.in_a_row == self.threshold:
                self.opened += 1
                self._turn(self.clock.now)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self._end(data).permit.dropped()

    def _end(self, data: st.DataObject) -> Call:
        call = data.draw(st.sampled_from(self.calls))
        self.calls.remove(call)
        return call

    def _turn(self, opened_at: float | None) -> None:
        self.opened_at = opened_at
        self.in_a_row = 0
        self.turns += 1

    @invariant()
    def it_is_as_expected(self) -> None:
        assert self.breaker.state is self.expected
        assert self.breaker.opened_total == self.opened

    @invariant()
    def at_most_one_probes(self) -> None:
        assert len(self.probes) <= 1

    @invariant()
    def it_tells_when_to_come_again(self) -> None:
        waits = {
            State.CLOSED: 0.0,
            State.OPEN: (self.opened_at or 0.0) + OPEN_S - self.clock.now,
            State.HALF_OPEN: OPEN_S if self.probes else 0.0,
        }
        assert self.breaker.retry_after_s == waits[self.expected]


TestBreaker = BreakerMachine.TestCase
