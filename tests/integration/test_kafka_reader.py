"""A topic is read from here to there, and no further."""

from datetime import UTC, datetime

import pytest

from consumer.cloudevents import Record
from consumer.demo.servers import HOST, free_port
from consumer.edges import kafka_reader
from consumer.edges.kafka_reader import Span, read
from consumer.errors import NotReachable
from tests.integration.builders import producing
from tests.support.servers import KafkaServer
from tests.support.topics import Topics

START_MS = 1_700_000_000_000


@pytest.fixture
async def filled(kafka: KafkaServer, topics: Topics) -> str:
    """Ten records a minute apart in partition 0, five in partition 1, none in the others."""
    async with producing(kafka.bootstrap) as producer:
        for partition, count in ((0, 10), (1, 5)):
            for n in range(count):
                await producer.send_and_wait(
                    topics.dlq,
                    b"x" * (2_000_000 if n == 3 else 10),
                    partition=partition,
                    timestamp_ms=START_MS + n * 60_000,
                )
    return topics.dlq


async def found(kafka: KafkaServer, topic: str, span: Span) -> list[tuple[int, int]]:
    records = [record async for record in read(kafka.bootstrap, topic, span, {})]
    assert all(isinstance(record, Record) for record in records)
    return sorted((record.partition, record.offset) for record in records)


async def test_everything_is_read_to_the_end_as_it_is_now(kafka: KafkaServer, filled: str) -> None:
    everything = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    assert await found(kafka, filled, Span()) == everything

    seen = 0
    async with producing(kafka.bootstrap) as producer:
        async for _ in read(kafka.bootstrap, filled, Span(), {}):
            seen += 1
            await producer.send_and_wait(filled, b"later", partition=seen % 2)
    assert seen == 15


async def test_spans(kafka: KafkaServer, filled: str) -> None:
    newest = await found(kafka, filled, Span(newest=2))
    assert newest == [(0, 8), (0, 9), (1, 3), (1, 4)]
    since = datetime.fromtimestamp(START_MS / 1000 + 7.5 * 60, UTC)
    assert await found(kafka, filled, Span(since=since)) == [(0, 8), (0, 9)]
    assert await found(kafka, filled, Span(since=since, newest=1)) == [(0, 9)]
    assert await found(kafka, filled, Span(place=(0, 3))) == [(0, 3)]
    for nowhere in ((0, 10), (1, 9), (7, 0)):
        assert await found(kafka, filled, Span(place=nowhere)) == []


async def test_an_empty_topic_holds_nothing(kafka: KafkaServer, topics: Topics) -> None:
    assert await found(kafka, topics.dlq, Span()) == []


async def test_without_kafka_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "START_TIMEOUT_S", 2.0)
    with pytest.raises(NotReachable, match=f"Kafka at {HOST}") as caught:
        await anext(read(f"{HOST}:{free_port()}", "dlq", Span(), {}))
    assert caught.value.server == "kafka"
