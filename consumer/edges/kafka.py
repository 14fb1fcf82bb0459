"""Kafka: records in, events out. Translates types and errors, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder

from consumer.cloudevents import Record
from consumer.edges.kafka_security import not_connected
from consumer.errors import TooLarge
from consumer.outgoing import OutboxRow, sent_header

# Below every caller's own time limit, so that a future always ends by itself.
REQUEST_TIMEOUT_MS = 15_000
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
# A dead letter carries its record unchanged, however large the broker let it be.
MAX_REQUEST_BYTES = 32 * 1024 * 1024
# Sent together to a partition: far below what any topic takes unless it was told to take less.
BATCH_BYTES = 128 * 1024

_PARTITIONER = DefaultPartitioner()


def record_of(raw: ConsumerRecord[bytes | None, bytes | None]) -> Record:
    """The record as plain values."""
    return Record(
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        timestamp_ms=raw.timestamp if raw.timestamp and raw.timestamp >= 0 else None,
        key=raw.key,
        value=raw.value,
        headers=raw.headers,
    )


class Producer:
    """Sends events. Connects on first use, and again after it broke."""

    def __init__(self, bootstrap: str, *, idempotent: bool, options: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._options = {
            "bootstrap_servers": bootstrap,
            "enable_idempotence": idempotent,
            "acks": "all",
            "max_batch_size": BATCH_BYTES,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "max_request_size": MAX_REQUEST_BYTES,
            **options,
        }
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def send(
        self, rows: Sequence[OutboxRow], *, timeout_s: float
    ) -> list[BaseException | None]:
        """Sends in order and waits; answers None for what Kafka acknowledged, else the error.

        The error is TooLarge where the topic does not take so many bytes: in one record, or in the
        few small ones that were sent together. Raises NotReachable where Kafka can't be reached at
        all, ConfigError where it refuses us.
        """
        sending = _Sending(await self._started(), rows, limit=self._options["max_request_size"])
        await sending.run(timeout_s)
        errors = sending.errors
        if all(errors) or any(isinstance(error, (TooLarge, TimeoutError)) for error in errors):
            # A producer can break for good (a fenced or lost producer id): begin with a new one.
            # And what is late must not be sent by this one while it is sent again.
            await self.close()
        return errors

    async def _started(self) -> AIOKafkaProducer:
        async with self._starting:  # who comes second gets the first one's
            if self._producer is None:
                self._producer = await self._start()
            return self._producer

    async def _start(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(**self._options)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await producer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await _stop(producer)
            raise await not_connected(self._bootstrap, self._options, error) from error
        except asyncio.CancelledError:
            await _stop(producer)
            raise
        return producer

    async def close(self) -> None:
        """Ends the connection, within a few seconds."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)


class _Sending:
    """Events on their way, in batches of ours: with aiokafka's own, every event that waits for its
    partition is woken by each batch that leaves. No partition waits for another.
    """

    def __init__(
        self, producer: AIOKafkaProducer, rows: Sequence[OutboxRow], *, limit: int
    ) -> None:
        self._producer = producer
        self._rows = rows
        self._limit = limit
        self._sent: list[asyncio.Future[Any]] = []
        self._late = TimeoutError("not acknowledged in time")
        self.errors: list[BaseException | None] = [self._late] * len(rows)

    async def run(self, timeout_s: float) -> None:
        """Returns once all is known, or after this time."""
        topics: dict[str, list[int]] = defaultdict(list)
        for n, row in enumerate(self._rows):
            topics[row.topic].append(n)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                sending = (self._told(ns, self._topic(topic, ns)) for topic, ns in topics.items())
                await asyncio.gather(*sending)
                if self._sent:
                    await asyncio.wait(self._sent)

    async def _topic(self, topic: str, numbers: Sequence[int]) -> None:
        everywhere = sorted(await self._producer.partitions_for(topic))
        with_leader = sorted(self._producer.client.cluster.available_partitions_for_topic(topic))
        places: dict[int, list[int]] = defaultdict(list)
        for n in numbers:
            places[_PARTITIONER(self._rows[n].key, everywhere, with_leader)].append(n)
        sending = (self._told(ns, self._partition(topic, p, ns)) for p, ns in places.items())
        await asyncio.gather(*sending)

    async def _partition(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        """Each batch once the one before has left, so that they arrive in order."""
        for batch, inside in self._batches(numbers):
            await self._told(inside, self._batch(topic, partition, batch, inside))

    async def _batch(
        self, topic: str, partition: int, batch: BatchBuilder, inside: Sequence[int]
    ) -> None:
        if batch.size() > self._limit:
            raise MessageSizeTooLargeError
        sent = await self._producer.send_batch(batch, topic, partition=partition)
        sent.add_done_callback(partial(self._ended, inside))
        self._sent.append(sent)

    def _batches(self, numbers: Sequence[int]) -> Iterator[tuple[BatchBuilder, list[int]]]:
        batch, inside = self._producer.create_batch(), list[int]()
        for n in numbers:
            if not self._added(batch, n):
                yield batch, inside
                batch, inside = self._producer.create_batch(), []
                self._added(batch, n)  # an empty one takes any
            inside.append(n)
        batch.close()  # nothing more is waited for
        yield batch, inside

    def _added(self, batch: BatchBuilder, n: int) -> bool:
        row = self._rows[n]
        headers = [sent_header(stored) for stored in row.headers]
        added = batch.append(key=row.key, value=row.payload, timestamp=None, headers=headers)
        return added is not None

    async def _told(self, numbers: Sequence[int], work: Awaitable[None]) -> None:
        """Does the work; what it raises is told of those events that nothing is known of."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - who sends them decides
            self._tell([n for n in numbers if self.errors[n] is self._late], error)

    def _ended(self, numbers: Sequence[int], sent: asyncio.Future[Any]) -> None:
        if not sent.cancelled():
            self._tell(numbers, sent.exception())

    def _tell(self, numbers: Sequence[int], error: BaseException | None) -> None:
        for n in numbers:
            row = self._rows[n]
            if isinstance(error, (MessageSizeTooLargeError, RecordListTooLargeError)):
                self.errors[n] = TooLarge(f"{row.topic} does not take {row.size} bytes")
            else:
                self.errors[n] = error


async def _stop(producer: AIOKafkaProducer) -> None:
    """Ends a producer without sending what it still holds: that is in the outbox.

    aiokafka's own `stop` sends first. When the broker hangs that takes as long as the broker likes,
    and then everything arrives a second time, long after its successor sent it.
    """
    sending = producer._sender.sender_task  # noqa: SLF001
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            if sending is not None:
                await _cancelled(sending)
            await producer.client.close()
    producer._closed = True  # noqa: SLF001 - or it would warn of not being stopped


async def _cancelled(sending: asyncio.Task[None]) -> None:
    sending.cancel()
    await asyncio.sleep(0)
    # At the first one it begins to wait for the request under way; the second ends that as well.
    sending.cancel()
    await asyncio.wait([sending])
