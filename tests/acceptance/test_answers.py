"""Every request gets its one answer: driven by the real CLI, seen from topics and tables."""

import asyncio
import json
from uuid import UUID, uuid4

import httpx

from consumer.demo.sample_sessions import load
from consumer.error_codes import ErrorCode
from tests.support.stage import Stage, dead_letters
from tests.support.stand_ins import answer, completion, hang

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_published_request_is_answered_and_stored(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer():
        published = await stage.cli("publish", "s-good", "--triggered-by", "alice", "--json")
        assert published.code == 0, published.err
        request_id = UUID(published.json[0]["request_id"])
        event = await stage.answer(request_id)
    expected = next(s for s in load().values() if s.case == "good").expected_total
    assert event.topic == stage.topics.completed
    assert event.data["total_score"] == expected
    assert event.data["triggered_by"] == "alice"
    assert event.data["reused"] is False
    (row,) = await stage.rows(
        "SELECT r.state, s.* FROM score_requests r JOIN session_scores s USING (score_id)"
    )
    assert row["state"] == "completed"
    assert row["total_score"] == expected
    assert str(row["score_id"]) == event.data["score_id"]
    assert row["criteria_hash"] == event.data["criteria_hash"]
    assert json.loads(row["score_breakdown"]) == event.data["score_breakdown"]
    assert row["judge_input_tokens"] == event.data["judge"]["input_tokens"] > 0
    shown = await stage.cli("show", "s-good", "--json")
    assert shown.json["scores"][0]["total_score"] == expected
    assert len(shown.json["scores"][0]["missing_tools"]) == event.data["missing_tools_count"] > 0
    approaches = shown.json["scores"][0]["alternative_approaches"]
    assert len(approaches) == event.data["alternative_approaches_count"] > 0
    assert all(approach["steps"] for approach in approaches)
    assert await stage.rows("SELECT * FROM outbox") == []
    counts = (await stage.cli("status", "--json")).json["requests"]
    assert counts == {"completed": 1}


async def test_however_many_wait_for_one_score_all_get_it(stage: Stage) -> None:
    many = 3_000
    stage.stand_ins.add("s-good")
    stage.stand_ins.judge_delay_s = 8  # by then most of them wait
    async with stage.consumer():
        asked = [await stage.ask("s-good")]
        async with stage.producer() as producer:
            for _ in range(many):
                asked.append(uuid4())
                request = {"session_id": "s-good", "request_id": str(asked[-1])}
                await producer.send(stage.topics.requested, json.dumps(request).encode())
        done = stage.events[stage.topics.completed]
        await stage.until(lambda: len({e.data["request_id"] for e in done}) == len(asked))
    assert {e.data["request_id"] for e in done} == set(map(str, asked))
    assert await stage.rows("SELECT FROM score_requests WHERE state <> 'completed'") == []


async def test_a_bare_json_record_is_answered(stage: Stage) -> None:
    """What `echo '{"session_id": "..."}' | kcat -P -t score.requested` sends."""
    stage.stand_ins.add("s-simple", "simple")
    async with stage.consumer():
        await stage.send({"session_id": "s-simple"})
        await stage.until(lambda: stage.events[stage.topics.completed])
    (event,) = stage.events[stage.topics.completed]
    assert event.data["session_id"] == "s-simple"
    assert event.data["method"] == "heuristic"
    assert event.data["judge"]["provider"] is None
    assert event.data["triggered_by"] == "api-client"
    assert stage.stand_ins.judge_calls.total() == 0


async def test_every_error_code_is_reached(stage: Stage) -> None:
    stand_ins = stage.stand_ins
    for session in ("s-garbage", "s-down", "s-other-profile", "s-moving"):
        stand_ins.add(session, "good")
    for session in ("j-prose", "j-refused", "j-overflow", "j-badkey", "j-badrequest"):
        stand_ins.add(session, "good")
    stand_ins.add("s-running", "good", status="in_progress")
    stand_ins.add("s-failed", "good", status="failed")
    stand_ins.add("s-incomplete", "good", stages=[{"execution_id": "e"}])
    stand_ins.history_faults.forever["s-garbage"] = answer(200, "<html>not json")
    stand_ins.history_faults.forever["s-down"] = answer(503)
    stand_ins.history_faults.forever["s-moving"] = answer(302)
    stand_ins.judge_faults.forever["j-prose"] = completion("I would say 80 out of 100.")
    stand_ins.judge_faults.forever["j-refused"] = completion(None, refusal="I can't help with that")
    stand_ins.judge_faults.forever["j-overflow"] = answer(
        400, {"error": {"code": "context_length_exceeded", "message": "too long"}}
    )
    stand_ins.judge_faults.forever["j-badkey"] = answer(401, {"error": {"code": "invalid_api_key"}})
    stand_ins.judge_faults.forever["j-badrequest"] = answer(
        400, {"error": {"code": "unsupported", "message": "sk-test-secret-key"}}
    )
    expected = {
        "s-unknown": (ErrorCode.SESSION_NOT_FOUND, "failed"),
        "s-running": (ErrorCode.SESSION_NOT_COMPLETED, "failed"),
        "s-failed": (ErrorCode.SESSION_NOT_COMPLETED, "failed"),
        "s-garbage": (ErrorCode.HISTORY_INVALID, "failed"),
        "s-moving": (ErrorCode.HISTORY_UNAVAILABLE, "failed"),
        "s-incomplete": (ErrorCode.HISTORY_INVALID, "failed"),
        "s-down": (ErrorCode.HISTORY_UNAVAILABLE, "failed"),
        "s-other-profile": (ErrorCode.NO_MATCHING_PROFILE, "skipped"),
        "j-badkey": (ErrorCode.JUDGE_UNAVAILABLE, "failed"),
        "j-prose": (ErrorCode.JUDGE_INVALID_OUTPUT, "failed"),
        "j-refused": (ErrorCode.JUDGE_REFUSED, "failed"),
        "j-overflow": (ErrorCode.CONTEXT_OVERFLOW, "failed"),
        "j-badrequest": (ErrorCode.INTERNAL_ERROR, "failed"),
    }
    async with stage.consumer() as consumer:
        requests = {
            session: await stage.ask(
                session, **({"profile_id": "no-such"} if session == "s-other-profile" else {})
            )
            for session in expected
        }
        for session, request_id in requests.items():
            event = await stage.answer(request_id)
            code, state = expected[session]
            assert event.topic == stage.topics.failed
            assert (event.data["error_code"], event.data["state"]) == (code, state), event.data
            assert "total_score" not in event.data
            assert event.data["message"]
        logged = consumer.log.read_text()
    rows = {row["session_id"]: row for row in await stage.rows("SELECT * FROM score_requests")}
    for session, (code, state) in expected.items():
        assert (rows[session]["error_code"], rows[session]["state"]) == (code, state)
        assert rows[session]["score_id"] is None
    assert await stage.rows("SELECT * FROM session_scores") == []
    assert "stages.0.stage_name" in rows["s-incomplete"]["error_message"]
    # Three answers, no more; the last two were told what was wrong with the one before.
    assert stage.stand_ins.judge_calls["j-prose"] == 3
    assert (
        "could not be accepted" in stage.stand_ins.prompts["j-prose"][1]["messages"][-1]["content"]
    )
    # Neither a refused key nor a refused answer is asked for again at once.
    assert stage.stand_ins.judge_calls["j-refused"] == 1
    assert "sk-test-secret-key" not in logged
    assert not any("sk-test" in e.raw.value.decode() for e in stage.events[stage.topics.failed])


async def test_trouble_that_passes_ends_in_a_score(stage: Stage) -> None:
    stand_ins = stage.stand_ins
    stand_ins.add("s-flaky", "good")
    stand_ins.history_faults.queued["s-flaky"] = [answer(503), answer(500), hang(30)]
    stand_ins.judge_faults.queued["s-flaky"] = [
        answer(429, {"error": {"code": "rate_limit"}}, {"retry-after": "1"}),
        completion('{"criteria": {'),
        completion("{}"),
    ]
    async with stage.consumer(history_timeout_seconds=1, request_deadline_seconds=60):
        event = await stage.answer(await stage.ask("s-flaky"))
    assert event.topic == stage.topics.completed
    assert event.data["total_score"] == 88
    # The rejected answers were paid for, so they count.
    assert event.data["judge"]["input_tokens"] > 2000
    assert stand_ins.judge_calls["s-flaky"] == 4
    assert stand_ins.history_calls["s-flaky"] == 4


async def test_an_outcome_that_can_not_be_stored_ends_the_request(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer() as consumer:
        # What no one should do: the definition that every score refers to is gone.
        await stage.rows("ALTER TABLE scoring_criteria_definitions DISABLE TRIGGER USER")
        await stage.rows("DELETE FROM scoring_criteria_definitions")
        event = await stage.answer(await stage.ask("s-good"))
        assert "ForeignKeyViolationError" in consumer.log.read_text()
    assert event.data["error_code"] == ErrorCode.INTERNAL_ERROR
    assert "can't be stored" in event.data["message"]
    assert stage.stand_ins.judge_calls["s-good"] == 1


async def test_a_running_session_is_scored_once_it_is_completed(stage: Stage) -> None:
    stage.stand_ins.add("s-soon", "simple", status="in_progress")
    async with stage.consumer(completion_wait_seconds=20):
        request_id = await stage.ask("s-soon")
        while not stage.stand_ins.history_calls["s-soon"]:
            await asyncio.sleep(0.05)
        stage.stand_ins.add("s-soon", "simple")
        event = await stage.answer(request_id)
    assert event.topic == stage.topics.completed


async def test_bad_records_go_to_the_dead_letter_topic_and_the_next_is_answered(
    stage: Stage,
) -> None:
    stage.stand_ins.add("s-simple", "simple")
    bad: dict[str, bytes | None] = {
        "bad_json": b'{"session_id": "s-simple"',
        "schema_invalid": b'{"session_id": "../etc", "priority": 10}',
        "tombstone": None,
        "oversize": b'{"session_id": "s", "x": "' + b"y" * 2_000_000 + b'"}',
        "bad_header": b'{"session_id": "s-simple"}',
    }
    async with stage.consumer():
        for code, value in bad.items():
            headers = [("my-header", b"\xff\x00" if code == "bad_header" else b"kept")]
            await stage.send(value, key=b"\xfekey", headers=headers)
        good = await stage.ask("s-simple")
        event = await stage.answer(good)
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) == len(bad))
    assert event.topic == stage.topics.completed
    letters = dead_letters(stage.events[stage.topics.dlq])
    assert set(letters) == set(bad)
    for code, letter in letters.items():
        assert letter.raw.value == bad[code]
        assert letter.key == b"\xfekey"
        original = dict(letter.raw.headers)["my-header"]
        assert original == (b"\xff\x00" if code == "bad_header" else b"kept")
        assert letter.headers["dlq_original_topic"] == stage.topics.requested
        assert letter.headers["dlq_error_message"]
        assert letter.headers["dlq_redrive_count"] == "0"
    assert "session_id" in letters["schema_invalid"].headers["dlq_error_message"]
    assert "priority" in letters["schema_invalid"].headers["dlq_error_message"]
    assert len(await stage.rows("SELECT * FROM score_requests")) == 1


