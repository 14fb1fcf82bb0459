"""Kafka: a topic's records from here to there, outside any consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from consumer.cloudevents import Record
from consumer.edges.kafka import record_of
from consumer.edges.kafka_records import read_any_batch
from consumer.edges.kafka_security import not_connected
from consumer.errors import NotReachable

START_TIMEOUT_S = 15.0
SILENT_LIMIT_S = 20.0
POLL_MS = 500
AT_A_TIME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What to read. `newest`: no more than so many of each partition; `place`: this record only."""

    since: datetime | None = None
    newest: int | None = None
    place: tuple[int, int] | None = None


async def read(
    bootstrap: str, topic: str, span: Span, options: Mapping[str, Any]
) -> AsyncGenerator[Record, None]:
    """The topic's records as far as it reaches now, each partition's in order.

    Raises NotReachable where Kafka is away, ConfigError where it refuses us.
    """
    async with (
        _connected(bootstrap, topic, options) as consumer,
        aclosing(_read(consumer, span)) as records,
    ):
        try:
            async for record in records:
                yield record
        except (KafkaError, OSError, TimeoutError) as error:
            said = str(error) or type(error).__name__
            raise NotReachable(f"Kafka at {bootstrap}: {said}", server="kafka") from error


@asynccontextmanager
async def _connected(
    bootstrap: str, topic: str, options: Mapping[str, Any]
) -> AsyncIterator[AIOKafkaConsumer]:
    read_any_batch()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        **options,
    )
    try:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await consumer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            raise await not_connected(bootstrap, options, error) from error
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, span: Span) -> AsyncGenerator[Record, None]:
    ends = await _seek(consumer, span)
    heard = monotonic()
    while ends:
        found = await _next(consumer, ends)
        for raw in found:
            yield record_of(raw)
        if found:
            heard = monotonic()
        elif monotonic() - heard > SILENT_LIMIT_S:
            raise TimeoutError(f"no answer for {SILENT_LIMIT_S:g} s")


async def _next(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> list[Any]:
    """The next records before the ends; takes away the ends that are reached."""
    batches = await consumer.getmany(*ends, timeout_ms=POLL_MS, max_records=AT_A_TIME)
    found = [raw for place, raws in batches.items() for raw in raws if raw.offset < ends[place]]
    for place in list(ends):
        # A position moves on over what is no record, such as a transaction's end.
        if await consumer.position(place) >= ends[place]:
            consumer.pause(place)
            del ends[place]
    return found


async def _seek(consumer: AIOKafkaConsumer, span: Span) -> dict[TopicPartition, int]:
    """Goes to where the span begins; answers where it ends, of partitions that have any of it."""
    places = list(consumer.assignment())
    starts = dict(await consumer.beginning_offsets(places))
    ends = dict(await consumer.end_offsets(places))
    if span.since is not None:
        asked = round(span.since.timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(places, asked))
        starts = {place: at.offset if at else ends[place] for place, at in found.items()}
    if span.newest is not None:
        starts = {place: max(start, ends[place] - span.newest) for place, start in starts.items()}
    if span.place is not None:
        partition, offset = span.place
        ends = {p: min(ends[p], offset + 1) for p in places if p.partition == partition}
        starts = {p: offset if offset >= starts[p] else ends[p] for p in ends}
    ends = {place: end for place, end in ends.items() if starts[place] < end}
    consumer.pause(*(place for place in places if place not in ends))
    for place in ends:
        consumer.seek(place, starts[place])
    return ends
