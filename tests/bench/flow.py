"""Intake and relay, each alone: how fast events come in, and how fast they go out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.figures import Figure
from tests.bench.world import World, ask
from tests.support.stage import Stage

REQUESTS = 60_000
EVENTS = 50_000
INTAKE_MARK, OF_BARE_MARK, RELAY_MARK = 15_000, 0.5, 10_000
BARE = Path(__file__).with_name("bare_intake.py")
# A real score.completed has about so many bytes.
EVENT_BYTES = 1500
_FILL_OUTBOX = """
INSERT INTO outbox (event_id, topic, key, type, payload, headers)
SELECT gen_random_uuid(), $1, ('b-' || n)::bytea, 'score.completed', repeat('x', $2)::bytea,
    '[["ce_type", "score.completed"], ["ce_source", "/score-consumer"], ["ce_specversion", "1.0"]]'
FROM generate_series(1, $3) n
"""


async def intake(world: World) -> list[Figure]:
    """Requests a second into Postgres; beside it a bare loop without checks, indexes or DLQ."""
    rates, ratios = [], []
    count = world.amount(REQUESTS)
    for _ in range(world.rounds):
        async with world.stage(backlog_high_water=10_000_000) as stage:
            await ask(stage, range(count))
            async with stage.consumer(roles="intake"):
                rates.append(await _stored_a_second(stage, "score_requests", count))
            async with _bare(stage):
                bare = await _stored_a_second(stage, "bare_requests", count)
            ratios.append(rates[-1] / bare)
    return [
        Figure(name="intake", unit="requests/s", values=rates, mark=INTAKE_MARK),
        Figure(name="intake over a bare loop", unit="", values=ratios, mark=OF_BARE_MARK),
    ]


async def _stored_a_second(stage: Stage, table: str, count: int) -> float:
    """From the first batch to the last, by the database's clock."""
    deadline = monotonic() + 120
    connection = await asyncpg.connect(stage.database_url)
    try:
        while (stored := await connection.fetchval(f"SELECT count(*) FROM {table}")) < count:  # noqa: S608
            if monotonic() > deadline:
                raise TimeoutError(f"{stored} of {count} stored\n{stage.last_words()}")
            await asyncio.sleep(0.2)
        first, last, in_first = await connection.fetchrow(  # type: ignore[misc]
            f"SELECT extract(epoch FROM min(received_at))::float,"  # noqa: S608
            f" extract(epoch FROM max(received_at))::float,"
            f" count(*) FILTER (WHERE received_at = (SELECT min(received_at) FROM {table}))"
            f" FROM {table}"
        )
    finally:
        await connection.close()
    return float((count - in_first) / (last - first))


@contextlib.asynccontextmanager
async def _bare(stage: Stage) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(BARE),
        stage.kafka.bootstrap,
        stage.topics.requested,
        stage.database_url,
    )
    try:
        while not await _exists(stage, "bare_requests"):
            await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        await process.wait()


async def _exists(stage: Stage, table: str) -> bool:
    ((there,),) = await stage.rows("SELECT to_regclass($1) IS NOT NULL", table)
    return bool(there)


async def relay(world: World) -> list[Figure]:
    """Events a second out of the outbox, from a tenth to nine tenths of them."""
    count, rates = world.amount(EVENTS), []
    for _ in range(world.rounds):
        async with world.stage() as stage:
            await stage.rows(_FILL_OUTBOX, stage.topics.completed, EVENT_BYTES, count)
            async with _ends(stage) as sent, stage.consumer(roles="relay"):
                rates.append(await _sent_a_second(sent, count))
    return [Figure(name="relay", unit="events/s", values=rates, mark=RELAY_MARK)]


async def _sent_a_second(sent: AIOKafkaConsumer, count: int) -> float:
    places = [TopicPartition(*place) for place in sent.assignment()]
    began: tuple[float, int] | None = None
    while True:
        there = sum((await sent.end_offsets(places)).values())
        if began is None and there >= count * 0.1:
            began = (monotonic(), there)
        if began and there >= count * 0.9:
            return float((there - began[1]) / (monotonic() - began[0]))
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _ends(stage: Stage) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=stage.kafka.bootstrap, group_id=None)
    try:
        await consumer.start()
        consumer.assign([TopicPartition(stage.topics.completed, n) for n in range(4)])
        yield consumer
    finally:
        await consumer.stop()
