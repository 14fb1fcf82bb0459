"""Intake between real servers: what Kafka has acknowledged is stored, whatever happens."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.codec import gzip_encode
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from consumer import metrics
from consumer.demo.servers import EmbeddedKafka, EmbeddedPostgres, create_topics
from consumer.edges import kafka_codecs
from consumer.edges.kafka_codecs import Undecodable, uncompress
from consumer.edges.postgres import migrations
from consumer.edges.postgres.store import Store
from consumer.errors import LoopDied
from consumer.intake import Intake, IntakeSettings
from consumer.limits import flood
from consumer.loops import Heartbeat
from consumer.outgoing import sent_header, stored_header
from tests.integration.builders import (
    PARTITIONS,
    TRACE,
    committed,
    execute,
    fetch,
    opened_store,
    producing,
    until,
    value,
)
from tests.support.servers import KafkaProcess, KafkaServer
from tests.support.topics import Topics


@dataclass(slots=True, kw_only=True)
class Running:
    """An intake at work, and what it told its process."""

    intake: Intake
    heartbeat: Heartbeat
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[BaseException] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)


def settings(kafka: KafkaServer, topics: Topics, **changes: Any) -> IntakeSettings:
    wanted = IntakeSettings(
        bootstrap=kafka.bootstrap,
        topic=topics.requested,
        dlq_topic=topics.dlq,
        group_id=group(topics),
        batch_records=500,
        high_water=1000,
        invalid_share=1.0,
        stale_after_s=60,
        session_timeout_s=6,
    )
    return replace(wanted, **changes)


def group(topics: Topics) -> str:
    return f"group-{topics.requested}"


@contextlib.asynccontextmanager
async def taking_in(store: Store, chosen: IntakeSettings, **options: Any) -> AsyncIterator[Running]:
    """An intake at work, with aiokafka's own options changed; told to stop at the end."""
    heartbeat = Heartbeat("intake", limit_s=60)
    failures: list[BaseException] = []
    stored: list[str] = []
    intake = Intake(
        chosen,
        store=store,
        accepted=lambda: stored.append("requests"),
        rejected=lambda: stored.append("dead letters"),
        joined=lambda: None,
        heartbeat=heartbeat,
        fail=failures.append,
    )
    intake._subscriber._connection_args.update(options)
    running = Running(intake=intake, heartbeat=heartbeat, failures=failures, stored=stored)
    task = asyncio.create_task(intake.run(running.stop))
    try:
        yield running
    finally:
        running.stop.set()
        await task


async def joined(running: Running) -> None:
    async def has_place() -> bool:
        return running.intake.joined

    await until(has_place, what="a place in the consumer group")


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with opened_store(database) as opened:
        yield opened


def asked(session: str, **fields: Any) -> bytes:
    return json.dumps({"session_id": session, "request_id": str(uuid4()), **fields}).encode()


async def publish(
    kafka: KafkaServer, topic: str, values: Iterable[bytes | None], **record: Any
) -> None:
    async with producing(kafka.bootstrap) as producer:
        futures = [
            await producer.send(topic, one, **({"key": b"k%d" % n} | record))
            for n, one in enumerate(values)
        ]
        await asyncio.gather(*futures)


async def publish_everywhere(kafka: KafkaServer, topics: Topics, sessions: list[str]) -> None:
    """One record each, to all partitions in turn."""
    async with producing(kafka.bootstrap) as producer:
        for n, session in enumerate(sessions):
            await producer.send_and_wait(topics.requested, asked(session), partition=n % PARTITIONS)


async def requests(dsn: str) -> int:
    return int(await value(dsn, "SELECT count(*) FROM score_requests"))


async def until_stored(dsn: str, count: int, *, timeout_s: float = 20) -> None:
    async def enough() -> bool:
        return await requests(dsn) >= count

    await until(enough, every_s=0.2, timeout_s=timeout_s, what=f"{count} requests stored")
    assert await requests(dsn) == count


async def acknowledged(kafka: KafkaServer, topics: Topics) -> int:
    """How many records the group has committed."""
    return sum((await committed(kafka.bootstrap, group(topics), topics.requested)).values())


async def until_acknowledged(kafka: KafkaServer, topics: Topics, count: int) -> None:
    async def enough() -> bool:
        return await acknowledged(kafka, topics) >= count

    await until(enough, every_s=0.3, what=f"{count} records acknowledged")
    assert await acknowledged(kafka, topics) == count


