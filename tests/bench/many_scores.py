"""Many scores in a database, made by the server itself: a year of them, with their children.

Nothing is switched off: every score has its completed request, and the triggers check it at each
commit. Only the indexes that lists are read by are built afterwards, as after a restore.
"""

from __future__ import annotations

from collections.abc import Callable

import asyncpg

BATCH = 25_000

# Built from the same words in every run; each score adds names of its own to one of them.
_TEXTS = """
CREATE TEMPORARY TABLE texts AS
SELECT number, string_agg(
        words[1 + (hashint8(number * 1000 + w) & 1023) % cardinality(words)], ' ') AS text
FROM generate_series(0, 499) number, generate_series(1, 70) w, (VALUES (regexp_split_to_array(
    'the agent checked restarts memory limit before concluding that node pressure evicted pod '
    'without reading logs evidence supports memory leak deployment rollback image tag latency '
    'dashboard query prometheus alert fired threshold namespace checkout payment gateway '
    'timeout upstream certificate expired dns resolution failed network policy denied egress '
    'disk full volume claim pending quota exceeded replica lag database connection pool '
    'exhausted retry storm cache miss ratio queue depth consumer lag kafka partition '
    'rebalance leader election etcd slow fsync kubelet cgroup throttled cpu steal hypervisor '
    'neighbour noisy garbage collection pause heap dump thread deadlock', ' '))
) AS vocabulary (words)
GROUP BY number
"""

_CRITERIA = """
INSERT INTO scoring_criteria_definitions (criteria_hash, criteria_content)
SELECT repeat(md5('criteria' || p || v), 2),
    jsonb_build_object('profile', p, 'version', v, 'scoring_version', least(v, 2))
FROM unnest($1::text[]) p, generate_series(1, 3) v
ON CONFLICT DO NOTHING
"""

LABELS = ("alert", "code", "report", "simple")
PROFILES = ("alert-investigation", "hybrid-code", "report-two-tier", "efficiency-simple")

# What a score is made of, from its number. A tenth of the sessions is scored twice: the former
# score is no longer current. `$1` first number, `$2` how many, `$3` of how many, `$4` days.
_MADE = """
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT n, md5('score' || n)::uuid AS score_id, md5('request' || n)::uuid AS request_id,
    's-' || CASE WHEN n % 10 = 9 THEN n - 1 ELSE n END AS session_id, n % 10 <> 8 AS is_current,
    -- both scorings of a session by one profile, a little later
    a.k AS k, 'agent-' || (a.k % 12) AS agent, ($5::text[])[1 + a.k % 4] AS label,
    ($6::text[])[1 + a.k % 4] AS profile, 1 + (2 * $1 / $3) % 3 AS version,
    ('{openai,anthropic,gemini}'::text[])[1 + (a.k / 7) % 3] AS provider,
    ('{gpt-5,claude-sonnet,gemini-pro,gpt-5-mini,claude-haiku,gemini-flash}'::text[])
        [1 + (a.k / 7) % 3 + 3 * ((a.k / 3) % 2)] AS model,
    least(100, greatest(0, (55 + 12 * ((a.k / 7) % 3) + 30 * (r.x - 0.5) + 30 * (r.y - 0.5)))
        )::integer AS total,
    r.x, r.y, now() - make_interval(secs => ($3 - n) * $4 * 86400.0 / $3) AS at
FROM generate_series($1::bigint, $1 + $2 - 1) n,
    LATERAL (SELECT abs(hashint8(CASE WHEN n % 10 = 9 THEN n - 1 ELSE n END)) AS k) a,
    LATERAL (SELECT (hashint8(n * 7 + 1) & 65535) / 65536.0 AS x,
        (hashint8(n * 7 + 2) & 65535) / 65536.0 AS y) r
"""

_SCORES = """
INSERT INTO session_scores (score_id, session_id, request_id, criteria_hash, judge_profile_id,
    judge_profile_version, method, total_score, score_breakdown, score_details, score_reasoning,
    confidence, gate, disqualified, disqualifier_triggered, quality_risk, quality_risk_threshold,
    weakest_criteria, tool_report, judge_provider, judge_model, judge_samples, judge_input_tokens,
    judge_output_tokens, judge_cost_usd, samples, injection_suspected, agent, agent_model,
    agent_provider, classification_label, session_total_tokens, session_cost_usd,
    session_duration_ms, scored_triggered_by, duration_ms, scored_at, is_current)
SELECT score_id, session_id, request_id, repeat(md5('criteria' || profile || version), 2), profile,
    version, CASE WHEN label = 'simple' THEN 'heuristic' ELSE 'llm' END, total,
    jsonb_build_object('logical_flow', total, 'consistency', least(100, total + 5),
        'tool_relevance', greatest(0, total - 7), 'synthesis_quality', total),
    (SELECT jsonb_agg(jsonb_build_object('id', c, 'weight', 1, 'score', greatest(0, total - 3 * i),
            'reasoning', left(text, 200), 'evidence', jsonb_build_array(jsonb_build_object(
                'step', i, 'quote', left(text, 80), 'verified', true))))
     FROM unnest('{logical_flow,consistency,tool_relevance,synthesis_quality}'::text[])
        WITH ORDINALITY AS criteria (c, i)),
    CASE WHEN label <> 'simple' THEN text || ' pod-' || n % 20000 || ' host' || n END,
    0.6, jsonb_build_object('passed', n % 50 <> 3, 'results', '[]'::jsonb), n % 100 = 5,
    CASE WHEN n % 100 = 5 THEN 'invented evidence' END,
    CASE WHEN total < 40 THEN '{below_threshold}'::text[] ELSE '{}' END, 40, '{tool_relevance}',
    jsonb_build_object('calls', 5 + k % 20, 'failed', CASE WHEN k % 3 = 0
            THEN '[{"call_id": "c1", "tool": "kubectl", "failure": "x", "error": "-"}]'::jsonb
            ELSE '[]' END, 'corrections', '[]'::jsonb, 'repeated', '[]'::jsonb,
        'wasted', jsonb_build_array(jsonb_build_object('call_id', 'c2', 'tool', 'kubectl',
            'reason', CASE WHEN version = 1 THEN 'unreferenced' ELSE 'failed' END,
            'tokens', 100 + k % 400, 'cost_usd', 0.001)),
        'unused_tools', '["promql"]'::jsonb, 'effectiveness', 60 + k % 40),
    CASE WHEN label <> 'simple' THEN 'openai' END,
    CASE WHEN label <> 'simple' THEN ('{gpt-5,gpt-5-mini}'::text[])[version % 2 + 1] END,
    CASE WHEN label <> 'simple' THEN 1 ELSE 0 END, CASE WHEN label <> 'simple' THEN 9000 ELSE 0 END,
    CASE WHEN label <> 'simple' THEN 900 ELSE 0 END,
    CASE WHEN label <> 'simple' THEN 0.01 + y / 100 END, '[]', false, agent, model, provider, label,
    8000 + (x * 30000)::bigint, CASE WHEN k % 11 <> 0 THEN 0.02 + x / 10 END,
    20000 + (y * 200000)::bigint, 'generator', 1500, at, is_current
FROM made JOIN texts ON texts.number = k % 500
"""

