"""`score-consumer check`: is everything that the consumer needs where its settings say it is?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from consumer.addresses import shown
from consumer.brokers import kafka_security
from consumer.config import Config
from consumer.edges.history.tarsy_python import BASE_PATH
from consumer.edges.kafka_look import MAKES_TOPICS, Group, looking
from consumer.edges.postgres.connect import open_pool, place
from consumer.edges.postgres.writable import require_writable
from consumer.errors import NotReachable, ScoreConsumerError, ScoringError
from consumer.history import open_history
from consumer.judge.sample import TEMPERATURE, Member
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
    # As long as the consumer waits for it, and a little: it is for the adapter to say so.
    history_s = settings.history_timeout_seconds + 1
    yield await _check("postgres", partial(_postgres, settings))
    yield await _check("kafka", partial(_kafka, settings))
    yield await _check("history", partial(_history, settings), limit_s=history_s)
    async with open_judge(config, prices(config)) as judge:
        asked: set[tuple[str, str]] = set()
        for member in judge.members.values():
            name = (member.provider.name, member.provider.model)
            if name not in asked:
                asked.add(name)
                yield await _check(f"judge {name[0]} / {name[1]}", partial(_judge, member))


async def _check(
    name: str, trying: Callable[[], Awaitable[str]], *, limit_s: float = LIMIT_S
) -> Check:
    started = perf_counter()
    try:
        async with asyncio.timeout(limit_s):
            told, ok = await trying(), True
    except TimeoutError:
        told, ok = f"no answer within {limit_s:g} s", False
    except ScoreConsumerError as error:
        told, ok = str(error), False
    return Check(name=name, ok=ok, told=told, seconds=perf_counter() - started)


async def _postgres(settings: Settings) -> str:
    dsn = settings.database_url.get_secret_value()
    pool = await open_pool(dsn, size=2)
    try:
        await require_writable(pool, where=place(dsn))
    finally:
        pool.terminate()
    return f"{place(dsn)}: the schema is up to date, and may be written to"


async def _kafka(settings: Settings) -> str:
    """Raises NotReachable where the brokers are away, or would not serve the consumer; ConfigError
    where they refuse us.
    """
    servers, asked = settings.kafka_bootstrap_servers, settings.topic_score_requested
    topics = sorted({asked, settings.topic_dlq, *settings.topics.values()})
    async with looking(servers, kafka_security(settings).options) as look:
        found = await look.topics(topics)
        missing = [topic for topic, numbers in found.items() if numbers is None]
        if missing and not await look.makes_topics():
            raise NotReachable(
                f"{servers}: there is no topic {', '.join(missing)}, and its brokers make none "
                f"by themselves ({MAKES_TOPICS} is false)"
            )
        if settings.kafka_enable_idempotence:
            await look.may_produce()
        group = (
            await look.settled_group(settings.kafka_group_id, asked) if found[asked] == [] else None
        )
    headless = [f"{topic} {numbers}" for topic, numbers in found.items() if numbers]
    if headless:
        raise NotReachable(f"{servers}: partitions without a leader: {', '.join(headless)}")
    told = (
        f"these topics are to be made by the broker: {', '.join(missing)}"
        if missing
        else f"all {len(topics)} topics are there"
    )
    return f"{servers}: {told}" + (_group_told(settings.kafka_group_id, group) if group else "")


def _group_told(name: str, group: Group) -> str:
    """Raises NotReachable where it can't be formed."""
    told = f"group {name} is {group.state}, members {len(group.members)}, lag {group.lag}"
    if group.forming:
        members = ", ".join(f"{name} ({n})" for name, n in Counter(group.members).items())
        raise NotReachable(f"{told}: it does not come to be formed, its members: {members}")
    return f"; {told}" + ("" if group.members else ": no intake is running")


async def _history(settings: Settings) -> str:
    url = shown(settings.history_url)
    async with open_history(settings, {}) as history:
        try:
            await history.probe()
        except ScoringError as error:
            raise NotReachable(
                f"History at {url}, asked for {BASE_PATH}/sessions: {error}. Is HISTORY_URL its "
                "own address, without a path of the API?"
            ) from error
    return f"{url} lists sessions"


async def _judge(member: Member) -> str:
    """A call of a few tokens, without the line's limits and retries."""
    completion = await member.provider.complete(
        [QUESTION], SCHEMA, max_tokens=TOKENS, temperature=TEMPERATURE
    )
    return f"{completion.model} answers"
