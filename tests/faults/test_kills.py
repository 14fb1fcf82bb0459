"""SIGKILL where it hurts most, and at random: nothing is lost, nothing is answered twice."""

import asyncio
import random
from signal import SIGKILL
from time import monotonic
from typing import Any

import pytest

from consumer.demo.servers import ServerError
from consumer.failpoints import Point
from tests.support import promises
from tests.support.asking import ask_all, ask_slowly, judged
from tests.support.stage import Stage

REQUESTS = 12
# What the judge is told to take, so that requests are under way when the process dies.
JUDGE_S = 0.3
LEASE_S = 2
# The promise: the first new score comes within the lease time and this.
RECOVERY_S = 2.0


@pytest.mark.ci_fault
@pytest.mark.parametrize("point", list(Point))
async def test_killed_at_a_failpoint(stage: Stage, point: Point) -> None:
    stage.stand_ins.judge_delay_s = JUDGE_S
    process = stage.process(failpoints=f"{point}:kill@1", worker_slots=4)
    await asyncio.to_thread(process.start)
    await ask_all(stage, REQUESTS)
    assert await process.ended() == -SIGKILL
    async with stage.consumer():
        seen = await promises.kept(stage, crashes=1)
    assert len(seen.requests) == len(seen.scores) == REQUESTS
    assert (seen.repeats > 0) == (point is Point.AFTER_SEND), "only then Kafka has them already"


@pytest.mark.parametrize("point", list(Point))
@pytest.mark.parametrize("nth", [2, 5])
async def test_killed_at_a_failpoint_again_and_again(stage: Stage, point: Point, nth: int) -> None:
    """Every process dies as soon as it gets there, until one is left alone."""
    stage.stand_ins.judge_delay_s = 0.05
    requests: asyncio.Task[Any] | None = None
    kills = 0
    while not (requests and requests.done()) and kills < 5:
        process = stage.process(failpoints=f"{point}:kill@{nth}", worker_slots=4)
        try:
            await asyncio.to_thread(process.start)
            # Not before: all of them at once would be too few batches to get there.
            requests = requests or asyncio.create_task(ask_slowly(stage, 60, rate=20))
            assert await process.ended() == -SIGKILL
        except ServerError as error:  # it got there before it was ready
            if f"code {-SIGKILL}" not in str(error):
                raise
        except TimeoutError:
            break
        finally:
            await asyncio.to_thread(process.kill)
        kills += 1
    assert requests is not None
    async with stage.consumer():
        await requests
        seen = await promises.kept(stage, crashes=kills)
    assert kills >= 1
    assert len(seen.scores) == 60


async def test_the_first_score_after_a_kill_comes_within_the_lease_time(stage: Stage) -> None:
    """With a second replica there: it takes over what the dead one held."""
    stage.stand_ins.judge_delay_s = 30
    doomed = stage.process(worker_slots=4)
    await asyncio.to_thread(doomed.start)
    await ask_all(stage, 4)
    await judged(stage, 4)
    stage.stand_ins.judge_delay_s = 0
    async with stage.consumer(roles="worker,relay,api"):
        await asyncio.to_thread(doomed.kill)
        killed = monotonic()
        await stage.until(lambda: stage.events[stage.topics.completed])
        recovery_s = monotonic() - killed
        await promises.kept(stage, crashes=1)
    assert recovery_s <= LEASE_S + RECOVERY_S


async def test_random_kills(stage: Stage, kills: int) -> None:
    """Two replicas, killed and started again at any moment, while requests keep coming."""
    chance = random.Random(20)
    stage.stand_ins.judge_delay_s = 0.2
    replicas = [stage.process(worker_slots=4) for _ in range(2)]
    await asyncio.gather(*(asyncio.to_thread(replica.start) for replica in replicas))
    asking = asyncio.create_task(ask_slowly(stage, 8 * kills, rate=8))
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0, 1.5))
        victim = chance.choice(replicas)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)
    asked = await asking
    seen = await promises.kept(stage, crashes=kills)
    assert len(seen.requests) == len(seen.scores) == len(asked)
    await asyncio.gather(*(asyncio.to_thread(replica.stop) for replica in replicas))