# ── good records ────────────────────────────────────────────────────────────


async def test_every_record_is_stored_with_its_place_and_then_acknowledged(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with taking_in(store, settings(kafka, topics, batch_records=7)) as running:
        await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(60)])
        await until_stored(database, 60)
        await until_acknowledged(kafka, topics, 60)

    places = await fetch(
        database, "SELECT source_topic, source_partition, source_offset FROM score_requests"
    )
    offsets = await committed(kafka.bootstrap, group(topics), topics.requested)
    assert len(offsets) > 1
    assert {tuple(place.values()) for place in places} == {
        (topics.requested, partition, offset)
        for partition, end in offsets.items()
        for offset in range(end)
    }
    assert running.failures == []
    assert len(running.stored) >= 9
    assert set(running.stored) == {"requests"}, "there is nothing for the relay to send"


async def test_of_dead_letters_the_relay_is_told_and_of_requests_the_worker(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with taking_in(store, settings(kafka, topics)) as running:
        await publish(kafka, topics.requested, [b"{"])
        await until_acknowledged(kafka, topics, 1)
        assert running.stored == ["dead letters"]
        await publish(kafka, topics.requested, [asked("s1")])
        await until_acknowledged(kafka, topics, 2)
    assert running.stored == ["dead letters", "requests"]


async def test_a_record_may_say_little_or_much(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    event = {
        "specversion": "1.0",
        "type": "score.requested",
        "source": "/dashboard",
        "id": "1",
        "data": {"session_id": "structured", "priority": 9},
        "traceparent": TRACE["traceparent"],
    }
    structured = [("content-type", b"application/cloudevents+json; charset=utf-8")]
    async with taking_in(store, settings(kafka, topics)):
        async with producing(kafka.bootstrap) as producer:
            send = producer.send_and_wait
            await send(topics.requested, b'{"session_id":"bare"}')
            await send(topics.requested, json.dumps(event).encode(), headers=structured)
            await send(
                topics.requested,
                b'{"session_id":"binary","unknown":1}',
                key=b"\xff\x00",
                headers=[("ce_type", b"score.requested"), ("ce_id", b"2"), ("ce_source", b"/x")],
            )
        await until_stored(database, 3)

    rows = {row["session_id"]: row for row in await fetch(database, "SELECT * FROM score_requests")}
    assert rows.keys() == {"bare", "structured", "binary"}
    assert (rows["bare"]["priority"], rows["bare"]["triggered_by"]) == (5, "api-client")
    assert rows["structured"]["priority"] == 9
    assert rows["structured"]["traceparent"] == TRACE["traceparent"]


async def test_the_same_event_twice_is_one_request(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    named = [("ce_source", b"/dashboard"), ("ce_id", b"event-1")]
    twice = [asked(f"s{n}") for n in range(10)] * 2
    async with taking_in(store, settings(kafka, topics)):
        await publish(kafka, topics.requested, twice)
        for _ in range(2):
            await publish(kafka, topics.requested, [b'{"session_id":"named"}'], headers=named)
        await until_acknowledged(kafka, topics, 22)

    assert await requests(database) == 11


async def test_a_restart_goes_on_where_it_was_acknowledged(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with taking_in(store, settings(kafka, topics)):
        await publish(kafka, topics.requested, [asked(f"before-{n}") for n in range(20)])
        await until_acknowledged(kafka, topics, 20)
    # What is read a second time would come back.
    await execute(database, "DELETE FROM score_requests")
    await publish(kafka, topics.requested, [asked(f"after-{n}") for n in range(20)])

    async with taking_in(store, settings(kafka, topics)):
        await until_acknowledged(kafka, topics, 40)

    left = await fetch(database, "SELECT session_id FROM score_requests")
    assert {row["session_id"] for row in left} == {f"after-{n}" for n in range(20)}


# ── stored first, acknowledged second ───────────────────────────────────────


async def test_nothing_is_acknowledged_before_it_is_stored(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with taking_in(store, settings(kafka, topics)) as running:
        await joined(running)
        async with locked(database):
            await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(30)])
            await until_waiting(database)
            await asyncio.sleep(0.5)
            assert await acknowledged(kafka, topics) == 0
            assert running.stored == []
        await until_acknowledged(kafka, topics, 30)

    assert await requests(database) == 30


async def test_a_batch_under_way_at_stop_is_not_lost(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with contextlib.AsyncExitStack() as intakes, asyncio.timeout(20):
        running = await intakes.enter_async_context(taking_in(store, settings(kafka, topics)))
        await joined(running)
        async with locked(database):
            await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(30)])
            await until_waiting(database)
            running.stop.set()
            await asyncio.sleep(0.2)
    assert await acknowledged(kafka, topics) in {0, await requests(database)}

    async with taking_in(store, settings(kafka, topics)):
        await until_acknowledged(kafka, topics, 30)
    assert await requests(database) == 30


async def test_while_postgres_is_away_kafka_keeps_everything(
    kafka: KafkaServer, topics: Topics, servers_dir: Path
) -> None:
    with EmbeddedPostgres(servers_dir / "intake-postgres") as server:
        await migrations.up(server.dsn)
        async with (
            opened_store(server.dsn) as store,
            taking_in(store, settings(kafka, topics, stale_after_s=1.0)) as running,
        ):
            await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(5)])
            await until_acknowledged(kafka, topics, 5)

            await asyncio.to_thread(server.kill)
            # The first batch is held; the second one then waits in every partition.
            for start in (5, 25):
                await publish_everywhere(kafka, topics, [f"s{start + n}" for n in range(20)])
                await asyncio.sleep(1)
            assert await acknowledged(kafka, topics) == 5
            # Waiting for the database is no death, however long nothing is polled.
            await running.intake.check_alive()

            await asyncio.to_thread(server.start)
            await until_stored(server.dsn, 45)
            await running.intake.check_alive()
            await until_acknowledged(kafka, topics, 45)
        assert running.failures == []


