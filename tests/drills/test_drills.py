"""What an operator meets: which alert names it, that nothing else fires, and that all is back, with
nothing lost, soon after the cause has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from consumer.demo.servers import ServerError
from consumer.resources import resource
from tests.drills.conftest import Drill
from tests.faults.test_deadly_sessions import Deadly
from tests.support.asking import ask_all, ask_slowly
from tests.support.judging import JUDGE, configured
from tests.support.stand_ins import answer

NOT_WELL = answer(503)
PRICE = {"input_per_million": 1000.0, "output_per_million": 1000.0}


# ── the judge ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [503, 401])
async def test_judge_away_or_key_refused(drill: Drill, status: int) -> None:
    drill.judge_at_fault = True
    faults = drill.stage.stand_ins.judge_faults
    faults.always = answer(status)
    await drill.fires("ScoringJudgeBreakerOpen")
    faults.always = None
    await drill.over("ScoringJudgeBreakerOpen", allowed=["ScoringJudgeErrors"])


async def test_judge_slow(drill: Drill) -> None:
    await ask_slowly(drill.stage, 500, rate=25)  # what is usual
    drill.stage.stand_ins.judge_delay_s = 6
    await drill.fires("ScoringJudgeSlow")
    drill.stage.stand_ins.judge_delay_s = 0
    await drill.over("ScoringJudgeSlow")


# ── History ─────────────────────────────────────────────────────────────────


@pytest.mark.ci_drill
async def test_history_away(drill: Drill) -> None:
    faults = drill.stage.stand_ins.history_faults
    faults.always = NOT_WELL
    await drill.fires("ScoringHistoryAway")
    faults.always = None
    await drill.over("ScoringHistoryAway")


@pytest.mark.ci_drill
async def test_history_answers_garbage_for_a_third(drill: Drill) -> None:
    stand_ins = drill.stage.stand_ins
    garbage = answer(200, {"session_id": 12})
    stand_ins.history_faults.forever |= {f"bad-{n}": garbage for n in range(10_000)}
    await drill.fires("ScoringFailures")
    stand_ins.history_faults.forever.clear()
    await drill.over("ScoringFailures")
    done = await drill.stage.cli("requests", "--code", "history_invalid", "--json")
    assert len(done.json) > 5


# ── PostgreSQL ──────────────────────────────────────────────────────────────


@pytest.mark.ci_drill
async def test_postgres_away(drill: Drill) -> None:
    """Its figures are unknown meanwhile, and no alert blames anything else."""
    await asyncio.to_thread(drill.arena.postgres.stop)
    await drill.fires("ScoringPostgresAway")
    pending = await drill.prometheus.query("scoring_requests_pending")
    assert [one["value"][1] for one in pending] == ["NaN", "NaN"]
    await asyncio.to_thread(drill.arena.postgres.start)
    await drill.over("ScoringPostgresAway")


async def test_postgres_read_only(drill: Drill) -> None:
    async with operator(drill) as postgres:
        await postgres.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await postgres.execute("SET default_transaction_read_only = off")
        await postgres.execute("SELECT pg_reload_conf()")
        try:
            await drill.fires("ScoringPostgresNotWritable")
        finally:
            await postgres.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await postgres.execute("SELECT pg_reload_conf()")
        await drill.over("ScoringPostgresNotWritable")


async def test_postgres_locked(drill: Drill) -> None:
    async with operator(drill) as postgres:
        async with postgres.transaction():
            await postgres.execute("LOCK TABLE score_requests")
            await drill.fires("ScoringPostgresAway")
        await drill.over("ScoringPostgresAway")


@contextlib.asynccontextmanager
async def operator(drill: Drill) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(drill.stage.database_url)
    try:
        yield connection
    finally:
        await connection.close()


# ── Kafka ───────────────────────────────────────────────────────────────────


@pytest.mark.ci_drill
async def test_kafka_away(drill: Drill) -> None:
    await asyncio.to_thread(drill.arena.kafka.stop)
    await drill.fires("ScoringKafkaAway")
    await asyncio.to_thread(drill.arena.kafka.start)
    await drill.over("ScoringKafkaAway", allowed=["ScoringOutboxStuck"])


async def test_kafka_takes_no_answers(drill: Drill) -> None:
    await configure_topic(drill, "100")
    await drill.fires("ScoringOutboxStuck")
    await configure_topic(drill, "1048588")
    await drill.over("ScoringOutboxStuck")


async def configure_topic(drill: Drill, most_bytes: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=drill.stage.kafka.bootstrap)
    await admin.start()
    try:
        changed = {"max.message.bytes": most_bytes}
        topic = drill.stage.topics.completed
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])
    finally:
        await admin.close()


async def test_bad_records(drill: Drill) -> None:
    async with drill.stage.producer() as producer:
        for _ in range(400):
            value = json.dumps({"session_idx": 1}).encode()
            await producer.send(drill.stage.topics.requested, value)
            await asyncio.sleep(0.05)
    await drill.fires("ScoringDlqGrowth")
    await drill.over("ScoringDlqGrowth", allowed=["ScoringIntakeFlooded"])  # a minute after it


# ── processes ───────────────────────────────────────────────────────────────


async def test_process_frozen(drill: Drill) -> None:
    drill.replicas[0].freeze()
    await drill.fires("ScoringReplicasMissing")
    drill.replicas[0].thaw()
    await drill.over("ScoringReplicasMissing", crashes=1)


async def test_broken_profile_at_a_restart(drill: Drill, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(resource("config"), broken)
    (broken / "profiles" / "mine.yaml").write_text("id: mine\nversion: 0\n")
    replica = drill.replicas[0]
    await asyncio.to_thread(replica.stop)
    good = replica._environment["SCORING_CONFIG_DIR"] = str(broken)
    with pytest.raises(ServerError, match="version"):
        await asyncio.to_thread(replica.start)
    await drill.fires("ScoringReplicasMissing")
    del replica._environment["SCORING_CONFIG_DIR"], good
    await asyncio.to_thread(replica.start)
    await drill.over("ScoringReplicasMissing")


async def test_processes_end_soon_after_each_start(drill: Drill) -> None:
    for _ in range(3):
        for replica in drill.replicas:
            await asyncio.to_thread(replica.kill)
            await asyncio.to_thread(replica.start)
        await asyncio.sleep(4)
    await drill.fires("ScoringCrashLoop")
    await drill.over("ScoringCrashLoop", allowed=["ScoringDown"], crashes=6)


async def test_a_session_that_ends_its_workers(drill: Drill) -> None:
    """Somebody starts them again, as Kubernetes would; nobody else's request is given up."""
    stage, session = drill.stage, drill.stage.stand_ins.add("s-deadly")
    deadly = Deadly(stage=stage, session_id=session, replicas=drill.replicas)
    stage.stand_ins.history_faults.forever[session] = deadly
    await stage.ask(session)
    restarting = asyncio.create_task(start_again(drill))
    await drill.fires("ScoringRequestGivenUp")
    allowed = ["ScoringCrashLoop", "ScoringLeasesLost", "ScoringReplicasMissing"]
    await drill.over("ScoringRequestGivenUp", allowed=allowed, crashes=3)
    restarting.cancel()
    failed = await stage.rows("SELECT session_id FROM score_requests WHERE state = 'failed'")
    assert [row["session_id"] for row in failed] == [session]


