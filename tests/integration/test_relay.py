"""The outbox reaches Kafka: in order, unchanged, and nothing is forgotten before it arrived."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from prometheus_client import REGISTRY

from consumer import relay as relay_module
from consumer.demo.servers import HOST, free_port
from consumer.edges.kafka import Producer
from consumer.edges.postgres import rows
from consumer.edges.postgres.store import Store
from consumer.errors import NotReachable
from consumer.events import DLQ_TYPE
from consumer.loops import Heartbeat, Signal
from consumer.outgoing import OutboxRow
from consumer.relay import GATHER_S, PAGE, Relay
from tests.integration.builders import (
    addresses_of,
    by_partition,
    event,
    execute,
    numbers,
    opened_store,
    persistently,
    published,
    until,
    value,
)
from tests.support.servers import KafkaProcess, KafkaServer
from tests.support.topics import Topics


@pytest_asyncio.fixture
async def store(database: str, topics: Topics) -> AsyncIterator[Store]:
    async with opened_store(database, addresses=addresses_of(topics)) as opened:
        yield opened


@contextlib.asynccontextmanager
async def relaying(
    store: Store,
    bootstrap: str,
    *,
    idempotent: bool = False,
    send_timeout_s: float = 20.0,
    **options: Any,
) -> AsyncIterator[Relay]:
    """A relay as one replica has it; its producer is closed at the end."""
    producer = Producer(bootstrap, idempotent=idempotent, options=options)
    try:
        yield Relay(
            store=store,
            producer=producer,
            wake=Signal(),
            heartbeat=Heartbeat("relay", limit_s=60),
            send_timeout_s=send_timeout_s,
        )
    finally:
        await producer.close()


@contextlib.asynccontextmanager
async def running(relay: Relay) -> AsyncIterator[None]:
    """The relay at work; at the end it is told to stop, and waited for."""
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    try:
        yield
    finally:
        stop.set()
        relay.wake.set()
        await task


async def left(dsn: str) -> int:
    """How many events are still to be sent."""
    return int(await value(dsn, "SELECT count(*) FROM outbox"))


async def is_empty(dsn: str) -> bool:
    return await left(dsn) == 0


def some_events(topics: Topics, count: int, *, start: int = 0) -> list[OutboxRow]:
    return [event(start + n, topic=topics.completed) for n in range(count)]


def assert_in_order(records: Sequence[ConsumerRecord[bytes | None, bytes | None]]) -> None:
    """Events of the same key come in the order of the outbox."""
    for partition in by_partition(records).values():
        found = numbers(partition)
        assert found == sorted(found)


# ── what is sent ────────────────────────────────────────────────────────────


async def test_an_event_arrives_as_it_was_stored(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    everything = bytes(range(256))
    odd_name = base64.b64encode(b"na\0me").decode()
    sent = [
        event(topic=topics.completed, key=b"s1", payload=b'{"total_score": 74}', headers=[
            ["ce_id", "1"], ["twice", "a"], ["twice", "b"], ["ümläut", "☃"], ["empty", ""],
        ]),
        event(topic=topics.failed, key=everything, payload=everything, headers=[]),
        event(topic=topics.dlq, key=b"tombstone", payload=None, headers=[["null", None]]),
        event(topic=topics.quality_risk, key=None, payload=b"no key", headers=[
            ["binary", {"base64": base64.b64encode(everything).decode()}],
            [{"base64": odd_name}, "odd"],
        ]),
    ]  # fmt: skip
    await store.accept([], sent)

    async with relaying(store, kafka.bootstrap) as relay:
        assert await relay.send_page() == len(sent)

    assert await left(database) == 0
    found = {row.topic: await published(kafka.bootstrap, row.topic) for row in sent}
    assert {topic: [(r.key, r.value, r.headers) for r in rs] for topic, rs in found.items()} == {
        topics.completed: [
            (
                b"s1",
                b'{"total_score": 74}',
                (
                    ("ce_id", b"1"),
                    ("twice", b"a"),
                    ("twice", b"b"),
                    ("ümläut", "☃".encode()),
                    ("empty", b""),
                ),
            )
        ],
        topics.failed: [(everything, everything, ())],
        topics.dlq: [(b"tombstone", None, (("null", None),))],
        topics.quality_risk: [(None, b"no key", (("binary", everything), ("na\0me", b"odd")))],
    }


async def test_a_record_without_key_and_value_arrives_too(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """Someone's tombstone without a key, on its way to the dead letters."""
    nothing = event(topic=topics.dlq, key=None, payload=None, headers=[["why", "tombstone"]])
    await store.accept([], [nothing, event(topic=topics.dlq)])

    async with relaying(store, kafka.bootstrap, idempotent=kafka.idempotent) as relay:
        assert await relay.send_page() == 2

    assert await left(database) == 0
    records = {record.value: record for record in await published(kafka.bootstrap, topics.dlq)}
    assert (records[None].key, records[None].headers) == (None, (("why", b"tombstone"),))


