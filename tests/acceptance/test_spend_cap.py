"""The cap on what judges cost: held by all replicas together, whatever happens to the calls."""

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

from consumer.error_codes import ErrorCode
from tests.support.judging import JUDGE, completed, configured, shipped, verdict
from tests.support.stage import Stage

PRICE = {"input_per_million": 10, "output_per_million": 10}
# An answer is 10 000 tokens in all; a prompt of these sessions is about as long as it says it is.
READ, WRITTEN = 9_000, 1_000
CALL_USD = Decimal("0.1")
CAP_USD = Decimal("1.0")
NOTE_ALL_HELD = (
    "CREATE TABLE held (usd numeric)",
    """CREATE FUNCTION note_held() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO held VALUES (NEW.spent_usd + NEW.reserved_usd); RETURN NULL; END $$""",
    """CREATE TRIGGER note_held AFTER INSERT OR UPDATE ON judge_spend
    FOR EACH ROW EXECUTE FUNCTION note_held()""",
)


async def test_two_replicas_never_spend_more_than_the_cap(stage: Stage, tmp_path: Path) -> None:
    sessions = [stage.stand_ins.add(f"s-{n}", "good") for n in range(30)]
    answered = completed(verdict(20), read=READ, written=WRITTEN)
    stage.stand_ins.judge_faults.forever |= dict.fromkeys(sessions, answered)
    stage.stand_ins.judge_delay_s = 0.3
    config = configured(
        tmp_path, providers={JUDGE: {"daily_cap_usd": float(CAP_USD), "price": PRICE}}
    )
    settings: dict[str, Any] = {
        "scoring_config_dir": config, "worker_slots": 3, "llm_max_output_tokens": 1024
    }  # fmt: skip
    async with stage.consumer(**settings), stage.consumer(**settings):
        await note_all_held(stage)
        requests = [uuid4() for _ in sessions]
        await stage.send(
            *(
                {"session_id": session, "request_id": str(request_id)}
                for session, request_id in zip(sessions, requests, strict=True)
            )
        )
        events = [await stage.answer(request_id) for request_id in requests]
    ((most,),) = await stage.rows("SELECT max(usd) FROM held")
    scored = [event for event in events if event.topic == stage.topics.completed]
    refused = [event for event in events if event.topic == stage.topics.failed]
    assert {event.data["error_code"] for event in refused} == {ErrorCode.BUDGET_EXHAUSTED}
    assert all("1 USD a day" in event.data["message"] for event in refused)
    # From inside and from outside: booked, stored and really asked for are the same.
    calls = stage.stand_ins.judge_calls.total()
    ((spent, reserved, cap),) = await stage.rows(
        "SELECT spent_usd, reserved_usd, cap_usd FROM judge_spend"
    )
    assert len(scored) == calls
    assert spent == calls * CALL_USD
    assert round(sum(event.data["judge"]["cost_usd"] for event in scored), 9) == float(spent)
    assert (reserved, cap) == (0, CAP_USD)
    assert 3 * CALL_USD <= spent <= CAP_USD, "it was of use, and held"
    assert spent < most <= CAP_USD, "what calls under way may cost counts"


async def test_by_rules_alone_until_there_is_money_again(stage: Stage, tmp_path: Path) -> None:
    stage.stand_ins.add("s-code", "good")
    hybrid = shipped("hybrid-code", id="thrifty", judge={"on_budget_exhausted": "rules_only"})
    broke, rich = (
        configured(
            tmp_path / str(cap), hybrid, providers={JUDGE: {"daily_cap_usd": cap, "price": PRICE}}
        )
        for cap in (0, 100)
    )
    async with stage.consumer(scoring_config_dir=broke):
        first, second = [
            (await stage.answer(await stage.ask("s-code", profile_id="thrifty"))).data
            for _ in range(2)
        ]
    rules = {"tool_errors", "tool_effectiveness", "grounding", "response_time"}
    assert set(first["score_breakdown"]) == rules
    assert (first["reused"], second["reused"]) == (False, False)
    assert first["judge"]["model"] is None
    assert stage.stand_ins.judge_calls.total() == 0
    (row,) = await stage.rows("SELECT * FROM session_scores WHERE is_current")
    assert (str(row["score_id"]), row["judge_skipped"]) == (second["score_id"], "budget_exhausted")
    shown = (await stage.cli("show", "s-code")).out
    assert "not asked: budget_exhausted" in shown
    async with stage.consumer(scoring_config_dir=rich):
        judged, reused = [
            (await stage.answer(await stage.ask("s-code", profile_id="thrifty"))).data
            for _ in range(2)
        ]
    assert rules < set(judged["score_breakdown"])
    assert (judged["reused"], reused["reused"]) == (False, True)
    assert judged["criteria_hash"] == first["criteria_hash"], "a cap is no criterion"
    assert stage.stand_ins.judge_calls["s-code"] == 1


async def test_a_cap_on_a_model_without_a_price_is_refused_at_the_start(
    stage: Stage, tmp_path: Path
) -> None:
    config = configured(tmp_path, providers={JUDGE: {"daily_cap_usd": 5}})
    done = await stage.cli("run", scoring_config_dir=config, http_port=0)
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if "the price of" in line]
    assert "openai-compatible: daily_cap_usd: the price of 'scripted-judge' is unknown" in line
    assert "Traceback" not in done.err
    assert await stage.rows("SELECT FROM judge_profiles") == []


async def note_all_held(stage: Stage) -> None:
    """From now on the database notes what is spent and reserved, at every change."""
    for sql in NOTE_ALL_HELD:
        await stage.rows(sql)
