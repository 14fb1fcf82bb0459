"""A loop that dies, ends or hangs is noticed: each is broken here in its own way."""

import asyncio
from time import monotonic

import httpx
import pytest

from consumer import loops
from consumer.api.health import Health, probes
from consumer.app import Lifecycle
from consumer.errors import LoopDied, NotReachable
from consumer.loops import Heartbeat


async def test_a_loop_that_raises_stops_the_process_with_its_error() -> None:
    lifecycle, error = Lifecycle(), ValueError("broken")

    async def raising() -> None:
        raise error

    await lifecycle.guard("worker", raising(), until=lifecycle.stop)
    assert lifecycle.stop.is_set()
    assert lifecycle.failure is error


async def test_a_loop_that_just_returns_stops_the_process_too() -> None:
    lifecycle = Lifecycle()
    await lifecycle.guard("relay", asyncio.sleep(0), until=lifecycle.stop)
    assert lifecycle.stop.is_set()
    assert isinstance(lifecycle.failure, LoopDied)
    assert "relay" in str(lifecycle.failure)


async def test_a_loop_that_returns_when_it_is_told_to_is_no_failure() -> None:
    lifecycle = Lifecycle()
    loop = asyncio.create_task(
        lifecycle.guard("intake", lifecycle.stop.wait(), until=lifecycle.stop)  # type: ignore[arg-type]
    )
    lifecycle.stop.set()
    await loop
    assert lifecycle.failure is None


async def test_the_first_failure_is_the_one_that_is_told() -> None:
    lifecycle, first = Lifecycle(), NotReachable("first")
    lifecycle.fail(first)
    lifecycle.fail(ValueError("second"))
    assert lifecycle.failure is first


async def test_a_loop_that_hangs_fails_liveness_until_it_ticks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = Health(heartbeats=[Heartbeat("worker", limit_s=10), Heartbeat("relay", limit_s=100)])
    transport = httpx.ASGITransport(app=probes(health))
    async with httpx.AsyncClient(transport=transport, base_url="http://consumer") as http:
        assert (await http.get("/healthz")).status_code == 200
        later = monotonic() + 11
        monkeypatch.setattr(loops, "monotonic", lambda: later)
        hanging = await http.get("/healthz")
        assert hanging.status_code == 503
        assert hanging.json()["dead"] == ["worker"]
        assert 'scoring_loop_age_seconds{loop="worker"} 11' in (await http.get("/metrics")).text
        health.heartbeats[0].tick()
        assert (await http.get("/healthz")).status_code == 200


async def test_readiness_names_all_that_is_waited_for() -> None:
    health = Health()
    transport = httpx.ASGITransport(app=probes(health))
    async with httpx.AsyncClient(transport=transport, base_url="http://consumer") as http:
        assert (await http.get("/readyz")).status_code == 200
        health.not_ready("postgres", "away")
        health.not_ready("kafka", "not joined")
        waiting = await http.get("/readyz")
        assert waiting.status_code == 503
        assert waiting.json()["waiting_for"] == {"postgres": "away", "kafka": "not joined"}
        health.ready("postgres")
        assert (await http.get("/readyz")).status_code == 503
        health.ready("kafka")
        assert (await http.get("/readyz")).json() == {"ready": True, "waiting_for": {}}