async def test_a_batch_that_takes_longer_than_the_group_allows_is_acknowledged_in_the_end(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """Kafka takes the partitions away from who does not poll for `max.poll.interval.ms`."""
    if not kafka.idempotent:
        pytest.skip(f"{kafka.kind} does not tell who is in a group")
    small = settings(kafka, topics, batch_records=5)  # so many batches are not polled ahead
    async with taking_in(store, small, max_poll_interval_ms=1000) as running:
        await joined(running)
        async with locked(database):
            await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(30)])
            await until_waiting(database)
            await until(lambda: has_no_members(kafka, topics), what="the group has let us go")
        await publish(kafka, topics.requested, [asked("after")])
        await until_acknowledged(kafka, topics, 31)

    assert await requests(database) == 31
    assert running.failures == []


async def has_no_members(kafka: KafkaServer, topics: Topics) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        await admin.start()
        (described,) = await admin.describe_consumer_groups([group(topics)])
    finally:
        await admin.close()
    members: list[Any] = described.groups[0][5]
    return not members


@contextlib.asynccontextmanager
async def locked(dsn: str) -> AsyncIterator[None]:
    """A table that nobody can write to for now."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE score_requests IN SHARE MODE")
            yield
    finally:
        await connection.close()


async def until_waiting(dsn: str) -> None:
    """Waits until intake waits for that lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "

    async def waits() -> bool:
        return bool(await value(dsn, waiting + "datname = current_database()"))

    await until(waits, what="intake waits for the table")


# ── bad records ─────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A record that can never be accepted, and the reason that is expected."""

    code: str
    value: bytes | None
    key: bytes | None = b"key"
    headers: Sequence[tuple[str, bytes | None]] = ()


BAD = {
    "not JSON": Bad(code="bad_json", value=b'{"session_id": '),
    "not text": Bad(code="bad_json", value=b"\xff\xfe\x00", key=b"\xff\xfe"),
    "tombstone": Bad(code="tombstone", value=None),
    "nothing at all": Bad(code="tombstone", value=None, key=None),
    "schema": Bad(code="schema_invalid", value=b'{"session_id": "no spaces", "priority": 10}'),
    "other type": Bad(
        code="schema_invalid",
        value=b'{"session_id": "s"}',
        headers=[("ce_type", b"score.completed"), ("null", None)],
    ),
    "header value": Bad(
        code="bad_header",
        value=b'{"session_id": "s"}',
        headers=[("ok", b"1"), ("binary", b"\xff\xfe"), ("nul", b"a\0b")],
    ),
    "header name": Bad(code="bad_json", value=b"", headers=[("na\0me", b"x"), ("", b"")]),
    "oversize": Bad(
        code="oversize", value=b'{"session_id": "s", "pad": "' + b"x" * 2_000_000 + b'"}'
    ),
    "redriven": Bad(
        code="bad_json",
        value=b"{",
        headers=[("dlq_error_code", b"old"), ("dlq_redrive_count", b"2"), ("mine", b"1")],
    ),
}


