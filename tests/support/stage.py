"""A whole product under test: real Kafka, real Postgres, stand-ins, and the consumer by its CLI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from tests.support.forked import run_command
from tests.support.replica import ForkedReplica, Replica
from tests.support.servers import KafkaServer
from tests.support.stand_ins import StandIns
from tests.support.topics import Topics

ANSWER_TIMEOUT_S = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A record of one of our topics, decoded."""

    topic: str
    key: bytes | None
    headers: dict[str, str]
    data: dict[str, Any]
    raw: ConsumerRecord[bytes | None, bytes | None]


@dataclass(slots=True, kw_only=True)
class Stage:
    """One test's world. `events` holds all that the consumer has sent so far, by topic."""

    kafka: KafkaServer
    topics: Topics
    database_url: str
    stand_ins: StandIns
    folder: Path
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    settings: dict[str, object] = field(default_factory=dict)  # of all its processes
    kind: type[Replica] = ForkedReplica  # what its processes are

    @property
    def group_id(self) -> str:
        """The consumer group of this stage."""
        return f"group-{self.topics.requested}"

    def environment(self, **changes: object) -> dict[str, str]:
        """The consumer's settings for this stage; `changes` are lower-case names."""
        settings = {
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap,
            "KAFKA_ENABLE_IDEMPOTENCE": str(self.kafka.idempotent).lower(),
            "KAFKA_GROUP_ID": self.group_id,
            "KAFKA_SESSION_TIMEOUT_SECONDS": "6",
            "TOPIC_SCORE_REQUESTED": self.topics.requested,
            "TOPIC_SCORE_COMPLETED": self.topics.completed,
            "TOPIC_QUALITY_RISK": self.topics.quality_risk,
            "TOPIC_SCORE_FAILED": self.topics.failed,
            "TOPIC_SCORE_OVERRIDDEN": self.topics.overridden,
            "TOPIC_DLQ": self.topics.dlq,
            "DATABASE_URL": self.database_url,
            "HISTORY_URL": self.stand_ins.history_url,
            "SCORING_LLM_PROVIDER": "openai-compatible",
            "SCORING_LLM_MODEL": "scripted-judge",
            "LLM_BASE_URL": f"{self.stand_ins.judge_url}/v1",
            "LLM_API_KEY": "sk-test-secret-key",
            "LEASE_SECONDS": "4",
            "COMPLETION_WAIT_SECONDS": "3",
            "REQUEST_DEADLINE_SECONDS": "3",
        }
        changes = self.settings | changes
        return settings | {name.upper(): str(value) for name, value in changes.items()}

    @contextlib.asynccontextmanager
    async def consumer(self, *, roles: str = "", **changes: object) -> AsyncIterator[Replica]:
        """`score-consumer run`, ready for work; stopped in good order at the end."""
        process = self.process(roles=roles, **changes)
        await asyncio.to_thread(process.start)
        try:
            yield process
        finally:
            await asyncio.to_thread(process.stop)

    def process(self, *, roles: str = "", **changes: object) -> Replica:
        """`score-consumer run`, not started yet."""
        folder = self.folder / f"consumer-{uuid4().hex[:8]}"
        # Other code has to be imported by itself.
        kind = Replica if "pythonpath" in changes else self.kind
        return kind(folder, self.environment(**changes), roles=roles)

    async def send(self, *requests: dict[str, Any] | bytes | None, **record: Any) -> None:
        """Puts records on score.requested as they are: dicts as JSON, bytes and None untouched."""
        async with self.producer() as producer:
            for request in requests:
                value = json.dumps(request).encode() if isinstance(request, dict) else request
                await producer.send_and_wait(self.topics.requested, value, **record)

    async def ask(self, session_id: str, **fields: Any) -> UUID:
        """Asks for a score; answers the request id."""
        request_id = uuid4()
        await self.send({"session_id": session_id, "request_id": str(request_id), **fields})
        return request_id

    @contextlib.asynccontextmanager
    async def producer(self) -> AsyncIterator[AIOKafkaProducer]:
        """A producer of the test's own, connected."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap, max_request_size=32 * 1024 * 1024
        )
        try:
            await producer.start()
            yield producer
        finally:
            await producer.stop()

    async def until(self, condition: Any, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits until the condition holds for what the topics hold; fails with what they hold."""
        deadline = monotonic() + timeout_s
        async with self.changed:
            while not condition():
                left = deadline - monotonic()
                if left <= 0:
                    held = {
                        topic: [e.data for e in events] for topic, events in self.events.items()
                    }
                    raise AssertionError(f"not seen within {timeout_s} s; the topics hold {held}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), min(left, 0.5))

    def answers(self, request_id: UUID) -> list[Event]:
        """score.completed and score.failed of this request, each distinct event once."""
        topics = (self.topics.completed, self.topics.failed)
        found = [
            e for t in topics for e in self.events[t] if e.data["request_id"] == str(request_id)
        ]
        return list({event.headers["ce_id"]: event for event in found}.values())

    async def answer(self, request_id: UUID, timeout_s: float = ANSWER_TIMEOUT_S) -> Event:
        """The one answer of this request."""
        await self.until(lambda: self.answers(request_id), timeout_s)
        (event,) = self.answers(request_id)
        return event

    def last_words(self, lines: int = 8) -> str:
        """Where each consumer's log ends."""
        logs = sorted(self.folder.glob("*/consumer.log"))
        return "\n".join(
            "\n  ".join([log.parent.name, *log.read_text(errors="replace").splitlines()[-lines:]])
            for log in logs
        )

    async def rows(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """What the tables hold."""
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    async def cli(self, *arguments: str, stdin: str = "", **changes: object) -> CliResult:
        """Runs `score-consumer` with these arguments."""
        done = await run_command(arguments, self.environment(**changes), stdin=stdin)
        return CliResult(*done)

    async def follow(self) -> None:
        """Reads all topics that the consumer sends to, until cancelled."""
        names = (
            self.topics.completed,
            self.topics.failed,
            self.topics.quality_risk,
            self.topics.overridden,
            self.topics.dlq,
        )
        consumer = AIOKafkaConsumer(
            *names,
            bootstrap_servers=self.kafka.bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            max_partition_fetch_bytes=32 * 1024 * 1024,
        )
        try:
            await consumer.start()
            while True:
                batch = await consumer.getmany(timeout_ms=100)
                for record in (record for records in batch.values() for record in records):
                    self.events[record.topic].append(_event(record, self.topics.dlq))
                if batch:
                    async with self.changed:
                        self.changed.notify_all()
        finally:
            await consumer.stop()


@dataclass(frozen=True, slots=True)
class CliResult:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def _event(record: ConsumerRecord[bytes | None, bytes | None], dlq: str) -> Event:
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    data = {} if record.topic == dlq else json.loads(record.value or b"{}")
    return Event(topic=record.topic, key=record.key, headers=headers, data=data, raw=record)


@contextlib.asynccontextmanager
async def following(stage: Stage) -> AsyncIterator[Stage]:
    """The stage, with its topics being read."""
    task = asyncio.create_task(stage.follow())
    try:
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for logs, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="score-consumer-stage-") as folder:
        yield Path(folder)


def dead_letters(events: Sequence[Event]) -> dict[str, Event]:
    """Dead letters by their reason."""
    return {event.headers["dlq_error_code"]: event for event in events}
