"""A request on its last chance: it is worked on alone, and keeps nobody waiting for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.judging import JUDGE, configured, figures
from tests.support.stage import Stage
from tests.support.stand_ins import answer

ROLES = "worker,relay,api"
LAST_CHANCE = 2  # of three, which is the default
LIMIT_S = 40
# Time enough to do it wrong.
MEANWHILE_S = 2.0
OPEN_S = 2.0

IN_PROGRESS = "SELECT session_id FROM score_requests WHERE state = 'in_progress'"
UNFINISHED = "SELECT FROM score_requests WHERE finished_at IS NULL"
# Those that are held have been looked at, and nobody looks at them now.
LOSE_ALL = """
UPDATE score_requests SET lost_leases = $2 WHERE state = 'pending'
AND NOT EXISTS (SELECT FROM score_requests WHERE state = 'in_progress') AND $1 = (
    SELECT count(*) FROM score_requests WHERE state = 'pending' AND scoring_profile_id IS NOT NULL)
RETURNING session_id
"""


@pytest.mark.parametrize("slots", [1, 4])
async def test_it_waits_for_its_worker_and_others_wait_for_it(stage: Stage, slots: int) -> None:
    stage.stand_ins.judge_delay_s = 1.5 * MEANWHILE_S
    async with stage.consumer(roles=ROLES, worker_slots=slots):
        await wait(stage, "s-before")
        await judged(stage, "s-before")
        await wait(stage, "s-last", lost=LAST_CHANCE)
        await wait(stage, "s-after", priority=9, in_s=MEANWHILE_S)
        seen = set()
        async with asyncio.timeout(LIMIT_S):
            while await stage.rows(UNFINISHED):
                seen.add(frozenset(row["session_id"] for row in await stage.rows(IN_PROGRESS)))
                await asyncio.sleep(0.02)
    assert {one for one in seen if "s-last" in one} == {frozenset({"s-last"})}
    ended = await stage.rows("SELECT session_id, state FROM score_requests ORDER BY finished_at")
    assert [row["session_id"] for row in ended] == ["s-before", "s-last", "s-after"]
    assert {row["state"] for row in ended} == {"completed"}


async def test_a_worker_that_waits_for_its_own_can_be_stopped(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 600
    process = stage.process(roles=ROLES, worker_slots=4, grace_seconds=1)
    await asyncio.to_thread(process.start)
    await wait(stage, "s-before")
    await judged(stage, "s-before")
    await wait(stage, "s-last", lost=LAST_CHANCE)
    await asyncio.sleep(MEANWHILE_S)
    assert await process.terminate() == 0
    rows = await stage.rows("SELECT session_id, state, attempt, lost_leases FROM score_requests")
    assert sorted(tuple(row) for row in rows) == [
        ("s-before", "pending", 0, 0),
        ("s-last", "pending", 0, LAST_CHANCE),
    ]
    assert stage.stand_ins.history_calls["s-last"] == 0, "it was not begun"


async def test_a_worker_stopped_at_it_gives_it_back_with_all_its_chances(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 600
    process = stage.process(roles=ROLES, worker_slots=4, grace_seconds=1)
    await asyncio.to_thread(process.start)
    await wait(stage, "s-last", lost=LAST_CHANCE)
    await judged(stage, "s-last")
    assert await process.terminate() == 0
    (row,) = await stage.rows("SELECT state, lost_leases FROM score_requests")
    assert tuple(row) == ("pending", 0)


async def test_one_that_was_put_back_is_worked_on_beside_others_again(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 600
    stage.stand_ins.history_faults.queued["s-last"] = [answer(503)]
    async with stage.consumer(roles=ROLES, worker_slots=4, grace_seconds=1):
        await wait(stage, "s-last", lost=LAST_CHANCE)
        await judged(stage, "s-last")
        await wait(stage, "s-after")
        await judged(stage, "s-after")
        under_way = await stage.rows(IN_PROGRESS)
    assert {row["session_id"] for row in under_way} == {"s-last", "s-after"}
    assert stage.stand_ins.history_calls["s-last"] == 2


async def test_a_cancelled_one_sets_its_worker_free(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 600
    async with stage.consumer(roles=ROLES, worker_slots=4, lease_seconds=1):
        await wait(stage, "s-last", lost=LAST_CHANCE)
        await judged(stage, "s-last")
        stage.stand_ins.judge_delay_s = 0
        await wait(stage, "s-after")
        (row,) = await stage.rows("SELECT request_id FROM score_requests WHERE lost_leases > 0")
        assert (await stage.cli("cancel", str(row["request_id"]))).code == 0
        async with asyncio.timeout(LIMIT_S):
            while await stage.rows(UNFINISHED):
                await asyncio.sleep(0.05)
    ended = await stage.rows("SELECT session_id, state FROM score_requests")
    assert {tuple(row) for row in ended} == {("s-last", "cancelled"), ("s-after", "completed")}


async def test_last_chances_of_a_judge_away_hold_up_nobody_and_find_out_when_it_is_back(
    stage: Stage, tmp_path: Path
) -> None:
    sessions = [f"s-{number}" for number in range(6)]
    stage.stand_ins.judge_faults.forever |= dict.fromkeys(sessions, answer(500))
    config = configured(tmp_path, providers={JUDGE: {"breaker_open_s": OPEN_S}})
    async with stage.consumer(roles=ROLES, scoring_config_dir=config) as process:
        for session in sessions:
            await wait(stage, session)
        async with asyncio.timeout(LIMIT_S):
            while not await stage.rows(LOSE_ALL, len(sessions), LAST_CHANCE):
                await asyncio.sleep(0.02)
            await wait(stage, "s-simple", case="simple")
            while len(await stage.rows(UNFINISHED)) > len(sessions):
                await asyncio.sleep(0.02)
            assert (await figures(process))["scoring_judge_breaker_state", (JUDGE,)] > 0
            stage.stand_ins.judge_faults.forever.clear()
            while await stage.rows(UNFINISHED):
                await asyncio.sleep(0.02)
    ended = await stage.rows("SELECT state FROM score_requests")
    assert {row["state"] for row in ended} == {"completed"}


async def wait(
    stage: Stage,
    session: str,
    *,
    case: str = "good",
    lost: int = 0,
    priority: int = 5,
    in_s: float = 0,
) -> None:
    """A request for this session waits, for `in_s` at least, and has lost so many workers."""
    stage.stand_ins.add(session, case)
    await stage.rows(
        "INSERT INTO score_requests (request_id, session_id, force_rescore, triggered_by, "
        "priority, requested_at, lost_leases, next_attempt_at) "
        "VALUES (gen_random_uuid(), $1, false, 'tests', $2, now(), $3, "
        "now() + make_interval(secs => $4))",
        session,
        priority,
        lost,
        in_s,
    )


async def judged(stage: Stage, session: str) -> None:
    """Waits until the judge was asked about this session."""
    async with asyncio.timeout(LIMIT_S):
        while not stage.stand_ins.judge_calls[session]:
            await asyncio.sleep(0.02)
