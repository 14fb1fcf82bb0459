"""`score-consumer report`: every report as a table and as JSON, of one small database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from consumer.cli.base import app
from tests.bench.many_scores import fill
from tests.integration.builders import execute, migrated_database
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.usefixtures("logging_as_before")

SCORES = 300


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    """URL of a database with some scores of the last five days."""
    async with migrated_database(postgres, migrated_template) as dsn:
        await fill(dsn, SCORES, days=5)
        today = datetime.now(UTC).date()
        await execute(
            dsn, "INSERT INTO judge_spend (day, provider, cap_usd) VALUES ($1, 'openai', 7)", today
        )
        yield dsn


@pytest.fixture
def environment(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", filled)
    monkeypatch.setenv("COLUMNS", "200")


async def run(*arguments: str) -> Result:
    """In a thread: the command has an event loop of its own."""
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["report", *arguments]))


async def told(*arguments: str) -> Any:
    done = await run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# Each report, what its table shows, and the list of its JSON that has something in it.
REPORTS = {
    "trend": ("without overrides", "days"),
    "distribution": ("near_perfect", "criteria"),
    "missing-tools": ("does not exist", "tools"),
    "approaches": ("for example", "approaches"),
    "criteria": ("are under the criteria of now", "criteria"),
    "models": ("openai/gpt-5", "models"),
    "tools": ("agent-3", "agents"),
    "cost": ("in all", "lines"),
    "agreement": ("quadratic-weighted kappa", "table"),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.usefixtures("environment")
async def test_a_report_is_a_table_or_json(name: str) -> None:
    shows, rows = REPORTS[name]

    done = await run(name)
    report = await told(name, "--label", "alert")

    assert done.exit_code == 0, done.output
    assert shows in done.stdout
    assert report[rows]
    assert report["to"] == str(datetime.now(UTC).date())


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.usefixtures("environment")
async def test_a_report_of_nothing_says_so(name: str) -> None:
    done = await run(name, "--from", "2001-02-03", "--to", "2001-02-04")

    assert done.exit_code == 0, done.output
    assert "nothing in these days" in done.stdout


@pytest.mark.usefixtures("environment")
async def test_what_a_session_s_tools_came_to() -> None:
    done = await run("tools", "s-0")
    report = await told("tools", "s-0")

    assert "available, but unused: promql" in done.stdout
    # By scoring version 1: stored as it was, and not shown as waste any more.
    assert [call["reason"] for call in report["tool_report"]["wasted"]] == ["unreferenced"]
    assert "wasted" not in done.stdout.partition("the waste of scoring version 1")[0]
    assert "is left out" in done.stdout


@pytest.mark.usefixtures("environment")
async def test_the_waste_of_version_1_is_in_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = await run("tools")
    report = await told("tools")

    assert "the waste of scoring version 1 is left out" in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines() if line[:1] in "│┏") <= 80
    assert "…" not in done.stdout
    assert {agent["scoring_version"] for agent in report["agents"]} == {1}
    for figure in ("wasted", "wasted_tokens", "wasted_cost_usd", "not_cited", "actions"):
        assert {agent[figure] for agent in report["agents"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("trend", "--from", "2026-03-02", "--to", "2026-03-01"), "is after"),
        (("trend", "--from", "yesterday"), "--from"),
        (("approaches", "--from", "2025-01-01", "--to", "2026-03-01"), "more than 92 days"),
        (("missing-tools", "--availability", "perhaps"), "exists_unused"),
        (("tools", "nobody"), "'nobody' has no score with a tool report"),
    ],
)
@pytest.mark.usefixtures("environment")
async def test_what_can_not_be_is_refused(arguments: tuple[str, ...], says: str) -> None:
    done = await run(*arguments)

    assert done.exit_code != 0
    assert says in done.output


@pytest.mark.parametrize("name", REPORTS)
async def test_help_has_an_example(name: str) -> None:
    done = await run(name, "--help")

    assert f"score-consumer report {name}" in " ".join(done.stdout.split())