async def send_raw(producer: AIOKafkaProducer, topic: str, bad: Bad) -> None:
    """Sends what aiokafka's `send` refuses to: no value, no key, a null header."""
    batch = producer.create_batch()
    headers = [(name, got) for name, got in bad.headers]
    batch.append(key=bad.key, value=bad.value, timestamp=None, headers=headers)
    batch.close()
    await (await producer.send_batch(batch, topic, partition=0))


async def test_what_can_never_be_accepted_becomes_a_dead_letter_and_the_next_is_processed(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with producing(kafka.bootstrap) as producer:
        for n, bad in enumerate(BAD.values()):
            await send_raw(producer, topics.requested, bad)
            await producer.send_and_wait(topics.requested, asked(f"good-{n}"), partition=0)

    async with taking_in(store, settings(kafka, topics)) as running:
        await until_acknowledged(kafka, topics, 2 * len(BAD))

    assert running.failures == []
    good = await fetch(database, "SELECT session_id FROM score_requests ORDER BY source_offset")
    assert [row["session_id"] for row in good] == [f"good-{n}" for n in range(len(BAD))]
    letters = await fetch(database, "SELECT * FROM outbox ORDER BY seq")
    assert len(letters) == len(BAD)
    assert len({letter["event_id"] for letter in letters}) == len(BAD)
    for n, ((name, bad), letter) in enumerate(zip(BAD.items(), letters, strict=True)):
        assert (letter["topic"], letter["type"]) == (topics.dlq, "score.requested.dlq"), name
        assert (letter["key"], letter["payload"]) == (bad.key, bad.value), name
        _check_headers(json.loads(letter["headers"]), bad, offset=2 * n, topics=topics)


def _check_headers(stored: list[Any], bad: Bad, *, offset: int, topics: Topics) -> None:
    kept = [(name, got) for name, got in bad.headers if not name.startswith("dlq_")]
    assert stored[: len(kept)] == [stored_header(name, got) for name, got in kept]
    about = dict(stored[len(kept) :])
    assert about.pop("dlq_error_message")
    assert about.pop("dlq_failed_at")
    assert about.pop("dlq_app_version")
    assert int(about.pop("dlq_original_timestamp")) > 1_700_000_000_000
    assert about == {
        "dlq_original_topic": topics.requested,
        "dlq_original_partition": "0",
        "dlq_original_offset": str(offset),
        "dlq_consumer_group": group(topics),
        "dlq_error_code": bad.code,
        "dlq_redrive_count": "2" if ("dlq_redrive_count", b"2") in bad.headers else "0",
    }


@pytest.mark.parametrize("codec", [0, 1])  # as it is, and gzip
async def test_a_header_name_that_is_no_text_blocks_no_partition(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, codec: int
) -> None:
    """Three of them, two in a row, within a batch; and other partitions are polled with it."""
    sessions = [b"good-0", None, b"good-1", None, None, b"good-2"]
    async with producing(kafka.bootstrap) as producer:
        for partition in range(1, PARTITIONS):
            await producer.send_and_wait(topics.requested, asked("other"), partition=partition)
        await _send_with_odd_header_names(producer, topics.requested, sessions, codec)
        await producer.send_and_wait(topics.requested, asked("after"), partition=0)

    async with taking_in(store, settings(kafka, topics)) as running:
        await until_stored(database, 4 + PARTITIONS - 1)
        await until_acknowledged(kafka, topics, 7 + PARTITIONS - 1)

    assert running.failures == []
    letters = await fetch(database, "SELECT * FROM outbox ORDER BY seq")
    offsets = []
    for letter in letters:
        assert (letter["key"], json.loads(letter["payload"])["session_id"]) == (b"key", "odd")
        odd, good, *about = json.loads(letter["headers"])
        assert odd == [{"base64": base64.b64encode(b"\xff\xfeME").decode()}, "x"]
        assert good == ["fine", "y"]
        assert dict(about)["dlq_error_code"] == "bad_header"
        offsets.append(dict(about)["dlq_original_offset"])
        assert sent_header(odd) == (r"\xff\xfeME", b"x")
    assert offsets == ["1", "3", "4"]


async def _send_with_odd_header_names(
    producer: AIOKafkaProducer, topic: str, sessions: Sequence[bytes | None], codec: int
) -> None:
    """What clients in C and Go can send: a header's name is any bytes to them. All in one batch."""
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 100_000)
    for n, session in enumerate(sessions):
        name = "fine" if session else "NAME"
        wanted = asked((session or b"odd").decode())
        batch.append(n, None, b"key", wanted, [(name, b"x"), ("fine", b"y")])
    data = bytearray(bytes(batch.build()).replace(b"NAME", b"\xff\xfeME"))
    if codec:
        data[61:] = gzip_encode(bytes(data[61:]))
        data[22] = codec
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
    # Record batch v2: the checksum is of everything after it.
    data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
    sent = producer.create_batch()
    sent.append(key=None, value=b"", timestamp=None)
    sent.close()
    sent._buffer, sent._relative_offset = bytes(data), len(sessions)
    await (await producer.send_batch(sent, topic, partition=0))


