"""A statement that changes up to so many rows changes no more, however PostgreSQL plans it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from consumer.edges.postgres.connect import affected
from consumer.edges.postgres.store import load_queries
from consumer.resources import resource
from tests.integration.builders import execute, migrated_database
from tests.support.servers import PostgresServer

BATCH = 3

# Twelve rows of each kind, the oldest first: where a scan finds them as a LIMIT takes them, each
# row that is changed makes room for the next one. Of batches PostgreSQL knows the first alone.
FILL = """
INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority, state,
    error_code, requested_at, finished_at)
SELECT gen_random_uuid(), 's' || n, false, 'tests', 5, 'failed', 'internal_error', now(),
    now() - make_interval(days => 200 - n)
FROM generate_series(1, 12) n;

INSERT INTO judge_inputs (sha256, content, used_at)
SELECT repeat(md5(n::text), 2), 'x', now() - make_interval(days => 200 - n)
FROM generate_series(1, 12) n;
INSERT INTO judge_sent SELECT * FROM judge_inputs ORDER BY used_at;

INSERT INTO judge_spend (day, provider, cap_usd)
SELECT current_date - 200 + n, 'openai', 9 FROM generate_series(1, 12) n;
INSERT INTO judge_reservations (reservation_id, day, provider, request_id, lease_token, amount_usd,
    released_at)
SELECT gen_random_uuid(), day, provider, gen_random_uuid(), gen_random_uuid(), 1, now()
FROM judge_spend;

DELETE FROM live_changes;
INSERT INTO live_changes (kind, ids, at)
SELECT 'request', '{}', now() - interval '1 day' FROM generate_series(1, 12);

INSERT INTO score_batches (batch_id, state, force_rescore, priority, created_by, created_at)
VALUES (gen_random_uuid(), 'listing', false, 5, 'tests', now() - interval '200 days');
ANALYZE;
INSERT INTO score_batches (batch_id, state, force_rescore, priority, created_by, created_at)
SELECT gen_random_uuid(), 'listing', false, 5, 'tests', now() - make_interval(days => 200 - n)
FROM generate_series(1, 11) n;
"""

# What is left is a nested loop, which runs a subquery again for each row.
NESTED_LOOPS = """
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_hashagg = off;
SET enable_sort = off; SET enable_material = off; SET enable_memoize = off;
"""

# Each with its parameters, and how many rows it may change.
LIMITED: dict[str, tuple[tuple[Any, ...], int]] = {
    "prune_requests": ((30, BATCH), BATCH),
    "prune_sent": ((30, BATCH), BATCH),
    "prune_inputs": ((30, BATCH), BATCH),
    "prune_reservations": ((30, BATCH), BATCH),
    "prune_live": ((BATCH,), BATCH),
    "claim_batch": ((60, None), 1),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(postgres: PostgresServer, migrated_template: str) -> AsyncIterator[str]:
    async with migrated_database(postgres, migrated_template) as dsn:
        await execute(dsn, FILL)
        yield dsn


@pytest.mark.parametrize("name", LIMITED)
async def test_no_more_rows_are_changed_than_the_limit_says(filled: str, name: str) -> None:
    arguments, most = LIMITED[name]

    assert await _changed(filled, _queries()[name], *arguments) == most


@pytest.mark.parametrize("name", ["prune_requests", "prune_reservations"])
async def test_within_in_the_limit_would_not_hold(filled: str, name: str) -> None:
    """Or else the test above would show nothing."""
    arguments, most = LIMITED[name]
    careless = _queries()[name].replace("= ANY (ARRAY(", "IN (").removesuffix(")")

    assert await _changed(filled, careless, *arguments) > most


def _queries() -> dict[str, str]:
    return load_queries((resource("sql") / "queries.sql").read_text())


async def _changed(dsn: str, sql: str, *arguments: Any) -> int:
    """How many rows the statement changes with nested loops alone; they stay as they are."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(NESTED_LOOPS)
        transaction = connection.transaction()
        await transaction.start()
        done = affected(await connection.execute(sql, *arguments))
        await transaction.rollback()
    finally:
        await connection.close()
    return done