async def test_the_same_event_twice_is_one_request(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    event = {"session_id": "s-good"}
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"score.requested"),
        ("ce_source", b"/dashboard"),
        ("ce_id", b"42"),
        ("content-type", b"application/json"),
        ("traceparent", TRACEPARENT.encode()),
        ("tracestate", b"vendor=1"),
    ]
    async with stage.consumer():
        await stage.send(event, event, headers=headers)
        await stage.until(lambda: stage.events[stage.topics.completed])
        await stage.send(event, headers=headers)
        later = await stage.ask("s-good")
        await stage.answer(later)
    assert len(await stage.rows("SELECT * FROM score_requests")) == 2
    assert stage.stand_ins.judge_calls["s-good"] == 1
    first = stage.events[stage.topics.completed][0]
    assert first.headers["traceparent"] == TRACEPARENT
    assert first.headers["tracestate"] == "vendor=1"
    assert first.headers["ce_type"] == "score.completed"
    assert first.headers["ce_subject"] == "s-good"
    assert first.headers["content-type"] == "application/json"
    assert first.key == b"s-good"


async def test_reuse_force_and_waiting(stage: Stage) -> None:
    stage.stand_ins.add("s-weak", "contradiction")
    stage.stand_ins.judge_delay_s = 0.5
    async with stage.consumer():
        together = [await stage.ask("s-weak") for _ in range(3)]
        answers = [await stage.answer(request_id) for request_id in together]
        reused = await stage.answer(await stage.ask("s-weak"))
        forced = await stage.answer(await stage.ask("s-weak", force_rescore=True))
    # Three at once: one judge call, one new score, two answered from it.
    assert sorted(a.data["reused"] for a in answers) == [False, True, True]
    assert len({a.data["score_id"] for a in [*answers, reused]}) == 1
    assert reused.data["reused"] is True
    assert forced.data["reused"] is False
    assert forced.data["score_id"] != reused.data["score_id"]
    assert stage.stand_ins.judge_calls["s-weak"] == 2
    risks = stage.events[stage.topics.quality_risk]
    assert len(risks) == 2, "a risk for each new score, none for a reused one"
    assert risks[0].data["reasons"] == ["below_threshold"]
    scores = await stage.rows("SELECT is_current FROM session_scores ORDER BY scored_at")
    assert [row["is_current"] for row in scores] == [False, True]
    (criteria,) = await stage.rows(
        "SELECT count(*) FROM scoring_criteria_definitions WHERE criteria_hash = $1",
        forced.data["criteria_hash"],
    )
    assert criteria["count"] == 1