async def test_what_is_no_record_is_no_lag(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """The ends of transactions have offsets, and all of an aborted one has."""
    if not kafka.idempotent:
        pytest.skip(f"{kafka.kind} has no transactions")
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, transactional_id=topics.requested
    )
    try:
        await producer.start()
        async with taking_in(store, settings(kafka, topics)):
            for session, partition, commits in (("a", 0, True), ("b", 0, False), ("c", 1, False)):
                await producer.begin_transaction()
                await producer.send_and_wait(topics.requested, asked(session), partition=partition)
                await (producer.commit_transaction if commits else producer.abort_transaction)()
            await until_acknowledged(kafka, topics, 4 + 2)
    finally:
        await producer.stop()
    assert await requests(database) == 1


async def test_a_batch_that_can_not_be_read_is_a_dead_letter_with_its_bytes(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that says little and holds much."""
    monkeypatch.setattr(kafka_codecs, "ANY_RATIO_BYTES", 100_000)
    async with producing(kafka.bootstrap, compression_type="zstd") as producer:
        await producer.send_and_wait(topics.requested, asked("before"), partition=0)
        await producer.send_and_wait(topics.requested, b"x" * 200_000, partition=0)
        await producer.send_and_wait(topics.requested, asked("after"), partition=0)
    async with taking_in(store, settings(kafka, topics)) as running:
        await until_acknowledged(kafka, topics, 3)
    assert running.failures == []
    assert await requests(database) == 2
    (letter,) = await fetch(database, "SELECT * FROM outbox")
    about = dict(json.loads(letter["headers"]))
    assert about["dlq_error_code"] == "unreadable_batch"
    assert "offsets 1 to 1" in about["dlq_error_message"]
    with pytest.raises(Undecodable):
        uncompress(4, letter["payload"][61:])
    monkeypatch.undo()
    monkeypatch.setattr(kafka_codecs, "ANY_RATIO_BYTES", 10**6)
    assert b"x" * 200_000 in uncompress(4, letter["payload"][61:])


async def test_a_flood_slows_its_partition_alone_and_ends_by_itself(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter each; the good ones among them and in other partitions are stored."""
    monkeypatch.setattr(flood, "RECORDS_PER_S", 250.0)
    bad = [b"not json"] * 600
    async with taking_in(store, settings(kafka, topics, invalid_share=0.5)) as running:
        await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(10)], partition=0)
        await publish(kafka, topics.requested, [*bad, asked("behind")], partition=0)
        await until(lambda: _slowed(running), what="the partition is slowed")
        await publish(kafka, topics.requested, [asked("elsewhere")], partition=1)
        await until_stored(database, 11)
        assert await value(database, "SELECT count(*) FROM outbox") < len(bad), "slowed"

        await until_stored(database, 12)
        assert await value(database, "SELECT count(*) FROM outbox") == len(bad)
        good = [asked(f"good-{n}") for n in range(700)]
        await publish(kafka, topics.requested, good, partition=0)
        await until_stored(database, 12 + len(good))
        await until_acknowledged(kafka, topics, 12 + len(good) + len(bad))
        await until(lambda: _recovered(running), what="the partition is read at full speed")
    assert running.failures == []


async def _slowed(running: Running) -> bool:
    return running.intake._pauses.slowed


