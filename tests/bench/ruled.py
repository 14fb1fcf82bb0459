"""Without a judge: what the rules cost, how the tables' size matters, and if memory stays flat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg

from tests.bench import held
from tests.bench.figures import Figure, steady
from tests.bench.many_scores import drop_list_indexes
from tests.bench.stand_in import Plan
from tests.bench.world import World, answered, ask, cpu_s, outcome
from tests.support.stage import Stage

PROFILE = "efficiency-simple"
CPU_MARK_MS = 2.0
LARGE, SMALL = 1_000_000, 1000
SCORED, SCORED_IN_FULL = 6000, 100_000
GROWTH_MARK = 0.9
SLOTS = 16
# The first requests fill caches and pools.
WARM = 2000
_FILL = """
WITH made AS (SELECT n, md5('r' || n)::uuid AS id FROM generate_series(1, $1::bigint) n)
INSERT INTO score_requests (request_id, session_id, profile_id, force_rescore, triggered_by,
    priority, requested_at)
SELECT id, 'b-' || n, $2, false, 'bench', 5, now() FROM made
"""
_FILL_SCORES = """
INSERT INTO scoring_criteria_definitions VALUES (repeat('a', 64), '{}') ON CONFLICT DO NOTHING;
ALTER TABLE session_scores DISABLE TRIGGER USER;
INSERT INTO session_scores (score_id, session_id, request_id, criteria_hash, judge_profile_id,
    judge_profile_version, method, total_score, score_breakdown, score_details, confidence, gate,
    disqualified, quality_risk, quality_risk_threshold, weakest_criteria, judge_samples,
    judge_input_tokens, judge_output_tokens, samples, injection_suspected, agent,
    classification_label, scored_triggered_by, duration_ms)
SELECT md5('s' || n)::uuid, 'old-' || n, md5('o' || n)::uuid, repeat('a', 64), 'p', 1, 'heuristic',
    n % 101, '{}', '[]', 1, '{"passed": true, "results": []}', false, '{}', 40, '{}', 0, 0, 0, '[]',
    false, 'agent', 'simple', 'bench', 5
FROM generate_series(1, COUNT) n;
ALTER TABLE session_scores ENABLE TRIGGER USER;
"""


async def rules(world: World) -> list[Figure]:
    """CPU of the process for a score by rules alone, of the same sessions that judges get."""
    costs, rates = [], []
    count = world.amount(1000)
    world.stand_in.follow(Plan(prompt_kb=100))
    for _ in range(world.rounds):
        async with world.stage(worker_slots=SLOTS) as stage, stage.consumer() as process:
            before = cpu_s(process)
            await ask(stage, range(count), profile_id=PROFILE)
            await answered(stage, count)
            costs.append((cpu_s(process) - before) / count * 1000)
            rates.append((await outcome(stage)).per_second())
    return [
        Figure(
            name="CPU a score by rules alone",
            unit="ms",
            values=costs,
            mark=CPU_MARK_MS,
            better="less",
        ),
        Figure(name="scores by rules alone", unit="scores/s", values=rates),
    ]


async def growth(world: World) -> list[Figure]:
    """Scores a second with a million requests and scores against a thousand; memory meanwhile.

    By turns: what else the machine does then tells on both.
    """
    world.stand_in.follow(Plan(prompt_kb=15))
    count = world.amount(1000)
    scored = world.amount(SCORED, full=SCORED_IN_FULL)
    ratios = []
    async with world.stage(worker_slots=SLOTS) as large:
        await _fill(large, LARGE, pending=LARGE)
        for _ in range(world.rounds):
            async with world.stage(worker_slots=SLOTS) as small:
                await _fill(small, SMALL, pending=SMALL + count)
                little = await _rate(small, count)
            ratios.append(await _rate(large, count) / little)
        so_far = await _answered_so_far(large)
        memory = await held.held_mib(large, held.thirds(so_far + WARM, scored))
    return [
        Figure(
            name="scores/s with 1 000 000 requests and scores over 1 000",
            unit="",
            values=ratios,
            mark=GROWTH_MARK,
        ),
        held.growth(f"memory after {scored:,} requests over {WARM:,}".replace(",", " "), memory),
    ]


async def _rate(stage: Stage, count: int) -> float:
    """Scores a second of a new process that finds at least so many requests waiting."""
    async with stage.consumer():
        before = await _answered_so_far(stage)
        await answered(stage, before + count)
        times = await _ends(stage)
    return steady(times[before : before + count], 0.1, 0.9)


async def _answered_so_far(stage: Stage) -> int:
    return len(await _ends(stage))


async def _ends(stage: Stage) -> Sequence[float]:
    rows = await stage.rows(
        "SELECT extract(epoch FROM finished_at)::float AS at FROM score_requests"
        " WHERE finished_at IS NOT NULL ORDER BY finished_at"
    )
    return [row["at"] for row in rows]


async def _fill(stage: Stage, scores: int, *, pending: int) -> None:
    """So many scores of other sessions, and so many requests that wait."""
    connections = [await asyncpg.connect(stage.database_url) for _ in range(2)]
    try:
        await asyncio.gather(
            _fill_scores(connections[0], scores),
            connections[1].execute(_FILL, pending, PROFILE, timeout=300),
        )
        await connections[0].execute("VACUUM ANALYZE", timeout=300)
    finally:
        for connection in connections:
            await connection.close()


async def _fill_scores(connection: asyncpg.Connection, count: int) -> None:
    built_later = await drop_list_indexes(connection)
    await connection.execute(_FILL_SCORES.replace("COUNT", str(count)), timeout=300)
    for definition in built_later:
        await connection.execute(definition, timeout=300)
