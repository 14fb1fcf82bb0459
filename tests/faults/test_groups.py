"""After a Kafka outage, and after kills at any moment of joining, the group forms again by itself:
two replicas are back at work within 90 s of Kafka.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from consumer.settings import Settings
from tests.faults.conftest import Arena
from tests.support import promises
from tests.support.asking import ask_all
from tests.support.replica import Replica
from tests.support.stage import Stage

BACK_S = 90.0
DEFAULT_S = Settings.model_fields["kafka_session_timeout_seconds"].default
#: The longest session that the settings take, and a short one.
LIMITS_S = (2, 30)


@asynccontextmanager
async def two(stage: Stage, session_s: float) -> AsyncIterator[list[Replica]]:
    """Two replicas with their place in the group; ended somehow at the end."""
    stage.settings["kafka_session_timeout_seconds"] = session_s
    replicas = [stage.process(), stage.process()]
    try:
        await ready(replicas)
        yield replicas
    finally:
        for replica in replicas:
            await asyncio.to_thread(replica.kill)


async def ready(replicas: Sequence[Replica]) -> None:
    """Starts them at once, where they don't run, and waits until each has its place, or ended."""
    starting = (asyncio.to_thread(replica.start) for replica in replicas)
    for failure in await asyncio.gather(*starting, return_exceptions=True):
        if failure is not None:
            raise failure


async def back_after(stage: Stage, replicas: Sequence[Replica]) -> float:
    """Seconds until both are ready, and what is asked is answered."""
    since = monotonic()
    await ready(replicas)
    await ask_all(stage, 8)
    await promises.kept(stage)
    return monotonic() - since


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("outage_s", "session_s"),
    [(10, DEFAULT_S), (34, DEFAULT_S), (34, LIMITS_S[0]), (60, LIMITS_S[1]), (300, DEFAULT_S)],
)
async def test_both_killed_while_kafka_is_away(
    arena: Arena, outage_s: float, session_s: float
) -> None:
    async with two(arena.stage, session_s) as replicas:
        await asyncio.to_thread(arena.kafka.stop)
        for replica in replicas:
            await asyncio.to_thread(replica.kill)
        starting = asyncio.create_task(ready(replicas))
        await asyncio.sleep(outage_s)
        await asyncio.to_thread(arena.kafka.start)
        assert await back_after(arena.stage, replicas) < BACK_S
        await starting


@pytest.mark.timeout(900)
@pytest.mark.parametrize("outage_s", [25, 170, 300])
async def test_a_process_whose_kafka_is_away_stays(arena: Arena, outage_s: float) -> None:
    async with two(arena.stage, DEFAULT_S) as replicas:
        pids = [replica.pid for replica in replicas]
        await asyncio.to_thread(arena.kafka.stop)
        await asyncio.sleep(outage_s)
        await asyncio.to_thread(arena.kafka.start)
        assert await back_after(arena.stage, replicas) < BACK_S
        assert [replica.pid for replica in replicas] == pids


@pytest.mark.timeout(900)
@pytest.mark.parametrize("session_s", [DEFAULT_S, *LIMITS_S])
async def test_killed_at_any_moment_of_joining(stage: Stage, session_s: float, kills: int) -> None:
    chance = random.Random(kills)
    async with two(stage, session_s) as replicas:
        for _ in range(max(2, kills // 3)):
            for replica in chance.sample(replicas, chance.choice([1, 2])):
                await asyncio.to_thread(replica.kill)
            starting = asyncio.create_task(ready(replicas))
            await asyncio.sleep(chance.uniform(0.5, session_s + 3))
            for replica in replicas:
                await asyncio.to_thread(replica.kill)
            await asyncio.gather(starting, return_exceptions=True)
        assert await back_after(stage, replicas) < BACK_S


@pytest.mark.timeout(300)
async def test_sigterm_while_it_joins_is_quick(arena: Arena) -> None:
    stage = arena.stage
    async with two(stage, DEFAULT_S) as replicas:
        await asyncio.to_thread(replicas[0].kill)  # its place is kept for a session
        joining = asyncio.create_task(ready(replicas[:1]))
        await replicas[0].logged("starting")
        await asyncio.sleep(3)
        began = monotonic()
        assert await replicas[0].terminate() == 0
        assert monotonic() - began < DEFAULT_S / 2
        await asyncio.gather(joining, return_exceptions=True)