async def _recovered(running: Running) -> bool:
    return not running.intake._pauses.slowed


async def test_a_tolerable_share_of_invalid_input_stops_nothing(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    records = [asked(f"s{n}") if n % 2 else b"not json" for n in range(200)]
    async with taking_in(store, settings(kafka, topics, invalid_share=0.5)) as running:
        await publish(kafka, topics.requested, records, partition=0)
        await until_acknowledged(kafka, topics, 200)

    assert running.failures == []
    assert await requests(database) == await value(database, "SELECT count(*) FROM outbox") == 100


async def test_a_bug_reaches_the_process_and_acknowledges_nothing(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """The table lost a column: no waiting helps, and nothing may be skipped."""
    await execute(database, "ALTER TABLE score_requests DROP COLUMN tracestate")

    async with taking_in(store, settings(kafka, topics)) as running:
        await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(3)], partition=0)
        await until(lambda: _failed(running))
        await publish(kafka, topics.requested, [asked("more")], partition=0)
        await asyncio.sleep(0.5)

    (failure,) = running.failures
    assert isinstance(failure, asyncpg.UndefinedColumnError)
    assert await acknowledged(kafka, topics) == 0
    assert await requests(database) == 0


async def _failed(running: Running) -> bool:
    return bool(running.failures)


# ── too much waits ──────────────────────────────────────────────────────────


async def test_above_high_water_kafka_keeps_requests_until_half_of_it_is_done(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    chosen = settings(kafka, topics, high_water=10, stale_after_s=0.8)
    async with taking_in(store, chosen) as running:
        await publish(kafka, topics.requested, [asked("first")])
        await until_stored(database, 1)

        running.intake.regulate(10)
        await publish(kafka, topics.requested, [asked("at-the-mark")])
        await until_stored(database, 2)

        running.intake.regulate(11)
        await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(20)])
        for pending in (10, 6):
            running.intake.regulate(pending)
            await asyncio.sleep(0.6)
            await running.intake.check_alive()  # nothing is polled, and nothing ought to be
        assert await requests(database) == 2
        assert await acknowledged(kafka, topics) == 2
        assert await lag(running) == 20

        running.intake.regulate(5)
        await running.intake.check_alive()
        await until_stored(database, 22)
        await until_acknowledged(kafka, topics, 22)
        assert await lag(running) == 0


async def lag(running: Running) -> float:
    await running.intake.measure_lag()
    value: float = metrics.INTAKE_LAG._value.get()
    return value


async def test_lag_is_known_of_partitions_that_are_paused_from_the_start(
    store: Store, kafka: KafkaServer, topics: Topics
) -> None:
    await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(9)])
    async with taking_in(store, settings(kafka, topics, high_water=10)) as running:
        running.intake.regulate(11)
        assert isnan(await lag(running))
        await joined(running)
        assert await lag(running) == 9


