"""Requests in the tables: accepted once, coalesced, claimed under leases, never lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from consumer.edges.postgres.store import PORTION, IncomingRequest, Store, load_queries
from consumer.error_codes import ErrorCode
from consumer.errors import AlreadyBeingScored, LeaseLost
from consumer.pipeline import Failed
from consumer.ports import ClaimedRequest
from consumer.resources import resource
from tests.integration.builders import (
    ASKED_AT,
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
    persistently,
    request,
    requests_by_id,
    row_counts,
    score,
    scored,
    until_blocked,
    value,
)
from tests.support.servers import PostgresServer

GAVE_UP = Failed(ErrorCode.HISTORY_INVALID, "no use")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_database(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    async with migrated_database(postgres, migrated_template) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def database(module_database: str) -> str:
    return await emptied(module_database)


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with opened_store(database, size=16) as opened:
        yield opened


async def waits_for(dsn: str) -> dict[UUID, UUID | None]:
    """Whom each request waits for."""
    return {i: row["coalesced_into"] for i, row in (await requests_by_id(dsn)).items()}


# ── accepting ───────────────────────────────────────────────────────────────


async def test_an_accepted_request_is_stored_as_it_came(store: Store, database: str) -> None:
    wanted = request(
        profile_id="p1",
        force_rescore=True,
        triggered_by="jörg\u2028☃",
        priority=9,
        topic="t",
        partition=3,
        offset=2**40,
        trace=TRACE,
    )

    assert await store.accept([wanted], []) == 1

    (row,) = await fetch(database, "SELECT * FROM score_requests")
    now = datetime.now(UTC)
    assert abs(row.pop("received_at") - now) < timedelta(seconds=30)
    assert abs(row.pop("next_attempt_at") - now) < timedelta(seconds=30)
    assert {name: got for name, got in row.items() if got is not None} == {
        "request_id": wanted.request_id,
        "session_id": "s1",
        "profile_id": "p1",
        "force_rescore": True,
        "triggered_by": "jörg\u2028☃",
        "priority": 9,
        "state": "pending",
        "attempt": 0,
        "lost_leases": 0,
        "waiters_left": False,
        "source_topic": "t",
        "source_partition": 3,
        "source_offset": 2**40,
        "traceparent": TRACE["traceparent"],
        "tracestate": TRACE["tracestate"],
        "requested_at": ASKED_AT,
    }


async def test_an_empty_batch_stores_nothing(store: Store, database: str) -> None:
    assert await store.accept([], []) == 0

    assert set((await row_counts(database)).values()) == {0}


async def test_a_duplicate_inside_a_batch_is_stored_once_as_it_came_first(
    store: Store, database: str
) -> None:
    first = request(priority=3)

    assert await store.accept([first, replace(first, priority=9), first], []) == 1

    assert await fetch(database, "SELECT request_id, priority FROM score_requests") == [
        {"request_id": first.request_id, "priority": 3}
    ]


async def test_a_duplicate_in_another_batch_changes_nothing(store: Store, database: str) -> None:
    first, waiter = request(), request()
    await store.accept([first, waiter], [])
    before = await requests_by_id(database)

    again = [replace(waiter, priority=9), replace(first, force_rescore=True, offset=7)]
    assert await store.accept(again, []) == 0
    assert await store.accept(again[::-1], []) == 0

    assert await requests_by_id(database) == before


@pytest.mark.parametrize("end", ["complete", "end"])
async def test_a_request_that_is_finished_can_come_again_without_effect(
    store: Store, database: str, end: str
) -> None:
    finished = request()
    if end == "complete":
        await scored(store, finished)
    else:
        await store.accept([finished], [])
        await store.end(await claim_one(store), GAVE_UP)
    before, counts = await requests_by_id(database), await row_counts(database)

    assert await store.accept([replace(finished, force_rescore=True)], []) == 0

    assert await requests_by_id(database) == before
    assert await row_counts(database) == counts
    assert await claim(store) == []


async def test_a_new_request_beside_a_known_one_of_its_session_is_accepted(
    store: Store, database: str
) -> None:
    known = request(priority=9)
    await scored(store, known)
    new, another = request(priority=1), request(priority=2)

    assert await store.accept([known, new, another], []) == 2

    assert await waits_for(database) == {
        known.request_id: None,
        another.request_id: None,
        new.request_id: another.request_id,
    }


async def test_requests_and_dead_letters_are_stored_together_or_not_at_all(
    store: Store, database: str
) -> None:
    letters = [event(1), event(2, key=None, payload=None)]
    with pytest.raises(asyncpg.CheckViolationError):
        await store.accept([request(), request("not a session id")], letters)
    assert set((await row_counts(database)).values()) == {0}

    assert await store.accept([request()], letters) == 1

    stored = await fetch(database, "SELECT event_id, key, payload FROM outbox ORDER BY seq")
    assert stored == [
        {"event_id": letters[0].event_id, "key": b"s1", "payload": b'{"number": 1}'},
        {"event_id": letters[1].event_id, "key": None, "payload": None},
    ]


async def test_a_value_that_fits_no_column_is_no_outage(store: Store, database: str) -> None:
    """Whoever waits for the server to come back would wait for ever."""
    with pytest.raises(asyncpg.DataError):
        await store.accept([request(priority=2**40)], [])

    assert await value(database, "SELECT count(*) FROM score_requests") == 0


# ── coalescing ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batches", [1, 3])
async def test_what_is_asked_twice_waits_for_the_first(
    store: Store, database: str, batches: int
) -> None:
    asked = [request(priority=5) for _ in range(3)]
    if batches == 1:
        assert await store.accept(asked, []) == 3
    else:
        assert [await store.accept([one], []) for one in asked] == [1, 1, 1]

    leaders = [i for i, leader in (await waits_for(database)).items() if leader is None]
    assert len(leaders) == 1
    assert sorted((await waits_for(database)).items()) == sorted(
        (one.request_id, None if one.request_id == leaders[0] else leaders[0]) for one in asked
    )
    assert [claimed.request_id for claimed in await claim(store, 10)] == leaders


async def test_a_waiter_can_join_while_its_leader_is_worked_on(store: Store, database: str) -> None:
    leader, waiter = request(), request()
    await store.accept([leader], [])
    await claim_one(store)

    assert await store.accept([waiter], []) == 1

    assert (await waits_for(database))[waiter.request_id] == leader.request_id
    assert await claim(store) == []


async def test_another_session_or_profile_waits_for_nobody(store: Store, database: str) -> None:
    asked = [
        request(),
        request(profile_id=PROFILE),
        request(profile_id="other"),
        request("s2"),
        request("s2", profile_id=PROFILE),
    ]

    assert await store.accept(asked, []) == len(asked)

    assert set((await waits_for(database)).values()) == {None}
    assert len(await claim(store, 10)) == len(asked)


async def test_a_waiter_raises_its_pending_leader(store: Store, database: str) -> None:
    leader = request(priority=5)
    await store.accept([leader], [])

    await store.accept([request(priority=2), request(priority=7, force_rescore=True)], [])

    row = (await requests_by_id(database))[leader.request_id]
    assert (row["priority"], row["force_rescore"]) == (7, True)
    await store.accept([request(priority=1)], [])
    row = (await requests_by_id(database))[leader.request_id]
    assert (row["priority"], row["force_rescore"]) == (7, True)


async def test_a_waiter_forces_no_leader_that_is_being_worked_on(
    store: Store, database: str
) -> None:
    leader = request()
    await store.accept([leader], [])
    claimed = await claim_one(store)

    await store.accept([request(force_rescore=True)], [])

    assert not (await requests_by_id(database))[claimed.request_id]["force_rescore"]


async def test_a_forced_waiter_is_not_answered_by_a_reused_score_but_leads_next(
    store: Store, database: str
) -> None:
    earlier = await scored(store, request())
    leader, content = request(), request()
    insisting, insisting_too = request(force_rescore=True), request(force_rescore=True)
    await store.accept([leader], [])
    claimed = await claim_one(store)
    await store.accept([content], [])
    await store.accept([insisting], [])
    await store.accept([insisting_too], [])
    reused = await begin(store, claimed)
    assert reused == earlier

    await store.reuse(claimed, reused)

    rows = await requests_by_id(database)
    answered = {i: row["score_id"] for i, row in rows.items() if row["state"] == "completed"}
    assert answered == dict.fromkeys(
        (earlier.request_id, leader.request_id, content.request_id), earlier.score_id
    )
    assert rows[insisting.request_id]["coalesced_into"] is None
    assert rows[insisting_too.request_id]["coalesced_into"] == insisting.request_id

    promoted = await claim_one(store)
    assert promoted.request_id == insisting.request_id
    assert await begin(store, promoted) is None  # nothing stored will do
    new = score(promoted)
    await store.complete(promoted, new)
    rows = await requests_by_id(database)
    assert rows[insisting.request_id]["score_id"] == new.score_id
    assert rows[insisting_too.request_id]["score_id"] == new.score_id


MANY = 2 * PORTION + 7


async def waited_for(store: Store, count: int = MANY, **changes: Any) -> ClaimedRequest:
    """A request under way that so many wait for."""
    await store.register_criteria(CRITERIA)
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await store.accept([request(**changes) for _ in range(count)], [])
    return claimed


async def check_each_is_answered_once(dsn: str) -> None:
    asked = {str(request_id) for request_id in await requests_by_id(dsn)}
    payloads = await fetch(dsn, "SELECT payload FROM outbox WHERE type <> 'quality_risk'")
    assert sorted(json.loads(row["payload"])["request_id"] for row in payloads) == sorted(asked)
    assert await fetch(dsn, "SELECT FROM score_requests WHERE waiters_left") == []


@pytest.mark.parametrize("how", ["completed", "reused", "failed"])
async def test_many_waiters_are_answered_in_portions(store: Store, database: str, how: str) -> None:
    if how == "reused":
        earlier = await scored(store, request())
    claimed = await waited_for(store)

    match how:
        case "completed":
            await store.complete(claimed, score(claimed))
        case "reused":
            await store.reuse(claimed, earlier)
        case "failed":
            await store.end(claimed, GAVE_UP)

    open_ = "SELECT count(*) FROM score_requests WHERE finished_at IS NULL"
    assert await value(database, open_) == MANY - PORTION
    await store.accept([request()], [])  # the session is free again: this one waits for nobody
    # The one who answered first may be gone: whoever is there goes on, and nobody does it twice.
    async with opened_store(database) as another:
        while any(await asyncio.gather(*(s.answer_waiters() for s in (store, another)))):
            pass
    assert await value(database, open_) == 1
    await store.end(await claim_one(store), GAVE_UP)
    await check_each_is_answered_once(database)
    ends = await fetch(
        database,
        "SELECT DISTINCT state, score_id, error_code, error_message FROM score_requests "
        "WHERE coalesced_into = $1",
        claimed.request_id,
    )
    leader = (await requests_by_id(database))[claimed.request_id]
    assert ends == [{name: leader[name] for name in ends[0]}]


async def test_of_many_waiters_those_that_insist_lead_next(store: Store, database: str) -> None:
    earlier = await scored(store, request())
    claimed = await waited_for(store)
    await store.accept([request(force_rescore=True) for _ in range(3)], [])

    await store.reuse(claimed, earlier)

    while await store.answer_waiters():
        pass
    promoted = await claim_one(store)
    assert await begin(store, promoted) is None
    await store.complete(promoted, score(promoted))
    await check_each_is_answered_once(database)


async def test_a_full_portion_without_others_leaves_nobody(store: Store, database: str) -> None:
    claimed = await waited_for(store, PORTION)

    await store.end(claimed, GAVE_UP)

    assert await store.answer_waiters()
    assert not await store.answer_waiters()
    await check_each_is_answered_once(database)


async def test_whoever_waits_while_others_are_told_can_be_cancelled(
    store: Store, database: str
) -> None:
    claimed = await waited_for(store)
    await store.end(claimed, GAVE_UP)
    (last,) = await fetch(
        database,
        "SELECT request_id FROM score_requests WHERE state = 'pending' "
        "ORDER BY received_at DESC, request_id DESC LIMIT 1",
    )

    assert await store.cancel(last["request_id"], by="ops")

    while await store.answer_waiters():
        pass
    assert (await requests_by_id(database))[last["request_id"]]["state"] == "cancelled"
    await check_each_is_answered_once(database)


async def test_to_tell_of_many_changed_states_costs_less_than_to_change_them(database: str) -> None:
    """Also by a plan that was made when they were few; through all pairs of them it was 50 times
    as much.
    """
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(
            "INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, "
            "priority, requested_at) SELECT gen_random_uuid(), 's' || n, false, 't', 5, now() "
            "FROM generate_series(1, 16000) n"
        )
        for number in range(10):
            await _told_share(connection, f"s{number}")
        assert await _told_share(connection, "s%") < 0.75
    finally:
        await connection.close()


async def _told_share(connection: asyncpg.Connection[Any], sessions: str) -> float:
    """Of the time that it takes to change these requests' state for a moment."""
    change = connection.transaction()
    await change.start()
    explained = await connection.fetchval(
        "EXPLAIN (ANALYZE, FORMAT JSON) UPDATE score_requests SET state = 'failed', "
        "error_code = 'x', finished_at = now() WHERE session_id LIKE $1",
        sessions,
    )
    await change.rollback()
    (done,) = json.loads(explained)
    told = next(t for t in done["Triggers"] if t["Trigger Name"] == "request_states_noted")
    return float(told["Time"] / done["Execution Time"])


