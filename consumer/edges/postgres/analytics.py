"""Scorecards and the figures of reports, read from views; and the upkeep of what is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg

from consumer.analytics.models import Runs
from consumer.analytics.reports import Rows
from consumer.analytics.selection import Availability, CardFilter, Cursor, Selection
from consumer.edges.postgres.connect import as_long_as_it_moves
from consumer.edges.postgres.tables import Tables
from consumer.errors import NotReachable

# A filter that is not given shall cost nothing: so each statement is planned for its parameters.
# Compiling a plan takes longer than running any of these; and whoever reads a report leaves the
# other cores to scoring.
_READING = """
    SET LOCAL plan_cache_mode = force_custom_plan;
    SET LOCAL jit = off;
    SET LOCAL max_parallel_workers_per_gather = 0;
    SET LOCAL work_mem = '32MB';
"""
# The planner knows which words are common, and takes all others for more common than they are. So
# those that it does not know are looked up by the index of words, and by nothing else.
_BY_WORDS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off"
_AS_PLANNED = "SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = on"
# So many scores are looked up one by one. A text that more of them have is found soon enough by
# going from the newest score on.
RARE = 10_000
EXPORTS_AT_ONCE = 2
EXPORT_BATCH = 500
# A reader that takes nothing for so long holds a connection and keeps old rows from being removed.
EXPORT_IDLE_S = 60


class StoredAnalytics(Tables):
    """See api.ports.Cards, analytics.reports.Figures and api.rollup.Days."""

    def __init__(self, pool: asyncpg.Pool[Any], *, where: str) -> None:
        super().__init__(pool, where=where)
        self._exports = asyncio.Semaphore(EXPORTS_AT_ONCE)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[_Reader]:
        """One look at one state of the database."""
        async with (
            self._connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(_READING)
            yield _Reader(connection, self._sql)

    # ── scorecards ──────────────────────────────────────────────────────────

    async def scorecards(self, wanted: CardFilter, *, below: Cursor | None, limit: int) -> Rows:
        """Up to `limit` cards, the newest first, from below the cursor on."""
        async with self._reading() as reader:
            return await reader.fetch("scorecards", *await _cards(reader, wanted, below, limit))

    async def export(self, wanted: CardFilter) -> AsyncIterator[Rows]:
        """All cards, batch by batch, as they were when it began; in constant memory here and there.

        Raises NotReachable too where as many exports are running as may be.
        """
        if self._exports.locked():
            raise NotReachable(f"{EXPORTS_AT_ONCE} exports are running: try again later")
        async with self._exports, self._reading() as reader:
            await reader.connection.execute(as_long_as_it_moves(reader.connection, EXPORT_IDLE_S))
            arguments = await _cards(reader, wanted, None, None)
            cursor = await reader.connection.cursor(self._sql["scorecards"], *arguments)
            while rows := await cursor.fetch(EXPORT_BATCH):
                yield [dict(row) for row in rows]

    # ── reports ─────────────────────────────────────────────────────────────

    async def trend(self, wanted: Selection) -> Rows:
        return await self._report("report_trend", wanted)

    async def mixture(self, wanted: Selection, *, of_overrides: bool = False) -> Rows:
        name = "report_agreement_mixture" if of_overrides else "report_mixture"
        return await self._report(name, wanted)

    async def distribution(self, wanted: Selection) -> tuple[dict[str, Any], Rows]:
        async with self._reading() as reader:
            (total,) = await reader.report("report_distribution", wanted)
            return total, await reader.report("report_criteria_bands", wanted)

    async def missing_tools(
        self, wanted: Selection, *, limit: int, availability: Availability | None
    ) -> tuple[int, Rows]:
        async with self._reading() as reader:
            (total,) = await reader.report("report_distribution", wanted)
            tools = await reader.report("report_missing_tools", wanted, limit, availability)
            return total["judged"], tools

    async def approaches(self, wanted: Selection, *, limit: int) -> Rows:
        return await self._report("report_approaches", wanted, limit)

    async def criteria(self, wanted: Selection) -> Rows:
        return await self._report("report_criteria", wanted)

    async def runs(
        self, wanted: Selection, *, limit: int
    ) -> tuple[list[Runs], datetime | None, Rows]:
        async with self._reading() as reader:
            found = await reader.report("report_models", wanted, limit)
            counted = await reader.report("report_models_counted", wanted)
        since = min((row.pop("since") for row in found), default=None)
        return [Runs(**row) for row in found], since, counted

    async def tools(self, wanted: Selection) -> Rows:
        return await self._report("report_tools", wanted)

    async def session_tools(self, session_id: str) -> dict[str, Any] | None:
        """The tool report of a session's newest score; None where it has none."""
        async with self._reading() as reader:
            found = await reader.fetch("session_tool_report", session_id)
        return found[0] if found else None

    async def cost(self, wanted: Selection) -> tuple[Rows, Rows]:
        async with self._reading() as reader:
            lines = await reader.report("report_cost", wanted)
            return lines, await reader.fetch("report_booked", wanted.first, wanted.last)

    async def overrides(self, wanted: Selection, *, limit: int) -> list[tuple[int, int]]:
        (found,) = await self._report("report_agreement", wanted, limit)
        return list(zip(found["totals"], found["overrides"], strict=True))

    async def _report(self, name: str, wanted: Selection, *more: Any) -> list[dict[str, Any]]:
        async with self._reading() as reader:
            return await reader.report(name, wanted, *more)

    # ── upkeep ──────────────────────────────────────────────────────────────

    async def roll_up(self, *, limit: int) -> int:
        """Counts and keeps the figures of up to `limit` finished days; answers how many it were.

        Two at once do the same work twice, and no harm.
        """
        days = await self._days_to_roll_up(limit)
        for day in days:
            async with self._transaction() as connection:
                await connection.execute("SET LOCAL jit = off")
                await connection.execute(self._sql["lock_day"], day)
                await connection.execute(self._sql["roll_up_day"], day)
        return len(days)

    async def _days_to_roll_up(self, limit: int) -> list[date]:
        async with self._reading() as reader:
            return [row["day"] for row in await reader.fetch("days_to_roll_up", limit)]


