"""Scorecards and reports over HTTP, on a real database."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from consumer.edges.postgres.analytics import StoredAnalytics
from consumer.error_codes import ErrorCode
from consumer.pipeline import Failed
from consumer.scoring.criteria import Criteria
from consumer.scoring.score import JudgeUsage, Score, SessionFacts
from consumer.scoring.verdict import Approach, MissingTool
from tests.integration.builders import (
    CRITERIA,
    OTHER_CRITERIA,
    claim_one,
    execute,
    fetch,
    request,
    scored,
    value,
)
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.topics import Topics
from tests.unit import builders

FACTS = SessionFacts(
    agent="triage",
    model="gpt-5",
    provider="openai",
    classification_label="alert",
    total_tokens=1000,
    cost_usd=0.1,
    duration_ms=5000,
)
CHEAP = replace(FACTS, model="mini", cost_usd=None, duration_ms=1000)
JUDGE = JudgeUsage(
    provider="openai", model="judge-1", samples=1, input_tokens=900, output_tokens=90, cost_usd=0.02
)
NO_TOOLS: dict[str, Any] = {"missing_tools": (), "approaches": ()}
TODAY = datetime.now(UTC).date()


@pytest_asyncio.fixture
async def api(database: str, kafka: KafkaServer, topics: Topics) -> AsyncIterator[Api]:
    async with serving(database, kafka, topics) as made:
        yield made


async def score(api: Api, session: str, total: int, **changes: Any) -> Score:
    """A session's new score; rules of no risk."""
    own: dict[str, Any] = {
        "total_score": total, "facts": FACTS, "judge": JUDGE, "gates": (), "failed_gates": (),
        "disqualified": False, "disqualifier_triggered": None,
    }  # fmt: skip
    return await scored(api.store, request(session), **{**own, **NO_TOOLS, **changes})


async def aged(database: str, made: Score, days: int) -> None:
    """As if it had been made so many days ago; no code of ours may do this."""
    await execute(database, "ALTER TABLE session_scores DISABLE TRIGGER session_scores_immutable")
    await execute(
        database,
        "UPDATE session_scores SET scored_at = scored_at - make_interval(days => $2) "
        "WHERE score_id = $1",
        made.score_id,
        days,
    )
    await execute(database, "ALTER TABLE session_scores ENABLE TRIGGER session_scores_immutable")


async def get(api: Api, path: str, **params: Any) -> Any:
    answer = await api.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def sessions(api: Api, **params: Any) -> list[str]:
    found = await get(api, "/scorecards", **params)
    return [card["session_id"] for card in found["items"]]