async def test_a_rebalance_wakes_no_paused_partition(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    if not kafka.idempotent:
        pytest.skip(f"{kafka.kind} takes too long over a rebalance")
    async with taking_in(store, settings(kafka, topics, high_water=10)) as running:
        await joined(running)
        running.intake.regulate(11)

        async with second_member(kafka, topics) as second:
            assert len(second.assignment()) == 2
            await publish(kafka, topics.requested, [asked(f"s{n}") for n in range(40)])
            await asyncio.sleep(0.5)
            assert await requests(database) == 0
        consumer = running.intake._consumer
        assert consumer is not None

        async def has_all() -> bool:
            return len(consumer.assignment()) == 4

        await until(has_all, what="all partitions are back")
        await asyncio.sleep(0.7)
        assert await requests(database) == 0
        assert await acknowledged(kafka, topics) == 0

        running.intake.regulate(0)
        await until_stored(database, 40)


@contextlib.asynccontextmanager
async def second_member(kafka: KafkaServer, topics: Topics) -> AsyncIterator[AIOKafkaConsumer]:
    """Another replica in the group that acknowledges nothing."""
    consumer = AIOKafkaConsumer(
        topics.requested,
        bootstrap_servers=kafka.bootstrap,
        group_id=group(topics),
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


# ── Kafka is away ───────────────────────────────────────────────────────────


async def test_intake_waits_for_a_broker_that_starts_after_it(
    store: Store, database: str, servers_dir: Path
) -> None:
    server = EmbeddedKafka(servers_dir / "late-kafka")
    late = KafkaServer(bootstrap=server.bootstrap, kind="tansu", idempotent=False)
    names = ("late.requested", "late.dlq")
    topics = Topics(
        requested=names[0], completed="", quality_risk="", failed="", overridden="", dlq=names[1]
    )
    try:
        async with taking_in(store, settings(late, topics, session_timeout_s=3)) as running:
            await asyncio.sleep(0.3)
            assert not running.intake.joined
            await asyncio.to_thread(server.start)
            await create_topics(server.bootstrap, names)
            await publish(late, topics.requested, [asked("s1")])
            await until_stored(database, 1)
        assert running.failures == []
    finally:
        server.stop()


async def test_a_broker_that_gives_no_answer_is_waited_for(
    store: Store, database: str, kafka: KafkaServer, kafka_process: KafkaProcess, topics: Topics
) -> None:
    """Whoever ended then would take the others of its process down, for nothing."""
    assert kafka_process.pid
    chosen = settings(kafka, topics, stale_after_s=1.5)
    async with taking_in(store, chosen) as running:
        await publish(kafka, topics.requested, [asked("s1")])
        await until_acknowledged(kafka, topics, 1)

        with hanging(kafka_process.pid):
            await asyncio.sleep(2.5)
            assert "no partition was polled for" in (running.intake.trouble or "")
            await running.intake.check_alive()
            assert running.heartbeat.age_s < 2
        await publish(kafka, topics.requested, [asked("s2")])
        await until_stored(database, 2)


async def test_a_bug_in_the_poll_reaches_the_process(
    store: Store, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastStream alone would begin again for ever, at full speed."""

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with taking_in(store, settings(kafka, topics)) as running:
        await joined(running)
        monkeypatch.setattr(running.intake._consumer, "getmany", broken)
        await until(lambda: _failed(running))
    (failure,) = running.failures
    assert isinstance(failure, ZeroDivisionError)


async def test_a_poll_that_meets_only_errors_is_found_dead(
    store: Store, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka goes on answering meanwhile, and FastStream logs and sleeps."""

    async def refused(*_: object, **__: object) -> None:
        raise KafkaError

    async with taking_in(store, settings(kafka, topics, stale_after_s=1.5)) as running:
        assert running.intake.trouble == "not joined the consumer group yet"
        await joined(running)
        await asyncio.sleep(0.5)
        await running.intake.check_alive()
        monkeypatch.setattr(running.intake._consumer, "getmany", refused)
        await asyncio.sleep(2)
        with pytest.raises(LoopDied):
            await running.intake.check_alive()
    assert running.failures == []


@pytest.mark.parametrize("jump_s", [3600, -3600])
async def test_a_wall_clock_that_jumps_is_no_death(
    store: Store,
    database: str,
    kafka: KafkaServer,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    jump_s: float,
) -> None:
    real = time.time
    async with taking_in(store, settings(kafka, topics)) as running:
        await publish(kafka, topics.requested, [asked("s1")])
        await until_acknowledged(kafka, topics, 1)
        # aiokafka notes Kafka's answers by it, and what was noted before is of another time.
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        polled = running.intake._polled_at
        await until(lambda: _polled_since(running, polled))
        monkeypatch.undo()
        running.intake._moved_at = -inf  # as if the last record came long ago
        assert running.intake.trouble is None
        await running.intake.check_alive()


async def _polled_since(running: Running, moment: float) -> bool:
    return running.intake._polled_at > moment


async def test_a_dead_fetch_is_found_whatever_the_wall_clock_does(
    store: Store, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls go on and bring nothing: all that tells is that Kafka's last answer stays the last."""
    async with taking_in(store, settings(kafka, topics, stale_after_s=1.5)) as running:
        await publish(kafka, topics.requested, [asked("s1")])
        await until_acknowledged(kafka, topics, 1)
        consumer = running.intake._consumer
        assert consumer
        await dead(consumer._fetcher._fetch_task)
        now = time.time() + 3600
        monkeypatch.setattr(time, "time", lambda: now)
        await until(lambda: _found_dead(running))


async def dead(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _found_dead(running: Running) -> bool:
    try:
        await running.intake.check_alive()
    except LoopDied:
        return True
    return False


@contextlib.contextmanager
def hanging(pid: int) -> Iterator[None]:
    """A process that keeps its connections and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
