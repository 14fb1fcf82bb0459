"""The servers under the tests keep their word: what they store, and what survives a kill."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from consumer.demo.servers import EmbeddedPostgres, create_topics
from tests.support.servers import KafkaProcess, KafkaServer, PostgresServer
from tests.support.topics import Topics


@asynccontextmanager
async def producing(bootstrap: str, *, idempotent: bool = False) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=idempotent
    )
    try:
        await producer.start()
        yield producer
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """The next `count` records of the topic's group, committed."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"group of {topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,  # Tansu needs two of them to let a group's next member in
    )
    try:
        await consumer.start()
        records: list[ConsumerRecord] = []
        async with asyncio.timeout(30):
            while len(records) < count:
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    records += batch
        await consumer.commit()
    finally:
        await consumer.stop()
    return records


async def test_a_group_reads_keys_and_headers_and_resumes_where_it_committed(
    kafka: KafkaServer, topics: Topics, record_property: Callable[[str, object], None]
) -> None:
    record_property("kafka", kafka.kind)
    headers = [("ce_id", b"1"), ("binary", b"\xff\xfe"), ("null", None)]

    async with producing(kafka.bootstrap) as producer:
        await producer.send_and_wait(topics.requested, b"first", key=b"session", headers=headers)
        (first,) = await consume(kafka.bootstrap, topics.requested, 1)
        await producer.send_and_wait(topics.requested, None, key=b"\xff\xfe")
        (second,) = await consume(kafka.bootstrap, topics.requested, 1)

    assert (first.key, first.value, first.headers) == (b"session", b"first", tuple(headers))
    assert (second.key, second.value, second.headers) == (b"\xff\xfe", None, ())


async def test_an_idempotent_producer_sends_in_order(
    idempotent_kafka: KafkaServer, topics: Topics
) -> None:
    sent = [b"%d" % number for number in range(100)]

    async with producing(idempotent_kafka.bootstrap, idempotent=True) as producer:
        futures = [await producer.send(topics.completed, value, partition=0) for value in sent]
        await asyncio.gather(*futures)

    records = await consume(idempotent_kafka.bootstrap, topics.completed, len(sent))
    assert [record.value for record in records] == sent


async def test_creating_topics_again_changes_nothing(kafka: KafkaServer, topics: Topics) -> None:
    await create_topics(kafka.bootstrap, [topics.failed, topics.failed], partitions=9)

    async with producing(kafka.bootstrap) as producer:
        assert await producer.partitions_for(topics.failed) == {0, 1, 2, 3}


async def test_postgres_is_as_new_as_production(
    postgres: PostgresServer, record_property: Callable[[str, object], None]
) -> None:
    record_property("postgres", postgres.kind)

    version = await _query(postgres.dsn, "SELECT current_setting('server_version_num')::int")

    assert version >= 14_00_00


async def test_killed_postgres_comes_back_with_what_was_committed(
    postgres: PostgresServer, servers_dir: Path
) -> None:
    if postgres.kind != "embedded":
        pytest.skip("not ours to kill")

    with EmbeddedPostgres(servers_dir / "killed-postgres") as server:
        connection = await asyncpg.connect(server.dsn)
        await connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        server.kill()
        assert server.pid is None
        with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
            await connection.fetchval("SELECT number FROM kept")

        server.start()
        assert await _query(server.dsn, "SELECT number FROM kept") == 1


async def test_killed_broker_comes_back_with_what_it_promises_to_keep(
    kafka: KafkaServer, kafka_process: KafkaProcess, topics: Topics
) -> None:
    async with producing(kafka.bootstrap) as producer:
        await producer.send_and_wait(topics.failed, b"before", partition=0)
        await consume(kafka.bootstrap, topics.failed, 1)
        await asyncio.to_thread(kafka_process.kill)
        assert kafka_process.pid is None
        await asyncio.to_thread(kafka_process.start)
        await create_topics(kafka.bootstrap, [topics.failed])  # anew, on Tansu
        await producer.send_and_wait(topics.failed, b"after", partition=0)
    (record,) = await consume(kafka.bootstrap, topics.failed, 1)

    # Tansu keeps all in memory: topic and group begin again at 0.
    expected_offset = 0 if kafka.kind == "tansu" else 1
    assert (record.value, record.offset) == (b"after", expected_offset)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent death signal")
@pytest.mark.parametrize("server", ["EmbeddedKafka", "EmbeddedPostgres"])
def test_a_server_dies_with_its_parent(server: str, servers_dir: Path) -> None:
    parent_code = f"""
import pathlib, time
from consumer.demo.servers import {server}
server = {server}(pathlib.Path({str(servers_dir / "orphan" / server)!r}))
server.start()
print(server.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        family = [child, *child.children(recursive=True)]
        os.kill(parent.pid, signal.SIGKILL)

    deadline = time.monotonic() + 10
    while any(_is_alive(process) for process in family):
        assert time.monotonic() < deadline, f"{server} outlived its parent"
        time.sleep(0.05)


async def _query(dsn: str, query: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        value: int = await connection.fetchval(query)
    finally:
        await connection.close()
    return value


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
