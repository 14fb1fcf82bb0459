"""Heartbeats, signals and pauses of the loops."""

import asyncio
from time import monotonic

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
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


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
    async with asyncio.timeout(1):
        await Signal().wait(0.01)


async def test_a_wait_can_be_cancelled_from_outside() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# --- Backoff -----------------------------------------------------------------------------------


def times_away(loop: str) -> float:
    value = REGISTRY.get_sample_value("scoring_postgres_unreachable_total", {"loop": loop})
    return value or 0.0


async def bear(backoff: Backoff, error: Exception | None = NotReachable("db away")) -> None:  # noqa: B008
    async with backoff.bear():
        if error is not None:
            raise error


async def test_pauses_grow_up_to_a_limit_and_start_again_after_a_success(
    slept: list[float], clock: Clock
) -> None:
    backoff = Backoff("intake", Heartbeat("intake", limit_s=1))
    for _ in range(7):
        await bear(backoff)
    assert slept == [0.5, 1, 2, 4, 8, 15, 15]
    await bear(backoff, None)
    assert len(slept) == 7
    await bear(backoff)
    assert slept[7:] == [0.5]


async def test_a_loop_that_waits_for_a_server_is_alive(slept: list[float], clock: Clock) -> None:
    heart = Heartbeat("relay", limit_s=1)
    clock.now += 5
    assert heart.alive is False
    await bear(Backoff("relay", heart))
    assert heart.alive is True


async def test_every_time_is_counted_and_told(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(loops, "log", structlog.wrap_logger(None, processors=[capture]))
    before = times_away("worker")
    backoff = Backoff("worker", Heartbeat("worker", limit_s=1))
    await bear(backoff)
    await bear(backoff)
    assert times_away("worker") == before + 2
    told = {"event": "server_not_reachable", "log_level": "warning", "loop": "worker"}
    assert capture.entries == [
        {**told, "error": "db away", "again_in_s": 0.5},
        {**told, "error": "db away", "again_in_s": 1.0},
    ]


@pytest.mark.parametrize("error", [ValueError("bug"), asyncio.CancelledError()])
async def test_nothing_else_is_borne(slept: list[float], error: BaseException) -> None:
    backoff = Backoff("worker", Heartbeat("worker", limit_s=1))
    with pytest.raises(type(error)):
        async with backoff.bear():
            raise error
    assert slept == []