async def test_the_urgent_come_first(stage: Stage) -> None:
    for number in range(6):
        stage.stand_ins.add(f"s-{number}", "good")
    stage.stand_ins.judge_delay_s = 0.3
    # The first one holds the only slot while the others queue up.
    async with stage.consumer(worker_slots=1):
        await stage.ask("s-0", priority=0)
        while not stage.stand_ins.judge_calls["s-0"]:
            await asyncio.sleep(0.02)
        asked = {n: await stage.ask(f"s-{n}", priority=n) for n in (1, 5, 3, 2, 4)}
        for request_id in asked.values():
            await stage.answer(request_id)
    rows = await stage.rows(
        "SELECT session_id FROM score_requests WHERE session_id <> 's-0' ORDER BY finished_at"
    )
    assert [row["session_id"] for row in rows] == ["s-5", "s-4", "s-3", "s-2", "s-1"]


async def test_without_a_provider_rules_score_and_judge_profiles_fail_clearly(
    stage: Stage,
) -> None:
    stage.stand_ins.add("s-simple", "simple")
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer(scoring_llm_provider="", default_llm_provider=""):
        simple = await stage.answer(await stage.ask("s-simple"))
        judged = await stage.answer(await stage.ask("s-good"))
    assert simple.topic == stage.topics.completed
    assert judged.data["error_code"] == ErrorCode.JUDGE_UNAVAILABLE
    assert "SCORING_LLM_PROVIDER" in judged.data["message"]


