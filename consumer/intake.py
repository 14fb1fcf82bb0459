"""Intake: Kafka to score_requests. Nothing is acknowledged before it is stored.

decode a batch -> requests and dead letters in one transaction -> commit exactly these offsets
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from math import nan
from time import monotonic, perf_counter
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    InvalidSessionTimeoutError,
    KafkaError,
)
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage

from consumer import __version__, failpoints, metrics
from consumer.cloudevents import Record, Unacceptable, before_redrives, read_request, redrives
from consumer.edges.kafka import record_of
from consumer.edges.kafka_records import read_any_batch
from consumer.edges.kafka_security import PLAINTEXT, KafkaSecurity, answers, not_connected
from consumer.edges.postgres.store import IncomingRequest, Store
from consumer.errors import ConfigError, LoopDied
from consumer.events import DLQ_TYPE, ID_NAMESPACE
from consumer.loops import Backoff, Heartbeat
from consumer.outgoing import OutboxRow, stored_header
from consumer.pauses import Pauses
from consumer.tracing import OFF, Span, Tracer, ended, kafka

log = structlog.get_logger()
# Not FastStream's own logger: that one writes lines of its own form, past ours.
_FASTSTREAM_LOG = logging.getLogger("consumer.faststream")

# A record ends a poll at once.
POLL_MS = 200
CONNECT_LIMIT_S = 60.0
# A member that vanished without a word is forgotten after a session, and two may have to be, one
# after the other, before a group forms. Whoever gives up earlier leaves one more behind.
JOIN_LIMIT_SESSIONS = 4
TICK_S = 5.0
LAG_LIMIT_S = 3.0
# Batches under way: one being committed, one at work in Postgres, one on its way there.
AT_ONCE = 3
# So many records are read before others get their turn: what Postgres has answered goes on.
AT_A_TIME = 50
HEARTBEAT_S = 3.0
# New partitions are found this soon; aiokafka's own 5 minutes leave their records waiting.
METADATA_MAX_AGE_MS = 5_000
STOP_TIMEOUT_S = 10.0
# Of a broker that we are not a member of, there is nothing to be told.
DROP_TIMEOUT_S = 1.0

_Raw = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSettings:
    """`high_water` pending requests pause intake; half of it lets it go on.

    `invalid_share` (0-1) of a partition's recent records may be unacceptable before it is slowed.
    """

    bootstrap: str
    topic: str
    dlq_topic: str
    group_id: str
    batch_records: int
    high_water: int
    invalid_share: float
    stale_after_s: float
    session_timeout_s: float
    security: KafkaSecurity = PLAINTEXT


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's base is untyped
    """Remembers that the group gave us a place, and pauses again what a rebalance woke."""

    def __init__(self, assigned: Callable[[], None]) -> None:
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Nothing is held in memory between batches, so there is nothing to give up."""
        log.debug("partitions_revoked", partitions=len(revoked))

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        log.info("partitions_assigned", partitions=sorted(str(place) for place in assigned))
        self._assigned()