async def test_a_forced_waiter_is_content_with_a_new_score(store: Store, database: str) -> None:
    await store.register_criteria(CRITERIA)
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    insisting = request(force_rescore=True)
    await store.accept([insisting], [])
    new = score(claimed)

    await store.complete(claimed, new)

    assert (await requests_by_id(database))[insisting.request_id]["score_id"] == new.score_id


# ── races ───────────────────────────────────────────────────────────────────


async def test_concurrent_accepts_lose_nothing_and_leave_one_leader(
    store: Store, database: str
) -> None:
    asked = [
        request(f"s{number % 5}", profile_id=profile, priority=number % 10)
        for number in range(40)
        for profile in (None, PROFILE)
    ]
    # Every batch overlaps with others in its sessions, and most in its requests too.
    batches = [random.sample(asked, 30) for _ in range(7)]
    batches.append([one for one in asked if not any(one in batch for batch in batches)])

    new = await asyncio.gather(*(persistently(store.accept, batch, []) for batch in batches))

    rows = await requests_by_id(database)
    assert rows.keys() == {one.request_id for one in asked}
    assert sum(new) == len(asked)
    leaders: dict[Any, list[UUID]] = defaultdict(list)
    for row in rows.values():
        if row["coalesced_into"] is None:
            leaders[row["session_id"], row["profile_id"]].append(row["request_id"])
    assert len(leaders) == 10
    assert {len(ids) for ids in leaders.values()} == {1}
    for row in rows.values():
        (leader,) = leaders[row["session_id"], row["profile_id"]]
        assert row["coalesced_into"] == (None if row["request_id"] == leader else leader)


