"""Processes that are told to stop, that freeze, that come and go."""

import asyncio
import random
from time import monotonic

from consumer.edges.postgres.connect import IDLE_LIMIT_S
from consumer.failpoints import Point
from tests.faults.conftest import LEASE_S
from tests.support import promises
from tests.support.asking import ask_all, ask_slowly, judged
from tests.support.stage import Stage

# The promise for a process with nothing to wait for.
IDLE_STOP_S = 2.0
# A frozen relay keeps its lock until the server ends its idle transaction.
RELAY_LOCK_S = 40.0


async def test_sigterm_under_load(stage: Stage) -> None:
    """What is under way is finished, the rest given back; no call is made twice."""
    stage.stand_ins.judge_delay_s = 0.3
    async with stage.consumer(worker_slots=4):
        leaving = stage.process(worker_slots=4, grace_seconds=10)
        await asyncio.to_thread(leaving.start)
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=30))
        await judged(stage, 20)
        assert await leaving.terminate() == 0
        await asking
        seen = await promises.kept(stage)
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 60
    assert seen.repeats == 0


async def test_sigterm_with_an_idle_judge_is_quick(stage: Stage) -> None:
    async with stage.consumer():  # the other one stays: the group has to do without a member
        leaving = stage.process()
        await asyncio.to_thread(leaving.start)
        await ask_all(stage, 10)
        await promises.kept(stage)
        begun = monotonic()
        assert await leaving.terminate() == 0
        took_s = monotonic() - begun
    assert took_s <= IDLE_STOP_S


async def test_frozen_with_a_verdict_in_hand(stage: Stage) -> None:
    """Past its lease another one scores the request; what the frozen one brings is refused."""
    frozen = stage.process(worker_slots=1, failpoints=f"{Point.AFTER_VERDICT}:freeze@1")
    await asyncio.to_thread(frozen.start)
    await ask_all(stage, 1)
    await judged(stage, 1)
    try:
        async with stage.consumer():
            await promises.kept(stage, crashes=1)
            frozen.thaw()
            await frozen.logged("lease_lost")
            seen = await promises.kept(stage, crashes=1)
    finally:
        frozen.thaw()
        await asyncio.to_thread(frozen.stop)
    assert len(seen.scores) == 1
    assert stage.stand_ins.judge_calls.total() == 2, "one call beyond the needed one"


async def test_frozen_in_the_middle_of_storing_a_score(stage: Stage) -> None:
    """It holds locks; the server takes them away, and another one scores the request."""
    frozen = stage.process(worker_slots=1, failpoints=f"{Point.BEFORE_COMMIT}:freeze@1")
    await asyncio.to_thread(frozen.start)
    await ask_all(stage, 1)
    await judged(stage, 1)
    try:
        async with stage.consumer():
            await promises.kept(stage, crashes=1, timeout_s=IDLE_LIMIT_S + 30)
            frozen.thaw()
            await frozen.logged("lease_lost")
            seen = await promises.kept(stage, crashes=1)
    finally:
        frozen.thaw()
        await asyncio.to_thread(frozen.stop)
    assert len(seen.scores) == 1


async def test_frozen_past_the_lease_under_load(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 0.5
    frozen = stage.process(worker_slots=4)
    await asyncio.to_thread(frozen.start)
    try:
        async with stage.consumer(worker_slots=4):
            asking = asyncio.create_task(ask_slowly(stage, 80, rate=20))
            for times in (1, 2):
                await judged(stage, 20 * times)
                frozen.freeze()
                await asyncio.sleep(2 * LEASE_S)
                frozen.thaw()
            await asking
            seen = await promises.kept(stage, crashes=2)
    finally:
        frozen.thaw()
        await asyncio.to_thread(frozen.stop)
    assert len(seen.scores) == 80


async def test_frozen_while_it_relays(stage: Stage) -> None:
    """Kafka has the events, the frozen relay has the lock; another one goes on in the end."""
    frozen = stage.process(failpoints=f"{Point.AFTER_SEND}:freeze@1")
    await asyncio.to_thread(frozen.start)
    await ask_all(stage, 5)
    await judged(stage, 1)
    try:
        async with stage.consumer():
            seen = await promises.kept(stage, crashes=1, timeout_s=RELAY_LOCK_S + 60)
            frozen.thaw()
            await asyncio.sleep(1)
            assert (await promises.kept(stage, crashes=1)).repeats == seen.repeats
    finally:
        frozen.thaw()
        await asyncio.to_thread(frozen.stop)
    assert seen.repeats > 0, "it came to nothing but a second delivery under the same ce_id"


async def test_rebalance_storm(stage: Stage, kills: int) -> None:
    """Replicas come and go, in good order or not, while requests flow."""
    chance = random.Random(4)
    stage.stand_ins.judge_delay_s = 0.1
    crashes = 0
    async with stage.consumer(worker_slots=4):
        asking = asyncio.create_task(ask_slowly(stage, 20 * kills, rate=15))
        for _ in range(kills):
            guest = stage.process(worker_slots=4)
            await asyncio.to_thread(guest.start)
            await asyncio.sleep(chance.uniform(0, 1))
            if chance.random() < 0.5:
                assert await guest.terminate() == 0
            else:
                await asyncio.to_thread(guest.kill)
                crashes += 1
        await asking
        seen = await promises.kept(stage, crashes=crashes)
    assert len(seen.scores) == 20 * kills


async def test_told_to_stop_while_everything_is_away(stage: Stage) -> None:
    """No server answers, and SIGTERM is still the end."""
    process = stage.process(
        kafka_bootstrap_servers="127.0.0.1:9", history_url="http://127.0.0.1:9", worker_slots=2
    )
    starting = asyncio.create_task(asyncio.to_thread(process.start))
    await process.logged("server_not_reachable")
    assert await process.terminate(15) == 0
    await asyncio.gather(starting, return_exceptions=True)