class _Reader:
    """Named queries over one connection."""

    def __init__(self, connection: asyncpg.Connection[Any], sql: dict[str, str]) -> None:
        self.connection = connection
        self._sql = sql

    async def fetch(self, name: str, *args: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.connection.fetch(self._sql[name], *args)]

    async def expected(self, name: str, *args: Any) -> int:
        """How many rows the planner expects."""
        told = await self.connection.fetchval(f"EXPLAIN (FORMAT JSON) {self._sql[name]}", *args)
        return int(json.loads(told)[0]["Plan"]["Plan Rows"])

    async def report(self, name: str, wanted: Selection, *more: Any) -> list[dict[str, Any]]:
        return await self.fetch(
            name,
            wanted.first,
            wanted.last,
            wanted.profile,
            wanted.label,
            wanted.agent,
            wanted.model,
            wanted.criteria_hash,
            wanted.profile_version,
            *more,
        )


async def _cards(
    reader: _Reader, wanted: CardFilter, below: Cursor | None, limit: int | None
) -> tuple[Any, ...]:
    """The parameters of `scorecards`, in its order."""
    found = await _with_words(reader, wanted) if wanted.text is not None else None
    return (
        wanted.session,
        wanted.agent,
        wanted.label,
        wanted.model,
        wanted.profile,
        wanted.criteria_hash,
        wanted.band,
        wanted.state,
        wanted.since,
        wanted.until,
        wanted.text if found is None else None,
        below.at if below else None,
        below.id if below else None,
        limit,
        wanted.requests_too,
        wanted.history,
        found,
    )


async def _with_words(reader: _Reader, wanted: CardFilter) -> list[UUID] | None:
    """The scores that have this text, where it is rare."""
    if await reader.expected("scores_with_words", wanted.text, *[None] * 8, RARE + 1) > RARE:
        return None
    await reader.connection.execute(_BY_WORDS)
    found = await reader.fetch(
        "scores_with_words",
        wanted.text,
        wanted.session,
        wanted.agent,
        wanted.label,
        wanted.model,
        wanted.profile,
        wanted.criteria_hash,
        wanted.since,
        wanted.until,
        RARE + 1,
    )
    await reader.connection.execute(_AS_PLANNED)
    return [row["score_id"] for row in found] if len(found) <= RARE else None
