"""Outbox to Kafka: in order, at least once, each event under the same `ce_id` every time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from consumer import metrics
from consumer.edges.kafka import Producer
from consumer.edges.postgres.store import OutboxEntry, Store
from consumer.errors import NotReachable
from consumer.loops import Backoff, Heartbeat, Signal

log = structlog.get_logger()

PAGE = 500
POLL_S = 1.0
FLUSH_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Sends what the outbox holds. Only one relay of all replicas sends at a time."""

    store: Store
    producer: Producer
    wake: Signal
    heartbeat: Heartbeat
    send_timeout_s: float = 20.0

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`, then sends what is left. Raises nothing that waiting would cure."""
        backoff = Backoff("relay", self.heartbeat)
        while not stop.is_set():
            sent = 0
            async with backoff.bear():
                sent = await self.send_page()
            self.heartbeat.tick()
            if sent < PAGE:
                await self.wake.wait(POLL_S)
        await self._flush()

    async def _flush(self) -> None:
        """Sends until the outbox is empty, someone else sends, or the time for it is over.

        What is left stays in the outbox, for whoever relays next.
        """
        try:
            async with asyncio.timeout(FLUSH_S):
                while await self.send_page():
                    self.heartbeat.tick()
        except (NotReachable, TimeoutError) as error:
            log.warning("outbox_not_flushed", error=str(error) or type(error).__name__)

    async def send_page(self) -> int:
        """Sends one page; answers how many events were acknowledged and forgotten.

        Raises NotReachable where Postgres or Kafka is away.
        """
        # Twice the send timeout: a relay that is merely slow keeps its lock.
        async with self.store.outbox_page(PAGE, idle_limit_s=2 * self.send_timeout_s) as page:
            if page is None:
                return 0
            entries, connection = page
            if not entries:
                return 0
            sent = await self._send(entries)
            await self.store.outbox_sent(connection, sent)
        for entry in sent:
            metrics.EVENTS_SENT.labels(entry.row.type).inc()
        return len(sent)

    async def _send(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Those that Kafka acknowledged. The others stay, and are sent again."""
        errors = await self.producer.send(
            [entry.row for entry in entries], timeout_s=self.send_timeout_s
        )
        failures = [error for error in errors if error is not None]
        if failures:
            metrics.EVENTS_SEND_ERRORS.inc(len(failures))
            log.warning("events_not_sent", events=len(failures), error=str(failures[0]))
        return [entry for entry, error in zip(entries, errors, strict=True) if error is None]
