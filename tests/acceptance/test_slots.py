"""WORKER_SLOTS: how often a process asks the judge at once, and what it has under way besides."""

import asyncio
from collections.abc import Callable

from tests.support.judging import figures
from tests.support.stage import Stage
from tests.support.stand_ins import answer

LIMIT_S = 20


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.01)


def told_by(stage: Stage) -> tuple[int, int]:
    """Sessions that were fetched, and calls of the judge under way."""
    return len(stage.stand_ins.history_calls), stage.stand_ins.judge_under_way


async def test_a_slot_is_a_call_and_half_as_many_sessions_again_are_ready(stage: Stage) -> None:
    sessions = [stage.stand_ins.add(f"s-{n}", "good") for n in range(12)]
    stage.stand_ins.judge_delay_s = 2
    async with stage.consumer(worker_slots=4) as process:
        requests = [await stage.ask(session) for session in sessions]
        # All slots are taken, and two sessions wait for one.
        await until(lambda: told_by(stage) == (6, 4))
        async with asyncio.timeout(LIMIT_S):
            while (told := await figures(process))["scoring_worker_slots_busy", ()] != 6:
                await asyncio.sleep(0.01)  # the metrics come a moment later
        assert told["scoring_worker_slots", ()] == 6
        stage.stand_ins.judge_delay_s = 0.2
        for request_id in requests:
            assert (await stage.answer(request_id)).topic == stage.topics.completed
    assert stage.stand_ins.judge_most_at_once == 4
    assert stage.stand_ins.judge_calls.total() == len(sessions)


async def test_who_waits_for_another_try_has_no_slot(stage: Stage) -> None:
    for session in ("s-late", "s-1", "s-2"):
        stage.stand_ins.add(session, "good")
    stage.stand_ins.judge_faults.queued["s-late"] = [answer(500, headers={"retry-after": "3"})]
    calls = stage.stand_ins.judge_calls
    async with stage.consumer(worker_slots=2):
        late = await stage.ask("s-late", priority=9)
        await until(lambda: calls["s-late"] == 1)
        stage.stand_ins.judge_delay_s = 0.5
        others = [await stage.ask(session) for session in ("s-1", "s-2")]
        await until(lambda: stage.stand_ins.judge_under_way == 2)
        assert calls == {"s-late": 1, "s-1": 1, "s-2": 1}
        for request_id in (*others, late):
            assert (await stage.answer(request_id)).topic == stage.topics.completed
    assert calls["s-late"] == 2
