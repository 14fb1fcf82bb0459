"""The composition root: the one place that wires loops, edges and servers together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from time import monotonic, time
from typing import Any

import structlog
import uvicorn
from asyncpg import Pool

from consumer import __version__, failpoints, logs, metrics
from consumer.api.health import Front, Health, probes
from consumer.api.limits import BodyLimit
from consumer.api.server import Protocol, Server
from consumer.brokers import kafka_security
from consumer.config import Config
from consumer.edges.kafka import Producer
from consumer.edges.kafka_security import KafkaSecurity
from consumer.edges.postgres import migrations
from consumer.edges.postgres.connect import open_pool, place, translated
from consumer.edges.postgres.live import StoredChanges
from consumer.edges.postgres.profiles import StoredProfiles
from consumer.edges.postgres.spend import Spend
from consumer.edges.postgres.store import Store
from consumer.edges.prices import PriceList
from consumer.errors import ConfigError, LoopDied, NotReachable
from consumer.history import open_history
from consumer.intake import Intake, IntakeSettings
from consumer.judge.panel import Judge
from consumer.judges import open_judge, prices, refuse_unpriced, warn_unreachable
from consumer.limits.room import Room
from consumer.loops import Backoff, Heartbeat, Signal, standstills
from consumer.outgoing import Addresses
from consumer.pipeline import Patience, Pipeline, criteria_of
from consumer.profiles import ProfileBook
from consumer.relay import Relay
from consumer.serving import Loop, Served, Serving, close_pool, load_api
from consumer.settings import Settings
from consumer.traced import open_tracer, traced_history
from consumer.tracing import Tracer
from consumer.worker import Worker, WorkerSettings

log = structlog.get_logger()

FIGURES_EVERY_S = 1.0
FORGET_EVERY_S = 60.0
TRY_TO_WRITE_EVERY_S = 5.0
# A loop that waits for its server ticks at least every 15 s; a send may take 20 s.
LOOP_SILENT_S = 120.0
# So long after GRACE_SECONDS nothing waits for PostgreSQL any more. With what comes then (Kafka,
# HTTP) it is less than the 10 s that a supervisor gives beyond the grace time.
STOP_S = 5.0
# What is cut off then ends at once.
CUT_S = 1.0
# What is still being answered when all else has stopped: an export, somebody who reads slowly.
HTTP_GRACE_S = 3


class Role(StrEnum):
    """What a process does. All of it, unless told otherwise."""

    INTAKE = "intake"
    WORKER = "worker"
    RELAY = "relay"
    API = "api"


@dataclass(slots=True)
class Lifecycle:
    """Runs until told to stop or until something fails; the first failure is kept."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Stops everything because of this error."""
        if self.failure is None:
            self.failure = error
        self.stop.set()

    async def guard(self, name: str, loop: Awaitable[None], *, until: asyncio.Event) -> None:
        """Runs a loop; its end before `until` is a failure, whether it raised or just returned."""
        try:
            await loop
        except Exception as error:
            log.error("loop_died", loop=name, error=str(error), exc_info=_trace_of(error))
            self.fail(error)
        else:
            if not until.is_set():
                self.fail(LoopDied(f"loop {name} ended by itself"))


def _trace_of(error: Exception) -> Exception | None:
    """Errors of ours say what is wrong; a trace is for the others."""
    return None if isinstance(error, (ConfigError, NotReachable, LoopDied)) else error


async def run(settings: Settings, config: Config, roles: frozenset[Role]) -> None:
    """Runs these roles until SIGTERM or SIGINT. Raises what took the process down otherwise."""
    lifecycle, health = Lifecycle(), Health()
    metrics.forget_figures()
    metrics.REPLICAS_WANTED.set(settings.replicas_wanted)
    metrics.OBJECTIVE.labels("answered").set(settings.objective_answered)
    metrics.OBJECTIVE.labels("in_time").set(settings.objective_in_time)
    health.ready("process")
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, lifecycle.stop.set)
    failpoints.arm(failpoints.parse(settings.failpoints))
    log.info("starting", version=__version__, roles=sorted(roles), owner=settings.owner)
    security = kafka_security(settings)
    async with contextlib.AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(open_tracer(wanted=settings.tracing_enabled))
        front = Front(probes(health), serves_api=Role.API in roles)
        await stack.enter_async_context(_http_server(settings, front, lifecycle))
        if Role.API in roles:
            stack.callback(asyncio.create_task(asyncio.to_thread(load_api)).cancel)
        known = prices(config)
        refuse_unpriced(config, known)
        stack.callback(asyncio.create_task(warn_unreachable(config)).cancel)
        if opened := await _open_store(settings, config, known, tracer, health, lifecycle, stack):
            parts = _Parts(
                settings, config, known, opened, health, lifecycle, stack, security, tracer
            )
            await parts.run(roles, front)
    if lifecycle.failure is not None:
        raise lifecycle.failure
    log.info("stopped")


