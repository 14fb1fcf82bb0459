"""The tables. Every method is one statement or one transaction; constraints decide races."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import asyncpg

from consumer import failpoints, outgoing
from consumer.edges.postgres import rows
from consumer.edges.postgres.connect import affected, translated
from consumer.error_codes import ErrorCode, failed_state
from consumer.errors import AlreadyBeingScored, LeaseLost, NotReachable
from consumer.outgoing import Addresses, Asked, OutboxRow
from consumer.pipeline import Failed
from consumer.ports import ClaimedRequest
from consumer.resources import resource
from consumer.scoring.criteria import Criteria
from consumer.scoring.profile import Profile, ProfileInvalid, parse_profile
from consumer.scoring.score import Score
from consumer.scoring.sent import Content

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
# Each round settles at least one session's leader, whoever else is inserting.
_INSERT_ROUNDS = 10
# Nobody who looks how things are waits longer for a locked table.
LOOK_LIMIT_S = 5.0
# So many that wait for an answer get it in one transaction: it holds their leader, on whom intake
# waits, and the loop for some hundredths of a second.
PORTION = 500


def load_queries(text: str) -> dict[str, str]:
    """The named statements of a query file."""
    parts = _NAME.split(text)[1:]
    return {
        name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """A request that intake accepted."""

    request_id: UUID
    session_id: str
    profile_id: str | None
    force_rescore: bool
    triggered_by: str
    priority: int
    requested_at: datetime
    topic: str
    partition: int
    offset: int
    trace: Mapping[str, str]

    @property
    def columns(self) -> tuple[Any, ...]:
        return (
            self.request_id,
            self.session_id,
            self.profile_id,
            self.force_rescore,
            self.triggered_by,
            self.priority,
            self.requested_at,
            self.topic,
            self.partition,
            self.offset,
            self.trace.get("traceparent"),
            self.trace.get("tracestate"),
        )


def _columns(requests: Iterable[IncomingRequest]) -> list[Sequence[Any]]:
    """One array a column. Those without any value are sent empty: unnest fills them with NULL."""
    columns = zip(*(request.columns for request in requests), strict=True)
    return [() if column.count(None) == len(column) else column for column in columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits. Counts stop at the limit that was asked for; ages are seconds."""

    pending: int
    in_progress: int
    oldest_pending_s: float
    outbox: int
    oldest_outbox_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """An outbox row on its way to Kafka."""

    seq: int
    row: OutboxRow
    created_at: datetime


