"""Killed, stopped, doubled, started too early: every request still gets its one answer."""

import asyncio
import os
import signal
from uuid import UUID

import asyncpg
import pytest

from consumer.demo.servers import EmbeddedPostgres
from consumer.demo.world import ConsumerProcess
from consumer.edges.postgres import migrations
from consumer.error_codes import ErrorCode
from tests.support.stage import Stage
from tests.support.stand_ins import hang


async def judged(stage: Stage, count: int) -> None:
    """Waits until the judge was asked this often."""
    async with asyncio.timeout(30):
        while stage.stand_ins.judge_calls.total() < count:
            await asyncio.sleep(0.02)


async def ask_all(stage: Stage, count: int, case: str = "good") -> list[UUID]:
    """Asks for this many sessions of their own."""
    sessions = [stage.stand_ins.add(f"s-{number}", case) for number in range(count)]
    return [await stage.ask(session) for session in sessions]


async def check_promises(stage: Stage, requests: list[UUID]) -> None:
    """Each request: one answer, one score, one row; and nothing is left to be sent."""
    for request_id in requests:
        event = await stage.answer(request_id)
        assert event.topic == stage.topics.completed, event.data
    await stage.until(lambda: all(len(stage.answers(r)) == 1 for r in requests))
    rows = await stage.rows("SELECT request_id, state FROM score_requests")
    assert {row["request_id"] for row in rows} == set(requests)
    assert {row["state"] for row in rows} == {"completed"}
    scores = await stage.rows("SELECT request_id FROM session_scores")
    assert sorted(row["request_id"] for row in scores) == sorted(requests)
    assert await stage.rows("SELECT * FROM outbox") == []


