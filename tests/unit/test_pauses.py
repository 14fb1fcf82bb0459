"""Which partitions are read: none above the mark, and little of those that are flooded."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

import pytest
from aiokafka import TopicPartition

from consumer import pauses as module
from consumer.limits.flood import OVER_AFTER_S, RECORDS_PER_S, WINDOW
from consumer.metrics import INTAKE_FLOODED
from consumer.pauses import Pauses


@dataclass(frozen=True, slots=True)
class Place:
    topic: str
    partition: int


@dataclass(slots=True)
class Partitions:
    """What aiokafka keeps of them."""

    assigned: set[TopicPartition]
    stopped: set[TopicPartition] = field(default_factory=set)

    def assignment(self) -> set[TopicPartition]:
        return set(self.assigned)

    def paused(self) -> set[TopicPartition]:
        return set(self.stopped)

    def pause(self, *places: TopicPartition) -> None:
        self.stopped |= set(places)

    def resume(self, *places: TopicPartition) -> None:
        self.stopped -= set(places)


def partitions(count: int) -> Partitions:
    return Partitions({TopicPartition("t", n) for n in range(count)})


def test_above_the_mark_nothing_is_read_until_half_of_it_is_done() -> None:
    pauses, both = Pauses(10, 0.5), partitions(2)
    for pending, stopped, resumes in [
        (10, 0, False),
        (11, 2, False),
        (6, 2, False),
        (5, 0, True),
        (6, 0, False),
    ]:
        assert pauses.regulate(pending) == resumes
        pauses.apply(both)
        assert len(both.stopped) == stopped, pending


def test_a_flood_stops_its_partition_alone() -> None:
    pauses, both = Pauses(10, 0.5), partitions(2)
    bad = [Place("t", 0)] * 200
    good = [Place("t", 1)] * 200
    pauses.count([*bad, *good], good)
    pauses.apply(both)
    assert both.stopped == {TopicPartition("t", 0)}
    assert pauses.slowed
    pauses.forget()
    assert pauses.slowed, "what waits has its time"


def test_a_flood_is_over_once_nothing_bad_comes_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    pauses, some = Pauses(10, 0.5), partitions(1)
    pauses.count([Place("t", 0)] * 500, [])
    now += 500 / RECORDS_PER_S  # it may send again from now
    pauses.apply(some)
    good = [Place("t", 0)] * 3
    pauses.count(good, good)
    now += OVER_AFTER_S
    pauses.apply(some)
    assert (pauses.slowed, INTAKE_FLOODED._value.get()) == (True, 1)
    now += 1
    pauses.apply(some)
    assert (pauses.slowed, INTAKE_FLOODED._value.get()) == (False, 0)
    pauses.apply(some)
    assert some.stopped == set()


def test_many_floods_together_are_no_more_a_second_than_one() -> None:
    pauses = Pauses(10, 0.5)
    many = 20
    for n in range(many):
        pauses.count([Place("t", n)] * 100, [])
    before = monotonic()
    pauses.count([Place("t", 0)] * 100, [])
    left_s = pauses._slowed[TopicPartition("t", 0)] - before
    assert left_s >= many * 100 / RECORDS_PER_S


def test_the_pause_that_a_rebalance_forgot_is_made_again() -> None:
    pauses, some = Pauses(10, 0.5), partitions(3)
    pauses.count([Place("t", 2)] * WINDOW, [])
    pauses.apply(some)
    some.stopped.clear()
    pauses.apply(some)
    assert some.stopped == {TopicPartition("t", 2)}
    some.assigned.discard(TopicPartition("t", 2))
    some.stopped.clear()
    pauses.apply(some)
    assert some.stopped == set()
