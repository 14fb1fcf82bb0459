"""Lists and reports find their rows by an index, however many scores there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from consumer.analytics.selection import Band, CardFilter, Cursor, Selection
from consumer.edges.postgres.analytics import StoredAnalytics
from consumer.edges.postgres.connect import open_pool, place
from consumer.error_codes import State
from tests.bench.many_scores import fill
from tests.integration.builders import migrated_database
from tests.support.plans import Plan, plan_of
from tests.support.servers import PostgresServer

SCORES, DAYS = 6000, 60
TODAY = datetime.now(UTC).date()
# A few rows a day of service, and read as a whole without regret.
SMALL = {"rollup_days", "score_overrides", "judge_spend", "scoring_criteria_definitions"}

# What is asked for, and the indexes that it is for.
CARDS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "all": ({}, {"session_scores_by_time", "score_requests_without_score"}),
    "agent": ({"agent": "agent-3"}, {"session_scores_by_agent"}),
    "label": ({"label": "nothing"}, {"session_scores_by_label"}),
    "model": ({"model": "nothing"}, {"session_scores_by_model"}),
    "profile": ({"profile": "nothing"}, {"session_scores_by_profile"}),
    "criteria": ({"criteria_hash": "0" * 64}, {"session_scores_by_criteria"}),
    "band": ({"band": Band.NEAR_PERFECT}, {"session_scores_by_band"}),
    "session": ({"session": "s-100"}, {"session_scores_by_session", "score_requests_by_session"}),
    "pending": ({"state": State.PENDING}, {"score_requests_pending_age"}),
    "failed": ({"state": State.FAILED}, {"score_requests_without_score"}),
    "time": ({"until": datetime.now(UTC) - timedelta(days=50)}, {"session_scores_by_time"}),
    "rare text": ({"text": "host77"}, {"session_scores_by_words", "session_scores_pkey"}),
    "common text": ({"text": "the"}, {"session_scores_by_time"}),
}
REPORTS: dict[str, tuple[tuple[Any, ...], set[str]]] = {
    "report_trend": ((), {"score_rollup_by_day"}),
    "report_distribution": ((), {"score_rollup_by_day"}),
    "report_criteria_bands": ((), {"criterion_rollup_by_day"}),
    "report_missing_tools": ((50, None), {"missing_tool_rollup_by_day"}),
    "report_approaches": ((50,), {"approach_rollup_by_day"}),
    "report_criteria": ((), {"score_rollup_by_day"}),
    "report_models": ((20_000,), {"session_scores_runs"}),
    "report_models_counted": ((), {"score_rollup_by_day"}),
    "report_tools": ((), {"tool_use_rollup_by_day"}),
    "report_cost": ((), {"score_rollup_by_day"}),
    "report_agreement": ((2_000,), {"session_scores_pkey"}),
    "report_mixture": ((), {"score_rollup_by_day"}),
    "report_agreement_mixture": ((), {"session_scores_pkey"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    """URL of a database with many scores, its finished days rolled up."""
    async with migrated_database(postgres, migrated_template) as dsn:
        await fill(dsn, SCORES, days=DAYS)
        pool = await open_pool(dsn, size=1)
        await StoredAnalytics(pool, where=place(dsn)).roll_up(limit=2 * DAYS)
        await pool.execute("ANALYZE")
        await pool.close()
        yield dsn


@pytest_asyncio.fixture
async def analytics(filled: str) -> AsyncIterator[StoredAnalytics]:
    pool = await open_pool(filled, size=1)
    yield StoredAnalytics(pool, where=place(filled))
    await pool.close()


async def explained(analytics: StoredAnalytics, name: str, *args: Any) -> Plan:
    """The plan with everything as it is when the query is run."""
    async with analytics._reading() as reader:
        told = await reader.connection.fetchval(
            f"EXPLAIN (FORMAT JSON) {analytics._sql[name]}", *args
        )
    return plan_of(told)


@pytest.mark.parametrize("name", CARDS)
async def test_a_list_uses_the_index_of_its_filter(
    analytics: StoredAnalytics, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wanted, indexes = CARDS[name]
    found: list[Plan] = []

    async def explain(self: Any, query: str, *args: Any) -> list[dict[str, Any]]:
        told = await self.connection.fetchval(f"EXPLAIN (FORMAT JSON) {self._sql[query]}", *args)
        found.append(plan_of(told))
        return [dict(row) for row in await self.connection.fetch(self._sql[query], *args)]

    monkeypatch.setattr("consumer.edges.postgres.analytics._Reader.fetch", explain)
    rows = await analytics.scorecards(CardFilter(**wanted), below=None, limit=51)
    if rows:
        below = Cursor(at=rows[-1]["at"], id=rows[-1]["id"])
        await analytics.scorecards(CardFilter(**wanted), below=below, limit=51)

    assert indexes <= set().union(*(plan.indexes for plan in found))
    for plan in found:
        assert plan.scanned <= SMALL


@pytest.mark.parametrize("name", REPORTS)
async def test_a_report_of_a_week_reads_that_week(analytics: StoredAnalytics, name: str) -> None:
    more, indexes = REPORTS[name]
    week = (TODAY - timedelta(days=6), TODAY, *[None] * 6)

    plan = await explained(analytics, name, *week, *more)

    assert indexes <= plan.indexes
    assert plan.scanned <= SMALL


async def test_a_session_s_tool_report_is_looked_up(analytics: StoredAnalytics) -> None:
    plan = await explained(analytics, "session_tool_report", "s-100")

    assert (plan.indexes, plan.scanned) == ({"session_scores_by_session"}, set())


async def test_an_export_is_neither_sorted_nor_kept_as_a_whole(analytics: StoredAnalytics) -> None:
    """In the order of an index from the first row on; here as there a batch at a time."""
    sizes = [len(batch) async for batch in analytics.export(CardFilter(agent="agent-3"))]

    assert sum(sizes) > 400
    assert max(sizes) <= 500


async def test_of_many_runs_the_newest_are_compared(analytics: StoredAnalytics) -> None:
    wanted = Selection(first=TODAY - timedelta(days=DAYS), last=TODAY)

    runs, since, counted = await analytics.runs(wanted, limit=500)

    assert sum(len(one.scores) for one in runs) == 500
    assert sum(row["runs"] for row in counted) > 5000
    assert since is not None
    assert since.date() > TODAY - timedelta(days=10)