@contextlib.asynccontextmanager
async def _http_server(
    settings: Settings, front: Front, lifecycle: Lifecycle
) -> AsyncIterator[None]:
    """Serves probes and metrics from the first moment to the last, and the API once it is there."""
    server = Server(
        uvicorn.Config(
            BodyLimit(front),
            host=settings.http_host,
            port=settings.http_port,
            log_config=None,
            access_log=False,
            http=Protocol,
            lifespan="off",
            timeout_graceful_shutdown=HTTP_GRACE_S,
        )
    )
    closing = asyncio.Event()
    task = asyncio.create_task(lifecycle.guard("http", _serve(server), until=closing))
    try:
        yield
    finally:
        closing.set()
        server.should_exit = True
        await task


async def _serve(server: uvicorn.Server) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # uvicorn's word for a port that is taken
        host, port = server.config.host, server.config.port
        raise ConfigError([f"HTTP_PORT: can't listen on {host}:{port}"]) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What needs the database."""

    store: Store
    spend: Spend
    judge: Judge
    profiles: ProfileBook
    changes: StoredChanges


async def _open_store(
    settings: Settings,
    config: Config,
    known: PriceList,
    tracer: Tracer,
    health: Health,
    lifecycle: Lifecycle,
    stack: contextlib.AsyncExitStack,
) -> _Opened | None:
    """Waits for Postgres and its schema; None where told to stop before.

    Raises ConfigError where waiting does not help.
    """
    backoff = Backoff("start", Heartbeat("start", limit_s=LOOP_SILENT_S), lifecycle.stop)
    opened: _Opened | None = None
    health.not_ready("postgres", "not connected yet")
    while not lifecycle.stop.is_set():
        async with backoff.bear():
            try:
                opened = opened or await _connect(settings, config, known, tracer, stack)
                await _prepare(opened, config)
            except NotReachable as error:
                health.not_ready("postgres", str(error))
                raise
            health.ready("postgres")
            return opened
    return None


async def _connect(
    settings: Settings,
    config: Config,
    known: PriceList,
    tracer: Tracer,
    stack: contextlib.AsyncExitStack,
) -> _Opened:
    dsn = settings.database_url.get_secret_value()
    pool = await open_pool(dsn, size=settings.database_pool_size)
    stack.push_async_callback(close_pool, pool)
    addresses = Addresses(source=settings.event_source, topics=settings.topics)
    store = Store(pool, where=place(dsn), addresses=addresses)
    spend = Spend(pool, where=place(dsn))
    judge = await stack.enter_async_context(
        open_judge(config, known, spend=spend, tracer=tracer, most_calls=settings.worker_slots)
    )
    profiles = ProfileBook(
        config.profiles, judge, activations=StoredProfiles(pool, where=place(dsn)), kept=store
    )
    return _Opened(
        store=store,
        spend=spend,
        judge=judge,
        profiles=profiles,
        changes=StoredChanges(pool, where=place(dsn)),
    )


async def _prepare(opened: _Opened, config: Config) -> None:
    """Sees that the schema is there, and tells it our profiles and criteria."""
    store = opened.store
    with translated(store.where):
        missing = await migrations.missing(store.pool)
    if missing:
        raise NotReachable(
            f"the schema at {store.where} lacks {', '.join(missing)}: run `score-consumer migrate`"
        )
    problems = []
    for profile in config.profiles:
        if not await store.register_profile(profile, by="config"):
            problems.append(
                f"profile {profile.id}: version {profile.version} is stored with other content: "
                "raise the version whenever a profile changes"
            )
        await store.register_criteria(criteria_of(profile, opened.judge))
    if problems:
        raise ConfigError(problems)
    await opened.profiles.refresh_now()


@dataclass(slots=True)
class _Parts:
    """The loops of one process, and the signals between them."""

    settings: Settings
    config: Config
    prices: PriceList
    opened: _Opened
    health: Health
    lifecycle: Lifecycle
    stack: contextlib.AsyncExitStack
    security: KafkaSecurity
    tracer: Tracer
    request_accepted: Signal = field(default_factory=Signal)
    event_stored: Signal = field(default_factory=Signal)
    look_again: Signal = field(default_factory=Signal)
    forget_at: float = 0.0
    write_at: float = 0.0
    room: Room = field(init=False)
    pools: list[Pool[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.room = Room(self.settings.session_bytes)
        self.pools = [self.opened.store.pool]

    async def run(self, roles: frozenset[Role], front: Front) -> None:
        """Runs the loops, and ends them in the order in which data flows: the relay comes last,
        to send what the others stored.
        """
        intake = self._intake() if Role.INTAKE in roles else None
        self.stack.enter_context(standstills(partial(self._begin_anew, intake)))
        first: list[tuple[str, Loop]] = [("figures", self._figures(intake))]
        if intake is not None:
            first.append(("intake", intake.run))
        if Role.WORKER in roles:
            worker = await self._worker()
            first.append(("worker", worker.run))
        relay_stop = asyncio.Event()
        last = [self._start("relay", self._relay().run, relay_stop)] if Role.RELAY in roles else []
        running = [self._start(name, loop, self.lifecycle.stop) for name, loop in first]
        if Role.API in roles:
            running.append(self._start("api", partial(self._serve, front), self.lifecycle.stop))
        await self.lifecycle.stop.wait()
        tell = log.error if self.lifecycle.failure else log.info
        tell("stopping", reason=str(self.lifecycle.failure or "signal"))
        self.health.not_ready("process", "stopping")
        self.request_accepted.set()
        self.look_again.set()
        limit_s = self.settings.grace_seconds + STOP_S
        asyncio.get_running_loop().call_later(limit_s, self._cut_off)
        ending = asyncio.create_task(self._end(running, relay_stop, last))
        _, late = await asyncio.wait([ending], timeout=limit_s)
        if late:
            log.warning("not_all_ended_in_time", limit_s=limit_s)
            for task in (ending, *running, *last):
                task.cancel()
            await asyncio.wait([ending, *running, *last], timeout=CUT_S)

    async def _end(
        self,
        running: Sequence[asyncio.Task[None]],
        relay_stop: asyncio.Event,
        last: Sequence[asyncio.Task[None]],
    ) -> None:
        await asyncio.gather(*running)
        relay_stop.set()
        self.event_stored.set()
        await asyncio.gather(*last)

    def _cut_off(self) -> None:
        """Whoever still waits for PostgreSQL hears that it does not answer."""
        for pool in self.pools:
            pool.terminate()

    def _start(self, name: str, loop: Loop, stop: asyncio.Event) -> asyncio.Task[None]:
        return asyncio.create_task(self.lifecycle.guard(name, loop(stop), until=stop))

    def _begin_anew(self, intake: Intake | None, stood_still_s: float) -> None:
        """Nobody is dead because nobody could move."""
        log.warning("process_stood_still", seconds=round(stood_still_s, 1))
        for heartbeat in self.health.heartbeats:
            heartbeat.tick()
        if intake is not None:
            intake.begin_anew()

    def _heartbeat(self, name: str, limit_s: float = LOOP_SILENT_S) -> Heartbeat:
        heartbeat = Heartbeat(name, limit_s=limit_s)
        self.health.heartbeats.append(heartbeat)
        return heartbeat

    def _intake(self) -> Intake:
        settings = self.settings
        self.health.not_ready("kafka", "not joined the consumer group yet")
        return Intake(
            IntakeSettings(
                bootstrap=settings.kafka_bootstrap_servers,
                topic=settings.topic_score_requested,
                dlq_topic=settings.topic_dlq,
                group_id=settings.kafka_group_id,
                batch_records=settings.intake_batch_records,
                high_water=settings.backlog_high_water,
                invalid_share=settings.dlq_max_invalid_share,
                stale_after_s=settings.kafka_stale_after_seconds,
                session_timeout_s=settings.kafka_session_timeout_seconds,
                security=self.security,
            ),
            store=self.opened.store,
            accepted=self.request_accepted.set,
            rejected=self.event_stored.set,
            joined=self.look_again.set,
            heartbeat=self._heartbeat("intake", 2 * settings.kafka_stale_after_seconds),
            fail=self.lifecycle.fail,
            tracer=self.tracer,
        )

    async def _worker(self) -> Worker:
        settings = self.settings
        history = await self.stack.enter_async_context(open_history(settings, self.config.labels))
        pipeline = Pipeline(
            history=traced_history(history, self.tracer, history.client),
            judge=self.opened.judge,
            prices=self.prices,
            scores=self.opened.store,
            profiles=self.opened.profiles,
            room=self.room,
            enabled=self.config.enabled,
            patience=Patience(
                deadline_s=settings.request_deadline_seconds,
                completion_wait_s=settings.completion_wait_seconds,
                max_lost_leases=settings.max_lost_leases,
            ),
        )
        return Worker(
            WorkerSettings(
                owner=settings.owner,
                most_requests=settings.most_requests,
                lease_s=settings.lease_seconds,
                grace_s=settings.grace_seconds,
                late_s=settings.objective_seconds,
            ),
            store=self.opened.store,
            pipeline=pipeline,
            wake=self.request_accepted,
            outcome_stored=self.event_stored,
            heartbeat=self._heartbeat("worker"),
            tracer=self.tracer,
        )

    def _relay(self) -> Relay:
        return Relay(
            store=self.opened.store,
            producer=self._producer("score-consumer"),
            wake=self.event_stored,
            heartbeat=self._heartbeat("relay"),
            tracer=self.tracer,
        )

    def _producer(self, name: str) -> Producer:
        producer = Producer(
            self.settings.kafka_bootstrap_servers,
            idempotent=self.settings.kafka_enable_idempotence,
            options={"client_id": name, **self.security.options},
        )
        self.stack.push_async_callback(producer.close)
        return producer

    async def _serve(self, front: Front, stop: asyncio.Event) -> None:
        """Serves the API until stopped."""
        serving = Serving(
            settings=self.settings,
            store=self.opened.store,
            profiles=self.opened.profiles,
            producer=self._producer("score-consumer-api"),
            history=await self.stack.enter_async_context(
                open_history(self.settings, self.config.labels)
            ),
            stopping=stop,
        )
        self.health.not_ready("api", "not built yet")
        backoff = Backoff("api", Heartbeat("api", limit_s=LOOP_SILENT_S), stop)
        served: Served | None = None
        while served is None and not stop.is_set():
            async with backoff.bear():
                served = await serving.open(self.stack)
        if served is not None:
            front.api = served.app
            self.pools.append(served.pool)
            self.health.ready("api")
            await asyncio.gather(*(loop(stop) for loop in served.loops))

    def _figures(self, intake: Intake | None) -> Loop:
        """What waits, as metrics and for intake's high-water mark; and who is dead."""
        heartbeat = self._heartbeat("figures")

        async def run(stop: asyncio.Event) -> None:
            backoff = Backoff("figures", heartbeat, stop)
            while not stop.is_set():
                logs.catch_up()
                if intake is not None:
                    await self._look_at_kafka(intake)
                async with backoff.bear():
                    await self._look(intake)
                heartbeat.tick()
                if dead := self.health.dead:
                    raise LoopDied(f"silent for too long: {', '.join(b.name for b in dead)}")
                await self.look_again.wait(FIGURES_EVERY_S)

        return run

    async def _look_at_kafka(self, intake: Intake) -> None:
        await intake.check_alive()
        if trouble := intake.trouble:
            self.health.not_ready("kafka", trouble)
        else:
            self.health.ready("kafka")
        await intake.measure_lag()

    async def _look(self, intake: Intake | None) -> None:
        with self._needed("postgres", "postgres_writes"):
            backlog = await self.opened.store.backlog(self.settings.backlog_high_water + 1)
        self.health.ready("postgres")
        if monotonic() >= self.write_at or "postgres_writes" in self.health.waiting_for:
            with self._needed("postgres_writes"):
                clock = await self.opened.store.try_to_write()
            metrics.CLOCK_SKEW_SECONDS.set(time() - clock)
            self.health.ready("postgres_writes")
            self.write_at = monotonic() + TRY_TO_WRITE_EVERY_S
        await self.opened.profiles.refresh_now()
        await self._forget_changes()
        await self._look_at_judges()
        metrics.REQUESTS_PENDING.set(backlog.pending)
        metrics.REQUESTS_IN_PROGRESS.set(backlog.in_progress)
        metrics.OLDEST_PENDING_SECONDS.set(backlog.oldest_pending_s)
        metrics.SESSION_BYTES.set(self.room.taken)
        metrics.SESSIONS_WAITING.set(self.room.waiting)
        metrics.OUTBOX_PENDING.set(backlog.outbox)
        metrics.OUTBOX_OLDEST_SECONDS.set(backlog.oldest_outbox_s)
        self.health.figures.tick()
        if intake is not None:
            intake.regulate(backlog.pending)

    @contextlib.contextmanager
    def _needed(self, *parts: str) -> Iterator[None]:
        """Says of these parts that they are not ready where that is found. Raises NotReachable."""
        try:
            yield
        except NotReachable as error:
            for part in parts:
                self.health.not_ready(part, str(error))
            raise

    async def _forget_changes(self) -> None:
        """Live events are kept for an hour. Whoever has time for it deletes them."""
        if monotonic() >= self.forget_at:
            more = await self.opened.changes.prune()
            self.forget_at = monotonic() + (0 if more else FORGET_EVERY_S)

    async def _look_at_judges(self) -> None:
        """Their state as metrics; and the money of workers that vanished is freed."""
        self.opened.judge.observe()
        capped = [line.name for line in self.opened.judge.lines if line.account]
        if capped:
            await self.opened.spend.release_expired()
            for day in await self.opened.spend.today(capped):
                metrics.JUDGE_SPENT.labels(day.provider, "spent").set(day.spent_usd)
                metrics.JUDGE_SPENT.labels(day.provider, "reserved").set(day.reserved_usd)
                metrics.JUDGE_SPENT.labels(day.provider, "cap").set(day.cap_usd or 0.0)
