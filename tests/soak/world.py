"""Everything that a soak runs, and what in it can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from consumer.demo.servers import EmbeddedPostgres, EmbeddedServer, ServerError, create_topics
from consumer.edges.postgres import migrations
from tests.soak.endless import endless
from tests.support.apache_kafka import ApacheKafka
from tests.support.replica import Replica
from tests.support.servers import KafkaServer
from tests.support.stage import Stage
from tests.support.stand_ins import stand_ins
from tests.support.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.topics import Topics

REPLICAS = 2
LEASE_S = 4.0
# How long a stand-in is away: as long as a small server takes to start.
STAND_IN_AWAY_S = 1.5
# Servers take long to start; with these shares the consumer is most of the time fit to be killed.
SHARES = {"consumer": 80, "postgres": 8, "kafka": 3, "judge": 5, "history": 4}
TOPICS = Topics(
    requested="score.requested",
    completed="score.completed",
    quality_risk="quality_risk",
    failed="score.failed",
    overridden="score.overridden",
    dlq="score.requested.dlq",
)


@dataclass(slots=True, kw_only=True)
class Victim:
    """What can be killed. It comes back by itself: `revive` ends when it is there again."""

    name: str
    kind: str
    kill: Callable[[], Awaitable[None]]
    revive: Callable[[], Awaitable[None]]
    pid: Callable[[], int | None]
    away_since: float | None = None

    async def die(self) -> None:
        """Kills it; returns when it is dead."""
        self.away_since = monotonic()
        await self.kill()

    async def come_back(self) -> float:
        """Starts it again; answers how long it was away, in seconds."""
        assert self.away_since is not None
        await self.revive()
        away_s, self.away_since = monotonic() - self.away_since, None
        return away_s


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The stage of a soak, and its victims."""

    stage: Stage
    replicas: Sequence[Replica]
    victims: Sequence[Victim]

    def pick(self, chance: random.Random) -> Victim | None:
        """One of those that are alive, by the shares of their kinds."""
        alive = [victim for victim in self.victims if victim.away_since is None]
        kinds = sorted({victim.kind for victim in alive})
        if not kinds:
            return None
        (kind,) = chance.choices(kinds, [SHARES[kind] for kind in kinds])
        return chance.choice([victim for victim in alive if victim.kind == kind])


@contextlib.asynccontextmanager
async def world(*, judge_s: float) -> AsyncIterator[World]:
    """Broker, database, stand-ins and two replicas, all of our own; gone at the end."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="score-consumer-soak-")))
        kafka, postgres = ApacheKafka(folder / "kafka"), EmbeddedPostgres(folder / "postgres")
        for server in (kafka, postgres):
            stack.push_async_callback(asyncio.to_thread, server.stop)
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in (kafka, postgres)))
        await asyncio.gather(
            create_topics(kafka.bootstrap, astuple(TOPICS)), migrations.up(postgres.dsn)
        )
        services = await stack.enter_async_context(stand_ins(endless()))
        services.judge_delay_s = judge_s
        judge, history = [
            await stack.enter_async_context(tcp_proxy(_port(url)))
            for url in (services.judge_url, services.history_url)
        ]
        stage = Stage(
            kafka=KafkaServer(bootstrap=kafka.bootstrap, kind="apache", idempotent=True),
            topics=TOPICS,
            database_url=postgres.dsn,
            stand_ins=services,
            folder=folder,
        )
        stage.settings.update(
            llm_base_url=f"http://{judge.address}/v1",
            history_url=f"http://{history.address}",
            lease_seconds=LEASE_S,
            # A request may lose many workers here; in production that many mean that it kills them.
            max_lost_leases=1000,
            request_deadline_seconds=600,
            completion_wait_seconds=60,
        )
        replicas = [
            Replica(stage.folder / f"consumer-{number}", stage.environment())
            for number in range(REPLICAS)
        ]
        for replica in replicas:
            stack.push_async_callback(asyncio.to_thread, replica.stop)
        await asyncio.gather(*(asyncio.to_thread(replica.start) for replica in replicas))
        yield World(
            stage=stage,
            replicas=replicas,
            victims=[
                *(_process(f"consumer {n}", "consumer", r) for n, r in enumerate(replicas, 1)),
                _process("postgres", "postgres", postgres),
                _process("kafka", "kafka", kafka),
                _stand_in("judge", judge),
                _stand_in("history", history),
            ],
        )


def _process(name: str, kind: str, server: EmbeddedServer) -> Victim:
    async def kill() -> None:
        await asyncio.to_thread(server.kill)

    async def revive() -> None:
        # Whether it gets ready depends on the others, which may be away just then.
        while server.pid is None:
            with contextlib.suppress(ServerError):
                await asyncio.to_thread(server.start)

    return Victim(name=name, kind=kind, kill=kill, revive=revive, pid=lambda: server.pid)


def _stand_in(name: str, line: TcpProxy) -> Victim:
    """A stand-in counts what it is asked, so it lives on; its clients see it die."""

    async def kill() -> None:
        line.reset()
        line.cut()

    async def revive() -> None:
        await asyncio.sleep(STAND_IN_AWAY_S)
        line.restore()

    return Victim(name=name, kind=name, kill=kill, revive=revive, pid=lambda: None)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