async def test_events_of_a_session_arrive_in_order_whatever_their_size(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    sent = [
        event(n, topic=topics.completed, payload=b"x" * random.choice((10, 3_000, 9_000)))
        for n in range(2 * PAGE + 7)
    ]
    await store.accept([], sent)

    async with relaying(store, kafka.bootstrap, idempotent=kafka.idempotent) as relay:
        assert [await relay.send_page() for _ in range(4)] == [PAGE, PAGE, 7, 0]

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(len(sent)))
    assert len(by_partition(records)) > 1
    assert_in_order(records)
    assert await left(database) == 0


async def test_an_idempotent_producer_sends_the_same(
    store: Store, database: str, idempotent_kafka: KafkaServer, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 300))

    async with relaying(store, idempotent_kafka.bootstrap, idempotent=True) as relay:
        assert await relay.send_page() == 300

    records = await published(idempotent_kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(300))
    assert_in_order(records)
    assert await left(database) == 0


async def test_a_partition_that_hangs_holds_up_no_other(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.accept([], some_events(topics, 40))
    send = AIOKafkaProducer.send_batch

    async def hanging(self: Any, batch: Any, topic: str, *, partition: int) -> Any:
        if partition == 0:
            await asyncio.Future()
        return await send(self, batch, topic, partition=partition)

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", hanging)
    async with relaying(store, kafka.bootstrap, send_timeout_s=1.0) as relay:
        sent = await relay.send_page()
        assert 0 < sent < 40
        assert await left(database) == 40 - sent
        monkeypatch.undo()
        assert await relay.send_page() == 40 - sent

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(40))