class Intake:
    """Reads score.requested. One a process."""

    def __init__(
        self,
        settings: IntakeSettings,
        *,
        store: Store,
        accepted: Callable[[], None],
        rejected: Callable[[], None],
        joined: Callable[[], None],
        heartbeat: Heartbeat,
        fail: Callable[[BaseException], None],
        tracer: Tracer = OFF,
    ) -> None:
        self._settings = settings
        self._tracer = tracer
        self._store = store
        self._tell_accepted = accepted
        self._tell_rejected = rejected
        self._tell_joined = joined
        self._heartbeat = heartbeat
        self._fail = fail
        self._pauses = Pauses(settings.high_water, settings.invalid_share)
        # Up to where each partition is acknowledged, as far as we did it.
        self._acknowledged: dict[TopicPartition, int] = {}
        self._stopping = asyncio.Event()
        self._joined = False
        self._handling = False
        self._places = asyncio.Semaphore(AT_ONCE)
        # The batch that came last; it is done when all before it are.
        self._last: asyncio.Future[None] = _done()
        # When something last went on: a place in the group, a batch, the end of a pause.
        self._moved_at = 0.0
        self._polled_at = 0.0
        # Kafka's last answers by aiokafka's wall clock, which may jump; and since when they are so.
        self._answers: set[int | None] = set()
        self._answered_at = 0.0
        self._kafka_away_at = 0.0
        read_any_batch()
        self._broker = KafkaBroker(
            settings.bootstrap,
            client_id="score-consumer",
            logger=_FASTSTREAM_LOG,
            log_level=logging.DEBUG,
            apply_types=False,
            # It would hold a producer and an admin client as well, for nothing.
            consumer_only=True,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            **settings.security.broker_options,
        )
        self._subscriber = self._broker.subscriber(
            settings.topic,
            batch=True,
            group_id=settings.group_id,
            auto_offset_reset="earliest",
            # Nothing of a transaction counts before it is committed.
            isolation_level="read_committed",
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            heartbeat_interval_ms=round(min(settings.session_timeout_s / 3, HEARTBEAT_S) * 1000),
            ack_policy=AckPolicy.MANUAL,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            listener=_Listener(self._on_assigned),
            parser=_raw_message,
            decoder=_raw_body,
        )
        self._subscriber(self._handle)
        self._subscriber.get_msg = self._poll  # type: ignore[method-assign]

    @property
    def joined(self) -> bool:
        """Whether the consumer group has given us a place (maybe without a partition)."""
        return self._joined

    @property
    def trouble(self) -> str | None:
        """Why nothing would be taken in now; None where all is well. A pause is no trouble."""
        if not self._joined:
            return "not joined the consumer group yet"
        silent_s = self._silent_s()
        if silent_s < self._settings.stale_after_s / 4:
            return None
        return f"no partition was polled for {silent_s:.0f} s"

    async def run(self, stop: asyncio.Event) -> None:
        """Joins the group, waiting for Kafka where it is away; leaves it at `stop`.

        A batch under way then is not acknowledged.
        """
        backoff = Backoff("intake", self._heartbeat, stop)
        started = False
        while not started and not stop.is_set():
            async with backoff.bear():
                started = await self._start(stop)
        await stop.wait()
        self._stopping.set()
        await asyncio.wait([self._last], timeout=STOP_TIMEOUT_S)
        await self._stop_broker()

    async def _start(self, stop: asyncio.Event) -> bool:
        """Connects, and waits for a place in the group; False where told to stop meanwhile.

        Raises NotReachable, and ConfigError where waiting does not help.
        """
        starting = asyncio.create_task(self._broker.start())
        try:
            await self._wait_for(starting, stop)
        except InvalidSessionTimeoutError as error:
            limits = "group.min.session.timeout.ms and group.max.session.timeout.ms"
            raise ConfigError(
                [f"KAFKA_SESSION_TIMEOUT_SECONDS: not within the broker's {limits}"]
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            settings = self._settings
            options = settings.security.options
            raise await not_connected(settings.bootstrap, options, error) from error
        finally:
            if not _succeeded(starting):
                await _cancelled(starting)
                await self._stop_broker(DROP_TIMEOUT_S)
        return _succeeded(starting)

    async def _wait_for(self, starting: asyncio.Task[None], stop: asyncio.Event) -> None:
        """Raises what `starting` does, and TimeoutError where it takes too long."""
        limit_s = CONNECT_LIMIT_S + JOIN_LIMIT_SESSIONS * self._settings.session_timeout_s
        stopping = asyncio.create_task(stop.wait())
        try:
            async with asyncio.timeout(limit_s):
                while not (starting.done() or stopping.done()):
                    self._heartbeat.tick()
                    await asyncio.wait(
                        {starting, stopping}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED
                    )
        finally:
            stopping.cancel()
        if starting.done():
            await starting

    async def _stop_broker(self, limit_s: float = STOP_TIMEOUT_S) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._broker.stop()
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("kafka_stop_failed", error=str(error) or type(error).__name__)

    def regulate(self, pending: int) -> None:
        """Leaves requests in Kafka while too many wait in the database."""
        if self._pauses.regulate(pending):
            self._moved()
        self._apply_pause()

    def begin_anew(self) -> None:
        """The process stood still, and nothing could be polled: it counts from now."""
        self._moved()

    async def check_alive(self) -> None:
        """Ticks the heartbeat while partitions are being polled, and while Kafka is away.

        aiokafka does not report a dead fetch task, and FastStream goes on after every error: the
        one sign of life is when a partition was last polled. Raises LoopDied where Kafka answers
        others for long, and us not.
        """
        # A batch that waits for the database ticks by itself, and meanwhile nothing is polled.
        if not self._joined or self._busy:
            return
        silent_s = min(self._silent_s(), monotonic() - self._kafka_away_at)
        if silent_s < self._settings.stale_after_s:
            self._heartbeat.tick()
        elif await answers(self._settings.bootstrap, self._settings.security.options):
            raise LoopDied(f"no partition was polled for {silent_s:.0f} s, and Kafka answers")
        else:
            self._kafka_away_at = monotonic()
            self._heartbeat.tick()

    async def measure_lag(self) -> None:
        """How many records of our partitions are not read yet, as a metric."""
        consumer, lag = self._consumer, nan
        if consumer is not None and self._joined:
            with contextlib.suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(LAG_LIMIT_S):
                    ends = await consumer.end_offsets(consumer.assignment())
                    lag = sum([max(0, end - await consumer.position(p)) for p, end in ends.items()])
        metrics.INTAKE_LAG.set(lag)

    def _silent_s(self) -> float:
        """Seconds since we last asked for records, or since Kafka last answered, if that is longer.

        0 while we work on a batch. From paused partitions no answer is expected.
        """
        consumer = self._consumer
        if consumer is None or self._busy:
            return 0.0
        self._look_for_answers(consumer)
        since = self._polled_at
        if consumer.assignment() - consumer.paused():
            since = min(since, self._answered_at)
        return monotonic() - max(since, self._moved_at)

    def _look_for_answers(self, consumer: AIOKafkaConsumer) -> None:
        answers = {consumer.last_poll_timestamp(place) for place in consumer.assignment()}
        if answers != self._answers:
            self._answers, self._answered_at = answers, monotonic()

    async def _poll(self, consumer: AIOKafkaConsumer) -> _Raw:
        """In place of FastStream's own: that one sleeps after a poll that brought nothing, whatever
        has come meanwhile; and of errors we hear too, after which FastStream just goes on.
        """
        self._apply_pause()
        try:
            records = await consumer.getmany(
                timeout_ms=POLL_MS, max_records=self._settings.batch_records
            )
            if not records:
                await self._acknowledge_the_rest(consumer)
        except CorruptRecordException as error:  # fetched again, and not for ever: kafka_records
            log.warning("batch_misread", error=str(error))
            return ()
        except (KafkaError, ConsumerStoppedError):
            raise  # may pass; if it does not, nothing is polled, and that will be seen
        except Exception as error:  # noqa: BLE001 - a bug, ours or aiokafka's: it would spin
            self._give_up(error)
            await asyncio.Future()  # until we are stopped
        self._polled_at = monotonic()
        self._look_for_answers(consumer)
        return tuple(chain.from_iterable(records.values()))

    @property
    def _consumer(self) -> AIOKafkaConsumer | None:
        return self._subscriber.consumer

    def _moved(self) -> None:
        self._moved_at = monotonic()
        self._heartbeat.tick()

    async def _acknowledge_the_rest(self, consumer: AIOKafkaConsumer) -> None:
        """Acknowledges what is no record, such as a transaction's end or all of an aborted one: it
        would count as lag until the next record comes.
        """
        if self._busy or self._stopping.is_set():
            return
        offsets = {}
        for place in consumer.assignment():
            # Only of what was fetched there is a position; to ask for another would wait.
            at = await consumer.position(place) if consumer.last_poll_timestamp(place) else 0
            if at > self._acknowledged.get(place, 0):
                offsets[place] = at
        self._acknowledged.update(offsets)  # tried once: each poll would try, and warn, anew
        if offsets:
            await self._commit(offsets)

    def _on_assigned(self) -> None:
        self._joined = True
        self._acknowledged.clear()
        self._pauses.forget()
        self._moved()
        self._apply_pause()
        self._tell_joined()

    def _apply_pause(self) -> None:
        if self._consumer is not None:
            self._pauses.apply(self._consumer)

    @property
    def _busy(self) -> bool:
        return self._handling or not self._last.done()

    async def _handle(self, batch: Sequence[Any]) -> None:
        """FastStream's handler. It swallows what a handler raises, so nothing may leave here."""
        self._handling = True
        try:
            await self._take([record_of(raw) for raw in batch])
        except Exception as error:  # noqa: BLE001 - reported below; here is the last chance
            self._give_up(error)
        finally:
            self._handling = False
            self._moved()

    def _give_up(self, error: Exception) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._fail(error)

    async def _take(self, records: Sequence[Record]) -> None:
        """Reads a batch, and has it stored while the next ones are read."""
        if self._stopping.is_set():
            return
        started = perf_counter()
        requests, letters = await self._sort(records)
        self._pauses.count(records, requests)
        await self._places.acquire()
        keeping = self._keep(records, requests, letters, before=self._last)
        self._last = asyncio.create_task(self._guarded(keeping, started))

    async def _guarded(self, keeping: Awaitable[None], started: float) -> None:
        """Nobody awaits what this raises but the next batch: that one is not committed then."""
        try:
            await keeping
            metrics.INTAKE_BATCH_SECONDS.observe(perf_counter() - started)
        except Exception as error:
            self._give_up(error)
            raise asyncio.CancelledError from error
        finally:
            self._places.release()
            self._moved()

    async def _keep(
        self,
        records: Sequence[Record],
        requests: list[IncomingRequest],
        letters: Sequence[OutboxRow],
        *,
        before: Awaitable[None],
    ) -> None:
        """Stores a batch; commits its places after those of the batch before."""
        if letters:  # they leave in the order in which they came
            await before
        with self._traced(requests) as followed:
            new = await self._store_until_done(followed, letters)
        self._count(len(requests), new, letters)
        metrics.DLQ_REDRIVEN.inc(sum(redrives(record) > 0 for record in records))
        failpoints.reach(failpoints.Point.AFTER_INSERT)
        if requests:
            self._tell_accepted()
        if letters:
            self._tell_rejected()
        await before
        # Those of a partition come in their order: the last one counts.
        await self._commit({TopicPartition(r.topic, r.partition): r.offset + 1 for r in records})
        metrics.INTAKE_BATCH.observe(len(records))

    async def _sort(
        self, records: Sequence[Record]
    ) -> tuple[list[IncomingRequest], list[OutboxRow]]:
        requests: list[IncomingRequest] = []
        letters: list[OutboxRow] = []
        for n, record in enumerate(records):
            if n % AT_A_TIME == 0:
                await asyncio.sleep(0)
            try:
                requests.append(incoming(record))
            except Unacceptable as error:
                letters.append(self._rejected(record, error))
        return requests, letters

    def _rejected(self, record: Record, error: Unacceptable) -> OutboxRow:
        log.warning(
            "record_rejected",
            error_code=error.code,
            error=str(error),
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )
        return dead_letter(record, error, self._settings, datetime.now(UTC))

    @contextlib.contextmanager
    def _traced(self, requests: list[IncomingRequest]) -> Iterator[list[IncomingRequest]]:
        """The requests, each with a span that what becomes of it is a child of."""
        if not self._tracer.on:
            yield requests
            return
        spans = [self._span(request) for request in requests]
        with ended(spans):
            pairs = zip(requests, spans, strict=True)
            yield [replace(request, trace=span.trace) for request, span in pairs]

    def _span(self, request: IncomingRequest) -> Span:
        about = {
            **kafka("process", request.topic),
            "messaging.consumer.group.name": self._settings.group_id,
            "messaging.destination.partition.id": str(request.partition),
            "messaging.kafka.offset": request.offset,
            "scoring.request_id": str(request.request_id),
        }
        return self._tracer.span(
            f"process {request.topic}", kind="consumer", trace=request.trace, attributes=about
        )

    async def _store_until_done(
        self, requests: Sequence[IncomingRequest], letters: Sequence[OutboxRow]
    ) -> int:
        """Tries until the batch is stored: while the database is away, lag grows, no more."""
        backoff = Backoff("intake", self._heartbeat, self._stopping)
        while not self._stopping.is_set():
            async with backoff.bear():
                return await self._store.accept(requests, letters)
        raise asyncio.CancelledError

    def _count(self, requests: int, new: int, letters: Sequence[OutboxRow]) -> None:
        metrics.REQUESTS_RECEIVED.labels("accepted").inc(new)
        metrics.REQUESTS_RECEIVED.labels("duplicate").inc(requests - new)
        metrics.REQUESTS_RECEIVED.labels("rejected").inc(len(letters))
        for letter in letters:
            metrics.DLQ_RECORDS.labels(_reason(letter)).inc()

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits these places. A failure costs a second delivery, no more."""
        consumer = self._consumer
        if consumer is None:
            return
        try:
            await consumer.commit(dict(offsets))
            self._acknowledged.update(offsets)
        except KafkaError as error:
            log.warning("commit_failed", error=str(error) or type(error).__name__)


def _succeeded(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _done() -> asyncio.Future[None]:
    """What need not be waited for."""
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


async def _raw_message(batch: tuple[Any, ...]) -> KafkaMessage:
    """The batch as it is. FastStream's own parser decodes headers, and raises on foreign ones."""
    return KafkaMessage(body=batch, raw_message=batch, consumer=_NO_CONSUMER)


async def _raw_body(message: KafkaMessage) -> Any:
    return message.raw_message


class _NoConsumer:
    """Offsets are committed by Intake alone, never through a message."""

    async def commit(self) -> None:
        raise AssertionError("offsets are committed by Intake alone")

    def seek(self, partition: TopicPartition, offset: int) -> None:
        raise AssertionError(f"intake never seeks, not to {partition}:{offset} either")


_NO_CONSUMER = _NoConsumer()


def _reason(letter: OutboxRow) -> str:
    return next(str(value) for name, value in letter.headers if name == "dlq_error_code")


def incoming(record: Record) -> IncomingRequest:
    """The request in a record. Raises Unacceptable."""
    request = read_request(record)
    event = request.event
    return IncomingRequest(
        request_id=request.request_id,
        session_id=event.session_id,
        profile_id=event.profile_id,
        force_rescore=event.force_rescore,
        triggered_by=event.triggered_by,
        priority=event.priority,
        requested_at=request.requested_at,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        trace=request.trace,
    )


def dead_letter(
    record: Record, error: Unacceptable, settings: IntakeSettings, now: datetime
) -> OutboxRow:
    """The record, unchanged, with where it came from and why it can't be accepted.

    One that was sent back by `dlq redrive` tells where it came from at first.
    """
    place = f"{record.topic}:{record.partition}:{record.offset}"
    first = before_redrives(record)
    about = {
        "dlq_original_topic": first.topic,
        "dlq_original_partition": str(first.partition),
        "dlq_original_offset": str(first.offset),
        "dlq_original_timestamp": str(first.timestamp_ms or ""),
        "dlq_consumer_group": settings.group_id,
        "dlq_error_code": error.code,
        "dlq_error_message": str(error)[:1000],
        "dlq_failed_at": now.isoformat(),
        "dlq_app_version": __version__,
        "dlq_redrive_count": str(redrives(record)),
    }
    original = [(name, value) for name, value in record.headers if not name.startswith("dlq_")]
    return OutboxRow(
        event_id=uuid.uuid5(ID_NAMESPACE, f"dlq:{place}:{record.timestamp_ms}"),
        topic=settings.dlq_topic,
        key=record.key,
        type=DLQ_TYPE,
        payload=record.value,
        headers=[
            *(stored_header(name, value) for name, value in original),
            *(stored_header(name, value.encode()) for name, value in about.items()),
        ],
    )