async def test_scorecards_by_every_filter(api: Api, database: str) -> None:
    await api.store.register_criteria(OTHER_CRITERIA)
    old = await score(api, "s1", 30, reasoning="The memory leak was missed.")
    new = await score(api, "s1", 80, criteria_hash=OTHER_CRITERIA.hash)
    await score(api, "s2", 95, facts=CHEAP, profile_id="other", reasoning="Disk, then memory.")
    failing = request("s3", profile_id="other")
    await api.store.accept([failing], [])
    await api.store.end(await claim_one(api.store), Failed(ErrorCode.JUDGE_REFUSED, "it would not"))
    await api.store.accept([request("s4"), request("s4")], [])

    everything = await get(api, "/scorecards")
    assert [c["session_id"] for c in everything["items"]] == ["s4", "s4", "s3", "s2", "s1"]
    assert everything["next"] is None
    failed = everything["items"][2]
    assert (failed["state"], failed["error_code"]) == ("failed", "judge_refused")
    assert (failed["score"], failed["score_id"], failed["profile_id"]) == (None, None, "other")
    card = everything["items"][-1]
    assert (card["score_id"], card["score"], card["band"]) == (str(new.score_id), 80, "good")
    assert (card["agent"], card["agent_model"], card["label"]) == ("triage", "gpt-5", "alert")
    assert card["gate_passed"] is True

    assert await sessions(api, history=True, agent="triage") == ["s2", "s1", "s1"]
    assert await sessions(api, session_id="s1", history=True) == ["s1", "s1"]
    assert await sessions(api, model="mini") == ["s2"]
    assert await sessions(api, label="alert", profile_id="other") == ["s2"]
    assert await sessions(api, profile_id="other") == ["s3", "s2"]
    assert await sessions(api, criteria_hash=OTHER_CRITERIA.hash) == ["s1"]
    assert await sessions(api, criteria_hash=CRITERIA.hash) == ["s2"]
    assert await sessions(api, band="good") == ["s1"]
    assert await sessions(api, band="failed") == []
    assert await sessions(api, band="failed", history=True) == ["s1"]
    assert await sessions(api, state="failed") == ["s3"]
    assert await sessions(api, state="skipped") == []
    assert await sessions(api, state="pending", session_id="s4") == ["s4", "s4"]
    assert await sessions(api, state="completed", history=True) == ["s2", "s1", "s1"]
    assert await sessions(api, text="MEMORY") == ["s2"]
    assert await sessions(api, text="memory missed", history=True) == ["s1"]
    assert await sessions(api, text="memory", model="mini", agent="triage", label="alert") == ["s2"]
    assert await sessions(api, text="nowhere") == []
    await claim_one_of(api)
    assert await sessions(api, state="in_progress") == ["s4"]

    await aged(database, old, 3)
    assert old.scored_at is not None
    before = (old.scored_at - timedelta(days=1)).isoformat()
    assert await sessions(api, to=before, history=True) == ["s1"]
    assert await sessions(api, **{"from": before, "to": datetime.now(UTC).isoformat()}) == [
        "s4", "s4", "s3", "s2", "s1",
    ]  # fmt: skip

    # A human's word counts, in lists too; both numbers are shown.
    answer = await api.http.post(
        f"/scores/{new.score_id}/override",
        json={"override_score": 50, "reason": "it guessed"},
        headers={"x-forwarded-user": "ada"},
    )
    assert answer.status_code == 201, answer.text
    assert await sessions(api, band="good") == []
    (card,) = (await get(api, "/scorecards", band="weak"))["items"]
    assert (card["score"], card["total_score"], card["override_score"]) == (50, 80, 50)
    assert card["override_by"] == "ada"


async def claim_one_of(api: Api) -> None:
    await api.store.claim(1, owner="w", lease_s=60)


async def test_pages_are_not_moved_by_what_comes_in(api: Api) -> None:
    for number in range(5):
        await score(api, f"s{number}", 50)
    await api.store.accept([request("waiting")], [])

    first = await get(api, "/scorecards", limit=2)
    await api.store.accept([request("later")], [])
    second = await get(api, "/scorecards", limit=2, cursor=first["next"])
    third = await get(api, "/scorecards", limit=2, cursor=second["next"])

    pages = [[card["session_id"] for card in page["items"]] for page in (first, second, third)]
    assert pages == [["waiting", "s4"], ["s3", "s2"], ["s1", "s0"]]
    assert third["next"] is None
    same = {"limit": 2, "cursor": first["next"], "agent": "triage"}
    assert await sessions(api, **same) == ["s3", "s2"]


async def test_exports_are_the_lists_in_full(api: Api) -> None:
    for number in range(3):
        await score(api, f"s{number}", 50 + number, reasoning="=HYPERLINK(evil)")
    await api.store.accept([request("waiting")], [])

    answer = await api.http.get("/scorecards/export")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == "attachment; filename=scorecards.csv"
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["session_id"] for row in rows] == ["waiting", "s2", "s1", "s0"]
    assert rows[1]["score_reasoning"] == "'=HYPERLINK(evil)"
    assert (rows[0]["score"], rows[1]["score"]) == ("", "52")

    answer = await api.http.get("/scorecards/export", params={"format": "jsonl", "agent": "triage"})
    assert answer.headers["content-type"] == "application/jsonl"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == (await get(api, "/scorecards", agent="triage"))["items"]

    nothing = await api.http.get("/scorecards/export", params={"agent": "nobody"})
    assert nothing.text.startswith("at,state,session_id,")
    assert len(nothing.text.splitlines()) == 1
    nothing = await api.http.get("/scorecards/export", params={"agent": "x", "format": "jsonl"})
    assert (nothing.status_code, nothing.text) == (200, "")


