"""`score-consumer check`: is everything that the consumer needs where its settings say it is?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from consumer.addresses import shown
from consumer.brokers import kafka_security
from consumer.config import Config
from consumer.edges.http import FAILURES, open_client, why
from consumer.edges.kafka_security import not_connected
from consumer.edges.postgres import migrations
from consumer.edges.postgres.connect import open_pool, place, translated
from consumer.errors import NotReachable, ScoreConsumerError
from consumer.judge.sample import Member
from consumer.judges import open_judge, prices
from consumer.ports import ChatMessage
from consumer.settings import Settings

LIMIT_S = 15.0
# Some servers refuse to answer in fewer; what they answer is not read.
TOKENS = 16
QUESTION = ChatMessage(role="user", text="Answer with the JSON object {}.")
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried: what it said, or what is wrong with it."""

    name: str
    ok: bool
    told: str
    seconds: float


async def run(settings: Settings, config: Config) -> AsyncIterator[Check]:
    """Every check, one after the other; a failed one stops none."""
    yield await _check("postgres", partial(_postgres, settings))
    yield await _check("kafka", partial(_kafka, settings))
    yield await _check("history", partial(_history, settings))
    async with open_judge(config, prices(config)) as judge:
        asked: set[tuple[str, str]] = set()
        for member in judge.members.values():
            name = (member.provider.name, member.provider.model)
            if name not in asked:
                asked.add(name)
                yield await _check(f"judge {name[0]} / {name[1]}", partial(_judge, member))


async def _check(name: str, trying: Callable[[], Awaitable[str]]) -> Check:
    started = perf_counter()
    try:
        async with asyncio.timeout(LIMIT_S):
            told, ok = await trying(), True
    except TimeoutError:
        told, ok = f"no answer within {LIMIT_S:g} s", False
    except ScoreConsumerError as error:
        told, ok = str(error), False
    return Check(name=name, ok=ok, told=told, seconds=perf_counter() - started)


async def _postgres(settings: Settings) -> str:
    dsn = settings.database_url.get_secret_value()
    pool = await open_pool(dsn, size=1)
    try:
        with translated(place(dsn)):
            missing = await migrations.missing(pool)
    finally:
        pool.terminate()
    if missing:
        raise NotReachable(f"the schema lacks {', '.join(missing)}: run `score-consumer migrate`")
    return f"{place(dsn)}: the schema is up to date"


async def _kafka(settings: Settings) -> str:
    """Raises NotReachable where the brokers are away, ConfigError where they refuse us."""
    servers = settings.kafka_bootstrap_servers
    options = kafka_security(settings).options
    admin = AIOKafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=5000, **options)
    try:
        await admin.start()
        topics = set(await admin.list_topics())
    except (KafkaError, OSError) as error:
        raise await not_connected(servers, options, error) from error
    finally:
        await admin.close()
    wanted = {settings.topic_score_requested, settings.topic_dlq, *settings.topics.values()}
    if missing := sorted(wanted - topics):
        return f"{servers}: these topics are to be made by the broker: {', '.join(missing)}"
    return f"{servers}: all {len(wanted)} topics are there"


async def _history(settings: Settings) -> str:
    url = shown(settings.history_url)
    async with open_client(settings.history_url, timeout_s=LIMIT_S, headers={}) as client:
        try:
            response = await client.get("/")
        except FAILURES as error:
            raise NotReachable(f"History at {url}: {why(error)}") from error
    return f"{url} answers ({response.status_code})"


async def _judge(member: Member) -> str:
    """A call of a few tokens, without the line's limits and retries."""
    completion = await member.provider.complete([QUESTION], SCHEMA, max_tokens=TOKENS)
    return f"{completion.model} answers"
