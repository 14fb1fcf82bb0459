"""What the benchmarks run on: one broker, one database server, one process of stand-ins.

Each measurement gets topics and a database of its own. Postgres syncs to disk as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import psutil
import yaml

from consumer.demo.servers import EmbeddedPostgres, EmbeddedServer, create_topics
from consumer.edges.postgres import migrations
from consumer.resources import resource
from tests.bench import sessions
from tests.bench.figures import steady
from tests.bench.stand_in import Plan
from tests.support.apache_kafka import ApacheKafka
from tests.support.replica import Replica
from tests.support.servers import KafkaServer
from tests.support.stage import Stage
from tests.support.stand_ins import StandIns
from tests.support.topics import Topics

# What anyone would set on a machine of this size; the rest are the server's defaults.
POSTGRES_SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
}


Size = Literal["quick", "usual", "full"]


class Postgres(EmbeddedPostgres):
    """Nothing that is committed is lost, whatever happens to the machine."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, durable=True)

    def _command(self) -> list[str]:
        return [*super()._command(), *(f"--{k}={v}" for k, v in POSTGRES_SETTINGS.items())]


class StandInProcess(EmbeddedServer):
    """`tests.bench.stand_in` as a process of its own."""

    name = "stand-in"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        root = Path(__file__).parents[2]
        path = ["/usr/bin/env", f"PYTHONPATH={root}"]
        return [*path, sys.executable, "-m", "tests.bench.stand_in", str(self.port)]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            self.stats()
            return True
        return False

    def follow(self, plan: Plan) -> None:
        """From now on it answers by this plan, and counts from zero."""
        self._call("/control", json.dumps(asdict(plan)).encode())

    def stats(self) -> dict[str, Any]:
        return dict(json.loads(self._call("/stats")))

    def asked(self) -> dict[str, Any]:
        """The last request for a verdict, as it came."""
        return dict(json.loads(self._call("/asked")))

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", body, timeout=10) as answer:  # noqa: S310
            return bytes(answer.read())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What became of requests, by the database's clock: seconds since the first was received."""

    scores: dict[int, int]
    received_s: Sequence[float]
    started_s: Sequence[float]
    finished_s: Sequence[float]
    states: dict[str, int]

    def wrong(self) -> int:
        """Scores that are not what the judge said of that session."""
        return sum(score != sessions.total(number) for number, score in self.scores.items())

    def per_second(self, first: float = 0.1, last: float = 0.9) -> float:
        """Scores a second between these shares of all."""
        return steady(self.finished_s, first, last)