@pytest.mark.parametrize(
    ("path", "params", "says"),
    [
        ("/scorecards", {"cursor": "nonsense"}, "cursor: not one that this API gave"),
        ("/scorecards", {"limit": -1}, "limit"),
        ("/scorecards", {"band": "great"}, "band"),
        ("/scorecards", {"agent": "a\x00b"}, "agent"),
        ("/scorecards", {"from": "yesterday"}, "from"),
        ("/scorecards", {"from": "0001-01-01T00:00:00+14:00"}, "from 1970 to 2999"),
        ("/scorecards", {"session_id": "../etc"}, "session_id"),
        ("/scorecards/export", {"format": "xls"}, "format"),
        ("/analytics/trend", {"from": "2026-02-30"}, "from"),
        ("/analytics/trend", {"from": "9999-12-31"}, "from 1970 to 2999"),
        ("/analytics/trend", {"from": "2026-03-02", "to": "2026-03-01"}, "is after"),
        ("/analytics/missing-tools", {"from": "2025-01-01", "to": "2026-01-01"}, "92 days"),
        ("/analytics/approaches", {"limit": 0}, "limit"),
        ("/analytics/trend", {"profile_version": 1}, "without its profile"),
        ("/analytics/trend", {"profile_id": "p", "profile_version": 0}, "profile_version"),
        ("/analytics/models", {"criteria_hash": "abc"}, "criteria_hash"),
        ("/analytics/models", {"criteria_hash": "%" * 64}, "criteria_hash"),
    ],
)
async def test_bad_questions_are_told_why(
    api: Api, path: str, params: dict[str, Any], says: str
) -> None:
    answer = await api.http.get(path, params=params)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.text


async def some_scores(api: Api, database: str) -> tuple[Score, Score]:
    """Six sessions, one of them scored twice, one overridden twice: the oldest, the replaced."""
    await api.store.register_criteria(OTHER_CRITERIA)
    tools = (
        MissingTool(tool_name="promql", rationale="r", availability="exists_unused"),
        MissingTool(tool_name="logs", rationale="r", availability="does_not_exist"),
    )
    approaches = (Approach(name="Logs  First", description="d", steps=("1", "2")),)
    old = await score(api, "s1", 90, missing_tools=tools, approaches=approaches)
    await aged(database, old, 2)
    await score(api, "s2", 70, missing_tools=tools[:1])
    unlucky = await score(api, "s3", 40, missing_tools=(), facts=CHEAP)
    await score(api, "s4", 0, disqualified=True, disqualifier_triggered="made up")
    gate = {"id": "g", "passed": False, "message": "no"}
    await score(api, "s5", 0, gates=(gate,), failed_gates=("g",))
    first = await score(api, "s6", 10, criteria_hash=OTHER_CRITERIA.hash)
    await score(api, "s6", 50, approaches=(replace(approaches[0], name="logs first"),))
    for given in (20, 60):
        await override(api, unlucky, given)
    return old, first


