"""Kafka: records in, events out. Translates types and errors, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

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
            "linger_ms": 2,
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
        producer = await self._started()
        tasks = [asyncio.ensure_future(self._send_one(producer, row)) for row in rows]
        try:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
        finally:
            for task in tasks:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [result if isinstance(result, BaseException) else None for result in results]
        if late or all(errors) or any(isinstance(error, TooLarge) for error in errors):
            # A producer can break for good (a fenced or lost producer id): begin with a new one.
            # And what is late must not be sent by this one while it is sent again.
            await self.close()
        return errors

    async def _send_one(self, producer: AIOKafkaProducer, row: OutboxRow) -> None:
        headers = [sent_header(stored) for stored in row.headers]
        try:
            if row.key is None and row.payload is None:
                await _send_nothing(producer, row.topic, headers)
            else:
                await producer.send_and_wait(
                    row.topic, value=row.payload, key=row.key, headers=headers
                )
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise TooLarge(f"{row.topic} does not take {row.size} bytes") from error

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


async def _send_nothing(
    producer: AIOKafkaProducer, topic: str, headers: list[tuple[str, bytes]]
) -> None:
    """A record with neither key nor value. Others may write one; aiokafka's `send` refuses it."""
    batch = producer.create_batch()
    batch.append(key=None, value=None, timestamp=None, headers=headers)
    batch.close()
    partition = min(await producer.partitions_for(topic))
    await (await producer.send_batch(batch, topic, partition=partition))


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