async def test_what_kafka_refuses_stays_and_holds_nothing_else_up(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    too_large = event(1, topic=topics.completed, payload=b"x" * 50_000)
    await store.accept(
        [], [event(0, topic=topics.completed), too_large, event(2, topic=topics.completed)]
    )

    async with relaying(store, kafka.bootstrap, max_request_size=10_000) as relay:
        assert await relay.send_page() == 2
        assert await left(database) == 1
        assert await value(database, "SELECT event_id FROM outbox") == too_large.event_id
        assert await relay.send_page() == 0  # left alone for a while
        assert refused() == 1
        await store.accept([], [event(3, topic=topics.completed)])
        assert await relay.send_page() == 1

    assert sorted(numbers(await published(kafka.bootstrap, topics.completed))) == [0, 2, 3]

    async with relaying(store, kafka.bootstrap) as relay:  # whose limit is another
        assert await relay.send_page() == 1
        assert refused() == 0


def refused() -> float | None:
    return REGISTRY.get_sample_value("scoring_events_refused")


async def test_a_topic_that_takes_nothing_holds_up_no_other(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    """However many of its events come first."""
    nowhere = "no such topic!"
    letters = [dead(n, topic=nowhere) for n in range(PAGE)]
    await store.accept([], [*letters, *some_events(topics, 3)])
    async with relaying(store, kafka.bootstrap, send_timeout_s=2) as relay:
        with pytest.raises(NotReachable):
            await relay.send_page()
        assert await relay.send_page() == 3
        assert await left(database) == PAGE
        assert await relay.send_page() == 0
        relay.held[nowhere] = 0.0  # its time is over
        with pytest.raises(NotReachable):
            await relay.send_page()
        assert relay.held[nowhere] > monotonic()


async def test_a_topic_that_takes_events_again_is_no_longer_held(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 3))
    async with relaying(store, kafka.bootstrap) as relay:
        relay.held[topics.completed] = monotonic() + 60
        assert await relay.send_page() == 0
        relay.held[topics.completed] = 0.0
        assert await relay.send_page() == 3
    assert relay.held == {}


async def test_many_large_dead_letters_are_stored_in_portions(
    store: Store, database: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement has an end, and all of them are in memory several times."""
    monkeypatch.setattr(rows, "STATEMENT_BYTES", 2500)
    letters = [dead(n, topic=topics.dlq, payload=b"x" * 1000) for n in range(7)]
    assert [len(some) for some in rows.portions(letters)] == [2, 2, 2, 1]
    async with store._transaction() as connection:
        await store.insert_outbox(connection, letters)
    stored = await value(database, "SELECT array_agg(event_id ORDER BY seq) FROM outbox")
    assert stored == [letter.event_id for letter in letters]


async def test_what_kafka_refused_is_tried_again_after_a_while(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.accept([], [event(1, topic=topics.completed, payload=b"x" * 50_000)])
    monkeypatch.setattr(relay_module, "REFUSED_AGAIN_S", 0.3)

    async with relaying(store, kafka.bootstrap, max_request_size=10_000) as relay:
        assert await relay.send_page() == 0
        relay.producer._options["max_request_size"] = 100_000
        assert await relay.send_page() == 0
        await asyncio.sleep(0.3)
        assert await relay.send_page() == 1
    assert refused() == 0


async def test_a_dead_letter_that_is_too_large_for_its_topic_is_shortened(
    store: Store, database: str, idempotent_kafka: KafkaServer, topics: Topics
) -> None:
    """And so many of them hold up nobody: each topic has a limit of its own."""
    await limit_messages(idempotent_kafka, topics.dlq, 100_000)
    value = bytes(range(256)) * 1000
    letters = [
        dead(n, topic=topics.dlq, key=b"k" * n, payload=value, headers=[
            ["theirs", "x"], ["dlq_error_code", "oversize"],
        ])
        for n in (1, 2000)
    ]  # fmt: skip
    small = dead(3, topic=topics.dlq, payload=b"{", headers=[["theirs", "x"]])
    await store.accept([], [*letters, small, *some_events(topics, 2)])

    async with relaying(store, idempotent_kafka.bootstrap, idempotent=True) as relay:
        assert await relay.send_page() == 5
        assert await relay.send_page() == 0

    assert await left(database) == 0
    found = {len(r.key or b""): r for r in await published(idempotent_kafka.bootstrap, topics.dlq)}
    assert set(found) == {0, 1, 2}
    cut, without_key = found[1], found[0]
    assert (cut.value, without_key.value) == (value[:65_536], value[:65_536])
    for record in (cut, without_key):
        assert dict(record.headers) == {
            "dlq_error_code": b"oversize",
            "dlq_original_size": b"256000",
            "dlq_original_sha256": hashlib.sha256(value).hexdigest().encode(),
        }
    whole = found[len(small.key or b"")]
    assert (whole.value, whole.headers) == (b"{", (("theirs", b"x"),))
    assert sorted(numbers(await published(idempotent_kafka.bootstrap, topics.completed))) == [0, 1]


async def test_small_events_that_are_too_large_only_together_all_arrive(
    store: Store, database: str, idempotent_kafka: KafkaServer, topics: Topics
) -> None:
    """What is sent to a partition at the same time is one message to Kafka."""
    await limit_messages(idempotent_kafka, topics.completed, 2_000)
    sent = [event(n, topic=topics.completed, key=b"k", payload=b"x" * 1_000) for n in range(5)]
    await store.accept([], sent)

    async with relaying(store, idempotent_kafka.bootstrap, idempotent=True) as relay:
        assert await relay.send_page() == 5

    records = await published(idempotent_kafka.bootstrap, topics.completed)
    assert sorted(set(numbers(records))) == list(range(5))


async def test_a_page_ends_where_it_has_enough_bytes(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "PAGE_BYTES", 10_000)
    sizes = (4_000, 20_000, 9_000, 2_000, 100)
    await store.accept(
        [], [event(n, topic=topics.completed, payload=b"x" * size) for n, size in enumerate(sizes)]
    )

    async with relaying(store, kafka.bootstrap) as relay:
        assert [await relay.send_page() for _ in range(4)] == [2, 2, 1, 0]

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(5))


def dead(number: int, **changes: Any) -> OutboxRow:
    return replace(event(number, **changes), type=DLQ_TYPE)


async def limit_messages(kafka: KafkaServer, topic: str, limit: int) -> None:
    """The topic takes no larger ones from now on."""
    await configure(kafka, topic, "max.message.bytes", str(limit))


async def configure(kafka: KafkaServer, topic: str, name: str, wanted: str) -> None:
    """The topic's broker hears of it a moment later, and is waited for."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        await admin.start()
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {name: wanted})
        await admin.alter_configs([change])
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})

        async def is_known() -> bool:
            (answer,) = await admin.describe_configs([asked])
            ((*_, found),) = answer.resources
            return any(entry[:2] == (name, wanted) for entry in found)

        await until(is_known, what=f"{topic} has {name}={wanted}")
    finally:
        await admin.close()