async def test_accepts_of_waiters_for_the_same_leaders_do_not_wait_for_each_other_in_a_circle(
    store: Store, database: str
) -> None:
    sessions = [f"s{number}" for number in range(60)]
    await store.accept([request(session) for session in sessions], [])
    batches = []
    for _ in range(8):
        random.shuffle(sessions)
        batches.append([request(session) for session in sessions])

    assert await asyncio.gather(*(store.accept(batch, []) for batch in batches)) == [60] * 8

    assert await value(database, "SELECT count(*) FROM score_requests") == 9 * 60


async def test_the_database_refuses_a_second_leader(store: Store, database: str) -> None:
    await store.accept([request(), request()], [])

    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await execute(database, "UPDATE score_requests SET coalesced_into = NULL")

    assert refused.value.constraint_name == "one_active_request"


@pytest.mark.parametrize("end", ["complete", "end", "reuse"])
async def test_a_waiter_that_comes_while_its_leader_ends_is_never_orphaned(
    store: Store, database: str, end: str
) -> None:
    outcomes: Counter[str] = Counter()
    await store.register_criteria(CRITERIA)

    for number in range(25):
        session = f"{end}-{number}"
        leader, *waiters = (request(session, force_rescore=i == 2) for i in range(5))
        if end == "reuse":
            await scored_by_name(store, request(session))
        await store.accept([leader, waiters[0]], [])
        claimed = await claim_named(store, session)

        await asyncio.gather(
            _end(store, end, claimed),
            *(_accept_soon(store, waiter) for waiter in waiters[1:]),
        )

        rows = await requests_by_id(database)
        for waiter in waiters:
            row = rows[waiter.request_id]
            if row["state"] == "pending":
                outcomes["leads" if row["coalesced_into"] is None else "waits"] += 1
                ahead = rows[row["coalesced_into"] or waiter.request_id]
                assert (ahead["state"], ahead["coalesced_into"]) == ("pending", None)
            else:
                outcomes["answered"] += 1
                assert row["state"] == rows[leader.request_id]["state"]
                assert row["score_id"] == rows[leader.request_id]["score_id"]

    # Each finished request has one answer, and no other request has one.
    finished = await fetch(
        database, "SELECT request_id AS id FROM score_requests WHERE finished_at IS NOT NULL"
    )
    answers = await fetch(
        database,
        "SELECT (convert_from(payload, 'UTF8')::json->>'request_id')::uuid AS id FROM outbox",
    )
    assert Counter(row["id"] for row in answers) == Counter(row["id"] for row in finished)
    assert outcomes["answered"], outcomes