async def start_again(drill: Drill) -> None:
    while True:
        for replica in drill.replicas:
            if not replica.pid:
                await asyncio.to_thread(replica.start)
        await asyncio.sleep(0.5)


CLOCK = """
import time
_now = time.time
time.time = lambda: _now() + 3 * 3600
"""


async def test_clock_three_hours_ahead(drill: Drill, tmp_path: Path) -> None:
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sitecustomize.py").write_text(CLOCK)
    replica = drill.stage.process(pythonpath=tmp_path / "ahead")
    before = drill.replicas[0]
    replica.port = before.port
    replica._environment["HTTP_PORT"] = str(before.port)
    await asyncio.to_thread(before.stop)
    await asyncio.to_thread(replica.start)
    await drill.fires("ScoringClockSkew")
    await asyncio.to_thread(replica.stop)
    await asyncio.to_thread(before.start)
    await drill.over("ScoringClockSkew")


# ── money and load ──────────────────────────────────────────────────────────


async def test_spend_cap(drill: Drill, tmp_path: Path) -> None:
    """Raised, and started anew: as the runbook says."""
    for cap, follows in ((1.0, "ScoringBudgetExhausted"), (100_000.0, "")):
        config = configured(
            tmp_path / str(cap), providers={JUDGE: {"daily_cap_usd": cap, "price": PRICE}}
        )
        for replica in drill.replicas:
            replica._environment["SCORING_CONFIG_DIR"] = str(config)
            await asyncio.to_thread(replica.stop)
            await asyncio.to_thread(replica.start)
        if follows:
            await drill.fires(follows)
    await drill.over("ScoringBudgetExhausted", allowed=["ScoringSpendNearCap", "ScoringFailures"])


@pytest.mark.parametrize("drill", [{"objective_seconds": 3}], indirect=True)
async def test_more_at_once_than_can_be_answered_in_time(drill: Drill) -> None:
    drill.stage.stand_ins.judge_delay_s = 1
    await ask_all(drill.stage, 400)
    await drill.fires("ScoringLate")
    drill.stage.stand_ins.judge_delay_s = 0
    await drill.over("ScoringLate")
