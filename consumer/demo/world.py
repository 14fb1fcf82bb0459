"""The demo's surroundings: embedded servers, HTTP stand-ins, and the consumer as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from consumer.api.server import Server
from consumer.demo import history_service, judge_stand_in
from consumer.demo.sample_sessions import SampleSession
from consumer.demo.servers import (
    HOST,
    EmbeddedKafka,
    EmbeddedPostgres,
    EmbeddedServer,
    create_topics,
    free_port,
)
from consumer.edges.postgres import migrations

JUDGE_SECONDS = 0.8
TOPICS = (
    "score.requested",
    "score.completed",
    "quality_risk",
    "score.failed",
    "score.overridden",
    "score.requested.dlq",
)


class ConsumerProcess(EmbeddedServer):
    """`score-consumer run` as a process of its own; it answers once it is ready for work."""

    name = "consumer"
    stop_timeout = 40.0

    def __init__(self, data_dir: Path, environment: Mapping[str, str]) -> None:
        super().__init__(data_dir)
        self._environment = {**environment, "HTTP_HOST": HOST, "HTTP_PORT": str(self.port)}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _command(self) -> list[str]:
        # Through env(1): the launcher passes its own environment on.
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        return ["/usr/bin/env", *settings, sys.executable, "-m", "consumer.cli", "run"]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything around the consumer, running."""

    postgres: EmbeddedPostgres
    kafka: EmbeddedKafka
    consumer: ConsumerProcess
    history_url: str
    judge: str
    environment: Mapping[str, str]


@contextlib.asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """The app's URL while it is served on a free port."""
    port = free_port()
    server = Server(
        uvicorn.Config(
            app, host=HOST, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
    )
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
            if task.done():
                await task
        yield f"http://{HOST}:{port}"
    finally:
        server.should_exit = True
        await task


def chosen_provider() -> str:
    """The user's own provider; empty where none is set."""
    return os.environ.get("SCORING_LLM_PROVIDER") or os.environ.get("DEFAULT_LLM_PROVIDER") or ""


def judge_environment(stand_in_url: str) -> dict[str, str]:
    """The user's own provider where one is set, else the stand-in, plainly named."""
    if chosen_provider():
        return {}
    return {
        "SCORING_LLM_PROVIDER": "openai-compatible",
        "SCORING_LLM_MODEL": judge_stand_in.MODEL,
        "LLM_BASE_URL": f"{stand_in_url}/v1",
        "LLM_API_KEY": "none-needed",
    }


@contextlib.asynccontextmanager
async def world(
    sessions: Mapping[str, SampleSession], say: Callable[[str], None]
) -> AsyncIterator[World]:
    """Starts everything, says what, and leaves neither process nor folder behind."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="score-demo-")))
        postgres = EmbeddedPostgres(folder / "postgres")
        kafka = EmbeddedKafka(folder / "kafka")
        for server in (postgres, kafka):
            stack.push_async_callback(asyncio.to_thread, server.stop)
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in (postgres, kafka)))
        say(f"PostgreSQL on port {postgres.port}, Kafka ({kafka.name}) on {kafka.bootstrap}")
        await asyncio.gather(create_topics(kafka.bootstrap, TOPICS), migrations.up(postgres.dsn))
        history_url = await stack.enter_async_context(served(history_service.app(sessions)))
        judge_url = await stack.enter_async_context(
            served(judge_stand_in.app(sessions, delay_seconds=JUDGE_SECONDS))
        )
        own_judge = judge_environment(judge_url)
        judge = judge_stand_in.LABEL if own_judge else chosen_provider()
        say(f"History Service on {history_url}, judge: {judge}")
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
            "KAFKA_ENABLE_IDEMPOTENCE": "false",
            "KAFKA_SESSION_TIMEOUT_SECONDS": "6",
            "DATABASE_URL": postgres.dsn,
            "HISTORY_URL": history_url,
            "COMPLETION_WAIT_SECONDS": "4",
            "LEASE_SECONDS": "6",
            **own_judge,
        }
        consumer = ConsumerProcess(folder / "consumer", environment)
        stack.push_async_callback(asyncio.to_thread, consumer.stop)
        await asyncio.to_thread(consumer.start)
        say(f"score-consumer run, process {consumer.pid}, {consumer.url}")
        yield World(
            postgres=postgres,
            kafka=kafka,
            consumer=consumer,
            history_url=history_url,
            judge=judge,
            environment=environment,
        )