async def test_reports_of_scores(api: Api, database: str) -> None:
    old, first = await some_scores(api, database)

    trend = await get(api, "/analytics/trend")
    assert (trend["to"], trend["from"]) == (str(TODAY), str(TODAY - timedelta(days=29)))
    long_ago, today = trend["days"]
    assert (long_ago["day"], long_ago["scores"]) == (str(TODAY - timedelta(days=2)), 1)
    assert (long_ago["average_score"], long_ago["good"], long_ago["near_perfect"]) == (90, 0, 1)
    assert (today["scores"], today["overridden"]) == (3, 1)
    assert today["average_score"] == pytest.approx((70 + 60 + 50) / 3)
    assert today["average_stored_score"] == pytest.approx((70 + 40 + 50) / 3)
    assert (today["disqualified"], today["gate_failed"]) == (1, 1)

    spread = await get(api, "/analytics/distribution")
    assert spread["scores"] == 4
    assert spread["bands"] == {
        "failed": 0, "weak": 1, "adequate": 2, "good": 0, "near_perfect": 1,
    }  # fmt: skip
    assert spread["stored_bands"]["failed"] == 1
    criteria = {line["criterion"]: line for line in spread["criteria"]}
    details = {line["id"]: line for line in old.details}
    assert set(criteria) == set(details)
    assert all(line["scores"] + line["not_applicable"] == 6 for line in criteria.values())

    missing = await get(api, "/analytics/missing-tools")
    assert missing["judged"] == 6
    assert [(t["tool_name"], t["scores"]) for t in missing["tools"]] == [("promql", 2), ("logs", 1)]
    assert missing["tools"][0]["share"] == pytest.approx(2 / 6)
    assert missing["tools"][0]["exists_unused"] == 2
    only = await get(api, "/analytics/missing-tools", availability="does_not_exist", limit=1)
    assert [tool["tool_name"] for tool in only["tools"]] == ["logs"]

    (approach,) = (await get(api, "/analytics/approaches"))["approaches"]
    assert (approach["name"], approach["scores"]) == ("logs first", 2)
    assert approach["average_steps"] == 2

    history = await get(api, "/analytics/criteria")
    by_hash = {line["criteria_hash"]: line for line in history["criteria"]}
    assert (by_hash[CRITERIA.hash]["scores"], by_hash[CRITERIA.hash]["current_scores"]) == (6, 6)
    assert by_hash[OTHER_CRITERIA.hash]["current_scores"] == 0
    assert by_hash[OTHER_CRITERIA.hash]["first_scored_at"] == in_utc(first)
    assert not any(line["is_current"] for line in history["criteria"])
    assert history["profiles"][0]["share"] == 0


async def test_reports_of_agents_and_judges(api: Api, database: str) -> None:
    await some_scores(api, database)

    models = await get(api, "/analytics/models", label="alert")
    by_model = {line["model"]: line for line in models["models"]}
    assert (models["runs"], models["compared"]) == (4, 4)
    assert by_model["gpt-5"]["average_score"] == pytest.approx((90 + 70 + 50) / 3)
    assert by_model["gpt-5"]["score_per_dollar"] == pytest.approx(700)
    assert (by_model["gpt-5"]["disqualified"], by_model["gpt-5"]["gate_failed"]) == (1, 1)
    assert by_model["gpt-5"]["low_n"] is True
    low, high = by_model["gpt-5"]["average_score_95"]
    assert 50 <= low < 70 < high <= 90
    assert by_model["mini"]["average_score"] == 60
    assert by_model["mini"]["score_per_dollar"] is None

    (agent,) = (await get(api, "/analytics/tools"))["agents"]
    assert (agent["agent"], agent["sessions"]) == ("triage", 6)
    one = await get(api, "/sessions/s2/tool-report")
    assert agent["calls"] == 6 * one["tool_report"]["calls"]
    assert agent["average_effectiveness"] == one["tool_report"]["effectiveness"]
    nothing = await api.http.get("/sessions/nobody/tool-report")
    assert (nothing.status_code, nothing.json()["code"]) == (404, "no_tool_report")

    cost = await get(api, "/analytics/cost")
    assert cost["cost_usd"] == pytest.approx(0.02 * 7)  # the replaced score was paid for, too
    assert [(line["model"], line["scores"]) for line in cost["lines"]] == [
        ("judge-1", 1), ("judge-1", 6),
    ]  # fmt: skip

    agreement = await get(api, "/analytics/agreement")
    assert (agreement["n"], agreement["mean_absolute_error"], agreement["bias"]) == (1, 20, 20)
    assert agreement["table"][0] == [0, 0, 1, 0, 0]

    for report in ("trend", "distribution", "missing-tools", "models", "tools", "agreement"):
        empty = await get(api, f"/analytics/{report}", agent="nobody", profile_id="x", model="y")
        assert json.dumps(empty)


