"""Heartbeats, signals and pauses of the loops."""

import asyncio
from collections.abc import MutableMapping
from time import monotonic
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from consumer import loops
from consumer.errors import NotReachable
from consumer.loops import Backoff, Heartbeat, Signal


class Clock:
    """A monotonic clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr(loops, "monotonic", turned)
    return turned


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[MutableMapping[str, Any]]:
    """What the loops logged."""
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(loops, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


# --- Heartbeat ---------------------------------------------------------------------------------


def test_a_heart_is_alive_up_to_its_limit(clock: Clock) -> None:
    heart = Heartbeat("worker", limit_s=10)
    assert (heart.name, heart.limit_s, heart.age_s, heart.alive) == ("worker", 10, 0, True)
    clock.now += 10
    assert (heart.age_s, heart.alive) == (10, True)
    clock.now += 0.1
    assert heart.alive is False
    heart.tick()
    assert (heart.age_s, heart.alive) == (0, True)


# --- Signal ------------------------------------------------------------------------------------


async def test_a_signal_wakes_at_once() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(60))
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    async with asyncio.timeout(1):
        await waiting


async def test_a_signal_that_came_before_is_not_lost_and_two_wake_once() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    async with asyncio.timeout(1):
        await signal.wait(60)
    started = monotonic()
    await signal.wait(0.05)
    assert monotonic() - started >= 0.04


async def test_without_a_signal_the_wait_ends_by_itself() -> None:
    started = monotonic()
    async with asyncio.timeout(1):
        await Signal().wait(0.01)
    assert monotonic() - started >= 0.008


async def test_a_wait_can_be_cancelled_from_outside() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# --- Backoff -----------------------------------------------------------------------------------


def times_away(loop: str, server: str) -> float:
    labels = {"loop": loop, "server": server}
    return REGISTRY.get_sample_value("scoring_server_unreachable_total", labels) or 0.0


def hurried(loop: str = "worker", heartbeat: Heartbeat | None = None) -> Backoff:
    """One that was told to stop, and so waits for nothing."""
    stop = asyncio.Event()
    stop.set()
    return Backoff(loop, heartbeat or Heartbeat(loop, limit_s=1), stop)


async def bear(backoff: Backoff, error: Exception | None = NotReachable("db away")) -> None:  # noqa: B008
    async with backoff.bear():
        if error is not None:
            raise error


async def test_pauses_grow_up_to_a_limit_and_start_again_after_a_success(
    told: list[MutableMapping[str, Any]],
) -> None:
    backoff = hurried()
    for _ in range(7):
        await bear(backoff)
    await bear(backoff, None)
    await bear(backoff)
    assert [entry["again_in_s"] for entry in told] == [0.5, 1, 2, 4, 8, 15, 15, 0.5]


async def test_a_pause_takes_its_time_unless_a_stop_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "FIRST_BACKOFF_S", 0.2)
    stop = asyncio.Event()
    backoff = Backoff("relay", Heartbeat("relay", limit_s=1), stop)
    started = monotonic()
    await bear(backoff)
    assert 0.2 <= monotonic() - started < 0.39
    asyncio.get_running_loop().call_later(0.05, stop.set)
    started = monotonic()
    await bear(backoff)
    assert monotonic() - started < 0.2


async def test_a_loop_that_waits_for_a_server_is_alive(clock: Clock) -> None:
    heart = Heartbeat("relay", limit_s=1)
    clock.now += 5
    assert heart.alive is False
    await bear(hurried("relay", heart))
    assert heart.alive is True


async def test_every_time_is_counted_by_server_and_told(
    told: list[MutableMapping[str, Any]],
) -> None:
    before = times_away("worker", "postgres"), times_away("worker", "kafka")
    backoff = hurried()
    await bear(backoff)
    await bear(backoff, NotReachable("broker away", server="kafka"))
    await bear(backoff)
    after = times_away("worker", "postgres"), times_away("worker", "kafka")
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)
    line = {"event": "server_not_reachable", "log_level": "warning", "loop": "worker"}
    assert told == [
        {**line, "error": "db away", "again_in_s": 0.5},
        {**line, "error": "broker away", "again_in_s": 1.0},
        {**line, "error": "db away", "again_in_s": 2.0},
    ]


@pytest.mark.parametrize("error", [ValueError("bug"), asyncio.CancelledError()])
async def test_nothing_else_is_borne(
    told: list[MutableMapping[str, Any]], error: BaseException
) -> None:
    with pytest.raises(type(error)):
        async with hurried().bear():
            raise error
    assert told == []
