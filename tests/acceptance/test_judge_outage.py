"""A judge that is unwell: an outage loses nothing, and one session's trouble is no outage."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from starlette.responses import Response

from consumer.demo.world import ConsumerProcess
from consumer.error_codes import ErrorCode
from tests.support.judging import JUDGE, completed, configured, figures, verdict
from tests.support.stage import Stage
from tests.support.stand_ins import Fault, answer, hang

OPEN_S = 2.0
CLOSED, OPEN = 0, 2
OPENED = ("scoring_judge_breaker_opened_total", (JUDGE,))


async def test_an_outage_fails_nothing_and_ends_without_a_hand(
    stage: Stage, tmp_path: Path
) -> None:
    judged = [stage.stand_ins.add(f"j-{n}", "good") for n in range(10)]
    stage.stand_ins.add("s-simple", "simple")
    break_down(stage, judged)
    config = configured(tmp_path, providers={JUDGE: {"breaker_open_s": OPEN_S}})
    async with stage.consumer(scoring_config_dir=config, request_deadline_seconds=1) as consumer:
        requests = [await stage.ask(session) for session in judged]
        await opened(consumer)
        # Long enough to claim all of them before the first one asks the judge again.
        stage.stand_ins.history_delay_s = 0.5
        calls, fetches, started = calls_of(stage), history_of(stage, judged), monotonic()
        simple = await stage.answer(await stage.ask("s-simple"))
        assert simple.topic == stage.topics.completed, "it needs no judge"
        await asyncio.sleep(2.5 * OPEN_S)
        probes = calls_of(stage) - calls
        assert 1 <= probes <= (monotonic() - started) / OPEN_S + 1
        # Each probe fetches its session, the next one may just have; the others were looked at
        # once more at most.
        assert history_of(stage, judged) - fetches <= len(judged) + probes + 1
        assert stage.events[stage.topics.failed] == [], "long after every deadline"
        seen = await figures(consumer)
        assert seen[OPENED] >= probes
        stage.stand_ins.history_delay_s = 0
        stage.stand_ins.judge_faults.forever.clear()
        events = [await stage.answer(request_id) for request_id in requests]
        assert await breaker(consumer) == CLOSED
    assert {event.topic for event in events} == {stage.topics.completed}
    # One before the breaker opened, and the one that succeeded.
    rows = await stage.rows("SELECT attempt FROM score_requests")
    assert max(row["attempt"] for row in rows) <= 2
    assert len(await stage.rows("SELECT FROM session_scores")) == len(judged) + 1


async def test_one_session_that_the_judge_breaks_on_fails_alone(stage: Stage) -> None:
    for session in ("s-bad", *(f"s-{n}" for n in range(5))):
        stage.stand_ins.add(session, "good")
    # Too long a wish to be waited for inside the call: two tries, where it would be eight in 15 s.
    stage.stand_ins.judge_faults.forever["s-bad"] = answer(500, headers={"retry-after": "60"})
    async with stage.consumer(request_deadline_seconds=1) as consumer:
        bad = await stage.ask("s-bad", priority=9)
        others = [await stage.ask(f"s-{n}") for n in range(5)]
        for request_id in others:
            assert (await stage.answer(request_id)).topic == stage.topics.completed
        event = await stage.answer(bad)
        assert await breaker(consumer) == CLOSED
    assert (event.data["error_code"], event.data["attempts"]) == (ErrorCode.JUDGE_UNAVAILABLE, 2)
    assert stage.stand_ins.judge_calls["s-bad"] == 2


async def test_only_answers_that_are_paid_for_in_vain_come_to_an_end(
    stage: Stage, tmp_path: Path
) -> None:
    """Behind an open breaker each session is asked about as a probe: the one whose answers can't be
    read would be paid for for ever, the ones without an answer lose nothing by waiting.
    """
    away = [stage.stand_ins.add(f"s-away-{n}", "good") for n in range(3)]
    stage.stand_ins.add("s-unreadable", "good")
    for session in away:  # twice refused, which opens the breaker sooner than silence
        stage.stand_ins.judge_faults.queued[session] = [answer(401)] * 2
        stage.stand_ins.judge_faults.forever[session] = hang(2)
    stage.stand_ins.judge_faults.forever["s-unreadable"] = answer(200, "no JSON")
    fields = {"breaker_open_s": 0.1, "timeout_s": 1}
    config = configured(tmp_path, providers={JUDGE: fields})
    async with stage.consumer(scoring_config_dir=config, request_deadline_seconds=5) as consumer:
        for session in away:
            await stage.ask(session)
        async with asyncio.timeout(40):
            while not (await figures(consumer)).get(OPENED):
                await asyncio.sleep(0.1)
        event = await stage.answer(await stage.ask("s-unreadable"), timeout_s=60)
        assert event.data["error_code"] == ErrorCode.JUDGE_UNAVAILABLE
        assert event.data["message"].endswith("answered something that can't be read")
        assert stage.stand_ins.judge_calls["s-unreadable"] >= 2
        assert len(stage.events[stage.topics.failed]) == 1
        rows = await stage.rows(
            "SELECT deadline_at FROM score_requests WHERE session_id = ANY($1) "
            "AND state IN ('pending', 'in_progress')",
            away,
        )
        assert [row["deadline_at"] for row in rows] == [None] * len(away)


async def test_who_is_told_to_come_later_does(stage: Stage) -> None:
    asked: list[float] = []
    for session, wish in (("s-soon", "2"), ("s-later", "40")):
        stage.stand_ins.add(session, "good")
        stage.stand_ins.judge_faults.queued[session] = [
            answer(429, {"error": {"code": "rate_limit_exceeded"}}, {"retry-after": wish})
        ]
    stage.stand_ins.judge_faults.queued["s-soon"] = [
        timed(asked, fault)
        for fault in (
            *stage.stand_ins.judge_faults.queued["s-soon"],
            completed(verdict(20), read=1, written=1),
        )
    ]
    async with stage.consumer(request_deadline_seconds=60, worker_slots=1):
        await stage.ask("s-later", priority=9)
        event = await stage.answer(await stage.ask("s-soon"))
        (later,) = await stage.rows(
            "SELECT *, extract(epoch FROM next_attempt_at - now())::float AS wait_s, "
            "extract(epoch FROM deadline_at - now())::float AS left_s "
            "FROM score_requests WHERE session_id = 's-later'"
        )
    first, second = asked
    assert second - first >= 2
    assert event.data["total_score"] == 80
    # A long wish is waited for in the queue: the only slot was free for the other one.
    assert (later["state"], later["error_code"]) == ("pending", ErrorCode.JUDGE_UNAVAILABLE)
    assert 30 < later["wait_s"] <= 40 < later["left_s"] <= 60
    assert stage.stand_ins.judge_calls["s-later"] == 1


def break_down(stage: Stage, sessions: Iterable[str]) -> None:
    """From now on the judge answers 500 about these."""
    stage.stand_ins.judge_faults.forever |= dict.fromkeys(sessions, answer(500))


def calls_of(stage: Stage) -> int:
    return stage.stand_ins.judge_calls.total()


def history_of(stage: Stage, sessions: Iterable[str]) -> int:
    return sum(stage.stand_ins.history_calls[session] for session in sessions)


def timed(moments: list[float], fault: Fault) -> Fault:
    """The fault, noting when it was asked for."""

    async def respond() -> Response:
        moments.append(monotonic())
        return await fault()

    return respond


async def breaker(consumer: ConsumerProcess) -> float:
    """The breaker's state once the figures have been looked at again."""
    await asyncio.sleep(1.5)
    return (await figures(consumer))["scoring_judge_breaker_state", (JUDGE,)]


async def opened(consumer: ConsumerProcess) -> None:
    async with asyncio.timeout(40):
        while (await figures(consumer)).get(("scoring_judge_breaker_state", (JUDGE,))) != OPEN:
            await asyncio.sleep(0.1)