@pytest.mark.parametrize("first", ["waiter", "end"])
async def test_whoever_reaches_the_leader_first_decides_over_the_waiter(
    store: Store, database: str, first: str
) -> None:
    """Both orders of the race above, each made certain by a lock that both have to wait for."""
    leader, waiter = request(), request()
    await store.accept([leader], [])
    claimed = await claim_one(store)
    blocker = await asyncpg.connect(database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("SELECT FROM score_requests FOR UPDATE")
    steps: dict[str, Coroutine[Any, Any, Any]] = {
        "waiter": store.accept([waiter], []),
        "end": store.end(claimed, GAVE_UP),
    }
    tasks = []
    for name in (first, *(steps.keys() - {first})):
        tasks.append(asyncio.create_task(steps[name]))
        await until_blocked(database, len(tasks))

    await transaction.rollback()
    await blocker.close()
    await asyncio.gather(*tasks)

    rows = await requests_by_id(database)
    assert rows[leader.request_id]["state"] == "failed"
    joined = (rows[waiter.request_id]["state"], rows[waiter.request_id]["coalesced_into"])
    assert joined == (("failed", leader.request_id) if first == "waiter" else ("pending", None))


async def scored_by_name(store: Store, incoming: IncomingRequest) -> None:
    await store.accept([incoming], [])
    claimed = await claim_named(store, incoming.session_id)
    await begin(store, claimed)
    await store.complete(claimed, score(claimed))


async def claim_named(store: Store, session: str) -> ClaimedRequest:
    """The claim of this session; other sessions' left-overs are claimed along."""
    (found,) = [one for one in await claim(store, 100) if one.session_id == session]
    return found


async def _accept_soon(store: Store, waiter: IncomingRequest) -> None:
    await asyncio.sleep(random.random() * 0.006)
    await persistently(store.accept, [waiter], [])


async def _end(store: Store, end: str, claimed: ClaimedRequest) -> None:
    if end == "complete":
        assert await begin(store, claimed) is None
        await store.complete(claimed, score(claimed))
    elif end == "reuse":
        stored = await begin(store, claimed)
        assert stored
        await store.reuse(claimed, stored)
    else:
        await asyncio.sleep(random.random() * 0.004)
        await store.end(claimed, GAVE_UP)


# ── cancelling ──────────────────────────────────────────────────────────────


async def test_a_cancelled_request_is_over_for_whoever_works_on_it(
    store: Store, database: str
) -> None:
    await store.register_criteria(CRITERIA)
    await store.accept([request(trace=TRACE)], [])
    claimed = await claim_one(store)
    await begin(store, claimed)

    assert await store.cancel(claimed.request_id, by="ops") is True

    before = await row_counts(database)
    with pytest.raises(LeaseLost):
        await store.complete(claimed, score(claimed))
    assert await row_counts(database) == before
    (row,) = await fetch(database, "SELECT * FROM score_requests")
    assert (row["state"], row["error_code"]) == ("cancelled", "cancelled")
    assert "ops" in row["error_message"]
    (told,) = await fetch(database, "SELECT * FROM outbox")
    assert told["type"] == "score.failed"
    data = json.loads(told["payload"])
    assert (data["request_id"], data["state"]) == (str(claimed.request_id), "cancelled")
    assert dict(json.loads(told["headers"]))["traceparent"] == TRACE["traceparent"]


async def test_those_who_waited_for_a_cancelled_request_go_on_without_it(
    store: Store, database: str
) -> None:
    leader, *waiters = (request() for _ in range(3))
    for one in (leader, *waiters):
        await store.accept([one], [])

    assert await store.cancel(waiters[0].request_id, by="ops")
    assert await store.cancel(leader.request_id, by="ops")

    rows = await requests_by_id(database)
    assert rows[waiters[0].request_id]["state"] == "cancelled"
    assert rows[waiters[1].request_id]["coalesced_into"] is None
    assert (await claim_one(store)).request_id == waiters[1].request_id
    assert (await row_counts(database))["outbox"] == 2


async def test_who_is_promoted_is_as_urgent_as_the_most_urgent_that_wait_for_it(
    store: Store, database: str
) -> None:
    leader, first, urgent, patient = (request(priority=p) for p in (5, 2, 9, 1))
    for one in (leader, first, urgent, patient):
        await store.accept([one], [])

    assert await store.cancel(leader.request_id, by="ops")

    rows = await requests_by_id(database)
    priorities = [rows[one.request_id]["priority"] for one in (first, urgent, patient)]
    assert priorities == [9, 9, 1]
    assert {rows[r.request_id]["coalesced_into"] for r in (urgent, patient)} == {first.request_id}


async def test_only_what_is_not_finished_can_be_cancelled(store: Store, database: str) -> None:
    made = await scored(store, request())
    before = await requests_by_id(database), await row_counts(database)

    assert not await store.cancel(made.request_id, by="ops")
    assert not await store.cancel(uuid4(), by="ops")

    assert (await requests_by_id(database), await row_counts(database)) == before


async def test_a_request_is_cancelled_or_completed_never_both(store: Store, database: str) -> None:
    await store.register_criteria(CRITERIA)
    for number in range(15):
        leader, waiter = request(f"s{number}"), request(f"s{number}")
        await store.accept([leader], [])
        await store.accept([waiter], [])
        claimed = await claim_named(store, f"s{number}")

        cancelled, *_ = await asyncio.gather(
            store.cancel(claimed.request_id, by="ops"),
            store.complete(claimed, score(claimed)),
            store.cancel(waiter.request_id, by="ops"),
            return_exceptions=True,
        )

        row = (await requests_by_id(database))[claimed.request_id]
        assert row["state"] == ("cancelled" if cancelled else "completed")

    finished = "SELECT count(*) FROM score_requests WHERE finished_at IS NOT NULL"
    answers = (
        "SELECT count(DISTINCT convert_from(payload, 'UTF8')::json->>'request_id') FROM outbox"
    )
    assert await value(database, answers) == await value(database, finished)
    assert (await row_counts(database))["outbox"] == await value(database, finished)
    orphans = """
        SELECT count(*) FROM score_requests w
        JOIN score_requests l ON w.coalesced_into = l.request_id
        WHERE w.state = 'pending' AND l.finished_at IS NOT NULL
    """
    assert await value(database, orphans) == 0


# ── pruning ─────────────────────────────────────────────────────────────────


async def test_pruning_deletes_old_finished_requests_and_keeps_scores(
    store: Store, database: str
) -> None:
    old, recent = await scored(store, request("old")), await scored(store, request("recent"))
    await store.accept([request("failed")], [])
    await store.end(await claim_one(store), GAVE_UP)
    await store.accept([request("waiting"), request("waiting")], [])
    await execute(
        database,
        "UPDATE score_requests SET received_at = now() - interval '99 d', finished_at = "
        "CASE WHEN finished_at IS NULL THEN NULL ELSE now() - interval '99 d' END "
        "WHERE session_id <> 'recent'",
    )

    deleted = [await store.prune(older_than_days=90, batch=1) for _ in range(3)]

    assert deleted == [1, 1, 0]
    left = await fetch(database, "SELECT session_id FROM score_requests ORDER BY 1")
    assert [row["session_id"] for row in left] == ["recent", "waiting", "waiting"]
    kept = await fetch(database, "SELECT score_id FROM session_scores WHERE is_current")
    assert {row["score_id"] for row in kept} == {old.score_id, recent.score_id}
    # Nothing has forgotten the score: it answers again.
    await store.accept([request("old", priority=9)], [])
    assert await begin(store, (await claim(store))[0]) == old


# ── claiming ────────────────────────────────────────────────────────────────


async def test_the_most_urgent_is_claimed_first_then_the_longest_due(store: Store) -> None:
    asked = {
        (priority, number): request(f"s{priority}-{number}", priority=priority)
        for number in range(2)
        for priority in (5, 9, 0)
    }
    for one in asked.values():  # one batch each: their times differ
        await store.accept([one], [])

    order = [(await claim(store))[0].request_id for _ in asked]

    assert order == [
        asked[wanted].request_id for wanted in [(9, 0), (9, 1), (5, 0), (5, 1), (0, 0), (0, 1)]
    ]


async def test_a_claim_of_many_is_in_the_order_of_urgency(store: Store) -> None:
    await store.accept([request(f"s{p}", priority=p) for p in (4, 8, 1, 9)], [])

    claimed = await claim(store, 3)

    assert [one.session_id for one in claimed] == ["s9", "s8", "s4"]


async def test_a_claim_takes_a_lease_by_the_clock_of_the_database(
    store: Store, database: str
) -> None:
    wanted = request(profile_id="p1", trace=TRACE)
    await store.accept([wanted], [])

    claimed = await claim_one(store, lease_s=90)

    (row,) = await fetch(database, "SELECT * FROM score_requests")
    assert (row["state"], row["attempt"], row["lease_owner"]) == ("in_progress", 1, "worker-1")
    assert row["lease_expires_at"] - row["started_at"] == timedelta(seconds=90)
    assert claimed == ClaimedRequest(
        request_id=wanted.request_id,
        session_id="s1",
        profile_id="p1",
        force_rescore=False,
        triggered_by="tests",
        attempt=1,
        lost_leases=0,
        lease_token=row["lease_token"],
        received_at=row["received_at"],
        started_at=row["started_at"],
        claimed_at=row["started_at"],
        deadline_at=None,
        trace=TRACE,
    )


async def test_claims_wait_for_no_disk_but_what_follows_does(store: Store, database: str) -> None:
    """How each statement's own commit would wait, told from inside of its transaction."""
    sql = load_queries((resource("sql") / "queries.sql").read_text())
    await store.accept([request(f"s{n}", profile_id=PROFILE) for n in range(4)], [])
    (first,) = await claim(store)
    await lose(store, database, "s3", times=2)
    waits: dict[str, str] = {}
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as pool:
        for name, given in (
            ("claim", (1, "worker-1", 60.0, [], 2)),
            ("claim_probe", ([PROFILE], "worker-1", 60.0, 2)),
            ("claim_alone", (2, "worker-1", 60.0, [])),
            ("begin_scoring", (first.request_id, first.lease_token, PROFILE)),
            ("lock_request", (first.request_id, first.lease_token)),
        ):
            async with pool.acquire() as connection, connection.transaction():
                assert await connection.fetch(sql[name], *given), name
                waits[name] = await connection.fetchval("SHOW synchronous_commit")
            # Only for that transaction.
            assert await pool.fetchval("SHOW synchronous_commit") == "on"
    assert waits == {
        "claim": "off",
        "claim_probe": "off",
        "claim_alone": "off",
        "begin_scoring": "on",
        "lock_request": "on",
    }


async def test_what_is_not_due_yet_is_not_claimed(store: Store, database: str) -> None:
    await store.accept([request()], [])
    await execute(database, "UPDATE score_requests SET next_attempt_at = now() + interval '1 h'")
    assert await claim(store) == []

    await execute(database, "UPDATE score_requests SET next_attempt_at = now() - interval '1 h'")
    assert len(await claim(store)) == 1


async def test_a_locked_request_is_passed_over_without_waiting(store: Store, database: str) -> None:
    await store.accept([request("s1", priority=9), request("s2", priority=1)], [])
    other = await asyncpg.connect(database)
    transaction = other.transaction()
    await transaction.start()
    await other.execute("SELECT FROM score_requests WHERE session_id = 's1' FOR UPDATE")

    async with asyncio.timeout(5):
        claimed = await claim(store)

    await transaction.rollback()
    await other.close()
    assert [one.session_id for one in claimed] == ["s2"]


async def test_claimers_at_the_same_time_never_share_a_request(store: Store, database: str) -> None:
    await store.accept([request(f"s{number}") for number in range(200)], [])

    async def drain() -> list[UUID]:
        mine: list[UUID] = []
        while claimed := await claim(store, 7):
            mine += [one.request_id for one in claimed]
        return mine

    async with opened_store(database) as other:
        shares = await asyncio.gather(*(drain() for _ in range(4)), _drained(other))

    taken = [one for share in shares for one in share]
    assert len(taken) == len(set(taken)) == 200
    assert await value(database, "SELECT min(attempt) + max(attempt) FROM score_requests") == 2


async def _drained(store: Store) -> list[UUID]:
    mine: list[UUID] = []
    while claimed := await claim(store, 3):
        mine += [one.request_id for one in claimed]
    return mine


async def sessions_claimed(store: Store, *held: str) -> list[str]:
    """The sessions of what is claimed while these profiles are held; all is put back at once."""
    claimed = await claim(store, 10, held=held)
    for one in claimed:
        await store.put_back(one, after_s=0, count_attempt=False)
    return sorted(one.session_id for one in claimed)


async def test_what_needs_a_judge_that_is_left_alone_is_not_claimed(store: Store) -> None:
    await store.accept([request("s1", profile_id="p1"), request("s2", profile_id="p2")], [])
    await store.accept([request("s3")], [])

    assert await sessions_claimed(store) == ["s1", "s2", "s3"]
    assert await sessions_claimed(store, "p1") == ["s2", "s3"]
    assert await sessions_claimed(store, "p2", "p1") == ["s3"]
    # Nobody knows yet whose judge the third one needs: it waits only where all are left alone.
    assert await sessions_claimed(store, "p1", "") == ["s2"]
    assert await sessions_claimed(store, "p1", "p2", "") == []


async def test_a_held_request_is_known_by_the_profile_that_was_chosen(store: Store) -> None:
    await store.accept([request("s1")], [])
    claimed = await claim_one(store)
    await begin(store, claimed, profile_id="p1")
    await store.put_back(claimed, after_s=0, count_attempt=False, held=True)

    assert await claim(store, held=["p1"]) == []
    (again,) = await claim(store, held=["p2", ""])
    assert (again.request_id, again.attempt) == (claimed.request_id, 1)


async def test_a_named_profile_counts_more_than_one_chosen_before(store: Store) -> None:
    await store.accept([request("s1", profile_id="p1")], [])
    claimed = await claim_one(store)
    await begin(store, claimed, profile_id="p1")
    await store.put_back(claimed, after_s=0, count_attempt=False, held=True)

    assert await claim(store, held=["p1"]) == []
    assert len(await claim(store, held=[""])) == 1


async def test_those_who_are_held_let_others_of_less_urgency_pass(store: Store) -> None:
    urgent = [request(f"u{n}", profile_id="p1", priority=9) for n in range(5)]
    await store.accept([*urgent, request("s1", priority=0)], [])

    (claimed,) = await claim(store, 3, held=["p1"])

    assert claimed.session_id == "s1"


# ── leases ──────────────────────────────────────────────────────────────────


async def expire(dsn: str, session: str) -> None:
    await execute(
        dsn,
        "UPDATE score_requests SET lease_expires_at = now() - interval '1 s' WHERE session_id = $1",
        session,
    )


async def test_renewing_extends_only_the_leases_that_are_still_ours(
    store: Store, database: str
) -> None:
    await store.accept([request("s1"), request("s2"), request("s3")], [])
    held = {one.session_id: one for one in await claim(store, 3, lease_s=5)}
    await store.put_back(held["s2"], after_s=0)
    stolen = replace(held["s3"], lease_token=uuid4())

    ours = await store.renew([held["s1"], held["s2"], stolen], lease_s=500)

    assert ours == {held["s1"].request_id: True}
    left = await fetch(
        database,
        "SELECT session_id, lease_expires_at > now() + interval '60 s' AS long "
        "FROM score_requests WHERE state = 'in_progress' ORDER BY session_id",
    )
    assert left == [{"session_id": "s1", "long": True}, {"session_id": "s3", "long": False}]


async def test_a_locked_request_keeps_no_other_from_being_renewed_or_freed(
    store: Store, database: str
) -> None:
    await store.accept([request(f"s{n}") for n in range(4)], [])
    held = {one.session_id: one for one in await claim(store, 4)}
    await expire(database, "s2")
    await expire(database, "s3")
    other = await asyncpg.connect(database)
    try:
        lock = other.transaction()
        await lock.start()
        await other.execute(
            "SELECT FROM score_requests WHERE session_id IN ('s1', 's2') FOR UPDATE"
        )

        renewed = await store.renew([held["s0"], held["s1"]], lease_s=60)
        freed = await store.free_expired()

        assert renewed == {held["s0"].request_id: True, held["s1"].request_id: False}
        assert [session for _, session, _ in freed] == ["s3"]
        await lock.rollback()
    finally:
        await other.close()
    mine = [held["s2"].request_id]
    assert await store.free_expired(but=mine) == []
    assert await store.renew([held["s1"]], lease_s=60) == {held["s1"].request_id: True}
    assert [session for _, session, _ in await store.free_expired()] == ["s2"]


async def test_renewing_nothing_is_possible(store: Store) -> None:
    assert await store.renew([], lease_s=1) == {}


async def test_only_expired_leases_are_freed_and_counted(store: Store, database: str) -> None:
    await store.accept([request("s1"), request("s2")], [])
    held = {one.session_id: one for one in await claim(store, 2)}
    await begin(store, held["s1"])
    await expire(database, "s1")

    assert await store.free_expired() == [(held["s1"].request_id, "s1", 1)]
    assert await store.free_expired() == []

    row = (await requests_by_id(database))[held["s1"].request_id]
    leased = ("lease_owner", "lease_token", "lease_expires_at", "scoring_profile_id")
    assert (row["state"], *(row[name] for name in leased)) == ("pending", None, None, None, None)
    assert (await requests_by_id(database))[held["s2"].request_id]["state"] == "in_progress"

    again = await claim_one(store)
    assert (again.attempt, again.lost_leases) == (2, 1)
    assert again.started_at == held["s1"].started_at
    assert again.lease_token != held["s1"].lease_token
    assert await store.renew([held["s1"]], lease_s=60) == {}
    await expire(database, "s1")
    assert await store.free_expired() == [(held["s1"].request_id, "s1", 2)]


async def lose(store: Store, dsn: str, session: str, *, times: int) -> None:
    """This session's pending request loses so many workers more."""
    for _ in range(times):
        await execute(
            dsn,
            "UPDATE score_requests SET state = 'in_progress', lease_owner = 'gone', "
            "lease_token = gen_random_uuid(), lease_expires_at = now() - interval '1 s' "
            "WHERE session_id = $1 AND state = 'pending' AND coalesced_into IS NULL",
            session,
        )
        assert [freed[1] for freed in await store.free_expired()] == [session]


async def claim_alone(store: Store, *held: str, lost: int | None = 2) -> list[str]:
    """The session that is claimed alone; being due is told beforehand."""
    due = await store.due_alone(lost, held=held)
    claimed = await store.claim_alone(lost, owner="worker-1", lease_s=60, held=held)
    assert due == bool(claimed)
    return [one.session_id for one in claimed]


async def test_a_last_chance_is_not_claimed_beside_others(store: Store, database: str) -> None:
    for profile, lost in itertools.product(("a", "b"), range(4)):
        await store.accept([request(f"{profile}{lost}", profile_id=profile)], [])
        await lose(store, database, f"{profile}{lost}", times=lost)

    probes = [
        one.session_id
        for _ in range(4)
        for one in await store.claim_probe(["a"], owner="w", lease_s=60, alone_at=2)
    ]
    others = await store.claim(8, owner="w", lease_s=60, alone_at=2)

    # Who has lost more has no chance left: whoever meets it gives it up.
    assert sorted(probes) == ["a0", "a1", "a3"]
    assert sorted(one.session_id for one in others) == ["b0", "b1", "b3"]
    assert await claim_alone(store, lost=None) == [], "where there is no such chance"
    assert {*await claim_alone(store), *await claim_alone(store)} == {"a2", "b2"}
    assert await claim_alone(store) == []


async def test_one_last_chance_at_a_time_the_most_urgent_first(store: Store, database: str) -> None:
    await store.accept([request(f"s{n}", priority=n) for n in (1, 9, 5)], [])
    for n in (1, 9, 5):
        await lose(store, database, f"s{n}", times=2)
    other = await asyncpg.connect(database)
    async with other.transaction():
        await other.execute("SELECT FROM score_requests WHERE session_id = 's9' FOR UPDATE")
        async with asyncio.timeout(5):
            assert await claim_alone(store) == ["s5"], "it waits for no other worker's"
    await other.close()

    assert [await claim_alone(store) for _ in range(3)] == [["s9"], ["s1"], []]


async def test_a_last_chance_whose_judge_is_left_alone_is_not_due(
    store: Store, database: str
) -> None:
    await store.accept([request("s1", profile_id="p1"), request("s2")], [])
    for session in ("s1", "s2"):
        await lose(store, database, session, times=2)

    assert await claim_alone(store, "p1", "") == []
    assert await claim_alone(store, "p1") == ["s2"]
    assert await claim_alone(store, "p2") == ["s1"]


async def test_a_cancelled_last_chance_is_not_due(store: Store, database: str) -> None:
    wanted = request("s1")
    await store.accept([wanted], [])
    await lose(store, database, "s1", times=2)
    await store.cancel(wanted.request_id, by="someone")

    assert await claim_alone(store) == []


async def test_only_leases_lost_in_a_row_count(store: Store, database: str) -> None:
    await store.accept([request("s1"), request("s2")], [])
    for session in ("s1", "s2"):
        await lose(store, database, session, times=2)
    (retried,) = await store.claim_alone(2, owner="w", lease_s=60)
    await store.put_back(retried, after_s=0)
    (given_back,) = await store.claim_alone(2, owner="w", lease_s=60)
    await store.put_back(given_back, after_s=0, count_attempt=False)

    assert [one.lost_leases for one in await claim(store, 2)] == [0, 0]


async def test_two_who_free_at_the_same_time_count_once(store: Store, database: str) -> None:
    await store.accept([request(f"s{number}") for number in range(30)], [])
    await claim(store, 30, lease_s=-1)

    freed = await asyncio.gather(*(store.free_expired() for _ in range(4)))

    assert sorted(lost for share in freed for _, _, lost in share) == [1] * 30
    assert await value(database, "SELECT max(lost_leases) FROM score_requests") == 1


# ── putting back ────────────────────────────────────────────────────────────


async def test_a_retry_counts_keeps_its_deadline_and_says_why(store: Store, database: str) -> None:
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    deadline = datetime(2030, 1, 1, tzinfo=UTC)

    await store.put_back(
        claimed, after_s=60, code="judge_unavailable", message="503", deadline_at=deadline
    )

    (row,) = await fetch(database, "SELECT *, next_attempt_at - now() AS due FROM score_requests")
    assert (row["state"], row["attempt"], row["deadline_at"]) == ("pending", 1, deadline)
    assert (row["error_code"], row["error_message"]) == ("judge_unavailable", "503")
    assert row["lease_token"] is row["lease_owner"] is row["scoring_profile_id"] is None
    assert timedelta(seconds=50) < row["due"] <= timedelta(seconds=60)
    assert await claim(store) == []

    await execute(database, "UPDATE score_requests SET next_attempt_at = now()")
    again = await claim_one(store)
    assert (again.attempt, again.deadline_at) == (2, deadline)
    await store.put_back(again, after_s=0)
    (row,) = await fetch(database, "SELECT * FROM score_requests")
    assert (row["deadline_at"], row["error_code"]) == (deadline, "judge_unavailable")


async def test_all_that_are_still_ours_and_free_are_given_back_at_once(
    store: Store, database: str
) -> None:
    await store.accept([request(f"s{n}") for n in range(4)], [])
    held = {one.session_id: one for one in await claim(store, 4)}
    await begin(store, held["s0"])
    await store.end(held["s1"], GAVE_UP)
    stolen = replace(held["s2"], lease_token=uuid4())
    other = await asyncpg.connect(database)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM score_requests WHERE session_id = 's3' FOR UPDATE")
            await store.give_back([held["s0"], held["s1"], stolen, held["s3"]])
    finally:
        await other.close()

    rows = {row["session_id"]: row for row in (await requests_by_id(database)).values()}
    states = ["pending", "failed", "in_progress", "in_progress"]
    assert [rows[f"s{n}"]["state"] for n in range(4)] == states
    again = await claim_one(store)
    assert (again.request_id, again.attempt) == (held["s0"].request_id, 1)


async def test_a_release_takes_its_attempt_back_and_is_due_at_once(store: Store) -> None:
    await store.accept([request()], [])
    for _ in range(3):
        claimed = await claim_one(store)
        assert claimed.attempt == 1
        await store.put_back(claimed, after_s=0, count_attempt=False)


async def test_a_held_request_keeps_its_profile_and_no_deadline_runs(
    store: Store, database: str
) -> None:
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await begin(store, claimed)
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    await store.put_back(
        claimed, after_s=0, code="judge_unavailable", message="503", deadline_at=deadline
    )
    again = await claim_one(store)
    await begin(store, again)

    await store.put_back(again, after_s=30, count_attempt=False, held=True)

    (row,) = await fetch(database, "SELECT *, next_attempt_at - now() AS due FROM score_requests")
    assert (row["state"], row["attempt"], row["deadline_at"]) == ("pending", 1, None)
    assert row["scoring_profile_id"] == PROFILE
    assert row["lease_token"] is row["lease_owner"] is row["lease_expires_at"] is None
    assert row["error_code"] == "judge_unavailable"  # the trouble that it has seen
    assert timedelta(seconds=25) < row["due"] <= timedelta(seconds=30)


async def test_a_held_request_has_the_deadline_that_it_is_given(
    store: Store, database: str
) -> None:
    await store.accept([request()], [])
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    for attempt in (1, 2):
        claimed = await claim_one(store)
        await begin(store, claimed)
        await store.put_back(
            claimed,
            after_s=0,
            code="judge_unavailable",
            message="no JSON",
            deadline_at=deadline,
            held=True,
        )
        (row,) = await fetch(database, "SELECT * FROM score_requests")
        assert (row["state"], row["attempt"]) == ("pending", attempt)
        assert (row["deadline_at"], row["scoring_profile_id"]) == (deadline, PROFILE)
        assert row["error_message"] == "no JSON"


async def test_a_probe_takes_whom_has_waited_longest(store: Store) -> None:
    """Else an urgent request that its judge can't bear would be every probe."""
    await store.accept([request("patient", priority=1)], [])
    patient = await claim_one(store)
    await store.accept([request("urgent", priority=9)], [])
    for held in (patient, await claim_one(store)):
        await store.put_back(held, after_s=0, count_attempt=False, held=True)

    assert await store.claim_probe(["other"], owner="a", lease_s=60) == []
    (probe,) = await store.claim_probe(["", "other"], owner="a", lease_s=60)
    assert probe.session_id == "patient"
    (usual,) = await store.claim(1, owner="a", lease_s=60)
    assert usual.session_id == "urgent"


async def test_a_held_request_keeps_nobody_from_scoring_its_session(store: Store) -> None:
    await store.register_criteria(CRITERIA)
    await store.accept([request(), request(profile_id=PROFILE)], [])
    held, other = sorted(await claim(store, 2), key=lambda one: one.profile_id is not None)
    await begin(store, held)
    await store.put_back(held, after_s=0, count_attempt=False, held=True)

    assert await begin(store, other) is None
    again = await claim_one(store)
    # Claimed with the profile that it had: then it is this one's turn to wait.
    with pytest.raises(AlreadyBeingScored):
        await begin(store, again)


async def test_only_the_holder_can_put_back(store: Store, database: str) -> None:
    await store.accept([request()], [])
    claimed = await claim_one(store)
    before = await requests_by_id(database)

    with pytest.raises(LeaseLost):
        await store.put_back(replace(claimed, lease_token=uuid4()), after_s=0)
    assert await requests_by_id(database) == before

    await store.put_back(claimed, after_s=0)
    with pytest.raises(LeaseLost):
        await store.put_back(claimed, after_s=0)


async def test_a_score_forgets_the_trouble_before_it(store: Store, database: str) -> None:
    await store.register_criteria(CRITERIA)
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await store.put_back(claimed, after_s=0, code="judge_unavailable", message="503")
    again = await claim_one(store)

    await store.complete(again, score(again))

    (row,) = await fetch(database, "SELECT * FROM score_requests")
    assert (row["state"], row["error_code"], row["error_message"]) == ("completed", None, None)


# ── before anything is paid for ─────────────────────────────────────────────


async def test_scoring_begins_only_under_a_lease(store: Store, database: str) -> None:
    await store.accept([request()], [])
    claimed = await claim_one(store)
    await expire(database, "s1")
    await store.free_expired()

    with pytest.raises(LeaseLost):
        await begin(store, claimed)

    await claim_one(store)
    with pytest.raises(LeaseLost):
        await begin(store, claimed)
    assert (await requests_by_id(database))[claimed.request_id]["scoring_profile_id"] is None


async def test_two_requests_never_score_a_session_by_the_same_profile_at_once(
    store: Store, database: str
) -> None:
    await store.register_criteria(CRITERIA)
    await store.accept([request(), request(profile_id=PROFILE), request("s2")], [])
    one, two, elsewhere = sorted(
        await claim(store, 3), key=lambda c: (c.session_id, c.profile_id is not None)
    )

    assert await begin(store, one) is None
    assert await begin(store, one) is None  # again, after trouble: still ours
    with pytest.raises(AlreadyBeingScored):
        await begin(store, two)
    assert await begin(store, two, profile_id="other") is None
    assert await begin(store, elsewhere) is None
    with pytest.raises(AlreadyBeingScored):
        await begin(store, two)

    made = score(one)
    await store.complete(one, made)
    reusable = await begin(store, two)
    assert reusable is not None
    assert reusable.score_id == made.score_id


async def test_at_most_one_of_many_begins(store: Store) -> None:
    await store.accept([request(profile_id=f"p{number}") for number in range(8)], [])

    begun = await asyncio.gather(
        *(begin(store, one) for one in await claim(store, 8)), return_exceptions=True
    )

    assert sorted(type(result).__name__ for result in begun) == [
        *["AlreadyBeingScored"] * 7,
        "NoneType",
    ]


async def test_a_score_answers_again_only_under_its_own_criteria(store: Store) -> None:
    stored = await scored(store, request())
    await store.accept([request(), request(profile_id="other")], [])
    again, other = sorted(await claim(store, 2), key=lambda one: one.profile_id or "")

    assert await begin(store, again) == stored
    assert await begin(store, again, criteria_hash=OTHER_CRITERIA.hash) is None
    assert await begin(store, other, profile_id="other") is None


async def test_a_score_of_another_session_answers_nothing(store: Store) -> None:
    await scored(store, request("s1"))
    await store.accept([request("s2")], [])

    assert await begin(store, await claim_one(store)) is None


async def test_a_forced_request_reuses_nothing(store: Store) -> None:
    await scored(store, request())
    await store.accept([request(force_rescore=True)], [])

    assert await begin(store, await claim_one(store)) is None


async def test_a_score_by_rules_for_want_of_money_answers_nobody_else(store: Store) -> None:
    await scored(store, request(), judge_skipped="budget_exhausted")
    await store.accept([request()], [])

    assert await begin(store, await claim_one(store)) is None


async def test_only_the_current_score_answers(store: Store) -> None:
    await store.register_criteria(OTHER_CRITERIA)
    await scored(store, request())
    current = await scored(
        store, request(force_rescore=True), criteria_hash=OTHER_CRITERIA.hash, total_score=12
    )
    await store.accept([request()], [])
    claimed = await claim_one(store)

    assert await begin(store, claimed) is None  # of these criteria there is only a former one
    assert await begin(store, claimed, criteria_hash=OTHER_CRITERIA.hash) == current
