"""Small pieces that the tests of tables and topics are made of."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from consumer.edges.postgres.connect import open_pool, place
from consumer.edges.postgres.store import IncomingRequest, Store
from consumer.errors import NotReachable
from consumer.outgoing import Addresses, OutboxRow
from consumer.ports import ClaimedRequest
from consumer.scoring.criteria import Criteria
from consumer.scoring.score import Score
from consumer.scoring.verdict import Approach, MissingTool
from tests.support.servers import PostgresServer
from tests.support.topics import Topics
from tests.unit import builders

ADDRESSES = Addresses(
    source="/tests",
    topics={
        name: name
        for name in (
            "score.completed",
            "quality_risk",
            "score.failed",
            "score.overridden",
            "score.requested",
        )
    },
)
PROFILE = "alert-investigation"
CRITERIA = Criteria(hash="a" * 64, content={"profile": PROFILE})
OTHER_CRITERIA = Criteria(hash="b" * 64, content={"profile": PROFILE, "judge": "another"})
ASKED_AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
TRACE = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "vendor=1"}

# Every table of the product that an outcome may write to.
TABLES = (
    "session_scores",
    "score_missing_tools",
    "score_alternative_approaches",
    "score_alternative_approach_steps",
    "score_requests",
    "outbox",
)

PARTITIONS = 4  # of every topic here

_offsets = itertools.count()


@contextlib.asynccontextmanager
async def opened_store(
    dsn: str, *, size: int = 10, addresses: Addresses = ADDRESSES
) -> AsyncIterator[Store]:
    """A store of its own on this database, as a process would have one."""
    pool = await open_pool(dsn, size=size)
    try:
        yield Store(pool, where=place(dsn), addresses=addresses)
    finally:
        pool.terminate()


def addresses_of(topics: Topics) -> Addresses:
    """The test's own topics, by the type of their events."""
    return Addresses(
        source="/tests",
        topics={
            "score.completed": topics.completed,
            "quality_risk": topics.quality_risk,
            "score.failed": topics.failed,
            "score.overridden": topics.overridden,
        },
    )


