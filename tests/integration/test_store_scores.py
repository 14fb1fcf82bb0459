"""Outcomes in the tables: a score with all that belongs to it and its events, or none of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from pydantic_core import to_json

from consumer.edges.postgres.rows import score_columns
from consumer.edges.postgres.store import Backlog, Store
from consumer.error_codes import ErrorCode
from consumer.errors import LeaseLost
from consumer.events import event_id
from consumer.pipeline import Failed
from consumer.ports import ClaimedRequest
from consumer.scoring.profile import Profile, parse_profile
from consumer.scoring.score import Score
from consumer.scoring.sent import Content, sent_request
from consumer.scoring.text import storable, storable_json
from consumer.scoring.verdict import Approach, MissingTool
from tests.integration.builders import (
    CRITERIA,
    OTHER_CRITERIA,
    PROFILE,
    TRACE,
    begin,
    claim,
    claim_one,
    emptied,
    event,
    execute,
    fetch,
    migrated_database,
    opened_store,
    request,
    requests_by_id,
    row_counts,
    score,
    scored,
    until_blocked,
    value,
)
from tests.support.servers import PostgresServer
from tests.unit.builders import SAMPLE

JSON_COLUMNS = {
    "score_breakdown",
    "score_details",
    "gate",
    "samples",
    "tool_report",
    "elision",
    "injection_flags",
}
# What JSON may hold and PostgreSQL or UTF-8 may not.
ODD = "nul\x00 half\ud83d \U0001f600 zero\u200bwidth \u202ebidi \ufffe"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_database(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    async with migrated_database(postgres, migrated_template) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def database(module_database: str) -> str:
    return await emptied(module_database)


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with opened_store(database) as opened:
        await opened.register_criteria(CRITERIA)
        await opened.register_criteria(OTHER_CRITERIA)
        yield opened


async def events(dsn: str) -> list[dict[str, Any]]:
    """The outbox with decoded payloads and headers."""
    rows = await fetch(dsn, "SELECT * FROM outbox ORDER BY seq")
    return [
        row | {"data": json.loads(row["payload"]), "headers": dict(json.loads(row["headers"]))}
        for row in rows
    ]


async def in_progress(store: Store, session: str = "s1", **changes: Any) -> ClaimedRequest:
    await store.accept([request(session, **changes)], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    return claimed


# ── a score ─────────────────────────────────────────────────────────────────


async def test_a_score_is_stored_with_every_value(store: Store, database: str) -> None:
    claimed = await in_progress(store)
    made = score(
        claimed,
        disqualified=True,
        disqualifier_triggered="made things up",
        risk=("below_threshold", "disqualified"),
        injection_suspected=True,
        injection_flags=({"step": 2, "kind": "verdict", "excerpt": "100 points"},),
        elision={"strategy": ["references"], "bytes": 500, "ratio": 0.5},
        judge_skipped="budget_exhausted",
    )

    at = await store.complete(claimed, made)

    (row,) = await fetch(database, "SELECT * FROM session_scores")
    stored = {name: json.loads(got) if name in JSON_COLUMNS else got for name, got in row.items()}
    assert stored == {
        "score_id": made.score_id,
        "session_id": "s1",
        "request_id": claimed.request_id,
        "criteria_hash": CRITERIA.hash,
        "judge_profile_id": PROFILE,
        "judge_profile_version": 1,
        "method": "llm",
        "total_score": 74,
        "ranking": None,
        "score_breakdown": {"logical_flow": 80.0, "consistency": 68.0},
        "score_details": [{"id": "logical_flow", "weight": 1.0, "score": 80}],
        "score_reasoning": "sound, but slow",
        "confidence": 0.6,
        "gate": {"passed": True, "results": []},
        "disqualified": True,
        "disqualifier_triggered": "made things up",
        "quality_risk": ["below_threshold", "disqualified"],
        "quality_risk_threshold": 40.0,
        "weakest_criteria": ["consistency", "logical_flow"],
        "tool_report": made.tool_report,
        "judge_provider": "openai",
        "judge_model": "judge-1",
        "judge_samples": 1,
        "judge_input_tokens": 1200,
        "judge_output_tokens": 300,
        "judge_cost_usd": 0.0042,
        "samples": [SAMPLE],
        "elision": {"strategy": ["references"], "bytes": 500, "ratio": 0.5},
        "injection_suspected": True,
        "injection_flags": [{"step": 2, "kind": "verdict", "excerpt": "100 points"}],
        "judge_skipped": "budget_exhausted",
        "agent": "kubernetes",
        "agent_model": "model-1",
        "agent_provider": "provider-1",
        "classification_label": "alert",
        "session_total_tokens": 4321,
        "session_cost_usd": 0.01,
        "session_duration_ms": 9000,
        "scored_triggered_by": "tests",
        "duration_ms": 1234,
        "scored_at": at,
        "is_current": True,
    }


async def test_a_score_brings_its_tools_approaches_and_steps_in_order(
    store: Store, database: str
) -> None:
    claimed = await in_progress(store)
    steps = tuple(f"step {number}" for number in range(12, 0, -1))
    made = score(
        claimed,
        approaches=(
            Approach(name="long", description="d1", steps=steps),
            Approach(name="short", description="d2", steps=("only",)),
            Approach(name="short", description="the same name again", steps=()),
        ),
    )

    await store.complete(claimed, made)

    tools = "SELECT score_id, tool_name, rationale, availability FROM score_missing_tools"
    assert [tuple(row.values()) for row in await fetch(database, f"{tools} ORDER BY id")] == [
        (made.score_id, "kubectl_logs", "why", "exists_unused"),
        (made.score_id, "promql", "metrics", "does_not_exist"),
    ]
    approaches = await fetch(
        database,
        "SELECT score_id, position, name, description FROM score_alternative_approaches "
        "ORDER BY position",
    )
    assert [tuple(row.values()) for row in approaches] == [
        (made.score_id, 1, "long", "d1"),
        (made.score_id, 2, "short", "d2"),
        (made.score_id, 3, "short", "the same name again"),
    ]
    stored_steps = await fetch(
        database,
        "SELECT position, step_order, step_description FROM score_alternative_approach_steps "
        "JOIN score_alternative_approaches a ON a.id = approach_id ORDER BY 1, 2",
    )
    assert [tuple(row.values()) for row in stored_steps] == [
        *((1, n, text) for n, text in enumerate(steps, start=1)),
        (2, 1, "only"),
    ]


async def test_a_score_without_children_is_a_score(store: Store, database: str) -> None:
    claimed = await in_progress(store)

    await store.complete(claimed, score(claimed, missing_tools=(), approaches=()))

    counts = await row_counts(database)
    assert (counts["session_scores"], counts["score_missing_tools"]) == (1, 0)
    assert counts["score_alternative_approaches"] == 0


async def test_a_score_completes_its_request_and_all_that_waited(
    store: Store, database: str
) -> None:
    claimed = await in_progress(store)
    waiters = [request() for _ in range(2)]
    await store.accept([*waiters, request("s2")], [])
    made = score(claimed)

    at = await store.complete(claimed, made)

    rows = await requests_by_id(database)
    for request_id in (claimed.request_id, *(waiter.request_id for waiter in waiters)):
        row = rows[request_id]
        assert (row["state"], row["score_id"], row["finished_at"]) == (
            "completed",
            made.score_id,
            at,
        )
        assert row["lease_token"] is row["lease_owner"] is row["scoring_profile_id"] is None
    assert await store.counts() == {"completed": 3, "pending": 1}


async def test_a_score_is_told_once_to_everyone_who_asked(store: Store, database: str) -> None:
    claimed = await in_progress(store, triggered_by="first", trace=TRACE)
    waiter = request(triggered_by="second")
    await store.accept([waiter], [])
    made = score(claimed, risk=("below_threshold",), total_score=12)

    at = await store.complete(claimed, made)

    told = await events(database)
    assert [(one["type"], one["data"]["request_id"]) for one in told] == [
        ("score.completed", str(claimed.request_id)),
        ("quality_risk", str(claimed.request_id)),
        ("score.completed", str(waiter.request_id)),
    ]
    for one in told:
        asked = UUID(one["data"]["request_id"])
        assert one["key"] == b"s1"
        assert one["topic"] == one["type"] == one["headers"]["ce_type"]
        assert one["event_id"] == event_id(asked, one["type"])
        assert one["headers"]["ce_id"] == str(one["event_id"])
        assert one["headers"]["ce_time"] == at.isoformat()
        assert one["data"]["score_id"] == str(made.score_id)
        assert one["data"]["total_score"] == 12
    answers = [one["data"] for one in told if one["type"] == "score.completed"]
    assert [(data["triggered_by"], data["reused"]) for data in answers] == [
        ("first", False),
        ("second", True),
    ]
    assert told[0]["headers"]["traceparent"] == TRACE["traceparent"]
    assert "traceparent" not in told[2]["headers"]
    assert told[1]["data"]["reasons"] == ["below_threshold"]
    assert answers[0]["missing_tools_count"] == answers[0]["alternative_approaches_count"] == 2


async def test_a_score_without_risk_brings_no_risk_event(store: Store, database: str) -> None:
    await scored(store, request())

    assert [one["type"] for one in await events(database)] == ["score.completed"]


async def test_a_reused_risky_score_brings_no_second_risk_event(
    store: Store, database: str
) -> None:
    earlier = await scored(store, request(), risk=("disqualified",), disqualified=True)
    await store.accept([request(triggered_by="again")], [])
    claimed = await claim_one(store)
    stored = await begin(store, claimed)
    assert stored == earlier

    await store.reuse(claimed, stored)

    types = [one["type"] for one in await events(database)]
    assert types == ["score.completed", "quality_risk", "score.completed"]
    last = (await events(database))[-1]["data"]
    assert (last["reused"], last["quality_risk"], last["triggered_by"]) == (True, True, "again")
    assert last["scored_at"] == (await events(database))[0]["data"]["scored_at"]
    assert (await row_counts(database))["session_scores"] == 1
    row = (await requests_by_id(database))[claimed.request_id]
    assert (row["state"], row["score_id"]) == ("completed", earlier.score_id)


async def test_scoring_again_keeps_the_former_score_as_history(store: Store, database: str) -> None:
    first = await scored(store, request(), total_score=10)
    second = await scored(store, request(force_rescore=True), total_score=20)
    other = await scored(store, request(profile_id="p2"), profile_id="p2", total_score=30)
    third = await scored(
        store, request(force_rescore=True), criteria_hash=OTHER_CRITERIA.hash, total_score=40
    )
    await scored(store, request("s2"), total_score=50)

    rows = await fetch(
        database,
        "SELECT score_id, total_score, is_current FROM session_scores WHERE session_id = 's1' "
        "ORDER BY scored_at",
    )
    assert [tuple(row.values()) for row in rows] == [
        (first.score_id, 10, False),
        (second.score_id, 20, False),
        (other.score_id, 30, True),
        (third.score_id, 40, True),
    ]
    assert [row["score_id"] for row in await store.session_scores("s1")] == [
        third.score_id,
        other.score_id,
    ]


async def test_a_zombie_writes_nothing(store: Store, database: str) -> None:
    """A worker that was frozen past its lease, while another one took over."""
    await scored(store, request("s1"))
    zombie = await in_progress(store, "s1", force_rescore=True)
    await store.accept([request("s1")], [])
    await execute(database, "UPDATE score_requests SET lease_expires_at = now() - interval '1 s'")
    await store.free_expired()

    async def nothing_changes(act: Any) -> None:
        counts, rows = await row_counts(database), await requests_by_id(database)
        current = await fetch(database, "SELECT score_id FROM session_scores WHERE is_current")
        with pytest.raises(LeaseLost):
            await act
        assert await row_counts(database) == counts
        assert await requests_by_id(database) == rows
        assert (
            await fetch(database, "SELECT score_id FROM session_scores WHERE is_current") == current
        )

    async def every_outcome() -> None:
        await nothing_changes(store.complete(zombie, score(zombie, risk=("below_threshold",))))
        await nothing_changes(
            store.reuse(zombie, replace(score(zombie), scored_at=zombie.claimed_at))
        )
        await nothing_changes(store.end(zombie, Failed(ErrorCode.JUDGE_REFUSED, "no")))

    await every_outcome()  # nobody has it
    successor = await claim_one(store)
    assert successor.request_id == zombie.request_id
    await every_outcome()  # someone else has it
    await begin(store, successor)
    made = score(successor)
    await store.complete(successor, made)
    await every_outcome()  # it is finished
    assert (await requests_by_id(database))[zombie.request_id]["score_id"] == made.score_id


async def test_of_two_outcomes_at_once_one_is_stored(store: Store, database: str) -> None:
    claimed = await in_progress(store)

    results = await asyncio.gather(
        *(store.complete(claimed, score(claimed)) for _ in range(4)),
        store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, "no")),
        return_exceptions=True,
    )

    assert sum(isinstance(result, LeaseLost) for result in results) == 4
    assert (await row_counts(database))["outbox"] == 1
    assert (await row_counts(database))["session_scores"] <= 1


# ── no score ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.HISTORY_INVALID, "failed"),
        (ErrorCode.NO_MATCHING_PROFILE, "skipped"),
        (ErrorCode.CANCELLED, "cancelled"),
    ],
)
async def test_an_end_without_score_is_told_to_everyone_who_asked(
    store: Store, database: str, code: ErrorCode, state: str
) -> None:
    claimed = await in_progress(store, triggered_by="first", trace=TRACE)
    waiter = request(triggered_by="second", force_rescore=True)
    await store.accept([waiter], [])

    await store.end(claimed, Failed(code, "because"))

    told = await events(database)
    assert [one["type"] for one in told] == ["score.failed"] * 2
    assert [one["data"] | {"failed_at": ""} for one in told] == [
        {
            "request_id": str(asked),
            "session_id": "s1",
            "state": state,
            "error_code": code.value,
            "message": "because",
            "attempts": attempts,
            "failed_at": "",
            "triggered_by": by,
        }
        for asked, attempts, by in (
            (claimed.request_id, 1, "first"),
            (waiter.request_id, 0, "second"),
        )
    ]
    assert told[0]["headers"]["traceparent"] == TRACE["traceparent"]
    rows = (await requests_by_id(database)).values()
    assert {(r["state"], r["error_code"], r["error_message"], r["score_id"]) for r in rows} == {
        (state, code.value, "because", None)
    }
    assert all(row["finished_at"] and not row["lease_token"] for row in rows)
    assert (await row_counts(database))["session_scores"] == 0
    assert await claim(store) == []


async def test_a_failure_leaves_the_current_score_alone(store: Store, database: str) -> None:
    current = await scored(store, request())
    claimed = await in_progress(store, force_rescore=True)

    await store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, "no"))

    assert await fetch(database, "SELECT score_id FROM session_scores WHERE is_current") == [
        {"score_id": current.score_id}
    ]


# ── constraints ─────────────────────────────────────────────────────────────


async def test_a_score_needs_the_request_that_it_completes(store: Store, database: str) -> None:
    claimed = await in_progress(store)
    insert = store._sql["insert_score"]
    for request_id in (claimed.request_id, uuid4()):  # not completed; not there
        alone = score(claimed, request_id=request_id)
        async with store.pool.acquire() as connection:
            with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="no completed"):
                await connection.execute(insert, *score_columns(alone))

    assert (await row_counts(database))["session_scores"] == 0


async def test_a_request_has_at_most_one_score(store: Store, database: str) -> None:
    made = await scored(store, request())

    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await _copy_of_score(
            database, made, "UPDATE copied SET score_id = gen_random_uuid(), is_current = false"
        )

    assert refused.value.constraint_name == "one_score_per_request"


async def test_a_session_has_at_most_one_current_score_by_profile(
    store: Store, database: str
) -> None:
    made = await scored(store, request())

    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await _copy_of_score(
            database,
            made,
            "UPDATE copied SET score_id = gen_random_uuid(), request_id = gen_random_uuid()",
        )

    assert refused.value.constraint_name == "one_current_score"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE session_scores SET total_score = 100",
        "UPDATE session_scores SET score_reasoning = 'better'",
        "UPDATE session_scores SET score_breakdown = '{}'",
        "UPDATE session_scores SET scored_at = now() + interval '1 s'",
        "UPDATE session_scores SET total_score = 100, is_current = false",
    ],
)
async def test_a_score_is_immutable(store: Store, database: str, change: str) -> None:
    await scored(store, request())
    before = await fetch(database, "SELECT * FROM session_scores")

    with pytest.raises(asyncpg.RestrictViolationError):
        await execute(database, change)

    assert await fetch(database, "SELECT * FROM session_scores") == before


@pytest.mark.parametrize(
    "table",
    ["score_missing_tools", "score_alternative_approaches", "score_alternative_approach_steps"],
)
@pytest.mark.parametrize("change", ["UPDATE {} SET id = DEFAULT", "DELETE FROM {}"])
async def test_what_belongs_to_a_score_is_immutable_too(
    store: Store, database: str, table: str, change: str
) -> None:
    await scored(store, request())
    before = await fetch(database, f"SELECT * FROM {table}")  # noqa: S608
    assert before

    with pytest.raises(asyncpg.RestrictViolationError):
        await execute(database, change.format(table))

    assert await fetch(database, f"SELECT * FROM {table}") == before  # noqa: S608


async def test_a_score_can_cease_to_be_current_but_not_become_it_again(
    store: Store, database: str
) -> None:
    await scored(store, request())

    await execute(database, "UPDATE session_scores SET is_current = false")
    with pytest.raises(asyncpg.RestrictViolationError):
        await execute(database, "UPDATE session_scores SET is_current = true")

    assert await value(database, "SELECT is_current FROM session_scores") is False


async def test_a_score_that_answers_a_request_cannot_be_deleted(
    store: Store, database: str
) -> None:
    claimed = await in_progress(store)
    await store.complete(claimed, score(claimed, missing_tools=(), approaches=()))

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await execute(database, "DELETE FROM session_scores")

    assert (await row_counts(database))["session_scores"] == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE score_requests SET state = 'failed', error_code = 'x'",
        "UPDATE score_requests SET state = 'failed', error_code = 'x', score_id = NULL",
        "UPDATE score_requests SET state = 'pending', score_id = NULL, finished_at = NULL",
        "UPDATE score_requests SET score_id = NULL",
    ],
)
async def test_a_request_that_has_its_score_stays_completed(
    store: Store, database: str, change: str
) -> None:
    await scored(store, request())
    before = await requests_by_id(database)

    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await execute(database, change)

    assert await requests_by_id(database) == before


async def test_a_failed_request_can_have_no_score(store: Store, database: str) -> None:
    made = await scored(store, request("s1"))
    claimed = await in_progress(store, "s2")
    await store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, "no"))

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await execute(
            database,
            "UPDATE score_requests SET score_id = $1 WHERE session_id = 's2'",
            made.score_id,
        )

    assert refused.value.constraint_name == "completed_has_score"


@pytest.mark.parametrize("total", [-1, 101])
async def test_a_total_outside_0_to_100_is_refused(store: Store, database: str, total: int) -> None:
    claimed = await in_progress(store)
    before = await row_counts(database)

    # The event's contract refuses it as well, but the tables do not rely on that.
    with pytest.raises(asyncpg.CheckViolationError):
        await store.complete(claimed, score(claimed, total_score=total))

    assert await row_counts(database) == before


async def test_criteria_definitions_are_kept_once_and_immutable(
    store: Store, database: str
) -> None:
    await store.register_criteria(replace(CRITERIA, content={"profile": "changed"}))

    for change in ("UPDATE {} SET criteria_content = '{{}}'", "DELETE FROM {}"):
        with pytest.raises(asyncpg.RestrictViolationError):
            await execute(database, change.format("scoring_criteria_definitions"))

    kept = await fetch(
        database, "SELECT criteria_hash, criteria_content FROM scoring_criteria_definitions"
    )
    assert {row["criteria_hash"]: json.loads(row["criteria_content"]) for row in kept} == {
        one.hash: one.content for one in (CRITERIA, OTHER_CRITERIA)
    }


async def test_a_score_needs_known_criteria(store: Store, database: str) -> None:
    claimed = await in_progress(store)

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await store.complete(claimed, score(claimed, criteria_hash="c" * 64))

    assert (await row_counts(database))["session_scores"] == 0


async def _copy_of_score(dsn: str, made: Score, change: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(
                "CREATE TEMP TABLE copied ON COMMIT DROP AS "
                "SELECT * FROM session_scores WHERE score_id = $1",
                made.score_id,
            )
            await connection.execute(change)
            await connection.execute("INSERT INTO session_scores SELECT * FROM copied")
    finally:
        await connection.close()


# ── odd text ────────────────────────────────────────────────────────────────


async def test_text_that_a_verdict_may_hold_is_stored(store: Store, database: str) -> None:
    text = storable(ODD)
    claimed = await in_progress(store)
    made = score(
        claimed,
        reasoning=text,
        details=tuple(storable_json([{"id": "c", "reasoning": ODD, ODD: [ODD]}])),
        samples=tuple(storable_json([{"nonce": ODD}])),
        missing_tools=(MissingTool(tool_name=text, rationale=text, availability="unknown"),),
        approaches=(Approach(name=text, description=text, steps=(text, text)),),
        facts=replace(score(claimed).facts, agent=text, classification_label=text),
    )

    await store.complete(claimed, made)

    (card,) = await store.session_scores("s1")
    assert text == ODD.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd")
    assert (card["score_reasoning"], card["agent"]) == (text, text)
    assert card["score_details"] == [{"id": "c", "reasoning": text, text: [text]}]
    assert card["missing_tools"] == [
        {"tool_name": text, "rationale": text, "availability": "unknown"}
    ]
    assert card["alternative_approaches"] == [
        {"name": text, "description": text, "steps": [text, text]}
    ]
    (told,) = await events(database)
    assert told["data"]["session"]["agent"] == text


async def test_a_message_of_any_script_is_stored_and_told(store: Store, database: str) -> None:
    claimed = await in_progress(store)

    await store.end(claimed, Failed(ErrorCode.JUDGE_REFUSED, storable(ODD)))

    (told,) = await events(database)
    assert told["data"]["message"] == storable(ODD)
    assert (await requests_by_id(database))[claimed.request_id]["error_message"] == storable(ODD)


# ── profiles ────────────────────────────────────────────────────────────────


def profile(**changes: Any) -> Profile:
    return parse_profile(
        {
            "id": "p1",
            "version": 1,
            "match_labels": ["simple"],
            "method": "heuristic",
            "criteria": [{"id": "time", "weight": 2, "scorer": "response_time"}],
        }
        | changes
    )


async def test_a_profile_is_kept_once(store: Store, database: str) -> None:
    assert await store.register_profile(profile(), by="me")
    assert await store.register_profile(profile(), by="someone else")

    (row,) = await fetch(database, "SELECT * FROM judge_profiles")
    assert (row["profile_id"], row["version"], row["created_by"]) == ("p1", 1, "me")
    assert row["active"] is True
    assert json.loads(row["content"]) == profile().body()


async def test_a_changed_profile_under_an_old_version_is_refused(
    store: Store, database: str
) -> None:
    await store.register_profile(profile(), by="me")

    assert not await store.register_profile(profile(quality_risk_threshold=41), by="me")
    kept = json.loads(await value(database, "SELECT content FROM judge_profiles"))
    assert "quality_risk_threshold" not in kept, "it is at its default"

    assert await store.register_profile(profile(quality_risk_threshold=41, version=2), by="me")
    assert await store.register_profile(profile(), by="me")
    assert await value(database, "SELECT count(*) FROM judge_profiles") == 2


async def test_replicas_that_start_at_once_agree_on_a_profile(store: Store, database: str) -> None:
    """One has stored the profile, but not committed yet, when the other asks."""
    async with opened_store(database) as faster, faster._transaction() as connection:
        content = profile().body()
        await connection.fetch(faster._sql["register_profile"], "p1", 1, content, "me")
        same = asyncio.create_task(store.register_profile(profile(), by="me"))
        other = asyncio.create_task(
            store.register_profile(profile(quality_risk_threshold=41), by="me")
        )
        await until_blocked(database, 2)

    assert await same is True
    assert await other is False
    assert await value(database, "SELECT count(*) FROM judge_profiles") == 1


async def test_of_replicas_with_different_profiles_all_but_one_kind_are_refused(
    store: Store, database: str
) -> None:
    kinds = [profile(quality_risk_threshold=20 + number % 2) for number in range(8)]

    agreed = await asyncio.gather(*(store.register_profile(kind, by="me") for kind in kinds))

    kept = json.loads(await value(database, "SELECT content FROM judge_profiles"))
    assert agreed == [kind.body() == kept for kind in kinds]
    assert sum(agreed) == 4


# ── looking ─────────────────────────────────────────────────────────────────


async def test_score_cards_show_a_score_with_its_children(store: Store, database: str) -> None:
    made = await scored(store, request())

    (card,) = await store.session_scores("s1")

    assert card["score_id"] == made.score_id
    assert card["score_breakdown"] == made.breakdown
    assert card["missing_tools"] == [
        {"tool_name": "kubectl_logs", "rationale": "why", "availability": "exists_unused"},
        {"tool_name": "promql", "rationale": "metrics", "availability": "does_not_exist"},
    ]
    assert card["alternative_approaches"] == [
        {"name": "logs first", "description": "read", "steps": ["one", "two", "three"]},
        {"name": "no steps", "description": "ask", "steps": []},
    ]
    assert await value(database, "SELECT count(*) FROM score_cards") == 1


async def test_a_stored_score_comes_back_as_it_was(store: Store) -> None:
    made = await scored(store, request())
    await store.accept([request()], [])

    assert await begin(store, await claim_one(store)) == made


async def test_a_sessions_requests_are_shown_newest_first(store: Store, database: str) -> None:
    asked = [request(), request(), request()]
    for one in asked:
        await store.accept([one], [])
    await store.accept([request("s2")], [])

    shown = await store.session_requests("s1")

    assert [row["request_id"] for row in shown] == [one.request_id for one in asked[::-1]]
    assert shown[0]["coalesced_into"] == asked[0].request_id
    assert await store.session_requests("s3") == []


async def test_counts_are_by_state(store: Store) -> None:
    assert await store.counts() == {}
    await scored(store, request("s1"))
    await store.end(await in_progress(store, "s2"), Failed(ErrorCode.SCORING_DISABLED, "off"))
    await in_progress(store, "s3")
    await store.accept([request("s3"), request("s4")], [])

    assert await store.counts() == {
        "completed": 1,
        "skipped": 1,
        "in_progress": 1,
        "pending": 2,
    }


async def test_the_backlog_says_how_much_waits_and_how_long(store: Store, database: str) -> None:
    assert await store.backlog(10) == Backlog(
        pending=0, in_progress=0, oldest_pending_s=0, outbox=0, oldest_outbox_s=0
    )
    await in_progress(store, "s0")
    first = event(1)
    await store.accept([request(f"s{number}") for number in range(1, 4)], [first, event(2)])
    aged = "UPDATE {} SET {} = now() - make_interval(secs => {}) WHERE {}"
    await execute(database, aged.format("score_requests", "received_at", 90, "session_id = 's0'"))
    await execute(database, aged.format("score_requests", "received_at", 60, "session_id = 's2'"))
    await execute(
        database, aged.format("outbox", "created_at", 30, f"event_id = '{first.event_id}'")
    )

    full, cut = await store.backlog(10), await store.backlog(1)

    assert (full.pending, full.in_progress, full.outbox) == (3, 1, 2)
    assert (cut.pending, cut.in_progress, cut.outbox) == (1, 1, 1)
    assert 60 <= full.oldest_pending_s < 85
    assert 30 <= full.oldest_outbox_s < 55


# ── what judges were sent ───────────────────────────────────────────────────


def sent(prompt: str) -> tuple[Content, ...]:
    """What is stored of a request for this prompt."""
    return sent_request(b"judge\n" + to_json({"prompt": prompt}), prompt, "nonce").contents


SENT = sent("Judge \0 this, \ufffe nonce")


async def test_what_judges_were_sent_is_kept_with_the_score(store: Store, database: str) -> None:
    claimed = await in_progress(store)
    names = [content.sha256 for content in SENT]
    sample = {"points": {"flow": 20}, "nonce": "n1", "sent_sha256": names}
    made = score(claimed, sent=SENT, samples=(sample,))

    await store.complete(claimed, made)

    stored = await store.score(made.score_id)
    assert stored is not None
    assert stored.samples == (sample,)
    assert await store.sent([*names, "0" * 64]) == dict(zip(names, SENT, strict=True))


async def test_the_same_content_is_kept_once_and_as_long_as_it_is_used(
    store: Store, database: str
) -> None:
    await scored(store, request(), sent=SENT)
    await execute(database, "UPDATE judge_sent SET used_at = now() - interval '40 d'")
    await scored(store, request(force_rescore=True), sent=SENT[::-1])

    rows = await fetch(database, "SELECT *, now() - used_at AS age FROM judge_sent")
    assert {(row["sha256"], row["content"]) for row in rows} == {(c.sha256, c.packed) for c in SENT}
    assert max(row["age"] for row in rows) < timedelta(minutes=5)
    assert await store.prune_inputs(older_than_days=30, batch=10) == 0


async def test_nobody_waits_for_another_to_store_what_is_there(store: Store, database: str) -> None:
    """All scores by a profile have a content in common."""
    await scored(store, request("s1"), sent=SENT)
    other = await asyncpg.connect(database)
    try:
        async with other.transaction(), asyncio.timeout(20):
            await other.execute("SELECT FROM judge_sent FOR UPDATE")
            await scored(store, request("s2"), sent=SENT)
    finally:
        await other.close()


async def test_a_score_by_rules_keeps_nothing_that_was_sent(store: Store, database: str) -> None:
    await scored(store, request())
    assert await value(database, "SELECT count(*) FROM judge_sent") == 0


async def test_a_score_that_is_not_stored_keeps_nothing_either(store: Store, database: str) -> None:
    claimed = await in_progress(store)
    lost = replace(claimed, lease_token=uuid4())
    with pytest.raises(LeaseLost):
        await store.complete(lost, score(lost, sent=SENT))
    assert await value(database, "SELECT count(*) FROM judge_sent") == 0


async def test_what_was_sent_long_ago_is_pruned_in_batches_and_its_scores_stay(
    store: Store, database: str
) -> None:
    for number in range(3):
        contents = sent(f"prompt {number}")
        await scored(store, request(f"s{number}"), sent=contents)
    names = [content.sha256 for content in contents]
    await execute(
        database,
        "UPDATE judge_sent SET used_at = now() - interval '31 d' WHERE sha256 <> ALL ($1::text[])",
        names,
    )
    # What a former program stored in its place.
    await execute(
        database,
        "INSERT INTO judge_inputs SELECT repeat('0', 64), '{}', now() - interval '31 d'",
    )

    assert await store.prune_inputs(older_than_days=32, batch=10) == 0
    assert await store.prune_inputs(older_than_days=30, batch=1) == 1
    assert await store.prune_inputs(older_than_days=30, batch=10) == 1
    assert await store.prune_inputs(older_than_days=30, batch=10) == 1, "of the former program"
    assert await store.prune_inputs(older_than_days=30, batch=10) == 0
    assert set(await store.sent(names)) == set(names)
    assert (await row_counts(database))["session_scores"] == 3


@pytest.mark.parametrize("table", ["judge_sent", "judge_inputs"])
async def test_what_is_used_again_while_others_prune_stays(
    store: Store, database: str, table: str
) -> None:
    await scored(store, request(), sent=SENT)
    await execute(database, "INSERT INTO judge_inputs SELECT repeat('0', 64), '{}', now()")
    await execute(database, f"UPDATE {table} SET used_at = now() - interval '31 d'")  # noqa: S608
    kept = await value(database, f"SELECT count(*) FROM {table}")  # noqa: S608
    other = await asyncpg.connect(database)
    try:
        async with other.transaction():
            await other.execute(f"UPDATE {table} SET used_at = now()")  # noqa: S608
            pruning = asyncio.create_task(store.prune_inputs(older_than_days=30, batch=10))
            await asyncio.wait({pruning}, timeout=1)
        assert await pruning == 0
    finally:
        await other.close()
    assert await value(database, f"SELECT count(*) FROM {table}") == kept  # noqa: S608


async def test_a_score_is_found_by_its_id_with_all_that_belongs_to_it(store: Store) -> None:
    made = await scored(
        store,
        request(),
        elision={"strategy": ["references"], "bytes": 500, "ratio": 0.5},
        injection_flags=({"step": None, "part": "final_analysis", "kind": "verdict"},),
    )
    assert await store.score(made.score_id) == made
    assert await store.score(uuid4()) is None


async def test_criteria_are_found_by_their_hash(store: Store) -> None:
    assert await store.criteria(CRITERIA.hash) == CRITERIA.content
    with pytest.raises(LookupError, match="no criteria ffff"):
        await store.criteria("f" * 64)
