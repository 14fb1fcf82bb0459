"""Broker and database killed, cut off, slow or silent: requests wait, and nothing is lost."""

import asyncio
from time import monotonic

import pytest

from consumer.edges.postgres.connect import UNREACHABLE
from tests.faults.conftest import LEASE_S, SESSION_S, Arena
from tests.support import promises
from tests.support.asking import ask_all, ask_slowly, judged
from tests.support.stage import Stage

BACK_AT_WORK_S = 90.0
# A supervisor gives 10 s beyond the grace time; this machine may be busy.
STOPPED_S = 30.0


# ── the broker ──────────────────────────────────────────────────────────────


async def test_broker_killed_and_restarted_under_load(arena: Arena) -> None:
    stage = arena.stage
    async with stage.consumer():
        await ask_all(stage, 40)
        await scored(stage, 5)
        await asyncio.to_thread(arena.kafka.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(arena.kafka.start)
        await ask_all(stage, 20)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 60


async def test_broker_away_for_longer_than_the_session(arena: Arena) -> None:
    """What is stored already is scored meanwhile; its events wait in the outbox."""
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 0.2
    async with stage.consumer(worker_slots=2) as process:
        await ask_all(stage, 20)
        await stored(stage, 20)
        await asyncio.to_thread(arena.kafka.stop)
        await asyncio.sleep(SESSION_S + 2)
        await scored(stage, 20)
        assert await stage.rows("SELECT * FROM outbox") != []
        await asyncio.to_thread(arena.kafka.start)
        await ask_all(stage, 10)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
        assert process.pid, "it recovered without a restart"
    assert len(seen.scores) == 30


@pytest.mark.parametrize("silent_s", [2, SESSION_S + 3])
async def test_half_open_connection_to_the_broker(arena: Arena, silent_s: float) -> None:
    stage = arena.stage
    async with stage.consumer():
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=15))
        await scored(stage, 5)
        arena.kafka_proxy.half_open()
        await asyncio.sleep(silent_s)
        arena.kafka_proxy.restore()
        await asking
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 60


async def test_connections_to_the_broker_are_reset_again_and_again(arena: Arena) -> None:
    stage = arena.stage
    async with stage.consumer():
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=20))
        while not asking.done():
            await asyncio.sleep(0.4)
            arena.kafka_proxy.reset()
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert arena.kafka_proxy.cuts >= 5
    assert len(seen.scores) == 60


async def test_slow_connection_to_the_broker(arena: Arena) -> None:
    stage = arena.stage
    async with stage.consumer():
        arena.kafka_proxy.delay(0.3)
        await ask_all(stage, 30)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 30


# ── the database ────────────────────────────────────────────────────────────


async def test_postgres_killed_and_restarted_under_load(arena: Arena) -> None:
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 0.2
    async with stage.consumer(worker_slots=4) as process:
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=15))
        for round_ in (1, 2):
            await scored(stage, 8 * round_)
            await asyncio.to_thread(arena.postgres.kill)
            await asyncio.sleep(1)
            await asyncio.to_thread(arena.postgres.start)
        await asking
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
        assert process.pid, "it recovered without a restart"
    assert len(seen.scores) == 60
    assert stage.stand_ins.judge_calls.total() == 60, "no verdict was thrown away"


async def test_nothing_is_acknowledged_while_postgres_is_down(arena: Arena) -> None:
    stage = arena.stage
    async with stage.consumer() as process:
        await ask_all(stage, 10)
        before = (await promises.kept(stage)).committed
        await asyncio.to_thread(arena.postgres.stop)
        await ask_all(stage, 50)
        await asyncio.sleep(LEASE_S + SESSION_S)
        assert await promises.committed(stage) == before, "lag grows"
        assert not process._answers(), "and readiness fails"
        assert process.pid
        await asyncio.to_thread(arena.postgres.start)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 60
    assert stage.stand_ins.judge_calls.total() == 60


async def test_ambiguous_commit_of_an_outcome(arena: Arena) -> None:
    """The server commits, its answer is lost: the same outcome is not stored twice."""
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 2
    async with stage.consumer(roles="intake,worker,api", worker_slots=8, lease_seconds=10):
        await ask_all(stage, 4)
        await judged(stage, 4)
        arena.postgres_proxy.cut_at(b"COMMIT;", times=4)
        await scored(stage, 4)
        assert arena.postgres_proxy.cuts == 4
        arena.postgres_proxy.restore()
        async with stage.consumer(roles="relay,api"):
            await promises.kept(stage)
    assert stage.stand_ins.judge_calls.total() == 4