async def test_an_override_counts_on_what_was_refused_too(api: Api, database: str) -> None:
    """It is somebody's answer to just that: what is overridden is not counted apart any more."""
    gate = {"id": "g", "passed": False, "message": "no"}
    await score(api, "s1", 80)
    disqualified = await score(api, "s2", 0, disqualified=True, disqualifier_triggered="made up")
    refused = await score(api, "s3", 0, gates=(gate,), failed_gates=("g",))
    await score(api, "s4", 0, gates=(gate,), failed_gates=("g",))
    for made in (disqualified, refused):
        await aged(database, made, 2)
        await override(api, made, 50)
    await override(api, disqualified, 70)

    for rolled_up in (False, True):
        if rolled_up:
            await StoredAnalytics(api.store.pool, where=api.store.where).roll_up(limit=100)
        old, today = (await get(api, "/analytics/trend"))["days"]
        assert (old["scores"], old["overridden"], old["average_score"]) == (2, 2, 60)
        assert (old["disqualified"], old["gate_failed"]) == (0, 0)
        assert old["average_stored_score"] is None  # without overrides none would be counted
        assert (today["scores"], today["gate_failed"]) == (1, 1)

        spread = await get(api, "/analytics/distribution")
        assert (spread["scores"], spread["overridden"], spread["gate_failed"]) == (3, 2, 1)
        assert (spread["bands"]["weak"], spread["bands"]["adequate"]) == (1, 1)
        assert sum(spread["stored_bands"].values()) == 1

        (model,) = (await get(api, "/analytics/models"))["models"]
        assert (model["n"], model["average_score"]) == (3, pytest.approx((80 + 50 + 70) / 3))
        assert (model["disqualified"], model["gate_failed"]) == (0, 1)

    averages = await fetch(database, "SELECT average_score FROM score_trend_daily ORDER BY day")
    assert [row["average_score"] for row in averages] == [60, 80]


REPORTS = ("trend", "distribution", "missing-tools", "approaches", "models", "tools", "agreement")


@pytest.mark.parametrize("report", REPORTS)
async def test_a_report_says_what_it_mixes_and_can_be_limited(api: Api, report: str) -> None:
    """Scores under other criteria do not compare."""
    await api.store.register_criteria(OTHER_CRITERIA)
    old = await score(api, "s1", 40, criteria_hash=OTHER_CRITERIA.hash)
    new = await score(api, "s2", 80, profile_version=2)
    for made in (old, new):
        await override(api, made, made.total_score)

    profile = old.profile_id
    mixed = await get(api, f"/analytics/{report}")
    assert mixed["mixed"] == [
        {"profile": profile, "criteria_hashes": 2, "profile_versions": [1, 2]}
    ]
    by_version = await get(api, f"/analytics/{report}", profile_id=profile, profile_version=2)
    by_hash = await get(api, f"/analytics/{report}", criteria_hash=new.criteria_hash)
    by_beginning = await get(api, f"/analytics/{report}", criteria_hash=new.criteria_hash[:12])
    alone = await get(api, f"/analytics/{report}", criteria_hash=OTHER_CRITERIA.hash)
    assert by_version == by_hash == by_beginning
    assert by_hash["mixed"] == alone["mixed"] == []
    assert by_hash != mixed
    counted = {"trend": "days", "tools": "agents"}
    if report in {"distribution", "models", "agreement"}:
        number = {"distribution": "scores", "models": "runs", "agreement": "n"}[report]
        assert (mixed[number], by_hash[number], alone[number]) == (2, 1, 1)
    if report in counted:
        (line,) = by_hash[counted[report]]
        assert line.get("average_score", 80) == 80
        assert line.get("scores", line.get("sessions")) == 1


async def test_tools_are_counted_by_scoring_version(api: Api) -> None:
    second = Criteria(hash="c" * 64, content={"scoring_version": 2})
    await api.store.register_criteria(second)
    call = {"call_id": "1", "tool": "a.b", "tokens": 100, "cost_usd": 0.5}
    former = {**builders.score().tool_report, "wasted": [{**call, "reason": "unreferenced"}]}
    del former["not_cited"], former["actions"]
    newer = {
        **builders.score().tool_report,
        "actions": 2,
        "wasted": [{**call, "reason": "failed"}, {**call, "reason": "repeated", "cost_usd": None}],
        "not_cited": [{"call_id": "2", "tool": "a.c"}],
    }
    await score(api, "s1", 80, tool_report=former)
    await score(api, "s2", 80, tool_report=newer, criteria_hash=second.hash)

    report = await get(api, "/analytics/tools")

    told = [
        (
            *(line["scoring_version"], line["sessions"], line["calls"], line["actions"]),
            *(line["not_cited"], line["wasted"], line["wasted_tokens"], line["wasted_cost_usd"]),
            line["wasted_cost_unknown"],
        )
        for line in report["agents"]
    ]
    assert told == [(1, 1, 2, None, None, None, None, None, None), (2, 1, 2, 2, 1, 2, 200, 0.5, 1)]
    assert "version 1 is left out" in report["note"]
    stored = await get(api, "/sessions/s1/tool-report")
    assert stored["tool_report"] == former


