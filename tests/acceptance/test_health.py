"""Probes tell the truth: each part that they watch is broken, and mended where that can be."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import isnan
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from consumer.demo.servers import HOST, EmbeddedPostgres, free_port
from consumer.edges.postgres import migrations
from tests.support.replica import Replica
from tests.support.servers import KafkaProcess
from tests.support.stage import Stage


async def waits_for(consumer: Replica, parts: set[str]) -> dict[str, str]:
    """Waits until exactly these parts are not ready; the process is alive all the time."""
    async with httpx.AsyncClient(base_url=consumer.url) as http, asyncio.timeout(30):
        while True:
            ready = await http.get("/readyz")
            found: dict[str, str] = ready.json()["waiting_for"]
            assert ready.status_code == (503 if found else 200)
            assert (await http.get("/healthz")).status_code == 200
            if found.keys() == parts:
                return found
            await asyncio.sleep(0.1)


async def test_postgres_gone_and_back(stage: Stage) -> None:
    with EmbeddedPostgres(stage.folder / "postgres") as postgres:
        await migrations.up(postgres.dsn)
        async with stage.consumer(database_url=postgres.dsn) as consumer:
            await asyncio.to_thread(postgres.kill)
            told = await waits_for(consumer, {"postgres", "postgres_writes"})
            assert "does not answer" in told["postgres"]
            await asyncio.to_thread(postgres.start)
            await waits_for(consumer, set())


async def figures(consumer: Replica) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=consumer.url) as http:
        text = (await http.get("/metrics")).text
    return {
        sample.name + str(dict(sample.labels) or ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@asynccontextmanager
async def read_only(operator: asyncpg.Connection) -> AsyncIterator[None]:
    for statement in (
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SET default_transaction_read_only = off",
        "SELECT pg_reload_conf()",
    ):
        await operator.execute(statement)
    yield
    await operator.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await operator.execute("SELECT pg_reload_conf()")


@asynccontextmanager
async def writes_locked(operator: asyncpg.Connection) -> AsyncIterator[None]:
    async with operator.transaction():
        await operator.execute("LOCK TABLE score_requests IN SHARE MODE")
        yield


@asynccontextmanager
async def locked(operator: asyncpg.Connection) -> AsyncIterator[None]:
    async with operator.transaction():
        await operator.execute("LOCK TABLE score_requests")
        yield


async def until_told(consumer: Replica, *, known: bool) -> dict[str, float]:
    """Waits until the queue's figures are known, or marked as unknown."""
    async with asyncio.timeout(30):
        while isnan((found := await figures(consumer))["scoring_requests_pending"]) is known:
            await asyncio.sleep(0.2)
    return found


@pytest.mark.parametrize(
    ("trouble", "parts", "why"),
    [
        (read_only, {"postgres_writes"}, "read-only transaction"),
        (writes_locked, {"postgres_writes"}, "lock timeout"),
        (locked, {"postgres", "postgres_writes"}, "TimeoutError"),
    ],
)
async def test_postgres_that_answers_and_cannot_be_used(
    stage: Stage, trouble: Callable[[Any], Any], parts: set[str], why: str
) -> None:
    with EmbeddedPostgres(stage.folder / "postgres") as postgres:
        await migrations.up(postgres.dsn)
        operator = await asyncpg.connect(postgres.dsn)
        async with stage.consumer(database_url=postgres.dsn) as consumer:
            await until_told(consumer, known=True)
            async with trouble(operator):
                assert why in (await waits_for(consumer, parts))["postgres_writes"]
                found = await figures(consumer)
                for part in ("postgres", "postgres_writes"):
                    assert found[f"scoring_ready{ {'part': part} }"] == (part not in parts)
                if "postgres" in parts:  # nobody is told how it was
                    found = await until_told(consumer, known=False)
                    assert found["scoring_figures_age_seconds"] > 10
            await waits_for(consumer, set())
            await until_told(consumer, known=True)
        await operator.close()


async def test_rights_that_are_taken_away_and_given_back(stage: Stage) -> None:
    """The process waits for them: it would not start without them either."""
    grants = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    with EmbeddedPostgres(stage.folder / "postgres") as postgres:
        await migrations.up(postgres.dsn)
        operator = await asyncpg.connect(postgres.dsn)
        await operator.execute(f"CREATE ROLE scorer LOGIN PASSWORD 'p'; GRANT {grants} TO scorer")
        scorer = f"postgresql://scorer:p@{HOST}:{postgres.port}/postgres"
        async with stage.consumer(database_url=scorer) as consumer:
            await operator.execute("REVOKE INSERT, UPDATE ON score_requests FROM scorer")
            told = await waits_for(consumer, {"postgres_writes"})
            assert "permission denied for table score_requests" in told["postgres_writes"]
            await operator.execute(f"GRANT {grants} TO scorer")
            await waits_for(consumer, set())
        await operator.close()


async def test_kafka_silent_and_back_and_silent_for_long(
    kafka_process: KafkaProcess, stage: Stage
) -> None:
    """The process stays: to end would help nobody, and take the others down with it."""
    async with stage.consumer(kafka_stale_after_seconds=6) as consumer:
        assert kafka_process.pid
        os.kill(kafka_process.pid, signal.SIGSTOP)
        try:
            told = await waits_for(consumer, {"kafka"})
            assert "no partition was polled for" in told["kafka"]
        finally:
            os.kill(kafka_process.pid, signal.SIGCONT)
        await waits_for(consumer, set())
        os.kill(kafka_process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                await consumer.ended(15)
        finally:
            os.kill(kafka_process.pid, signal.SIGCONT)
        await waits_for(consumer, set())


async def test_a_process_that_was_frozen_goes_on(stage: Stage) -> None:
    """It was silent for longer than the dead may be, and had no chance to poll."""
    async with stage.consumer(kafka_stale_after_seconds=6) as consumer:
        await waits_for(consumer, set())
        assert consumer.pid
        os.kill(consumer.pid, signal.SIGSTOP)
        await asyncio.sleep(8)
        os.kill(consumer.pid, signal.SIGCONT)
        stage.stand_ins.add("s-after", "good")
        assert (await stage.answer(await stage.ask("s-after"))).topic == stage.topics.completed
        await waits_for(consumer, set())
        assert "process_stood_still" in consumer.log.read_text()


async def test_a_log_that_nobody_reads_holds_up_nothing(stage: Stage) -> None:
    reader, writer = os.pipe()
    run = [sys.executable, "-m", "consumer.cli", "run"]
    environment = stage.environment(http_host=HOST, http_port=free_port())
    process = await asyncio.create_subprocess_exec(
        *run, env={**os.environ, **environment}, stderr=writer
    )
    try:
        await stage.send(*[b"no JSON, which is told in the log"] * 1000)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) >= 1000)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        os.close(reader)
        os.close(writer)


async def test_a_loop_that_meets_a_bug_takes_the_process_down(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        await stage.rows("ALTER TABLE score_requests RENAME COLUMN lease_owner TO nobody")
        assert await consumer.ended() == 1
        log = consumer.log.read_text()
    assert "loop_died" in log
    assert "lease_owner" in log.splitlines()[-1]