@dataclass(slots=True, kw_only=True)
class World:
    """The servers of a run, and stages to measure on."""

    kafka: ApacheKafka
    postgres: Postgres
    stand_in: StandInProcess
    folder: Path
    size: Size = "usual"
    _numbers: list[int] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return 1 if self.size == "quick" else 3

    def amount(self, count: int, *, full: int = 0) -> int:
        """So many; a fifth of it where it shall go quickly, and `full` where it may take long."""
        if self.size == "full":
            return full or count
        return max(1, count // 5) if self.size == "quick" else count

    @contextlib.asynccontextmanager
    async def stage(self, **settings: object) -> AsyncIterator[Stage]:
        """Topics, a migrated database, and the settings of the consumers on it."""
        name = f"bench_{uuid4().hex[:8]}"
        topics = Topics(**{n: f"{name}.{n}" for n in Topics.__dataclass_fields__})
        dsn = await self._database(name)
        await create_topics(self.kafka.bootstrap, astuple(topics))
        stage = Stage(
            kafka=KafkaServer(bootstrap=self.kafka.bootstrap, kind="apache", idempotent=True),
            topics=topics,
            database_url=dsn,
            stand_ins=StandIns(history_url=self.stand_in.url, judge_url=self.stand_in.url),
            folder=self.folder,
            kind=Replica,
        )
        stage.settings.update(_SETTINGS | settings)
        try:
            yield stage
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _database(self, name: str) -> str:
        await self._execute(f"CREATE DATABASE {name}")
        dsn = urlsplit(self.postgres.dsn)._replace(path=f"/{name}").geturl()
        await migrations.up(dsn)
        return dsn

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    def config(self, concurrency: int) -> Path:
        """The shipped configuration, with so many calls at a time for the judge."""
        folder = self.folder / f"config-{concurrency}"
        if not folder.exists():
            shutil.copytree(resource("config"), folder)
            path = folder / "llm_providers.yaml"
            providers = yaml.safe_load(path.read_text())
            providers["openai-compatible"]["max_concurrency"] = concurrency
            path.write_text(yaml.safe_dump(providers))
        return folder

    @contextlib.asynccontextmanager
    async def judged(self, slots: int, **settings: object) -> AsyncIterator[Stage]:
        """A stage whose consumers work on so many requests, and ask the judge as often, at once."""
        chosen = {"worker_slots": slots, "scoring_config_dir": self.config(slots)} | settings
        async with self.stage(**chosen) as stage:
            yield stage


# Production's defaults in place of those that suit tests.
_SETTINGS: dict[str, object] = {
    "lease_seconds": 60,
    "completion_wait_seconds": 60,
    "request_deadline_seconds": 600,
    "llm_context_window": 200_000,
    "llm_max_output_tokens": 8192,
}


@contextlib.asynccontextmanager
async def world(*, size: Size = "usual") -> AsyncIterator[World]:
    """Everything, started; gone at the end."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="score-consumer-bench-")))
        kafka, postgres = ApacheKafka(folder / "kafka"), Postgres(folder / "postgres")
        stand_in = StandInProcess(folder / "stand-in")
        servers: list[EmbeddedServer] = [kafka, postgres, stand_in]
        for server in servers:
            stack.push_async_callback(asyncio.to_thread, server.stop)
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
        yield World(kafka=kafka, postgres=postgres, stand_in=stand_in, folder=folder, size=size)


async def ask(stage: Stage, numbers: Sequence[int], **fields: Any) -> list[UUID]:
    """Asks for these sessions; returns when Kafka has acknowledged all of it."""
    ids = [uuid4() for _ in numbers]
    async with stage.producer() as producer:
        for number, request_id in zip(numbers, ids, strict=True):
            request = {"session_id": f"b-{number}", "request_id": str(request_id), **fields}
            await producer.send(stage.topics.requested, json.dumps(request).encode())
        await producer.flush()
    return ids


async def answered(
    stage: Stage, count: int, *, timeout_s: float = 300, every_s: float = 0.1
) -> None:
    """Waits until so many requests are finished."""
    deadline = monotonic() + timeout_s
    connection = await asyncpg.connect(stage.database_url)
    sql = "SELECT count(*) FROM score_requests WHERE finished_at IS NOT NULL"
    try:
        while (done := await connection.fetchval(sql)) < count:
            if monotonic() > deadline:
                raise TimeoutError(f"{done} of {count} answered\n{stage.last_words()}")
            await asyncio.sleep(every_s)
    finally:
        await connection.close()


async def outcome(stage: Stage) -> Finished:
    """What became of all requests so far."""
    rows = await stage.rows(
        "SELECT r.session_id, r.state, s.total_score,"
        " extract(epoch FROM r.received_at) AS received,"
        " extract(epoch FROM r.started_at) AS started,"
        " extract(epoch FROM r.finished_at) AS finished"
        " FROM score_requests r LEFT JOIN session_scores s USING (score_id)"
        " WHERE r.finished_at IS NOT NULL"
    )
    first = min(row["received"] for row in rows)
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    return Finished(
        scores={
            int(row["session_id"].removeprefix("b-")): row["total_score"]
            for row in rows
            if row["total_score"] is not None
        },
        received_s=[float(row["received"] - first) for row in rows],
        started_s=[float(row["started"] - first) for row in rows],
        finished_s=[float(row["finished"] - first) for row in rows],
        states=states,
    )


def cpu_s(process: Replica) -> float:
    """Seconds of CPU that the process has taken, as user and as system."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def rss_mib(process: Replica) -> float:
    return float(psutil.Process(process.pid).memory_info().rss / 2**20)