def in_utc(made: Score) -> str:
    assert made.scored_at is not None
    return made.scored_at.isoformat().replace("+00:00", "Z")


async def override(api: Api, made: Score, given: int) -> None:
    answer = await api.http.post(
        f"/scores/{made.score_id}/override", json={"override_score": given, "reason": "because"}
    )
    assert answer.status_code == 201, answer.text


VIEWS = (
    "score_figures",
    "criterion_figures",
    "missing_tool_figures",
    "approach_figures",
    "tool_use_figures",
    "score_trend_daily",
    "score_distribution",
    "missing_tool_frequency",
    "model_comparison_runs",
    "criteria_history",
)


async def all_views(database: str) -> dict[str, list[dict[str, Any]]]:
    """What every view tells, in one order."""
    found = {name: await fetch(database, f"SELECT * FROM {name}") for name in VIEWS}  # noqa: S608
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


async def test_figures_are_the_same_rolled_up_or_not(api: Api, database: str) -> None:
    """Whatever happens to an old day's scores opens it again; nothing is ever behind."""
    analytics = StoredAnalytics(api.store.pool, where=api.store.where)
    tools = (MissingTool(tool_name="promql", rationale="r", availability="unknown"),)
    made = [await score(api, f"s{n}", 40 + n, missing_tools=tools) for n in range(4)]
    for days, one in enumerate(made):
        await aged(database, one, 3 * days)
    # The loop of the API under test rolls up as well: from here on what it does is undone.
    await execute(database, "DELETE FROM rollup_days")

    counted = await all_views(database)
    assert await analytics.roll_up(limit=4) == 4
    assert await analytics.roll_up(limit=100) == 5
    assert await analytics.roll_up(limit=100) == 0
    assert await open_days(database) == [TODAY]
    assert await all_views(database) == counted
    assert await value(database, "SELECT count(*) FROM score_rollup") == 3

    await score(api, "s3", 99)  # replaces a score of nine days ago
    assert await open_days(database) == [TODAY - timedelta(days=9), TODAY]
    await override(api, made[2], 7)
    assert await open_days(database) == [TODAY - timedelta(days=d) for d in (9, 6, 0)]
    counted = await all_views(database)
    assert sum(row["overridden"] for row in counted["score_figures"]) == 1
    assert await analytics.roll_up(limit=100) == 2
    assert await all_views(database) == counted

    await imported(database, made[0], days=20)  # before all that is known
    assert len(await open_days(database)) == 21 - 9
    counted = await all_views(database)
    assert sum(row["scores"] for row in counted["score_figures"]) == 6
    await analytics.roll_up(limit=100)
    assert await all_views(database) == counted
    assert await open_days(database) == [TODAY]


async def open_days(database: str) -> list[date]:
    return [row["day"] for row in await fetch(database, "SELECT day FROM open_days ORDER BY day")]


async def imported(database: str, like: Score, *, days: int) -> None:
    """A score from elsewhere, as old as that."""
    ids: tuple[UUID, UUID] = (uuid4(), uuid4())
    await execute(
        database,
        f"""
        BEGIN;
        INSERT INTO session_scores
        SELECT (jsonb_populate_record(s, jsonb_build_object('score_id', '{ids[0]}',
            'request_id', '{ids[1]}', 'session_id', 'imported',
            'scored_at', s.scored_at - interval '{days} days'))).*
        FROM session_scores s WHERE score_id = '{like.score_id}';
        INSERT INTO score_requests
        SELECT (jsonb_populate_record(r, jsonb_build_object('score_id', '{ids[0]}',
            'request_id', '{ids[1]}', 'session_id', 'imported'))).*
        FROM score_requests r WHERE score_id = '{like.score_id}';
        COMMIT;
        """,  # noqa: S608
    )
