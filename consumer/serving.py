"""Puts the HTTP API together. FastAPI takes a quarter of a start: only who serves imports it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncpg import Pool

from consumer import requesting
from consumer.edges.kafka import Producer
from consumer.edges.postgres.connect import open_pool, place
from consumer.edges.postgres.store import Store
from consumer.events import ScoreRequested
from consumer.profiles import ProfileBook
from consumer.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from consumer.api.ports import Ports

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]

CLOSE_POOL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAsking:
    """See api.ports.Asking."""

    producer: Producer
    topic: str
    source: str

    async def publish(self, requests: Sequence[ScoreRequested]) -> None:
        """Returns once Kafka has acknowledged all of them."""
        await requesting.publish(
            requests, producer=self.producer, topic=self.topic, source=self.source
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the API is made of in this process."""

    settings: Settings
    store: Store
    profiles: ProfileBook
    producer: Producer
    stopping: asyncio.Event

    async def open(self, stack: contextlib.AsyncExitStack) -> Served:
        """The API, over a pool of its own: who asks much over HTTP takes nothing from the loops."""
        dsn = self.settings.database_url.get_secret_value()
        pool = await open_pool(dsn, size=self.settings.api_database_pool_size)
        stack.push_async_callback(close_pool, pool)
        # In a thread: the loops go on meanwhile.
        return await asyncio.to_thread(self._build, pool, place(dsn))

    def _build(self, pool: Pool[Any], where: str) -> Served:
        from consumer.api.access import Gate  # noqa: PLC0415
        from consumer.api.app import build  # noqa: PLC0415

        ports = self._ports(pool, where)
        settings = self.settings
        gate = Gate(tokens=settings.tokens, writes_per_minute=settings.api_writes_per_minute)
        app = build(ports, gate=gate, origins=settings.cors_origins)
        return Served(app=app, loops=[ports.feed.run])

    def _ports(self, pool: Pool[Any], where: str) -> Ports:
        from consumer.api.feed import Feed  # noqa: PLC0415
        from consumer.api.ports import Ports  # noqa: PLC0415
        from consumer.edges.postgres.answers import StoredAnswers  # noqa: PLC0415
        from consumer.edges.postgres.live import StoredChanges  # noqa: PLC0415
        from consumer.edges.postgres.overrides import StoredOverrides  # noqa: PLC0415
        from consumer.edges.postgres.profiles import StoredProfiles  # noqa: PLC0415

        return Ports(
            answers=StoredAnswers(pool, where=where, store=self.store),
            overrides=StoredOverrides(pool, where=where, store=self.store),
            criteria=self.profiles,
            profiles=StoredProfiles(pool, where=where),
            asking=KafkaAsking(
                producer=self.producer,
                topic=self.settings.topic_score_requested,
                source=f"{self.settings.event_source}/api",
            ),
            feed=Feed(StoredChanges(pool, where=where)),
            stopping=self.stopping,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The API, and the loops that it needs beside it."""

    app: FastAPI
    loops: Sequence[Loop]


async def close_pool(pool: Pool[Any]) -> None:
    """Ends all connections, within a few seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_POOL_S):
            await pool.close()
    pool.terminate()
