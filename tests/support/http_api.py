"""The HTTP API in this process, put together as in `score-consumer run`, without its loops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from consumer import config
from consumer.api.limits import BodyLimit
from consumer.edges.kafka import Producer
from consumer.edges.postgres.profiles import StoredProfiles
from consumer.edges.postgres.store import Store
from consumer.history import open_history
from consumer.judge.panel import Judge
from consumer.profiles import ProfileBook
from consumer.resources import resource
from consumer.serving import Serving
from consumer.settings import Settings
from tests.integration.builders import addresses_of, opened_store
from tests.support.servers import KafkaServer
from tests.support.topics import Topics
from tests.unit.judges import FakePrices


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The API, somebody who calls it, and the store that the loops would write to."""

    app: FastAPI
    http: httpx.AsyncClient
    store: Store
    profiles: ProfileBook
    stopping: asyncio.Event


@contextlib.asynccontextmanager
async def serving(
    database: str, kafka: KafkaServer, topics: Topics, **settings: Any
) -> AsyncIterator[Api]:
    """The API over this database and these topics; profiles are the shipped ones, judges none."""
    shipped = config.load(resource("config"), {})
    producer = Producer(kafka.bootstrap, idempotent=kafka.idempotent, options={})
    chosen = Settings(
        database_url=SecretStr(database), topic_score_requested=topics.requested, **settings
    )
    stopping = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            opened_store(database, addresses=addresses_of(topics))
        )
        stack.push_async_callback(producer.close)
        profiles = ProfileBook(
            shipped.profiles,
            Judge(members={}, prompts={}, prices=FakePrices()),
            activations=StoredProfiles(store.pool, where=store.where),
            kept=store,
        )
        parts = Serving(
            settings=chosen,
            store=store,
            profiles=profiles,
            producer=producer,
            history=await stack.enter_async_context(open_history(chosen, shipped.labels)),
            stopping=stopping,
        )
        served = await parts.open(stack)
        app = served.app
        loops = [asyncio.create_task(loop(stopping)) for loop in served.loops]
        transport = httpx.ASGITransport(BodyLimit(app))
        http = httpx.AsyncClient(transport=transport, base_url="http://api/api/v1/scoring")
        await stack.enter_async_context(http)
        stack.push_async_callback(asyncio.wait, loops)
        stack.callback(stopping.set)
        yield Api(
            app=app,
            http=http,
            store=store,
            profiles=profiles,
            stopping=stopping,
        )
