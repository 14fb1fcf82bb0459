"""The queries that run all the time find their rows by an index, however many rows there are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from consumer.edges.postgres.store import load_queries
from consumer.resources import resource
from tests.integration.builders import execute, migrated_database
from tests.support.plans import Plan, plan_of
from tests.support.servers import PostgresServer

# A busy table: mostly answered, a few thousand waiting, some of them for others, some under way.
FILL = """
INSERT INTO scoring_criteria_definitions VALUES (repeat('a', 64), '{}');

INSERT INTO session_scores (score_id, session_id, request_id, criteria_hash, judge_profile_id,
    judge_profile_version, method, total_score, score_breakdown, score_details, confidence, gate,
    disqualified, quality_risk, quality_risk_threshold, weakest_criteria, judge_samples,
    judge_input_tokens, judge_output_tokens, samples, injection_suspected, agent,
    classification_label, scored_triggered_by, duration_ms, is_current)
SELECT md5('score' || n)::uuid, 's' || n % 5000, md5('request' || n)::uuid, repeat('a', 64), 'p1',
    1, 'llm', n % 101, '{}', '[]', 0.6, '{}', false, '{}', 40, '{}', 1, 1000, 100, '[]', false,
    'agent', 'alert', 'tests', 1000, n < 5000
FROM generate_series(0, 14999) n;

INSERT INTO score_missing_tools (score_id, tool_name, rationale, availability)
SELECT score_id, 'tool', 'why', 'unknown' FROM session_scores, generate_series(1, 2);
INSERT INTO score_alternative_approaches (score_id, position, name, description)
SELECT score_id, 1, 'name', 'description' FROM session_scores;
INSERT INTO score_alternative_approach_steps (approach_id, step_order, step_description)
SELECT id, step, 'step' FROM score_alternative_approaches, generate_series(1, 2) step;

INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority, state,
    score_id, requested_at, received_at, finished_at)
SELECT md5('request' || n)::uuid, 's' || n % 5000, false, 'tests', n % 10, 'completed',
    md5('score' || n)::uuid, now(), now() - make_interval(mins => n),
    now() - make_interval(mins => n)
FROM generate_series(0, 14999) n;

INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority,
    requested_at, received_at, next_attempt_at)
SELECT md5('request' || n)::uuid, 's' || n, false, 'tests', n % 10, now(),
    now() - make_interval(secs => n), now() + make_interval(secs => n % 600 - 300)
FROM generate_series(15000, 19999) n;

INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority,
    requested_at, coalesced_into)
SELECT md5('request' || n)::uuid, 's' || n - 5000, false, 'tests', n % 10, now(),
    md5('request' || n - 5000)::uuid
FROM generate_series(20000, 20999) n;

INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority, state,
    requested_at, lease_owner, lease_token, lease_expires_at, scoring_profile_id)
SELECT md5('request' || n)::uuid, 's' || n, false, 'tests', n % 10, 'in_progress', now(), 'worker',
    md5('token' || n)::uuid, now() + make_interval(secs => n % 100 - 1), 'p1'
FROM generate_series(30000, 30199) n;

-- A few that lost a worker, one of them twice.
UPDATE score_requests SET lost_leases = 1 + (session_id = 's15000')::integer
WHERE state = 'pending' AND coalesced_into IS NULL AND request_id IN
    (SELECT md5('request' || n)::uuid FROM generate_series(15000, 15024) n);

INSERT INTO judge_sent (sha256, content, used_at)
SELECT repeat(md5(n::text), 2), repeat('x', 400)::bytea, now() - make_interval(days => n % 100)
FROM generate_series(1, 10000) n;

INSERT INTO score_overrides (override_id, score_id, override_score, annotator, reason)
SELECT gen_random_uuid(), score_id, 50, 'someone', 'why' FROM session_scores;

INSERT INTO live_changes (kind, state, ids)
SELECT 'request', 'pending', ARRAY[md5('request' || n)::uuid] FROM generate_series(0, 9999) n;