class Store:
    """All that is stored. One a process; the pool is its own."""

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str, addresses: Addresses) -> None:
        self.pool = pool
        self.where = where
        self.addresses = addresses
        self._sql = load_queries((resource("sql") / "queries.sql").read_text())

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        with translated(self.where):
            async with self.pool.acquire(timeout=30) as connection:
                yield cast("asyncpg.Connection[Any]", connection)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """The server ends it when it idles for longer than `connect.IDLE_LIMIT_S`."""
        async with self._connection() as connection, connection.transaction():
            yield connection

    async def _fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            return await connection.fetch(self._sql[name], *args)

    # ── intake ──────────────────────────────────────────────────────────────

    async def accept(
        self, requests: Sequence[IncomingRequest], dead_letters: Sequence[OutboxRow]
    ) -> int:
        """Stores requests and dead letters; answers how many requests were new.

        Dead letters are stored with all requests or not at all. Requests that are stored already
        when it fails are known when they come again.
        """
        unique = {request.request_id: request for request in reversed(requests)}
        if not dead_letters:  # most batches: a transaction of their own would be two round trips
            async with self._connection() as connection:
                return await self._insert_requests(connection, unique)
        async with self._transaction() as connection:
            new = await self._insert_requests(connection, unique)
            await self.insert_outbox(connection, dead_letters)
        return new

    async def _insert_requests(
        self, connection: asyncpg.Connection[Any], remaining: dict[UUID, IncomingRequest]
    ) -> int:
        """Leaders first, then those that wait for one, until none is left."""
        new = 0
        for _ in range(_INSERT_ROUNDS):
            for name in ("insert_leaders", "insert_waiters"):
                if not remaining:
                    return new
                columns = _columns(remaining.values())
                inserted = affected(await connection.execute(self._sql[name], *columns))
                new += inserted
                if inserted == len(remaining):
                    return new
                # A leader may have finished between two statements: then its session is free again.
                for row in await connection.fetch(self._sql["known_requests"], list(remaining)):
                    del remaining[row["request_id"]]
        raise NotReachable(f"{len(remaining)} requests found no place among their sessions' others")

    async def insert_outbox(
        self, connection: asyncpg.Connection[Any], events: Sequence[OutboxRow]
    ) -> None:
        """Has these events sent, in this order, if the connection's transaction commits."""
        for some in rows.portions(events):
            await connection.execute(self._sql["insert_outbox"], *rows.outbox_columns(some))

    async def known(self, request_ids: Iterable[UUID]) -> set[UUID]:
        """Which of these requests were accepted already."""
        found = await self._fetch("known_requests", list(request_ids))
        return {row["request_id"] for row in found}

    # ── worker ──────────────────────────────────────────────────────────────

    async def claim(
        self,
        count: int,
        *,
        owner: str,
        lease_s: float,
        held: Iterable[str] = (),
        alone_at: int | None = None,
    ) -> list[ClaimedRequest]:
        """Up to `count` due requests under our lease, the most urgent first; none of the profiles
        that are held ("": requests whose profile is not known yet), and none that has lost exactly
        `alone_at` leases.
        """
        found = await self._fetch("claim", count, owner, lease_s, list(held), alone_at)
        found.sort(key=lambda row: (-row["priority"], row["next_attempt_at"]))
        return [rows.claimed_request(row) for row in found]

    async def claim_probe(
        self, profiles: Iterable[str], *, owner: str, lease_s: float, alone_at: int | None = None
    ) -> list[ClaimedRequest]:
        """The due request of these profiles ("" as above) that has waited longest, if any, under
        our lease: to find out with it if a judge is well again.
        """
        found = await self._fetch("claim_probe", list(profiles), owner, lease_s, alone_at)
        return [rows.claimed_request(row) for row in found]

    async def due_alone(self, alone_at: int | None, *, held: Iterable[str] = ()) -> bool:
        """Whether `claim_alone` would find a request."""
        (row,) = await self._fetch("due_alone", alone_at, list(held))
        return bool(row["due"])

    async def claim_alone(
        self, alone_at: int | None, *, owner: str, lease_s: float, held: Iterable[str] = ()
    ) -> list[ClaimedRequest]:
        """The most urgent due request that has lost `alone_at` leases (None: there is none), if
        any, under our lease; `held` as above. It is for a worker that has nothing else under way.
        """
        found = await self._fetch("claim_alone", alone_at, owner, lease_s, list(held))
        return [rows.claimed_request(row) for row in found]

    async def renew(
        self, requests: Iterable[ClaimedRequest], *, lease_s: float
    ) -> dict[UUID, bool]:
        """Extends these leases; answers the ids of those that are still ours. False: somebody holds
        the row locked, and its lease was not extended.
        """
        held = list(requests)
        found = await self._fetch(
            "renew_leases", [r.request_id for r in held], [r.lease_token for r in held], lease_s
        )
        return {row["request_id"]: row["renewed"] for row in found}

    async def free_expired(self, *, but: Iterable[UUID] = ()) -> list[tuple[UUID, str, int]]:
        """Gives vanished workers' requests back: (request id, session id, leases lost so far).
        `but`: those that we work on ourselves.
        """
        found = await self._fetch("free_expired_leases", list(but))
        return [(row["request_id"], row["session_id"], row["lost_leases"]) for row in found]

    async def begin_scoring(
        self, request: ClaimedRequest, *, profile_id: str, criteria_hash: str
    ) -> Score | None:
        """See ports.Scores."""
        async with self._connection() as connection:
            try:
                held = await connection.fetchrow(
                    self._sql["begin_scoring"], request.request_id, request.lease_token, profile_id
                )
            except asyncpg.UniqueViolationError as error:
                raise AlreadyBeingScored(f"{request.session_id} by {profile_id}") from error
            if held is None:
                raise LeaseLost(str(request.request_id))
            if held["force_rescore"]:
                return None
            found = await connection.fetchrow(
                self._sql["current_score"], request.session_id, profile_id, criteria_hash
            )
        return rows.score_of(found) if found else None

    async def put_back(
        self,
        request: ClaimedRequest,
        *,
        after_s: float,
        code: str | None = None,
        message: str | None = None,
        deadline_at: datetime | None = None,
        count_attempt: bool = True,
        held: bool = False,
    ) -> None:
        """Returns the request to the queue, with its former deadline where none is given; `held`:
        until its judge is asked again, and then with the given deadline or none. Raises LeaseLost.
        """
        found = await self._fetch(
            "put_back",
            request.request_id,
            request.lease_token,
            after_s,
            code,
            message,
            deadline_at,
            0 if count_attempt else 1,
            held,
        )
        if not found:
            raise LeaseLost(str(request.request_id))

    async def give_back(self, requests: Sequence[ClaimedRequest]) -> None:
        """Returns those of these requests that are still ours to the queue, as if never claimed."""
        await self._fetch(
            "give_back", [r.request_id for r in requests], [r.lease_token for r in requests]
        )

    async def complete(self, request: ClaimedRequest, score: Score) -> datetime:
        """Stores a new score and answers its request and those that waited; answers when. Of many
        that waited the rest is left to `answer_waiters`.

        Raises LeaseLost, and then nothing was written.
        """
        async with self._transaction() as connection:
            at, waiters = await self._hold(connection, request)
            await connection.execute(self._sql["insert_score"], *rows.score_columns(score))
            await self._answer(connection, rows.stored(score, at), request, waiters, reused=False)
            failpoints.reach(failpoints.Point.BEFORE_COMMIT)
        return at

    async def reuse(self, request: ClaimedRequest, score: Score) -> None:
        """Answers the request from a stored score, and those that waited and do not insist on a new
        one; of many the rest as above.

        Raises LeaseLost, and then nothing was written.
        """
        async with self._transaction() as connection:
            _, waiters = await self._hold(connection, request, content=True)
            await self._answer(connection, score, request, waiters, reused=True)
            await self._promote_waiters(connection, request.request_id, insisting=True)

    async def end(self, request: ClaimedRequest, outcome: Failed) -> None:
        """Ends the request and those that waited for it without a score; of many the rest as above.
        Raises LeaseLost.
        """
        async with self._transaction() as connection:
            at, waiters = await self._hold(connection, request)
            await self._end(connection, [rows.asked(request), *waiters], outcome, at)
            await self._note_waiters(connection, request.request_id, waiters)

    async def answer_waiters(self) -> bool:
        """Tells one portion of those that wait for an answer that is there; False where there is
        none, or others are at it.
        """
        async with self._transaction() as connection:
            leader = await connection.fetchrow(self._sql["lock_answered"])
            if leader is None:
                return False
            waiters = await self._waiters(connection, leader["request_id"])
            if leader["score_id"] is None:
                outcome = Failed(ErrorCode(leader["error_code"]), leader["error_message"])
                await self._end(connection, waiters, outcome, leader["now"])
            else:
                (card,) = await connection.fetch(self._sql["score_by_id"], leader["score_id"])
                await self._complete(connection, rows.score_of(card), waiters, [])
            await self._note_waiters(connection, leader["request_id"], waiters, noted=True)
        return True

    async def _end(
        self,
        connection: asyncpg.Connection[Any],
        answered: Sequence[Asked],
        outcome: Failed,
        at: datetime,
    ) -> None:
        await connection.execute(
            self._sql["end_requests"],
            [asked.request_id for asked in answered],
            failed_state(outcome.code).value,
            outcome.code.value,
            outcome.message,
        )
        events = [outgoing.failed(self.addresses, asked, outcome, at) for asked in answered]
        await self.insert_outbox(connection, events)

    async def cancel(self, request_id: UUID, *, by: str) -> bool:
        """Ends a request that is not finished; False where there is none of this id.

        Whoever works on it loses the lease. Those that waited for it go on without it.
        """
        outcome = Failed(ErrorCode.CANCELLED, f"cancelled by {by}")
        async with self._transaction() as connection:
            row = await connection.fetchrow(self._sql["lock_unfinished"], request_id)
            if row is None:
                return False
            await self._end(connection, [rows.waiting(row)], outcome, row["now"])
            await self._promote_waiters(connection, request_id, insisting=False)
        return True

    async def _hold(
        self,
        connection: asyncpg.Connection[Any],
        request: ClaimedRequest,
        *,
        content: bool = False,
    ) -> tuple[datetime, list[Asked]]:
        """Locks our request, then its first waiters; in this order none can slip in unseen."""
        at = await connection.fetchval(
            self._sql["lock_request"], request.request_id, request.lease_token
        )
        if at is None:
            raise LeaseLost(str(request.request_id))
        return at, await self._waiters(connection, request.request_id, content=content)

    async def _waiters(
        self, connection: asyncpg.Connection[Any], leader: UUID, *, content: bool = False
    ) -> list[Asked]:
        """Locks a portion of those that wait; `content`: with a score that is there already."""
        found = await connection.fetch(self._sql["waiters"], leader, PORTION, content)
        return [rows.waiting(row) for row in found]

    async def _note_waiters(
        self,
        connection: asyncpg.Connection[Any],
        leader: UUID,
        answered: Sequence[Asked],
        *,
        noted: bool = False,
    ) -> None:
        """A full portion leaves others to be answered, maybe; `noted`: that is known already."""
        left = len(answered) == PORTION
        if left != noted:
            await connection.execute(self._sql["note_waiters_left"], leader, left)

    async def _promote_waiters(
        self, connection: asyncpg.Connection[Any], leader: UUID, *, insisting: bool
    ) -> None:
        """Those that waited for a request that is over go on without it."""
        found = await connection.fetch(self._sql["waiters_to_promote"], leader, insisting)
        if found:
            await connection.execute(
                self._sql["promote_waiter"], [row["request_id"] for row in found]
            )

    async def _answer(
        self,
        connection: asyncpg.Connection[Any],
        score: Score,
        request: ClaimedRequest,
        waiters: Sequence[Asked],
        *,
        reused: bool,
    ) -> None:
        """Closes our request and its first waiters, with their events."""
        leader = rows.asked(request)
        events = [outgoing.completed(self.addresses, leader, score, reused=reused)]
        if not reused and (risk := outgoing.quality_risk(self.addresses, leader, score)):
            events.append(risk)
        await self._complete(connection, score, waiters, events, leader.request_id)
        await self._note_waiters(connection, leader.request_id, waiters)

    async def _complete(
        self,
        connection: asyncpg.Connection[Any],
        score: Score,
        waiters: Sequence[Asked],
        first: Sequence[OutboxRow],
        *leader: UUID,
    ) -> None:
        """Waiters made no call: theirs is reused. `first` are the leader's events."""
        events = [outgoing.completed(self.addresses, a, score, reused=True) for a in waiters]
        await connection.execute(
            self._sql["complete_requests"],
            [*leader, *(asked.request_id for asked in waiters)],
            score.score_id,
            *rows.outbox_columns([*first, *events]),
        )

    # ── relay ───────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def outbox_page(
        self,
        limit: int,
        *,
        idle_limit_s: float,
        max_bytes: int = 2**62,
        without: Collection[int] = (),
        without_topics: Collection[str] = (),
    ) -> AsyncIterator[tuple[list[OutboxEntry], asyncpg.Connection[Any]] | None]:
        """The next events under the one relay's lock; None where another process holds it.

        A page ends with the event that brings its payloads to `max_bytes`, and passes over the
        events (by `seq`) of `without`, and those of `without_topics`.

        It idles while Kafka takes the events: that may last up to `idle_limit_s`.
        """
        async with self._transaction() as connection:
            idle_limit = f"{int(idle_limit_s * 1000)}ms"
            if not await connection.fetchval(self._sql["outbox_lock"], idle_limit):
                yield None
                return
            found = await connection.fetch(
                self._sql["outbox_page"], limit, max_bytes, list(without), list(without_topics)
            )
            yield (
                [
                    OutboxEntry(
                        seq=row["seq"], row=rows.outbox_row(row), created_at=row["created_at"]
                    )
                    for row in found
                ],
                connection,
            )

    async def outbox_sent(
        self, connection: asyncpg.Connection[Any], entries: Sequence[OutboxEntry]
    ) -> None:
        """Forgets acknowledged events; takes effect when the page's block ends."""
        await connection.execute(self._sql["outbox_delete"], [entry.seq for entry in entries])

    # ── start, readiness, figures ───────────────────────────────────────────

    async def register_criteria(self, criteria: Criteria) -> None:
        """Keeps a criteria definition, once."""
        await self._fetch("insert_criteria", criteria.hash, criteria.content)

    async def register_profile(self, profile: Profile, *, by: str) -> bool:
        """Keeps a profile version; False where another body is stored under the same version."""
        (kept,) = await self._fetch(
            "register_profile", profile.id, profile.version, profile.body(), by
        )
        try:
            return parse_profile(kept["content"]) == profile
        except ProfileInvalid:  # stored by a version that knew more
            return False

    async def backlog(self, limit: int) -> Backlog:
        """How much waits and for how long."""
        with translated(self.where):
            async with asyncio.timeout(LOOK_LIMIT_S):
                (row,) = await self._fetch("backlog", limit)
        return Backlog(**dict(row))

    async def try_to_write(self) -> float:
        """Writes nothing, where everything is written; answers PostgreSQL's clock, in Unix seconds.

        Raises NotReachable where a write would fail, or wait for a lock.
        """
        async with self._transaction() as connection:
            await connection.execute(f"SET LOCAL lock_timeout = {int(LOOK_LIMIT_S * 1000)}")
            await connection.execute(self._sql["write_nothing"])
            clock: float = await connection.fetchval(
                "SELECT extract(epoch FROM clock_timestamp())::double precision"
            )
        return clock

    async def prune(self, *, older_than_days: int, batch: int) -> int:
        """Deletes one batch of old finished requests; answers how many. Scores are kept."""
        return await self._delete("prune_requests", older_than_days, batch)

    async def prune_inputs(self, *, older_than_days: int, batch: int) -> int:
        """Deletes one batch of what judges were sent; those scores can't be replayed then."""
        deleted = await self._delete("prune_sent", older_than_days, batch)
        return deleted or await self._delete("prune_inputs", older_than_days, batch)

    async def _delete(self, name: str, *args: Any) -> int:
        async with self._connection() as connection:
            done = await connection.execute(self._sql[name], *args)
        return affected(done)

    # ── replay ──────────────────────────────────────────────────────────────

    async def score(self, score_id: UUID) -> Score | None:
        """A score by its id."""
        found = await self._fetch("score_by_id", score_id)
        return rows.score_of(found[0]) if found else None

    async def criteria(self, criteria_hash: str) -> dict[str, Any]:
        """What scores under this hash were made by. Raises LookupError."""
        found = await self._fetch("criteria_by_hash", criteria_hash)
        if not found:
            raise LookupError(f"no criteria {criteria_hash}")
        return dict(found[0]["criteria_content"])

    async def sent(self, sha256s: Sequence[str]) -> dict[str, Content]:
        """What judges were sent, by SHA-256; what was pruned is not there."""
        found = await self._fetch("sent", sha256s)
        return {
            row["sha256"]: Content(sha256=row["sha256"], packed=bytes(row["content"]))
            for row in found
        }

    # ── looking ─────────────────────────────────────────────────────────────

    async def counts(self) -> dict[str, int]:
        """Requests by state."""
        return {row["state"]: row["requests"] for row in await self._fetch("status_counts")}

    async def session_requests(self, session_id: str) -> list[dict[str, Any]]:
        """A session's requests, the newest first."""
        return [dict(row) for row in await self._fetch("session_requests", session_id)]

    async def session_scores(self, session_id: str) -> list[dict[str, Any]]:
        """A session's current scores, one a profile, with tools, approaches and steps."""
        found = await self._fetch("session_current_scores", session_id)
        return [dict(row) for row in found]