async def test_ambiguous_commits_everywhere(arena: Arena) -> None:
    """Now and then a COMMIT goes unanswered, be it intake's, the worker's or the relay's."""
    stage = arena.stage
    async with stage.consumer(lease_seconds=10):
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=20))
        while not asking.done() or arena.postgres_proxy.cuts < 6:
            arena.postgres_proxy.cut_at(b"COMMIT;", times=2)
            await asyncio.sleep(0.3)
        arena.postgres_proxy.restore()
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 60


async def test_half_open_connection_to_postgres(arena: Arena) -> None:
    """Silent for longer than a lease, then gone: as when a node vanishes from the network."""
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 0.2
    async with stage.consumer(worker_slots=4):
        asking = asyncio.create_task(ask_slowly(stage, 40, rate=15))
        await scored(stage, 5)
        arena.postgres_proxy.half_open()
        await asyncio.sleep(LEASE_S + 2)
        arena.postgres_proxy.reset()
        arena.postgres_proxy.restore()
        await asking
        seen = await promises.kept(stage, crashes=1, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 40


@pytest.mark.ci_fault
async def test_sigterm_while_postgres_is_silent_is_over_in_time(arena: Arena) -> None:
    """Nothing can be given back: leases run out, and another process goes on."""
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 30
    process = stage.process(worker_slots=8, grace_seconds=2)
    await asyncio.to_thread(process.start)
    await ask_all(stage, 12)
    await judged(stage, 8)
    arena.postgres_proxy.half_open()
    assert await process.terminate(STOPPED_S) == 0
    arena.postgres_proxy.restore()
    stage.stand_ins.judge_delay_s = 0
    async with stage.consumer():
        seen = await promises.kept(stage, crashes=1, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == 12


async def test_connections_to_postgres_are_cut_again_and_again(arena: Arena) -> None:
    stage = arena.stage
    stage.stand_ins.judge_delay_s = 0.1
    async with stage.consumer(worker_slots=4, lease_seconds=15):
        asking = asyncio.create_task(ask_slowly(stage, 60, rate=15))
        while not asking.done():
            await asyncio.sleep(0.5)
            arena.postgres_proxy.reset()
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 60


async def test_pool_exhausted(arena: Arena) -> None:
    """Four connections for 64 slots, over a slow line."""
    stage = arena.stage
    async with stage.consumer(worker_slots=64, database_pool_size=4, lease_seconds=30):
        arena.postgres_proxy.delay(0.02)
        await ask_all(stage, 200)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 200


async def test_postgres_takes_no_more_connections(arena: Arena) -> None:
    """The server's limit is below the pool's size: who gets none waits, and the others go on."""
    stage = arena.stage
    owner = f"owner_{stage.topics.requested[:12]}"
    await stage.rows(f"CREATE ROLE {owner} LOGIN PASSWORD 'narrow' CONNECTION LIMIT 3")
    await stage.rows(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {owner}")
    place = f"127.0.0.1:{arena.postgres_proxy.port}/{stage.database_url.rpartition('/')[2]}"
    url = f"postgresql://{owner}:narrow@{place}"
    # Not the API: it keeps a connection of its own, and waits for it until the pool leaves one.
    roles = "intake,worker,relay"
    async with stage.consumer(
        roles=roles, database_url=url, worker_slots=32, lease_seconds=30
    ) as process:
        await ask_all(stage, 100)
        seen = await promises.kept(stage, timeout_s=BACK_AT_WORK_S)
        assert process.pid
    assert len(seen.scores) == stage.stand_ins.judge_calls.total() == 100


# ── waiting ─────────────────────────────────────────────────────────────────


async def scored(stage: Stage, count: int, timeout_s: float = BACK_AT_WORK_S) -> None:
    """Waits until there are so many scores."""
    await _counted(stage, "SELECT count(*) FROM session_scores", count, timeout_s)


async def stored(stage: Stage, count: int, timeout_s: float = BACK_AT_WORK_S) -> None:
    """Waits until so many requests are stored."""
    await _counted(stage, "SELECT count(*) FROM score_requests", count, timeout_s)


async def _counted(stage: Stage, sql: str, count: int, timeout_s: float) -> None:
    deadline = monotonic() + timeout_s
    found = -1
    while monotonic() < deadline:
        try:
            ((found,),) = await stage.rows(sql)
        except UNREACHABLE:
            found = -1
        if found >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{sql}: {found} after {timeout_s} s, not {count}")