async def test_killed_while_the_judge_thinks(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 30
    process = stage.process()
    await asyncio.to_thread(process.start)
    requests = await ask_all(stage, 6)
    await judged(stage, 6)
    await asyncio.to_thread(process.kill)
    stage.stand_ins.judge_delay_s = 0
    assert await stage.rows("SELECT * FROM session_scores") == []
    async with stage.consumer():
        await check_promises(stage, requests)
    # One crash: at most one more judge call for each request that was under way.
    assert max(stage.stand_ins.judge_calls.values()) <= 2
    lost = await stage.rows("SELECT lost_leases FROM score_requests")
    assert {row["lost_leases"] for row in lost} == {1}


@pytest.mark.parametrize(
    ("kills", "reason"),
    [
        (1, "1 worker was lost while working on it;"),
        (2, "2 workers in a row were lost while working on it, the last one on it alone;"),
    ],
)
async def test_killed_again_and_again_gives_up_with_a_reason(
    stage: Stage, kills: int, reason: str
) -> None:
    stage.stand_ins.add("s-deadly")
    stage.stand_ins.judge_faults.forever["s-deadly"] = hang()
    request_id = await stage.ask("s-deadly")
    for kill in range(kills):
        process = stage.process(lease_seconds=1, max_lost_leases=kills)
        await asyncio.to_thread(process.start)
        await judged(stage, kill + 1)
        await asyncio.to_thread(process.kill)
    async with stage.consumer(lease_seconds=1, max_lost_leases=kills):
        event = await stage.answer(request_id)
    assert event.data["error_code"] == ErrorCode.INTERNAL_ERROR
    assert reason in event.data["message"]
    assert stage.stand_ins.judge_calls["s-deadly"] == kills


async def test_sigterm_finishes_what_fits_and_gives_the_rest_back(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 0.5
    process = stage.process(worker_slots=4, grace_seconds=10)
    await asyncio.to_thread(process.start)
    requests = await ask_all(stage, 12)
    await judged(stage, 4)
    assert await stop(process) == 0
    states = [row["state"] for row in await stage.rows("SELECT state FROM score_requests")]
    assert "in_progress" not in states
    assert states.count("completed") >= 4, "what was under way was finished"
    assert await stage.rows("SELECT * FROM outbox") == [], "and its events were sent"
    async with stage.consumer():
        await check_promises(stage, requests)
    assert stage.stand_ins.judge_calls.total() == 12, "no call was repeated"


async def test_sigterm_gives_back_at_once_what_takes_too_long(stage: Stage) -> None:
    stage.stand_ins.add("s-slow")
    stage.stand_ins.judge_faults.queued["s-slow"] = [hang()]
    process = stage.process(grace_seconds=0.5, lease_seconds=600)
    await asyncio.to_thread(process.start)
    request_id = await stage.ask("s-slow")
    await judged(stage, 1)
    assert await stop(process) == 0
    (row,) = await stage.rows("SELECT state, attempt, lease_token FROM score_requests")
    assert (row["state"], row["attempt"], row["lease_token"]) == ("pending", 0, None)
    async with stage.consumer():
        await check_promises(stage, [request_id])


async def test_a_frozen_process_can_not_finish_what_another_took_over(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 3
    frozen = stage.process(lease_seconds=3)
    await asyncio.to_thread(frozen.start)
    requests = await ask_all(stage, 3)
    await judged(stage, 3)
    assert frozen.pid
    os.kill(frozen.pid, signal.SIGSTOP)
    stage.stand_ins.judge_delay_s = 0
    try:
        async with stage.consumer(lease_seconds=3):
            await check_promises(stage, requests)
            os.kill(frozen.pid, signal.SIGCONT)
            await asyncio.sleep(2)
            await check_promises(stage, requests)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
        await asyncio.to_thread(frozen.stop)
    assert max(stage.stand_ins.judge_calls.values()) == 2
    assert "lease_lost" in frozen.log.read_text()


async def test_a_row_that_somebody_locks_costs_no_request_its_lease(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 6
    async with stage.consumer(lease_seconds=2, worker_slots=6):
        requests = await ask_all(stage, 6)
        await judged(stage, 6)
        connection = await asyncpg.connect(stage.database_url)
        try:
            async with connection.transaction():
                await connection.execute(
                    "SELECT FROM score_requests WHERE request_id = $1 FOR UPDATE", requests[0]
                )
                for request_id in requests[1:]:
                    await stage.answer(request_id)
        finally:
            await connection.close()
        await check_promises(stage, requests)
    assert set(stage.stand_ins.judge_calls.values()) == {1}


async def test_a_server_that_ends_slow_statements_costs_no_verdict(stage: Stage) -> None:
    """As managed servers do, by the role's statement_timeout."""
    stage.stand_ins.judge_delay_s = 2
    async with stage.consumer(
        database_url=f"{stage.database_url}?statement_timeout=1000"
    ) as process:
        requests = await ask_all(stage, 4)
        await judged(stage, 4)
        connection = await asyncpg.connect(stage.database_url)
        try:
            async with connection.transaction():
                await connection.execute(
                    "SELECT FROM score_requests WHERE request_id = $1 FOR UPDATE", requests[0]
                )
                await process.logged("outcome_not_stored")
        finally:
            await connection.close()
        await check_promises(stage, requests)
    assert set(stage.stand_ins.judge_calls.values()) == {1}


async def test_cancelled_statements_cost_no_verdict_and_no_process(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 0.3
    async with stage.consumer(lease_seconds=60) as process:
        cancelling = asyncio.create_task(_cancel_again_and_again(stage))
        requests = await ask_all(stage, 30)
        await judged(stage, 30)
        cancelling.cancel()
        await check_promises(stage, requests)
        assert process.pid
    assert set(stage.stand_ins.judge_calls.values()) == {1}


async def _cancel_again_and_again(stage: Stage) -> None:
    while True:
        await stage.rows(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active' "
            "AND datname = current_database() AND application_name = 'score-consumer'"
        )


async def test_replicas_share_the_work(stage: Stage) -> None:
    stage.stand_ins.judge_delay_s = 0.2
    async with stage.consumer(worker_slots=2), stage.consumer(worker_slots=2):
        requests = await ask_all(stage, 20)
        await check_promises(stage, requests)
    assert stage.stand_ins.judge_calls.total() == 20
    assert set(stage.stand_ins.judge_calls.values()) == {1}


async def test_the_consumer_may_start_before_its_servers(stage: Stage) -> None:
    postgres = EmbeddedPostgres(stage.folder / "late")
    process = stage.process(database_url=postgres.dsn)
    process.start_timeout = 60  # type: ignore[misc]  # this one has to wait
    starting = asyncio.create_task(asyncio.to_thread(process.start))
    await logged(process, "does not answer")
    assert not starting.done()
    assert "Traceback" not in process.log.read_text()
    await asyncio.to_thread(postgres.start)
    try:
        await logged(process, "run `score-consumer migrate`")
        await migrations.up(postgres.dsn)
        await starting
        stage.stand_ins.add("s-simple", "simple")
        event = await stage.answer(await stage.ask("s-simple"))
        assert event.topic == stage.topics.completed
    finally:
        await asyncio.to_thread(process.stop)
        await asyncio.to_thread(postgres.stop)


async def logged(process: ConsumerProcess, text: str) -> None:
    """Waits until the process has said this."""
    async with asyncio.timeout(40):
        while not process.log.exists() or text not in process.log.read_text():
            await asyncio.sleep(0.1)


def last_line(process: ConsumerProcess) -> str:
    return process.log.read_text().splitlines()[-1]


async def stop(process: ConsumerProcess) -> int:
    """SIGTERM, and the exit code it ends with."""
    assert process.pid
    os.kill(process.pid, signal.SIGTERM)
    return await ended(process)


async def ended(process: ConsumerProcess) -> int:
    """The exit code of a process that ends by itself."""
    assert process._process
    return await asyncio.to_thread(process._process.wait, 30)
