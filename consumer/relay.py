"""Outbox to Kafka: in order, at least once, each event under the same `ce_id` every time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

import structlog

from consumer import failpoints, metrics
from consumer.edges.kafka import Producer
from consumer.edges.postgres.store import OutboxEntry, Store
from consumer.errors import NotReachable, TooLarge
from consumer.events import DLQ_TYPE
from consumer.loops import Backoff, Heartbeat, Signal
from consumer.outgoing import OutboxRow, shorter
from consumer.tracing import NO_SPAN, OFF, Span, Tracer, ended, kafka

log = structlog.get_logger()

PAGE = 500
# In memory at a time, but for an event that is larger by itself.
PAGE_BYTES = 32 * 1024 * 1024
POLL_S = 1.0
# After a page that was not full: events that come meanwhile go together, at a page's price.
GATHER_S = 0.02
FLUSH_S = 10.0
# So many of a page get a second chance where they are too large: we hold the outbox meanwhile.
ALONE = 20
REFUSED_AGAIN_S = 60.0
# A topic that takes nothing is left alone for so long, and is then tried for a moment.
HELD_S = 10.0
TRY_HELD_S = 2.0
TRACE_HEADERS = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Sends what the outbox holds. Only one relay of all replicas sends at a time.

    `refused`: events (by `seq`) that Kafka does not take, and when they are tried again. They stay
    in the outbox, and hold up none of the others. `held`: the same for topics that take nothing at
    all, as they are missing or closed to us.
    """

    store: Store
    producer: Producer
    wake: Signal
    heartbeat: Heartbeat
    tracer: Tracer = OFF
    send_timeout_s: float = 20.0
    refused: dict[int, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`, then sends what is left. Raises nothing that waiting would cure."""
        backoff = Backoff("relay", self.heartbeat, stop)
        while not stop.is_set():
            sent = 0
            async with backoff.bear():
                sent = await self.send_page()
            self.heartbeat.tick()
            if not sent:
                await self.wake.wait(POLL_S)
            elif sent < PAGE:
                await asyncio.sleep(GATHER_S)
        await self._flush()

    async def _flush(self) -> None:
        """Sends until the outbox is empty, someone else sends, or the time for it is over.

        What is left stays in the outbox, for whoever relays next.
        """
        backoff = Backoff("relay", self.heartbeat, asyncio.Event())
        more = True
        try:
            async with asyncio.timeout(FLUSH_S):
                while more:
                    async with backoff.bear():
                        more = await self.send_page() > 0
                    self.heartbeat.tick()
        except TimeoutError:
            log.warning("outbox_not_flushed", seconds=FLUSH_S)

    async def send_page(self) -> int:
        """Sends one page; answers how many events were acknowledged and forgotten.

        Raises NotReachable where Postgres or Kafka is away.
        """
        # Twice the send timeout: a relay that is merely slow keeps its lock.
        async with self.store.outbox_page(
            PAGE,
            idle_limit_s=2 * self.send_timeout_s,
            max_bytes=PAGE_BYTES,
            without=self._refused_for_now(),
            without_topics=[topic for topic, again in self.held.items() if again > monotonic()],
        ) as page:
            if page is None:
                return 0
            entries, connection = page
            if not entries:
                return 0
            sent = await self._send(entries)
            failpoints.reach(failpoints.Point.AFTER_SEND)
            await self.store.outbox_sent(connection, sent)
        for entry in sent:
            metrics.EVENTS_SENT.labels(entry.row.type).inc()
        return len(sent)

    def _refused_for_now(self) -> list[int]:
        now = monotonic()
        for seq in [seq for seq, again in self.refused.items() if again <= now]:
            del self.refused[seq]
        return list(self.refused)

    async def _send(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Those that Kafka acknowledged. The others stay, and are sent again.

        Raises NotReachable where Kafka took none, for another reason than their size.
        """
        errors = await self._send_traced([entry.row for entry in entries])
        self._hold(entries, errors)
        large = [n for n, error in enumerate(errors) if isinstance(error, TooLarge)]
        for n in large[:ALONE]:
            errors[n] = await self._send_alone(entries[n])
        metrics.EVENTS_REFUSED.set(len(self.refused))
        failures = [error for error in errors if error is not None]
        if failures:
            metrics.EVENTS_SEND_ERRORS.inc(len(failures))
            log.warning("events_not_sent", events=len(failures), error=_said(failures[0]))
        if len(failures) == len(entries) and not large:
            raise NotReachable(f"Kafka takes no event: {_said(failures[0])}", server="kafka")
        return [entry for entry, error in zip(entries, errors, strict=True) if error is None]

    def _hold(self, entries: Sequence[OutboxEntry], errors: Sequence[BaseException | None]) -> None:
        """A topic that took none of its events must not hold up the others'."""
        pairs = list(zip(entries, errors, strict=True))
        took = {entry.row.topic for entry, error in pairs if error is None}
        failed = {e.row.topic for e, error in pairs if error and not isinstance(error, TooLarge)}
        for topic in took & self.held.keys():
            del self.held[topic]
            log.info("topic_takes_events_again", topic=topic)
        for topic in failed - took:
            self.held[topic] = monotonic() + HELD_S
            log.warning("topic_takes_no_event", topic=topic, again_in_s=HELD_S)

    def _limit_s(self, rows: Sequence[OutboxRow]) -> float:
        return TRY_HELD_S if any(row.topic in self.held for row in rows) else self.send_timeout_s

    async def _send_traced(self, rows: Sequence[OutboxRow]) -> list[BaseException | None]:
        """Sends these; where there are traces each is a span, and the event tells it on."""
        if not self.tracer.on:
            return await self.producer.send(rows, timeout_s=self._limit_s(rows))
        spans = [self._span(row) for row in rows]
        with ended(spans):
            told = [_told_on(row, span) for row, span in zip(rows, spans, strict=True)]
            errors = await self.producer.send(told, timeout_s=self._limit_s(rows))
            for span, error in zip(spans, errors, strict=True):
                span.end(error)
        return errors

    def _span(self, row: OutboxRow) -> Span:
        if row.type == DLQ_TYPE:  # it stays as it came
            return NO_SPAN
        about = {**kafka("send", row.topic), "messaging.message.id": str(row.event_id)}
        trace = {name: value for name, value in row.headers if name in TRACE_HEADERS}
        return self.tracer.span(f"send {row.topic}", kind="producer", trace=trace, attributes=about)

    async def _send_alone(self, entry: OutboxEntry) -> BaseException | None:
        """Sends what was too large, maybe only in company; a dead letter shortened if need be."""
        error: BaseException | None = None
        for row in (entry.row, *shorter(entry.row)):
            (error,) = await self.producer.send([row], timeout_s=self.send_timeout_s)
            if not isinstance(error, TooLarge):
                if error is None and row is not entry.row:
                    metrics.DLQ_SHORTENED.inc()
                    log.warning("dead_letter_shortened", bytes=entry.row.size, kept=row.size)
                return error
        self.refused[entry.seq] = monotonic() + REFUSED_AGAIN_S
        log.error(
            "event_refused",
            event_id=str(entry.row.event_id),
            event_type=entry.row.type,
            error=_said(error),
            again_in_s=REFUSED_AGAIN_S,
        )
        return error


def _told_on(row: OutboxRow, span: Span) -> OutboxRow:
    """The event as a child of this span."""
    if span is NO_SPAN:
        return row
    kept = [header for header in row.headers if header[0] not in TRACE_HEADERS]
    return replace(row, headers=[*kept, *([*header] for header in span.trace.items())])


def _said(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
