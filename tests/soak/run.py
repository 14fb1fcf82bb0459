"""A soak as it happens: who asks, who kills, who watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any
from uuid import uuid4

import asyncpg
import psutil
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from consumer.edges.kafka import _stop
from consumer.edges.postgres.connect import UNREACHABLE
from tests.soak.world import Victim, World

WATCH_S = 0.25
SAMPLE_S = 5.0
SEND_TIMEOUT_S = 30.0


@dataclass(slots=True, kw_only=True)
class Kill:
    """One kill, and what came of it. Times in seconds; None where it did not come to it."""

    victim: str
    kind: str
    at: float
    away_s: float | None = None
    # From the kill to the next new score.
    first_score_s: float | None = None
    # From a consumer's kill until the last request it worked on was answered.
    taken_over_s: float | None = None
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process at a moment: memory in MiB, open files, seconds since its start."""

    at: float
    process: str
    rss_mib: float
    files: int
    age_s: float


@dataclass(slots=True, kw_only=True)
class Soak:
    """The state of a run. Times are seconds since its beginning."""

    world: World
    rate: float
    chance: random.Random
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=monotonic)
    began_at: float = field(default_factory=time)
    asked: int = 0
    kills: list[Kill] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scores: int = 0
    finished: int = 0
    waiting: int = 0
    _open: deque[Kill] = field(default_factory=deque)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def now(self) -> float:
        return monotonic() - self.began

    @property
    def restarts(self) -> Counter[str]:
        """Kills that were followed by a return, by kind."""
        return Counter(kill.kind for kill in self.kills if kill.away_s is not None)

    # ── asking ──────────────────────────────────────────────────────────────

    async def ask(self, stop: asyncio.Event) -> None:
        """Asks `rate` times a second, for a session of its own each time. While the broker is away
        nobody can ask; what it may have taken all the same counts where it is found.
        """
        while not stop.is_set():
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with self._producer() as producer:
                    while not stop.is_set():
                        await self._ask_once(producer)
                        await asyncio.sleep(max(0.0, self.asked / self.rate - self.now))
            await asyncio.sleep(0.5)

    async def _ask_once(self, producer: AIOKafkaProducer) -> None:
        session_id = f"s-{self.asked}"
        request = json.dumps({"session_id": session_id, "request_id": str(uuid4())}).encode()
        self.asked += 1  # whatever comes of it: a session is asked for once
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await producer.send_and_wait(self.world.stage.topics.requested, request)

    @contextlib.asynccontextmanager
    async def _producer(self) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.world.stage.kafka.bootstrap, enable_idempotence=True
        )
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await producer.start()
            yield producer
        finally:
            await _stop(producer)  # its own `stop` waits for a broker that may be away

    # ── killing ─────────────────────────────────────────────────────────────

    async def kill(self, times: int, minutes: float) -> None:
        """So many kills within so many minutes, at random moments; fewer once it is `enough`."""
        pause_s = minutes * 60 / max(times, 1)
        for number in range(times):
            due = pause_s * (number + self.chance.random())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - self.now)):
                    await self.enough.wait()
            if self.enough.is_set():
                break
            while (victim := self.world.pick(self.chance)) is None:
                await asyncio.sleep(0.1)
            kill = Kill(victim=victim.name, kind=victim.kind, at=self.now)
            pid = victim.pid()
            await victim.die()
            self.kills.append(kill)
            self._open.append(kill)
            self._begin(self._revive(victim, kill))
            if victim.kind == "consumer":
                self._begin(self._taken_over(kill, f":{pid}"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A run of hours shall not lose its report because one of its watchers broke."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.notes.append(f"the soak's own {task.get_coro()} broke: {error!r}")

    async def _revive(self, victim: Victim, kill: Kill | None = None) -> None:
        away_s = await victim.come_back()
        if kill:
            kill.away_s = away_s

    async def _taken_over(self, kill: Kill, owner: str) -> None:
        """Waits until what the dead worker had under its lease is answered by others."""
        held = await self._rows(
            "SELECT request_id, lease_token FROM score_requests"
            " WHERE state = 'in_progress' AND lease_owner LIKE '%' || $1",
            owner,
        )
        kill.held = len(held)
        ids = [row["request_id"] for row in held]
        while held:
            open_ = (
                "SELECT 1 FROM score_requests WHERE request_id = ANY($1) AND finished_at IS NULL"
            )
            if not await self._rows(f"{open_} LIMIT 1", ids):
                kill.taken_over_s = self.now - kill.at
                return
            await asyncio.sleep(WATCH_S)

    async def _rows(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """What the database answers, as soon as it does."""
        while True:
            try:
                return await self.world.stage.rows(sql, *args)
            except UNREACHABLE:
                await asyncio.sleep(WATCH_S)

    # ── watching ────────────────────────────────────────────────────────────

    async def watch(self, stop: asyncio.Event) -> None:
        """Notes each new score, and how the processes fare; starts again what ended by itself."""
        sampled = -SAMPLE_S
        while not stop.is_set():
            await self._look()
            if self.now - sampled >= SAMPLE_S:
                sampled = self.now
                self._sample()
                self._mourn()
            await asyncio.sleep(WATCH_S)

    async def _look(self) -> None:
        looked = self.now
        ((scores, finished, waiting),) = await self._rows(
            "SELECT (SELECT count(*) FROM session_scores),"
            " (SELECT count(*) FROM score_requests WHERE finished_at IS NOT NULL),"
            " (SELECT count(*) FROM score_requests WHERE finished_at IS NULL)"
        )
        if scores > self.scores:
            for kill in [kill for kill in self._open if kill.at < looked - WATCH_S]:
                kill.first_score_s = self.now - kill.at
                self._open.remove(kill)
        self.scores, self.finished, self.waiting = scores, finished, waiting

    def _sample(self) -> None:
        for victim in self.world.victims:
            if victim.kind == "consumer" and (pid := victim.pid()):
                with contextlib.suppress(psutil.Error):
                    self.samples.append(_sampled(victim.name, pid, self.now))

    def _mourn(self) -> None:
        for victim in self.world.victims:
            if victim.kind == "consumer" and victim.away_since is None and victim.pid() is None:
                self.exits.append(f"{victim.name} ended by itself after {self.now:.0f} s")
                victim.away_since = monotonic()
                self._begin(self._revive(victim))


def _sampled(name: str, pid: int, at: float) -> Sample:
    process = psutil.Process(pid)
    with process.oneshot():
        return Sample(
            at=round(at, 1),
            process=name,
            rss_mib=round(process.memory_info().rss / 2**20, 1),
            files=process.num_fds(),
            age_s=round(time() - process.create_time(), 1),
        )