INSERT INTO outbox (event_id, topic, key, type, payload, headers)
SELECT gen_random_uuid(), 'score.completed', 'k', 'score.completed', repeat('x', 400)::bytea, '[]'
FROM generate_series(1, 20000) n;
"""

# Plain parameters for each query, as SQL.
REQUEST = "md5('request30001')::uuid"
LEASE = "md5('token30001')::uuid"
SHA256 = "repeat(md5('7'), 2)"
INCOMING = """ARRAY[gen_random_uuid()], ARRAY['s15001'], ARRAY[NULL]::text[], ARRAY[false],
    ARRAY['x'], ARRAY[5]::smallint[], ARRAY[now()], ARRAY['t'], ARRAY[0], ARRAY[0]::bigint[],
    ARRAY[NULL]::text[], ARRAY[NULL]::text[]"""
UNANSWERED = "ARRAY['failed', 'pending', 'in_progress']"

# Query, its parameters, the indexes that it is for, and whether a sort would be a surprise.
HOT = {
    "claim": ("16, 'worker', 60, ARRAY['p1', 'p2'], 2", {"score_requests_claim"}),
    "due_alone": ("2, ARRAY['p1', 'p2']", {"score_requests_lost"}),
    "claim_alone": ("2, 'worker', 60, ARRAY['p1', 'p2']", {"score_requests_lost"}),
    "free_expired_leases": ("ARRAY[]::uuid[]", {"score_requests_leases"}),
    "waiters": (f"{REQUEST}, 500, false", {"score_requests_waiting"}),
    "lock_answered": ("", {"score_requests_waiters_left"}),
    "outbox_page": ("500, 1000000, ARRAY[]::bigint[], ARRAY[]::text[]", {"outbox_pkey"}),
    "put_back": (
        f"{REQUEST}, {LEASE}, 5, NULL, NULL, NULL, 1, true",
        {"score_requests_pkey"},
    ),
    "current_score": ("'s77', 'p1', repeat('a', 64)", {"one_current_score"}),
    "begin_scoring": (f"{REQUEST}, {LEASE}, 'p2'", {"score_requests_pkey"}),
    "lock_request": (f"{REQUEST}, {LEASE}", {"score_requests_pkey"}),
    "renew_leases": (f"ARRAY[{REQUEST}], ARRAY[{LEASE}], 60", {"score_requests_pkey"}),
    "give_back": (f"ARRAY[{REQUEST}], ARRAY[{LEASE}]", {"score_requests_pkey"}),
    "insert_score": (
        f"NULL, 's77', NULL, NULL, 'p1'{', NULL' * 37}, ARRAY[{SHA256}], ARRAY['x'::bytea]",
        {"one_current_score", "judge_sent_pkey"},
    ),
    "insert_waiters": (INCOMING, {"one_active_request", "score_requests_pkey"}),
    "session_requests": ("'s77'", {"score_requests_by_session"}),
    "shown_current_score": ("'s77', NULL", {"one_current_score"}),
    "shown_score": ("md5('score77')::uuid", {"session_scores_pkey"}),
    "shown_scores": ("'s77', NULL, 20", {"session_scores_by_session"}),
    "last_request": ("'s77'", {"score_requests_by_session"}),
    "request_by_id": (REQUEST, {"score_requests_pkey"}),
    "live_page": ("'3', 1, 0, 50", {"live_changes_pkey"}),
    "live_missed": ("'3', 1", {"live_changes_pkey"}),
    "batch_known": ("ARRAY['s77', 's78']", {"one_current_score"}),
    "session_current_scores": ("'s77'", {"one_current_score"}),
    "listed_requests": (
        f"{UNANSWERED}, NULL, now() - interval '1 hour', NULL, NULL, NULL, NULL, 101, true",
        {"score_requests_finished", "score_requests_pending_age", "score_requests_by_session"},
    ),
    "backlog": ("100001", {"score_requests_pending_age", "score_requests_leases", "outbox_pkey"}),
    "prune_requests": ("90, 1000", {"score_requests_finished"}),
    "sent": (f"ARRAY[{SHA256}, repeat('0', 64)]", {"judge_sent_pkey"}),
    "score_by_id": ("md5('score7')::uuid", {"session_scores_pkey"}),
}
ORDERED_BY_INDEX = {
    "claim",
    "free_expired_leases",
    "outbox_page",
    "session_requests",
    "waiters",
    "lock_answered",
}
# It is counted up to a limit, and counting needs no order.
MAY_BE_READ = {"backlog": {"outbox"}}
# PostgreSQL plans a prepared statement for its parameters this often before it may do without.
BEFORE_IT_SETTLES = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    """URL of a database with many rows, for all tests of this module."""
    async with migrated_database(postgres, migrated_template) as dsn:
        await execute(dsn, FILL)
        await execute(dsn, "VACUUM ANALYZE")
        yield dsn


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_query_uses_its_index(filled: str, name: str) -> None:
    parameters, wanted = HOT[name]

    for plan in await _plans(filled, name, parameters):
        assert wanted <= plan.indexes
        assert plan.scanned <= MAY_BE_READ.get(name, set())
        assert not (plan.sorts and name in ORDERED_BY_INDEX)


async def _plans(dsn: str, name: str, parameters: str) -> list[Plan]:
    """The first plan, and the one that the server settles on once it has seen a few parameters."""
    sql = load_queries((resource("sql") / "queries.sql").read_text())[name]
    arguments = f"({parameters})" if parameters else ""
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("SHOW enable_seqscan") == "on"
        await connection.execute("SET plan_cache_mode = auto")
        await connection.execute(f"PREPARE hot AS {sql}")
        explain = f"EXPLAIN (FORMAT JSON) EXECUTE hot {arguments}"
        texts = [await connection.fetchval(explain) for _ in range(BEFORE_IT_SETTLES + 1)]
    finally:
        await connection.close()
    return [plan_of(text) for text in (texts[0], texts[-1])]