# ── one relay at a time ─────────────────────────────────────────────────────


async def test_only_one_relay_sends_at_a_time(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 5))

    async with opened_store(database) as other, relaying(other, kafka.bootstrap) as relay:
        async with store.outbox_page(10, idle_limit_s=30) as page:
            assert page is not None
            assert await relay.send_page() == 0
            assert await published(kafka.bootstrap, topics.completed) == []
        assert await left(database) == 5  # nobody said that they were sent

        assert await relay.send_page() == 5
    assert await left(database) == 0


async def test_events_that_come_one_after_the_other_share_pages(
    store: Store,
    database: str,
    kafka: KafkaServer,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages: list[tuple[float, int, float]] = []
    send_page = Relay.send_page

    async def timed(relay: Relay) -> int:
        began = monotonic()
        sent = await send_page(relay)
        pages.append((began, sent, monotonic()))
        return sent

    monkeypatch.setattr(Relay, "send_page", timed)
    async with relaying(store, kafka.bootstrap) as relay, running(relay):
        for n in range(20):
            await store.accept([], some_events(topics, 1, start=n))
            relay.wake.set()
        await until(lambda: is_empty(database))

    waited = [began - ended for (_, sent, ended), (began, _, _) in pairwise(pages) if sent]
    assert min(waited) >= GATHER_S - 0.001


async def test_two_relays_send_nothing_twice(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    async with (
        opened_store(database) as other,
        relaying(store, kafka.bootstrap) as one,
        relaying(other, kafka.bootstrap) as two,
        running(one),
        running(two),
    ):
        for start in range(0, 3000, 300):
            await store.accept([], some_events(topics, 300, start=start))
            one.wake.set()
            two.wake.set()
        await until(lambda: is_empty(database))

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(3000))
    assert_in_order(records)


async def test_a_frozen_relay_loses_its_place_to_another(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 3))

    async with opened_store(database) as other, relaying(other, kafka.bootstrap) as relay:

        async def freeze() -> None:
            async with store.outbox_page(10, idle_limit_s=1.0) as page:
                assert page is not None
                entries, connection = page
                assert await relay.send_page() == 0
                await asyncio.sleep(2)
                assert await relay.send_page() == 3
                # Awake again: what the other has sent is not ours to forget.
                await store.accept([], some_events(topics, 1, start=3))
                await store.outbox_sent(connection, entries)

        with pytest.raises(NotReachable):
            await freeze()
        assert await left(database) == 1
        assert await relay.send_page() == 1
    assert sorted(numbers(await published(kafka.bootstrap, topics.completed))) == [0, 1, 2, 3]


async def test_an_idle_relay_keeps_its_place_within_the_limit(
    store: Store, database: str, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 2))

    async with store.outbox_page(10, idle_limit_s=5) as page:
        assert page is not None
        entries, connection = page
        await asyncio.sleep(0.5)
        await store.outbox_sent(connection, entries[:1])

    assert await value(database, "SELECT seq FROM outbox") == entries[1].seq


# ── stop ────────────────────────────────────────────────────────────────────


