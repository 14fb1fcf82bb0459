"""Whether the tables can be written to as the consumer does, and who is in the way if not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from consumer.edges.postgres import migrations
from consumer.edges.postgres.connect import translated
from consumer.edges.postgres.tables import queries
from consumer.errors import NotReachable

# What requests, scores and events pass through.
TABLES = (
    *("score_requests", "session_scores", "outbox", "score_missing_tools"),
    *("score_alternative_approaches", "score_alternative_approach_steps"),
    *("scoring_criteria_definitions", "judge_profiles", "judge_sent", "judge_spend"),
    *("judge_reservations", "live_changes"),
)
# Each takes the lock, and needs the right, that the real one does, and writes no row.
WRITES = (
    *(
        (t, f"INSERT INTO {t} OVERRIDING SYSTEM VALUE SELECT * FROM {t} WHERE false")  # noqa: S608
        for t in TABLES
    ),
    ("score_requests", "UPDATE score_requests SET state = state WHERE false"),
    ("session_scores", "UPDATE session_scores SET is_current = false WHERE false"),
    ("outbox", "DELETE FROM outbox WHERE false"),
)
# What is held for less is somebody's work.
LOCK_LIMIT_S = 5.0
LOOK_AFTER_S = 1.0


async def require_writable(pool: asyncpg.Pool[Any], *, where: str) -> None:
    """Raises NotReachable with what is in the way: migrations that lack, a server that only reads,
    a right that we have not, or a lock and who holds it. The pool has two connections or more.
    """
    with translated(where):
        async with pool.acquire() as connection:
            trying = asyncio.create_task(_try(connection, where))
            await asyncio.wait([trying], timeout=LOOK_AFTER_S)
            pid = connection.get_server_pid()
            holders = [] if trying.done() else await pool.fetch(queries()["blockers"], pid)
            try:
                await trying
            except _Locked as error:
                told = "; ".join(map(_holder, holders)) or "nobody that can be seen"
                raise NotReachable(
                    f"Postgres at {where}: {error.args[0]} is locked: held up by {told}"
                ) from error


class _Locked(Exception):
    """This table's lock was not to be had in time."""


async def _try(connection: Any, where: str) -> None:
    await connection.execute(f"SET lock_timeout = {int(LOCK_LIMIT_S * 1000)}")
    async with _noticed("schema_migrations", where):
        if missing := await migrations.missing(connection):
            raise NotReachable(
                f"the schema lacks {', '.join(missing)}: run `score-consumer migrate`"
            )
    if why := await connection.fetchval(queries()["read_only"]):
        raise NotReachable(f"Postgres at {where} can't be written to: {why}")
    transaction = connection.transaction()
    await transaction.start()
    try:
        for table, statement in WRITES:
            async with _noticed(table, where):
                await connection.execute(statement)
    finally:
        await transaction.rollback()


@asynccontextmanager
async def _noticed(table: str, where: str) -> AsyncIterator[None]:
    try:
        yield
    except asyncpg.LockNotAvailableError as error:
        raise _Locked(table) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise NotReachable(f"Postgres at {where}: {error}") from error


def _holder(row: asyncpg.Record) -> str:
    if not row["pid"]:
        return "a prepared transaction (pg_prepared_xacts)"
    since = (
        f"since {row['xact_start']:%H:%M:%S} UTC ({row['seconds']:.0f} s)"
        if row["xact_start"]
        else "since when is not ours to see"
    )
    name = row["application_name"] or row["usename"] or "unnamed"
    return f"pid {row['pid']} ({name}), {row['state'] or 'state unknown'}, {since}"