@contextlib.asynccontextmanager
async def migrated_database(postgres: PostgresServer, template: str) -> AsyncIterator[str]:
    """URL of a database for all tests of a module; see `emptied`."""
    name = f"module_{uuid4().hex}"
    await execute(postgres.dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield urlunsplit(urlsplit(postgres.dsn)._replace(path=f"/{name}"))
    await execute(postgres.dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def emptied(dsn: str) -> str:
    """The same database without a row in it: ten times as quick as another database."""
    await execute(
        dsn,
        """
        ALTER TABLE scoring_criteria_definitions DISABLE TRIGGER criteria_immutable;
        ALTER TABLE score_missing_tools DISABLE TRIGGER missing_tools_immutable;
        ALTER TABLE score_alternative_approaches DISABLE TRIGGER approaches_immutable;
        ALTER TABLE score_alternative_approach_steps DISABLE TRIGGER approach_steps_immutable;
        ALTER TABLE score_overrides DISABLE TRIGGER overrides_immutable;
        ALTER TABLE profile_activations DISABLE TRIGGER activations_immutable;
        DELETE FROM outbox;
        DELETE FROM live_changes WHERE ids <> '{}';
        DELETE FROM score_batches;
        DELETE FROM profile_activations;
        DELETE FROM score_overrides;
        DELETE FROM score_requests;
        DELETE FROM score_alternative_approach_steps;
        DELETE FROM score_alternative_approaches;
        DELETE FROM score_missing_tools;
        DELETE FROM session_scores;
        DELETE FROM judge_inputs;
        DELETE FROM judge_sent;
        DELETE FROM judge_profiles;
        DELETE FROM scoring_criteria_definitions;
        ALTER TABLE scoring_criteria_definitions ENABLE TRIGGER criteria_immutable;
        ALTER TABLE score_missing_tools ENABLE TRIGGER missing_tools_immutable;
        ALTER TABLE score_alternative_approaches ENABLE TRIGGER approaches_immutable;
        ALTER TABLE score_alternative_approach_steps ENABLE TRIGGER approach_steps_immutable;
        ALTER TABLE score_overrides ENABLE TRIGGER overrides_immutable;
        ALTER TABLE profile_activations ENABLE TRIGGER activations_immutable;
        """,
    )
    return dsn


# ── what goes in ────────────────────────────────────────────────────────────


def request(session_id: str = "s1", **changes: Any) -> IncomingRequest:
    """A request as intake reads it."""
    wanted = IncomingRequest(
        request_id=uuid4(),
        session_id=session_id,
        profile_id=None,
        force_rescore=False,
        triggered_by="tests",
        priority=5,
        requested_at=ASKED_AT,
        topic="score.requested",
        partition=0,
        offset=next(_offsets),
        trace={},
    )
    return replace(wanted, **changes)


def score(claimed: ClaimedRequest, **changes: Any) -> Score:
    """A new score for this request, with children, and no risk."""
    own: dict[str, Any] = {
        "score_id": uuid4(),
        "request_id": claimed.request_id,
        "session_id": claimed.session_id,
        "criteria_hash": CRITERIA.hash,
        "profile_id": PROFILE,
        "missing_tools": (
            MissingTool(tool_name="kubectl_logs", rationale="why", availability="exists_unused"),
            MissingTool(tool_name="promql", rationale="metrics", availability="does_not_exist"),
        ),
        "approaches": (
            Approach(name="logs first", description="read", steps=("one", "two", "three")),
            Approach(name="no steps", description="ask", steps=()),
        ),
        "triggered_by": claimed.triggered_by,
    }
    return builders.score(**{**own, **changes})


async def claim(
    store: Store, count: int = 1, *, lease_s: float = 60, held: Iterable[str] = ()
) -> list[ClaimedRequest]:
    """Claims as a worker does."""
    return await store.claim(count, owner="worker-1", lease_s=lease_s, held=held)


async def claim_one(store: Store, *, lease_s: float = 60) -> ClaimedRequest:
    """The one request that is due. Fails where there are more or none."""
    (claimed,) = await claim(store, 2, lease_s=lease_s)
    return claimed


async def begin(store: Store, claimed: ClaimedRequest, **changes: str) -> Score | None:
    """Begins to score as the pipeline does."""
    wanted = {"profile_id": PROFILE, "criteria_hash": CRITERIA.hash} | changes
    return await store.begin_scoring(claimed, **wanted)


async def scored(store: Store, incoming: IncomingRequest, **changes: Any) -> Score:
    """A request taken all the way to its stored score."""
    await store.register_criteria(CRITERIA)
    await store.accept([incoming], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    made = score(claimed, **changes)
    return replace(made, scored_at=await store.complete(claimed, made))


async def persistently(act: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Tries again on NotReachable, as every loop does: a deadlock is one of its reasons."""
    while True:
        try:
            return await act(*args)
        except NotReachable:
            await asyncio.sleep(0.01)


def event(number: int = 0, **changes: Any) -> OutboxRow:
    """An event on its way to Kafka."""
    row = OutboxRow(
        event_id=uuid4(),
        topic="score.completed",
        key=b"s%d" % (number % 7),
        type="score.completed",
        payload=b'{"number": %d}' % number,
        headers=[["ce_id", str(uuid4())], ["number", str(number)]],
    )
    return replace(row, **changes)


# ── what is there, seen from outside ────────────────────────────────────────


async def fetch(dsn: str, sql: str, *args: Any) -> list[dict[str, Any]]:
    """The rows of a query, over a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        return [dict(row) for row in await connection.fetch(sql, *args)]
    finally:
        await connection.close()


async def value(dsn: str, sql: str, *args: Any) -> Any:
    """The first column of the only row."""
    (row,) = await fetch(dsn, sql, *args)
    return next(iter(row.values()))


async def execute(dsn: str, sql: str, *args: Any) -> None:
    """Changes something over a connection of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql, *args)
    finally:
        await connection.close()


async def until_blocked(dsn: str, count: int) -> None:
    """Waits until so many sessions of this database wait for a lock."""
    waiting = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    await until(lambda: _equals(value(dsn, waiting), count), what=f"{count} wait for a lock")


async def _equals(found: Awaitable[Any], wanted: Any) -> bool:
    return bool(await found == wanted)


async def row_counts(dsn: str) -> dict[str, int]:
    """How many rows every table has."""
    counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in TABLES)  # noqa: S608
    (row,) = await fetch(dsn, f"SELECT {counts}")
    return row


async def requests_by_id(dsn: str) -> dict[UUID, dict[str, Any]]:
    """All of score_requests."""
    return {row["request_id"]: row for row in await fetch(dsn, "SELECT * FROM score_requests")}


@contextlib.asynccontextmanager
async def producing(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A producer as someone else's service has one."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", max_request_size=32 * 1024 * 1024, **options
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def published(bootstrap: str, topic: str) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """All records that a topic holds now."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=32 * 1024 * 1024,
    )
    try:
        await consumer.start()
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[ConsumerRecord[bytes | None, bytes | None]] = []
        async with asyncio.timeout(20):
            while any([await consumer.position(at) < ends[at] for at in places]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
        return found
    finally:
        await consumer.stop()


async def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """What the group has committed, by partition; those without a commit are left out."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    try:
        await consumer.start()
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        offsets = {at.partition: await consumer.committed(at) for at in places}
    finally:
        await consumer.stop()
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


async def until(
    condition: Callable[[], Awaitable[bool]],
    *,
    timeout_s: float = 20,
    every_s: float = 0.1,
    what: str = "",
) -> None:
    """Waits until the condition holds; fails after `timeout_s`."""
    deadline = monotonic() + timeout_s
    while not await condition():
        assert monotonic() < deadline, f"not within {timeout_s} s: {what or condition}"
        await asyncio.sleep(every_s)


def numbers(records: Iterable[ConsumerRecord[bytes | None, bytes | None]]) -> list[int]:
    """The events' numbers, see `event`."""
    return [int(dict(record.headers)["number"]) for record in records]


def by_partition(
    records: Sequence[ConsumerRecord[bytes | None, bytes | None]],
) -> dict[int, list[ConsumerRecord[bytes | None, bytes | None]]]:
    """The records of each partition, in the order of their offsets."""
    partitions: dict[int, list[ConsumerRecord[bytes | None, bytes | None]]] = {}
    for record in sorted(records, key=lambda r: (r.partition, r.offset)):
        partitions.setdefault(record.partition, []).append(record)
    return partitions
