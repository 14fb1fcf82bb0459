"""Two replicas on servers of their own, under a little load, watched by a real Prometheus with the
chart's rules, all of whose times are a tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
import pytest_asyncio
from aiokafka.errors import KafkaError

from tests.faults.conftest import Arena, arena, harmed_postgres  # noqa: F401  fixtures
from tests.support import promises
from tests.support.prometheus import Prometheus
from tests.support.replica import Replica
from tests.support.stage import Stage

TIMES_AS_QUICK = 10
TIMEOUT_S = 400
RATE = 4.0
# Ten minutes of real time: a tenth, and what the product's own looks and limits take.
NAMED_WITHIN_S = 60 + 45
BACK_WITHIN_S = 90


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("drill")
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@dataclass(slots=True, kw_only=True)
class Drill:
    """What is watched. `load` asks for a score now and then until `over`."""

    arena: Arena
    prometheus: Prometheus
    replicas: list[Replica]
    load: asyncio.Task[None]
    judge_at_fault: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=monotonic)

    @property
    def stage(self) -> Stage:
        return self.arena.stage

    async def fires(self, *names: str, within_s: float = NAMED_WITHIN_S) -> None:
        """Waits until these alerts fire, whatever else does."""
        deadline, firing = monotonic() + within_s, set[str]()
        while not (firing := await self.prometheus.firing()) >= set(names):
            if monotonic() > deadline:
                told = f"{sorted(names)} not within {within_s} s; firing: {sorted(firing)}"
                raise AssertionError(f"{told}\n{self.stage.last_words()}")
            await asyncio.sleep(0.5)

    async def over(self, *names: str, allowed: Iterable[str] = (), crashes: int = 0) -> None:
        """The cause has ended: everything is back in time, nothing fires, and nothing was lost. All
        the while nothing fired but these, of which those `allowed` need not.
        """
        deadline = monotonic() + BACK_WITHIN_S
        while firing := await self.prometheus.firing():
            if monotonic() > deadline:
                raise AssertionError(f"still firing: {sorted(firing)}\n{self.stage.last_words()}")
            await asyncio.sleep(0.5)
        self.stop.set()
        await self.load
        # What the judge was asked while it was at fault was asked again.
        tries = self.stage.stand_ins.judge_calls if self.judge_at_fault else {}
        await promises.kept(self.stage, crashes=crashes, tries=tries)
        fired = await self.prometheus.fired(monotonic() - self.began)
        assert set(names) <= fired <= {*names, *allowed}


@pytest_asyncio.fixture
async def drill(
    arena: Arena,  # noqa: F811  the fixture
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> AsyncIterator[Drill]:
    """All is well. What a test is parametrized with are settings of the consumer."""
    stage = arena.stage
    stage.settings |= {
        # A lease of some seconds is lost on a busy machine.
        "lease_seconds": 20,
        "kafka_session_timeout_seconds": 6,
        "replicas_wanted": 2,
        "request_deadline_seconds": 120,
        "kafka_stale_after_seconds": 24,
        "objective_seconds": 120,
        "max_lost_leases": 3,
        **getattr(request, "param", {}),
    }
    replicas = [stage.process() for _ in range(2)]
    targets = [replica.url.removeprefix("http://") for replica in replicas]
    prometheus = Prometheus(tmp_path / "prometheus", targets, times_as_quick=TIMES_AS_QUICK)
    async with contextlib.AsyncExitStack() as stack:
        for server in (*replicas, prometheus):
            await asyncio.to_thread(server.start)
            stack.push_async_callback(asyncio.to_thread, server.stop)
        stop = asyncio.Event()
        load = asyncio.create_task(_ask(stage, stop))
        made = Drill(arena=arena, prometheus=prometheus, replicas=replicas, load=load, stop=stop)
        await asyncio.sleep(20)
        assert await prometheus.fired(20) == set(), "something fires while all is well"
        yield made
        stop.set()
        await load


async def _ask(stage: Stage, stop: asyncio.Event) -> None:
    """One score a while, through outages: a record that Kafka did not acknowledge is sent again."""
    async with stage.producer() as producer:
        while not stop.is_set():
            number = len(stage.stand_ins.sessions)
            bad = number % 3 == 0
            session = stage.stand_ins.add(f"bad-{number}" if bad else f"s-{number}")
            value = json.dumps({"session_id": session, "request_id": str(uuid4())}).encode()
            while True:
                try:
                    await producer.send_and_wait(stage.topics.requested, value)
                    break
                except KafkaError:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(1 / RATE)
