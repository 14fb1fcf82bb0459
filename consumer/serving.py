"""Puts the HTTP API together. FastAPI takes a quarter of a start: only who serves imports it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from asyncpg import Pool

from consumer import requesting
from consumer.batches import Runner, Selecting
from consumer.brokers import kafka_security
from consumer.config import Config
from consumer.edges.history.tarsy_python import TarsyPythonHistory
from consumer.edges.kafka import Producer
from consumer.edges.postgres.batches import StoredBatches
from consumer.edges.postgres.connect import open_pool, place
from consumer.edges.postgres.profiles import StoredProfiles
from consumer.edges.postgres.store import Store
from consumer.events import ScoreRequested
from consumer.history import open_history
from consumer.judges import open_judge, prices
from consumer.outgoing import Addresses
from consumer.profiles import ProfileBook
from consumer.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from consumer.api.ports import Ports
    from consumer.edges.postgres.analytics import StoredAnalytics

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]

CLOSE_POOL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAsking:
    """See api.ports.Asking."""

    producer: Producer
    topic: str
    source: str

    async def publish(
        self,
        requests: Sequence[ScoreRequested],
        *,
        trace: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Returns once Kafka has acknowledged all of them."""
        await requesting.publish(
            requests, producer=self.producer, topic=self.topic, source=self.source, trace=trace
        )


def load_api() -> None:
    """Imports what most of the API's start goes into, for a thread while servers are waited for."""
    import consumer.api.app  # noqa: PLC0415, F401


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the API is made of in this process."""

    settings: Settings
    store: Store
    profiles: ProfileBook
    producer: Producer
    history: TarsyPythonHistory
    stopping: asyncio.Event

    async def open(self, stack: contextlib.AsyncExitStack) -> Served:
        """The API, over a pool of its own: who asks much over HTTP takes nothing from the loops."""
        dsn = self.settings.database_url.get_secret_value()
        pool = await open_pool(dsn, size=self.settings.api_database_pool_size)
        stack.push_async_callback(close_pool, pool)
        # In a thread: the loops go on meanwhile.
        app, loops = await asyncio.to_thread(self._build, pool, place(dsn))
        return Served(app=app, loops=loops, pool=pool)

    def _build(self, pool: Pool[Any], where: str) -> tuple[FastAPI, Sequence[Loop]]:
        from consumer.api.access import Gate  # noqa: PLC0415
        from consumer.api.app import build  # noqa: PLC0415
        from consumer.api.rollup import RollUp  # noqa: PLC0415
        from consumer.edges.postgres.analytics import StoredAnalytics  # noqa: PLC0415

        analytics = StoredAnalytics(pool, where=where)
        ports = self._ports(pool, where, analytics)
        settings = self.settings
        gate = Gate(tokens=settings.tokens, writes_per_minute=settings.api_writes_per_minute)
        app = build(ports, gate=gate, origins=settings.cors_origins)
        runner = Runner(ports.batches, ports.selecting, ports.asking, self.store)
        return app, [ports.feed.run, runner.run, RollUp(days=analytics).run]

    def _ports(self, pool: Pool[Any], where: str, analytics: StoredAnalytics) -> Ports:
        from consumer.api.feed import Feed  # noqa: PLC0415
        from consumer.api.ports import Ports  # noqa: PLC0415
        from consumer.edges.postgres.answers import StoredAnswers  # noqa: PLC0415
        from consumer.edges.postgres.live import StoredChanges  # noqa: PLC0415
        from consumer.edges.postgres.overrides import StoredOverrides  # noqa: PLC0415

        batches = StoredBatches(pool, where=where)
        return Ports(
            answers=StoredAnswers(pool, where=where, store=self.store),
            overrides=StoredOverrides(pool, where=where, store=self.store),
            cards=analytics,
            figures=analytics,
            criteria=self.profiles,
            profiles=StoredProfiles(pool, where=where),
            asking=KafkaAsking(
                producer=self.producer,
                topic=self.settings.topic_score_requested,
                source=f"{self.settings.event_source}/api",
            ),
            batches=batches,
            selecting=Selecting(sessions=self.history, batches=batches, criteria=self.profiles),
            feed=Feed(StoredChanges(pool, where=where)),
            stopping=self.stopping,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The API, and the loops that it needs beside it."""

    app: FastAPI
    loops: Sequence[Loop]
    pool: Pool[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """What a command needs to work on a batch by itself."""

    batches: StoredBatches
    selecting: Selecting
    runner: Runner


@contextlib.asynccontextmanager
async def open_batching(settings: Settings, config: Config) -> AsyncIterator[Batching]:
    """As the API has it. Raises NotReachable and ConfigError."""
    dsn = settings.database_url.get_secret_value()
    async with contextlib.AsyncExitStack() as stack:
        pool = await open_pool(dsn, size=3)
        stack.push_async_callback(close_pool, pool)
        addresses = Addresses(source=settings.event_source, topics=settings.topics)
        store = Store(pool, where=place(dsn), addresses=addresses)
        judge = await stack.enter_async_context(open_judge(config, prices(config)))
        profiles = ProfileBook(
            config.profiles, judge, activations=StoredProfiles(pool, where=place(dsn)), kept=store
        )
        await profiles.refresh_now()
        options = {"client_id": "score-consumer-cli", **kafka_security(settings).options}
        producer = Producer(
            settings.kafka_bootstrap_servers,
            idempotent=settings.kafka_enable_idempotence,
            options=options,
        )
        stack.push_async_callback(producer.close)
        batches = StoredBatches(pool, where=place(dsn))
        history = await stack.enter_async_context(open_history(settings, config.labels))
        selecting = Selecting(sessions=history, batches=batches, criteria=profiles)
        asking = KafkaAsking(
            producer=producer,
            topic=settings.topic_score_requested,
            source=f"{settings.event_source}/cli",
        )
        runner = Runner(batches, selecting, asking, store)
        yield Batching(batches=batches, selecting=selecting, runner=runner)


async def close_pool(pool: Pool[Any]) -> None:
    """Ends all connections, within a few seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_POOL_S):
            await pool.close()
    pool.terminate()
