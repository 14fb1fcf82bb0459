"""Probes tell the truth: each part that they watch is broken, and mended where that can be."""

import asyncio
import os
import signal

import httpx
import pytest

from consumer.demo.servers import EmbeddedPostgres
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
            told = await waits_for(consumer, {"postgres"})
            assert "does not answer" in told["postgres"]
            await asyncio.to_thread(postgres.start)
            await waits_for(consumer, set())


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


async def test_a_loop_that_meets_a_bug_takes_the_process_down(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        await stage.rows("ALTER TABLE score_requests RENAME COLUMN lease_owner TO nobody")
        assert await consumer.ended() == 1
        log = consumer.log.read_text()
    assert "loop_died" in log
    assert "lease_owner" in log.splitlines()[-1]
