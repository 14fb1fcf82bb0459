"""Worker: claims requests under a lease, runs the pipeline, stores the outcome.

A lease is renewed while its request is worked on. Who loses it writes nothing: the transaction that
stores an outcome checks the token.

A request that has but one chance left is worked on alone: what ends the worker then is that
request, and those that were claimed beside it before are told from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic, perf_counter
from typing import assert_never
from uuid import UUID

import structlog

from consumer import failpoints, metrics
from consumer.edges.postgres.store import Store
from consumer.error_codes import ErrorCode
from consumer.errors import LeaseLost, NotReachable
from consumer.loops import FIRST_BACKOFF_S, LAST_BACKOFF_S, Backoff, Heartbeat, Signal
from consumer.pipeline import (
    Completed,
    Failed,
    Outcome,
    Pipeline,
    Release,
    Retry,
    Reused,
)
from consumer.ports import ClaimedRequest
from consumer.tracing import NO_SPAN, OFF, Attributes, Span, Tracer, evaluation

log = structlog.get_logger()

POLL_S = 1.0
LEASES_EVERY_S = 0.5
# Renewing thrice a lease lets two renewals fail before it is lost.
RENEWALS_PER_LEASE = 3
# A row that somebody else held locked is tried again that much sooner.
SOONER = 10
# What is cancelled at the end, and waits for PostgreSQL, is not waited for any longer.
CANCEL_S = 2.0
_DATABASE: Attributes = {"db.system.name": "postgresql"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`most_requests` are under way at a time; times in seconds. An answer after `late_s` is
    late.
    """

    owner: str
    most_requests: int
    lease_s: float
    grace_s: float
    late_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A request under our lease, and the task that works on it."""

    request: ClaimedRequest
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Probe:
    """The request that is to find out if judges are well again, and the profiles that wait."""

    request_id: UUID
    of: frozenset[str]


class Worker:
    """Up to `most_requests` at a time. `outcome_stored` wakes the relay."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        store: Store,
        pipeline: Pipeline,
        wake: Signal,
        outcome_stored: Signal,
        heartbeat: Heartbeat,
        tracer: Tracer = OFF,
    ) -> None:
        self._settings = settings
        self._tracer = tracer
        self._store = store
        self._pipeline = pipeline
        self._wake = wake
        self._outcome_stored = outcome_stored
        self._heartbeat = heartbeat
        self._works: dict[UUID, _Work] = {}
        self._storing: set[UUID] = set()
        self._probe: _Probe | None = None
        self._failure: Exception | None = None
        self._alone_due = False
        self._spare_leases_until = 0.0
        self._leases_seen_at = 0.0
        self._alone_at = pipeline.patience.alone_at
        metrics.SLOTS.set(settings.most_requests)

    async def run(self, stop: asyncio.Event) -> None:
        """Claims and works until `stop`; then finishes what fits in the grace time, and gives the
        rest back at once.
        """
        beside = [asyncio.create_task(loop()) for loop in (self._keep_leases, self._answer_waiters)]
        try:
            backoff = Backoff("worker", self._heartbeat, stop)
            while not stop.is_set():
                full = True
                async with backoff.bear():
                    full = await self._look_for_work()
                self._heartbeat.tick()
                if not full:
                    await self._wake.wait(POLL_S)
            await self._drain()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _look_for_work(self) -> bool:
        """Claims as many as there is room for; answers whether there may be more at once."""
        if self._failure is not None:
            raise self._failure
        try:
            await self._see_to_leases()
            free = self._settings.most_requests - len(self._works)
            return 0 < free == await self._claim(free)
        except NotReachable:
            # The others could not renew their leases either: they get the time to do it.
            self._spare_leases_until = monotonic() + self._settings.lease_s
            raise

    async def _claim(self, free: int) -> int:
        """Claims up to `free` requests; answers how many it got. While it is to be found out if a
        judge is well again, a single request of those that need it goes first. Nothing is claimed
        beside a request that is worked on alone, nor while one waits for us to have nothing else.
        """
        if not free or self._alone:
            return 0
        held, probing = self._pipeline.profiles_out_of_turn()
        if self._alone_due and (self._works or await self._claim_alone(held)):
            return 0
        claimed = await self._claim_probe(probing) if probing and not self._probed(probing) else 0
        if claimed < free:
            requests = await self._store.claim(
                free - claimed,
                owner=self._settings.owner,
                lease_s=self._settings.lease_s,
                held=held | probing,
                alone_at=self._alone_at,
            )
            claimed += self._start(requests)
        return claimed

    @property
    def _alone(self) -> bool:
        """Whether what is under way is a request on its last chance."""
        return len(self._works) == 1 and any(
            work.request.lost_leases == self._alone_at for work in self._works.values()
        )

    async def _claim_alone(self, held: frozenset[str]) -> int:
        """The one that is due, if nobody else took it. Where its judge has to be tried first, it is
        this request that tries it.
        """
        found = await self._store.claim_alone(
            self._alone_at, owner=self._settings.owner, lease_s=self._settings.lease_s, held=held
        )
        self._alone_due = bool(found)  # and others may be: it is asked for again after this one
        for request in found:
            log.warning(
                "last_chance",
                request_id=str(request.request_id),
                session_id=request.session_id,
                lost_leases=request.lost_leases,
            )
        return self._start(found)

    async def _claim_probe(self, profiles: frozenset[str]) -> int:
        found = await self._store.claim_probe(
            profiles,
            owner=self._settings.owner,
            lease_s=self._settings.lease_s,
            alone_at=self._alone_at,
        )
        self._probe = _Probe(found[0].request_id, profiles) if found else None
        return self._start(found)

    def _probed(self, profiles: frozenset[str]) -> bool:
        """Whether a request is on its way to find out, with the judges of these profiles. Once it
        asks one, the profiles of that judge are held instead.
        """
        probe = self._probe
        return probe is not None and probe.request_id in self._works and probe.of == profiles

    def _start(self, requests: Sequence[ClaimedRequest]) -> int:
        for request in requests:
            task = asyncio.create_task(self._work(request))
            self._works[request.request_id] = _Work(request=request, task=task)
        metrics.SLOTS_BUSY.set(len(self._works))
        return len(requests)

    async def _see_to_leases(self) -> None:
        now = monotonic()
        # A busy worker looks for work many times a second; leases end after many seconds.
        if now < self._leases_seen_at + LEASES_EVERY_S:
            return
        self._leases_seen_at = now
        if now >= self._spare_leases_until:
            await self._free_expired()
        held, _ = self._pipeline.profiles_out_of_turn()
        self._alone_due = await self._store.due_alone(self._alone_at, held=held)

    async def _free_expired(self) -> None:
        for request_id, session_id, lost in await self._store.free_expired(but=self._works):
            metrics.LEASES_FREED.inc()
            log.warning(
                "lease_expired", request_id=str(request_id), session_id=session_id, lost_leases=lost
            )

    async def _work(self, request: ClaimedRequest) -> None:
        """One request, in a span whose children its events are."""
        if not self._tracer.on:
            await self._work_in(NO_SPAN, request)
            return
        about: Attributes = {
            "gen_ai.conversation.id": request.session_id,
            "scoring.request_id": str(request.request_id),
            "scoring.attempt": request.attempt,
        }
        with self._tracer.span("score session", trace=request.trace, attributes=about) as span:
            await self._work_in(span, replace(request, trace=span.trace))

    async def _work_in(self, span: Span, request: ClaimedRequest) -> None:
        """One request, to its stored outcome. What it can't cope with ends the worker."""
        started = perf_counter()
        now = _database_clock(request)
        with structlog.contextvars.bound_contextvars(
            request_id=str(request.request_id), session_id=request.session_id
        ):
            try:
                outcome = await self._outcome(request, now)
                failpoints.reach(failpoints.Point.AFTER_VERDICT)
                # From here on the transaction itself finds out whether the lease is still ours.
                self._storing.add(request.request_id)
                stored = await self._stored(request, outcome)
                failpoints.reach(failpoints.Point.AFTER_COMMIT)
                self._report(request, stored, now())
                if self._tracer.on:
                    _tell(span, stored)
            except LeaseLost as error:
                self._lost(request)
                span.end(error)
            except Exception as error:  # noqa: BLE001 - the worker's loop raises it
                self._failure = error
                span.end(error)
            finally:
                metrics.PIPELINE_SECONDS.observe(perf_counter() - started)
                self._works.pop(request.request_id, None)
                self._storing.discard(request.request_id)
                metrics.SLOTS_BUSY.set(len(self._works))
                self._wake.set()

    async def _outcome(self, request: ClaimedRequest, now: Callable[[], datetime]) -> Outcome:
        try:
            return await self._pipeline.run(request, now)
        except (LeaseLost, asyncio.CancelledError):
            raise
        except NotReachable as error:
            log.warning("server_not_reachable", loop="worker", error=str(error))
            return Release(POLL_S)
        except Exception as error:
            log.exception("internal_error")
            return Failed(
                ErrorCode.INTERNAL_ERROR,
                f"unexpected {type(error).__name__}; the log has the trace",
            )

    async def _stored(self, request: ClaimedRequest, outcome: Outcome) -> Outcome:
        """Stores the outcome; answers what was stored.

        What can't be stored ends the request: tried again, it would be paid for again, for nothing.
        """
        try:
            await self._insist(lambda: self._store_outcome(request, outcome))
        except LeaseLost:
            raise
        except Exception as error:
            log.exception("outcome_not_storable")
            name = type(error).__name__
            failed = Failed(
                ErrorCode.INTERNAL_ERROR, f"the outcome can't be stored ({name}); see the log"
            )
            await self._insist(lambda: self._store_outcome(request, failed))
            return failed
        return outcome

    async def _insist(self, store: Callable[[], Awaitable[None]]) -> None:
        """Stores an outcome, however long the database is away: a verdict may have been paid for.

        Ends by storing, by LeaseLost (someone else took over), or by cancellation.
        """
        delay_s = FIRST_BACKOFF_S
        while True:
            try:
                return await store()
            except NotReachable as error:
                metrics.SERVER_UNREACHABLE.labels("worker", error.server).inc()
                log.warning("outcome_not_stored", error=str(error), again_in_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, LAST_BACKOFF_S)

    async def _store_outcome(self, request: ClaimedRequest, outcome: Outcome) -> None:
        with self._tracer.span("store outcome", kind="client", attributes=_DATABASE):
            await self._write(request, outcome)

    async def _write(self, request: ClaimedRequest, outcome: Outcome) -> None:
        match outcome:
            case Completed(score):
                await self._store.complete(request, score)
            case Reused(score):
                await self._store.reuse(request, score)
            case Failed():
                await self._store.end(request, outcome)
            case Retry(code, message, after_s, deadline_at, held):
                await self._store.put_back(
                    request,
                    after_s=after_s,
                    code=code.value,
                    message=message,
                    deadline_at=deadline_at,
                    held=held,
                )
            case Release(after_s, held):
                await self._store.put_back(request, after_s=after_s, count_attempt=False, held=held)
            case _:
                assert_never(outcome)

    def _report(self, request: ClaimedRequest, outcome: Outcome, at: datetime) -> None:
        """Log line and figures of a stored outcome; the relay is woken where there is an event."""
        match outcome:
            case Completed(score) | Reused(score):
                name = "completed" if isinstance(outcome, Completed) else "reused"
                log.info(name, score_id=str(score.score_id), total_score=score.total_score)
            case Failed(code, message):
                name = code.value
                log.warning("failed", error_code=name, error=message, attempt=request.attempt)
                if self._pipeline.patience.gives_up(request) and code is ErrorCode.INTERNAL_ERROR:
                    metrics.REQUESTS_GIVEN_UP.inc()
            case Retry(code, message, after_s):
                metrics.REQUESTS_RETRIED.labels(code.value).inc()
                log.info("retry_later", error_code=code.value, error=message, after_s=after_s)
                return
            case Release(held=held, why=why):
                if held:
                    metrics.REQUESTS_HELD.inc()
                    log.info("judge_held", error=why)
                return
            case _:
                assert_never(outcome)
        if isinstance(outcome, Completed):
            self._count_score(outcome)
        metrics.REQUESTS_FINISHED.labels(name).inc()
        took_s = (at - request.received_at).total_seconds()
        metrics.REQUEST_SECONDS.observe(took_s)
        metrics.REQUESTS_LATE.inc(took_s > self._settings.late_s)
        self._outcome_stored.set()

    def _count_score(self, outcome: Completed) -> None:
        score = outcome.score
        metrics.SCORES.labels(score.profile_id).observe(score.total_score)
        if score.risk:
            metrics.QUALITY_RISKS.labels(score.profile_id).inc()

    def _lost(self, request: ClaimedRequest) -> None:
        metrics.LEASES_LOST.inc()
        log.warning("lease_lost", attempt=request.attempt)

    async def _keep_leases(self) -> None:
        """Renews our leases; drops the work whose lease is no longer ours."""
        every_s = self._settings.lease_s / RENEWALS_PER_LEASE
        pause_s = every_s
        while True:
            await asyncio.sleep(pause_s)
            pause_s = every_s
            works = list(self._works.values())
            if not works:
                continue
            try:
                ours = await self._store.renew(
                    [work.request for work in works], lease_s=self._settings.lease_s
                )
            except NotReachable as error:
                log.warning("server_not_reachable", loop="leases", error=str(error))
                continue
            if not all(ours.values()):
                pause_s = every_s / SOONER
                locked = [str(request_id) for request_id, renewed in ours.items() if not renewed]
                log.warning("leases_not_renewed", locked=locked)
            for work in works:
                request_id = work.request.request_id
                # An outcome stored in the meantime ended the lease, and nothing is lost.
                if request_id in self._works and request_id not in ours.keys() | self._storing:
                    self._lost(work.request)
                    work.task.cancel()

    async def _answer_waiters(self) -> None:
        """Tells those that still wait for an answer that is there, a portion at a time."""
        # Its beats count for nothing: the worker's own loop says whether it is alive.
        backoff = Backoff("waiters", Heartbeat("waiters", limit_s=LAST_BACKOFF_S), asyncio.Event())
        while True:
            more = False
            try:
                async with backoff.bear():
                    more = await self._store.answer_waiters()
            except Exception as error:  # noqa: BLE001 - the worker's loop raises it
                self._failure = error
                return
            if more:
                self._outcome_stored.set()
            else:
                await asyncio.sleep(POLL_S)

    async def _drain(self) -> None:
        """Waits for what is under way; what takes longer than the grace time is given back."""
        works = list(self._works.values())
        if not works:
            return
        log.info("draining", requests=len(works), grace_s=self._settings.grace_s)
        _, late = await asyncio.wait([work.task for work in works], timeout=self._settings.grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCEL_S)
            await self._give_back([work.request for work in works if work.task in late])

    async def _give_back(self, requests: Sequence[ClaimedRequest]) -> None:
        """Those that were stored at the last moment stay so."""
        try:
            await self._store.give_back(requests)
        except NotReachable as error:
            log.warning("not_given_back", requests=len(requests), error=str(error))


def _tell(span: Span, outcome: Outcome) -> None:
    """What became of a request, in its span."""
    span.note({"scoring.outcome": type(outcome).__name__.lower()})
    match outcome:
        case Completed(score):
            span.event("gen_ai.evaluation.result", evaluation(score))
        case Failed(code) | Retry(code):
            span.fail(code.value)
        case Reused() | Release():
            pass
        case _:
            assert_never(outcome)


def _database_clock(request: ClaimedRequest) -> Callable[[], datetime]:
    """The database's time, as far as it can be told without asking again."""
    claimed = monotonic()
    return lambda: request.claimed_at + timedelta(seconds=monotonic() - claimed)
