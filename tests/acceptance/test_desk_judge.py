"""`check`, and `score --judge`: the judge from one's desk."""

import json
from pathlib import Path
from typing import Any

from tests.support.judging import CRITERIA, JUDGE, completed, configured, verdict
from tests.support.stage import CliResult, Stage
from tests.support.stand_ins import answer

NOWHERE = "127.0.0.1:1"
PRICE = {"input_per_million": 10, "output_per_million": 10}
# What a prompt that names no session is counted under.
NO_SESSION = "unknown"


async def test_check_finds_all_well(stage: Stage) -> None:
    yes = completed("{}", read=10, written=2)
    stage.stand_ins.judge_faults.forever[NO_SESSION] = yes
    history = stage.stand_ins.history_url
    behind = history.replace("://", "://someone:hidden@")
    done = await stage.cli("check", "--json", history_url=behind)
    assert done.code == 0, done.out
    assert done.json[2]["told"] == f"{history} lists sessions"
    assert "hidden" not in done.out + done.err
    names = ["postgres", "kafka", "history", "judge openai-compatible / scripted-judge"]
    assert [made["name"] for made in done.json] == names
    assert all(made["ok"] for made in done.json)
    (asked,) = stage.stand_ins.prompts[NO_SESSION]
    assert asked["max_tokens"] <= 16, "one tiny call"


async def test_check_names_each_thing_that_is_wrong(stage: Stage) -> None:
    stage.stand_ins.judge_faults.forever[NO_SESSION] = answer(
        401, {"error": {"code": "invalid_api_key", "message": "Incorrect key: sk-test-secret-key"}}
    )
    assert (await stage.cli("migrate", "down", "--to", "0")).code == 0
    half = await stage.cli("check")
    assert half.code == 1
    postgres, kafka, history, judge = lines_of(half)
    assert postgres.startswith("wrong postgres: the schema lacks 0001")
    assert "score-consumer migrate" in postgres
    assert kafka.startswith("ok kafka")
    assert history.startswith("ok history")
    assert judge.startswith("wrong judge openai-compatible / scripted-judge")
    assert "401 invalid_api_key: it refuses our key or quota" in judge
    assert "sk-test" not in half.out + half.err
    none = await stage.cli(
        "check",
        "--json",
        database_url=f"postgresql://someone:hidden@{NOWHERE}/nothing",
        kafka_bootstrap_servers=NOWHERE,
        history_url=f"http://someone:hidden@{NOWHERE}",
        llm_base_url=f"http://{NOWHERE}/v1",
    )
    assert none.code == 1
    assert [made["ok"] for made in none.json] == [False] * 4
    told = {made["name"].split()[0]: made["told"] for made in none.json}
    assert f"Postgres at {NOWHERE}/nothing" in told["postgres"]
    assert f"Kafka at {NOWHERE}" in told["kafka"]
    assert f"History at http://{NOWHERE}" in told["history"]
    assert "judge openai-compatible does not answer" in told["judge"]
    assert "hidden" not in none.out + none.err
    assert "Traceback" not in half.err + none.err


def lines_of(done: CliResult) -> list[str]:
    """The lines of a check, one for each thing, as if the terminal were wide."""
    joined = " ".join(done.out.split())
    starts = sorted(
        place
        for name in ("postgres:", "kafka:", "history:", "judge openai")
        for mark in ("ok", "wrong")
        if (place := joined.find(f"{mark} {name}")) >= 0
    )
    return [joined[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


async def test_score_judge_tells_costs_first_and_shows_the_verdict(
    stage: Stage, tmp_path: Path
) -> None:
    stage.stand_ins.add("s-good", "good")
    file = session_file(stage, tmp_path, "s-good")
    judged = ("score", str(file), "--judge", "--profile", "alert-investigation")
    priced = configured(tmp_path, providers={JUDGE: {"price": PRICE}})
    refused = await stage.cli(*judged, "--max-cost", "0.01", scoring_config_dir=priced)
    assert (refused.code, refused.out) == (1, "")
    assert "1 prompt(s), about" in refused.err
    assert "--max-cost: at most $0." in refused.err
    assert "nothing was asked" in refused.err
    unpriced = await stage.cli(*judged, "--max-cost", "100")
    assert (unpriced.code, unpriced.out) == (1, "")
    assert "an unknown price is not within $100; nothing was asked" in unpriced.err
    assert stage.stand_ins.judge_calls.total() == 0
    done = await stage.cli(*judged, "--max-cost", "1", "--json", scoring_config_dir=priced)
    assert done.code == 0, done.err
    assert done.err.startswith("1 prompt(s), about")
    (score,) = done.json
    assert (score["session_id"], score["total_score"]) == ("s-good", 88)
    (sample,) = score["judgement"]["samples"]
    told = float(done.err.split("at most $")[1].split()[0])
    assert 0 < score["judgement"]["cost_usd"] <= told
    assert set(sample["verdict"]["criteria"]) == set(CRITERIA)
    assert stage.stand_ins.judge_calls["s-good"] == 1


async def test_score_judge_marks_what_no_step_says(stage: Stage, tmp_path: Path) -> None:
    stage.stand_ins.add("s-good", "good")
    file = session_file(stage, tmp_path, "s-good")
    invented = verdict(20, quote=(3, "the database was dropped by hand"))
    stage.stand_ins.judge_faults.queued["s-good"] = [completed(invented, read=10, written=10)]
    judged = ("score", str(file), "--judge", "--profile", "alert-investigation")
    wrong = await stage.cli(*judged)
    assert wrong.code == 0, wrong.err
    assert "80 good" in wrong.out
    assert wrong.out.count("✗ not in this step") == len(CRITERIA)
    assert "✓" not in wrong.out
    assert "cost unknown" in wrong.out
    right = await stage.cli(*judged)
    assert "88 good" in right.out
    assert "✓ step" in right.out
    assert "✗" not in right.out


def session_file(stage: Stage, folder: Path, session: str) -> Path:
    """A session of the History stand-in, as a file."""
    kept = stage.stand_ins.sessions[session]
    combined: dict[str, Any] = {"detail": kept.detail, "final": kept.final}
    path = folder / f"{session}.json"
    path.write_text(json.dumps(combined))
    return path