_REQUESTS = """
INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority, state,
    attempt, score_id, requested_at, received_at, started_at, finished_at)
SELECT request_id, session_id, false, 'generator', 5, 'completed', 1, score_id, at, at, at, at
FROM made
"""

_WITHOUT_SCORE = """
INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, priority, state,
    attempt, error_code, error_message, requested_at, received_at, started_at, finished_at)
SELECT md5('unscored' || n)::uuid, 'u-' || n, false, 'generator', 5,
    ('{failed,failed,failed,skipped,cancelled}'::text[])[1 + n % 5], 1,
    'history_unavailable', 'the History Service did not answer', at, at, at, at
FROM made WHERE n % 33 = 0
"""

_MISSING_TOOLS = """
INSERT INTO score_missing_tools (score_id, tool_name, rationale, availability)
SELECT score_id, 'tool_' || (sqrt((k / 13 + 7919 * i) % 2500))::integer, 'direct evidence of ' || k,
    ('{exists_unused,does_not_exist,unknown}'::text[])[1 + (k + i) % 3]
FROM made, generate_series(1, k % 3) i WHERE label <> 'simple'
"""

# Half of the names are said again and again, half only once.
_APPROACHES = """
WITH approaches AS (
    INSERT INTO score_alternative_approaches (score_id, position, name, description)
    SELECT score_id, 1, CASE WHEN k % 2 = 0 THEN 'Look at ' || k / 2 % 300 || ' first'
        ELSE 'Approach of ' || n END, 'would have led to the cause sooner'
    FROM made WHERE label <> 'simple' AND k % 5 < 4
    RETURNING id
)
INSERT INTO score_alternative_approach_steps (approach_id, step_order, step_description)
SELECT id, step, 'look at it by a tool' FROM approaches, generate_series(1, 3) step
"""

_OVERRIDES = """
INSERT INTO score_overrides (override_id, score_id, override_score, annotator, reason, created_at)
SELECT gen_random_uuid(), score_id, least(100, greatest(0, total - 12 + (20 * x)::integer)),
    'reviewer-' || k % 5, 'the evidence was there', at + interval '1 hour'
FROM made WHERE n % 200 = 7
"""

_LATER = "session_scores_by_%"


async def fill(
    dsn: str, count: int, *, days: int = 365, told: Callable[[int], None] = lambda _: None
) -> None:
    """`count` scores, spread evenly over the last `days`. Deterministic but for the times."""
    connection = await asyncpg.connect(dsn)
    try:
        built_later = await drop_list_indexes(connection)
        await connection.execute(_TEXTS)
        await connection.execute("ANALYZE texts")
        await connection.execute(_CRITERIA, PROFILES)
        for first in range(0, count, BATCH):
            async with connection.transaction():
                size = min(BATCH, count - first)
                await connection.execute(_made(first, size, count, days))
                for statement in (
                    *(_SCORES, _REQUESTS, _WITHOUT_SCORE),
                    *(_MISSING_TOOLS, _APPROACHES, _OVERRIDES),
                ):
                    await connection.execute(statement)
            told(first + size)
        for definition in built_later:
            await connection.execute(definition)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def drop_list_indexes(connection: asyncpg.Connection) -> list[str]:
    """Drops the indexes of lists; answers how to make them again."""
    found = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE indexname LIKE $1", _LATER
    )
    for row in found:
        await connection.execute(f"DROP INDEX {row['indexname']}")
    return [row["indexdef"] for row in found]


def _made(first: int, size: int, count: int, days: int) -> str:
    """CREATE TABLE AS takes no parameters."""
    given = {
        1: str(first),
        2: str(size),
        3: str(count),
        4: str(days),
        5: f"'{{{','.join(LABELS)}}}'",
        6: f"'{{{','.join(PROFILES)}}}'",
    }
    statement = _MADE
    for number, literal in given.items():
        statement = statement.replace(f"${number}", literal)
    return statement
