"""Without a judge: what the rules cost, how the tables' size matters, and if memory stays flat."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from tests.bench.figures import Figure
from tests.bench.stand_in import Plan
from tests.bench.world import World, answered, ask, cpu_s, outcome, rss_mib
from tests.support.stage import Stage

PROFILE = "efficiency-simple"
CPU_MARK_MS = 2.0
LARGE, SMALL = 1_000_000, 1000
SCORED, SCORED_IN_FULL = 15_000, 100_000
MEMORY_MARK, GROWTH_MARK = 0.10, 0.9
SLOTS = 16
# The first requests fill caches and pools.
WARM = 5000
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
    count = world.amount(3000)
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
    """Scores a second with a million requests and scores against a thousand; memory meanwhile."""
    world.stand_in.follow(Plan(prompt_kb=15))
    count = world.amount(3000)
    scored = world.amount(SCORED, full=SCORED_IN_FULL)
    small = [await _rate(world, SMALL, count) for _ in range(world.rounds)]
    large, memory = await _long_run(world, scored)
    pairs = zip(large, small, strict=False)
    return [
        Figure(
            name="scores/s with 1 000 000 requests and scores over 1 000",
            unit="",
            values=[big / little for big, little in pairs],
            mark=GROWTH_MARK,
        ),
        Figure(
            name=f"memory after {scored:,} requests over {WARM:,}".replace(",", " "),
            unit="",
            values=[memory[-1] / memory[0] - 1],
            mark=MEMORY_MARK,
            better="less",
            note=", ".join(f"{rss:.0f}" for rss in memory) + " MiB",
        ),
    ]


async def _rate(world: World, size: int, count: int) -> float:
    async with world.stage(worker_slots=SLOTS) as stage:
        await _fill(stage, size, pending=count + size)
        async with stage.consumer():
            await answered(stage, count)
            return (await outcome(stage)).per_second()


async def _long_run(world: World, scored: int) -> tuple[list[float], list[float]]:
    """The rates of as many parts as there are rounds, and the memory before, between and after."""
    parts = world.rounds
    async with world.stage(worker_slots=SLOTS) as stage:
        await _fill(stage, LARGE, pending=LARGE)
        async with stage.consumer() as process:
            rates, memory = [], []
            for part in range(parts + 1):
                done = WARM + scored * part // parts
                await answered(stage, done, timeout_s=600, every_s=1)
                memory.append(rss_mib(process))
            ends = await _ends(stage)
            for part in range(parts):
                first = WARM + scored * part // parts
                last = WARM + scored * (part + 1) // parts - 1
                rates.append((last - first) / (ends[last] - ends[first]))
    return rates, memory


async def _ends(stage: Stage) -> Sequence[float]:
    rows = await stage.rows(
        "SELECT extract(epoch FROM finished_at)::float AS at FROM score_requests"
        " WHERE finished_at IS NOT NULL ORDER BY finished_at"
    )
    return [row["at"] for row in rows]


async def _fill(stage: Stage, scores: int, *, pending: int) -> None:
    """So many scores of other sessions, and so many requests that wait."""
    connection = await asyncpg.connect(stage.database_url)
    try:
        await connection.execute(_FILL_SCORES.replace("COUNT", str(scores)), timeout=300)
        await connection.execute(_FILL, pending, PROFILE, timeout=300)
        await connection.execute("VACUUM ANALYZE", timeout=300)
    finally:
        await connection.close()