async def test_at_stop_everything_is_sent(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    await store.accept([], some_events(topics, 2 * PAGE + 1))
    stop = asyncio.Event()
    stop.set()

    async with relaying(store, kafka.bootstrap) as relay:
        await relay.run(stop)

    assert await left(database) == 0
    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(numbers(records)) == list(range(2 * PAGE + 1))


async def test_at_stop_without_kafka_the_outbox_is_left_to_others(
    store: Store, database: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.accept([], some_events(topics, 3))
    monkeypatch.setattr(relay_module, "FLUSH_S", 1.5)
    stop = asyncio.Event()
    stop.set()

    async with asyncio.timeout(10), relaying(store, f"{HOST}:{free_port()}") as relay:
        await relay.run(stop)

    assert await left(database) == 3


async def test_at_stop_a_server_that_is_away_for_a_moment_is_waited_for(
    store: Store, database: str, kafka: KafkaServer, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.accept([], some_events(topics, 3))
    send, trouble = Producer.send, [NotReachable("away", server="kafka")]

    async def send_in_the_end(self: Producer, *args: Any, **options: Any) -> Any:
        if trouble:
            raise trouble.pop()
        return await send(self, *args, **options)

    monkeypatch.setattr(Producer, "send", send_in_the_end)
    stop = asyncio.Event()
    stop.set()

    async with relaying(store, kafka.bootstrap) as relay:
        await relay.run(stop)

    assert trouble == []
    assert await left(database) == 0


# ── servers that are away ───────────────────────────────────────────────────


async def test_without_kafka_events_stay(store: Store, database: str, topics: Topics) -> None:
    await store.accept([], some_events(topics, 3))

    async with relaying(store, f"{HOST}:{free_port()}") as relay:
        with pytest.raises(NotReachable, match=f"Kafka at {HOST}"):
            await relay.send_page()

        assert await left(database) == 3
        async with store.outbox_page(10, idle_limit_s=5) as page:
            assert page is not None  # the lock is free again


async def test_events_wait_for_a_killed_broker_and_are_sent_when_it_is_back(
    store: Store,
    database: str,
    kafka: KafkaServer,
    kafka_process: KafkaProcess,
    topics: Topics,
) -> None:
    if not kafka.idempotent:
        pytest.skip(f"{kafka.kind} forgets its topics, and acknowledges what it then loses")
    async with relaying(store, kafka.bootstrap, idempotent=True) as relay, running(relay):
        await store.accept([], some_events(topics, 10))
        await until(lambda: is_empty(database))

        await asyncio.to_thread(kafka_process.kill)
        await store.accept([], some_events(topics, 20, start=10))
        relay.wake.set()
        await asyncio.sleep(1.5)
        assert await left(database) == 20

        await asyncio.to_thread(kafka_process.start)
        await until(lambda: is_empty(database), timeout_s=45)

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(set(numbers(records))) == list(range(30))


async def test_events_outlast_a_broker_that_hangs(
    store: Store,
    database: str,
    kafka: KafkaServer,
    kafka_process: KafkaProcess,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection stands and nobody answers: neither error nor acknowledgement."""
    assert kafka_process.pid
    monkeypatch.setattr(relay_module, "FLUSH_S", 0.5)
    before = asyncio.all_tasks()
    stop = asyncio.Event()
    stop.set()

    async with relaying(
        store, kafka.bootstrap, idempotent=kafka.idempotent, send_timeout_s=1.0
    ) as relay:
        await store.accept([], some_events(topics, 10))
        assert await relay.send_page() == 10
        await store.accept([], some_events(topics, 10, start=10))
        with hanging(kafka_process.pid):
            async with asyncio.timeout(20):
                with pytest.raises(NotReachable, match="Kafka takes no event"):
                    await relay.send_page()  # over a connection that stood before
                await relay.run(stop)  # over a new one
            assert await left(database) == 10
        # Nothing goes on trying behind our back, and sends everything again some time.
        assert await _only_these_tasks(before)

        async with running(relay):
            await until(lambda: is_empty(database))

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(set(numbers(records))) == list(range(20))


@contextlib.contextmanager
def hanging(pid: int) -> Iterator[None]:
    """A process that keeps its connections and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def _only_these_tasks(known: set[asyncio.Task[Any]]) -> bool:
    for _ in range(20):
        if not asyncio.all_tasks() - known:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_relay_goes_on_after_its_connection_was_cut(
    store: Store, database: str, kafka: KafkaServer, topics: Topics
) -> None:
    cut = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    async with (
        opened_store(database) as other,
        relaying(store, kafka.bootstrap) as relay,
        running(relay),
    ):
        for start in (0, 10, 20):
            events = some_events(topics, 10, start=start)
            await persistently(other.accept, [], events)
            relay.wake.set()
            await until(lambda: is_empty(database))
            await execute(database, cut)

    records = await published(kafka.bootstrap, topics.completed)
    assert sorted(set(numbers(records))) == list(range(30))
