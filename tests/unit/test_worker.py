"""The worker, where no server is needed to see it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import structlog

from consumer.errors import NotReachable
from consumer.loops import Heartbeat, Signal
from consumer.worker import Worker, WorkerSettings
from tests.unit.virtual_time import virtually


class Away:
    """A store whose PostgreSQL is away, whatever is asked of it."""

    def __getattr__(self, _: str) -> Any:
        async def refuse(*_: object, **__: object) -> NoReturn:
            raise NotReachable("away")

        return refuse


PIPELINE = SimpleNamespace(
    patience=SimpleNamespace(alone_at=2),
    profiles_out_of_turn=lambda: (frozenset[str](), frozenset[str]()),
)


@virtually
async def test_an_outage_is_told_in_few_lines() -> None:
    """Each loop of the worker pauses for longer and longer, up to 15 s."""
    worker = Worker(
        WorkerSettings(owner="me", most_requests=1, lease_s=60, grace_s=1, late_s=300),
        store=cast("Any", Away()),
        pipeline=cast("Any", PIPELINE),
        wake=Signal(),
        outcome_stored=Signal(),
        heartbeat=Heartbeat("worker", limit_s=60),
    )
    with structlog.testing.capture_logs() as told:
        running = asyncio.create_task(worker.run(asyncio.Event()))
        await asyncio.sleep(600)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    lines = [line["loop"] for line in told if line["event"] == "server_not_reachable"]
    assert set(lines) == {"worker", "waiters"}
    assert len(lines) < 2 * (600 / 15 + 6)