async def test_switched_off_skips(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer(scoring_enabled="false"):
        event = await stage.answer(await stage.ask("s-good"))
    assert (event.data["error_code"], event.data["state"]) == ("scoring_disabled", "skipped")
    assert stage.stand_ins.history_calls.total() == 0


async def test_probes_and_metrics_tell_what_happened(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer() as consumer, httpx.AsyncClient(base_url=consumer.url) as http:
        await stage.answer(await stage.ask("s-good"))
        await stage.send(b"broken")
        await stage.until(lambda: stage.events[stage.topics.dlq])
        alive = (await http.get("/healthz")).json()
        ready = await http.get("/readyz")
        figures = (await http.get("/metrics")).text
        logged = [json.loads(line) for line in consumer.log.read_text().splitlines()]
    assert alive["alive"] is True
    assert set(alive["loop_age_seconds"]) == {"figures", "intake", "worker", "relay"}
    assert ready.json() == {"ready": True, "waiting_for": {}}
    for sample in (
        'scoring_requests_finished_total{outcome="completed"} 1.0',
        'scoring_requests_received_total{result="accepted"} 1.0',
        'scoring_dlq_records_total{reason="bad_json"} 1.0',
        'scoring_events_sent_total{type="score.completed"} 1.0',
        'scoring_judge_call_seconds_count{provider="openai-compatible",result="ok"} 1.0',
        'scoring_history_call_seconds_count{result="ok"} 1.0',
    ):
        assert sample in figures
    (scored,) = [line for line in logged if line["event"] == "completed"]
    assert scored["session_id"] == "s-good"
    assert str(UUID(scored["request_id"])) == scored["request_id"]
    assert str(UUID(scored["score_id"])) == scored["score_id"]
    assert not [line for line in logged if line["event"].startswith("judge_re")]


async def test_what_is_said_to_the_judge_and_by_it_is_logged_on_request(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer(log_level="DEBUG") as consumer:
        await stage.answer(await stage.ask("s-good"))
        logged = [json.loads(line) for line in consumer.log.read_text().splitlines()]
    (asked,) = [line for line in logged if line["event"] == "judge_request"]
    assert len(asked["prompt"]) == 1000
    (answered,) = [line for line in logged if line["event"] == "judge_response"]
    assert answered["text"].startswith("{")
    assert asked["request_id"] == answered["request_id"]


async def test_odd_session_ids_never_reach_a_url(stage: Stage) -> None:
    odd = ["a/b", "../x", "a b", "x" * 129, "", "s\u0000", "ü", "a%2fb", "a\nb"]
    async with stage.consumer(dlq_max_invalid_share=1):
        await stage.send(*({"session_id": session_id} for session_id in odd))
        await stage.until(lambda: len(stage.events[stage.topics.dlq]) == len(odd))
    reasons = {event.headers["dlq_error_code"] for event in stage.events[stage.topics.dlq]}
    assert reasons == {"schema_invalid"}
    assert stage.stand_ins.history_calls.total() == 0
