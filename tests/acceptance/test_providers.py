"""The same session by each provider's API, by several at once, and several times by one."""

import json
from pathlib import Path
from typing import Any

import pytest

from consumer.demo.world import served
from tests.support.judging import (
    CRITERIA,
    GEMINI_KEY,
    JUDGE,
    completed,
    configured,
    other_apis,
    other_keys,
    shipped,
    verdict,
)
from tests.support.stage import Event, Stage
from tests.support.stand_ins import Fault

PROFILE = "alert-investigation"
PANEL = [{"provider": "gemini"}, {"provider": "anthropic"}]
PRICE = {"price": {"input_per_million": 1, "output_per_million": 1}}


async def test_gemini_anthropic_and_both_as_a_panel(stage: Stage, tmp_path: Path) -> None:
    stage.stand_ins.add("s-good", "good")
    stage.stand_ins.add("s-panel", "good")
    stage.stand_ins.judge_faults.queued["s-panel"] = answers(15, 20)
    config = configured(
        tmp_path,
        *(shipped(PROFILE, id=f"by-{seat['provider']}", judge=seat) for seat in PANEL),
        shipped(PROFILE, id="by-panel", judge={"panel": PANEL}),
        providers={"gemini": PRICE, "anthropic": PRICE},
    )
    async with (
        served(other_apis(stage.stand_ins)) as url,
        stage.consumer(scoring_config_dir=config, **other_keys(url)),
    ):
        gemini = await scored(stage, "s-good", "by-gemini")
        anthropic = await scored(stage, "s-good", "by-anthropic")
        panel = await scored(stage, "s-panel", "by-panel")
    for event, provider, model in (
        (gemini, "gemini", "gemini-2.5-flash"),
        (anthropic, "anthropic", "claude-sonnet-4-5"),
    ):
        judge = event.data["judge"]
        assert event.data["total_score"] == 88, "what the same verdict is worth elsewhere"
        assert (judge["provider"], judge["model"], judge["samples"]) == (provider, model, 1)
        tokens = judge["input_tokens"] + judge["output_tokens"]
        assert judge["cost_usd"] == pytest.approx(tokens / 1_000_000)
    assert stage.stand_ins.judge_calls["s-good"] == 2
    # 17.5 of 25 points each: the mean of both, whoever said which.
    assert panel.data["total_score"] == 70
    assert set(panel.data["score_breakdown"].values()) == {70}
    assert panel.data["judge"]["samples"] == 2
    # Totals of 60 and 80: a standard deviation of 14.14.
    assert panel.data["confidence"] == pytest.approx(1 - 14.1421 / 25, abs=1e-3)
    samples = await samples_of(stage, panel)
    assert [sample["provider"] for sample in samples] == ["gemini", "anthropic"]
    hashes = {event.data["criteria_hash"] for event in (gemini, anthropic, panel)}
    assert len(hashes) == 3, "who judges is a criterion"


async def test_samples_and_as_few_of_them_as_will_do(stage: Stage, tmp_path: Path) -> None:
    for session, given in (
        ("s-thrice", answers(15, 18, 21)),
        ("s-clear", answers(22)),
        ("s-close", answers(11, 9, 13)),
    ):
        stage.stand_ins.add(session, "good")
        stage.stand_ins.judge_faults.queued[session] = given
    config = configured(
        tmp_path,
        shipped(PROFILE, id="thrice", judge={"samples": 3}),
        # The threshold is 40: a first total within 10 of it is worth two more questions.
        shipped(PROFILE, id="careful", judge={"samples": 3, "adaptive_within": 10}),
        providers={JUDGE: PRICE},
    )
    async with stage.consumer(scoring_config_dir=config):
        thrice = await scored(stage, "s-thrice", "thrice")
        clear = await scored(stage, "s-clear", "careful")
        close = await scored(stage, "s-close", "careful")
        again = await scored(stage, "s-thrice", "thrice")
    assert (thrice.data["total_score"], thrice.data["judge"]["samples"]) == (72, 3)
    assert thrice.data["confidence"] == pytest.approx(1 - 12 / 25)  # 60, 72, 84
    assert thrice.data["judge"]["input_tokens"] == 3000
    assert thrice.data["judge"]["cost_usd"] == pytest.approx(3 * 1100 / 1_000_000)
    samples = await samples_of(stage, thrice)
    assert sorted(sample["points"]["logical_flow"] for sample in samples) == [15, 18, 21]
    assert all(set(sample["points"]) == set(CRITERIA) for sample in samples)
    assert len({sample["request_sha256"] for sample in samples}) == 3, "a nonce of its own each"
    assert (clear.data["total_score"], clear.data["judge"]["samples"]) == (88, 1)
    assert clear.data["confidence"] == 0.6
    assert (close.data["total_score"], close.data["judge"]["samples"]) == (44, 3)
    calls = stage.stand_ins.judge_calls
    assert (calls["s-thrice"], calls["s-clear"], calls["s-close"]) == (3, 1, 3)
    assert again.data["reused"] is True
    replayed = await stage.cli(
        "replay", thrice.data["score_id"], "--json", scoring_config_dir=config
    )
    assert [sample["matches"] for sample in replayed.json] == [True] * 3, replayed.err


async def test_a_panel_that_lacks_one_of_its_keys_does_not_start(
    stage: Stage, tmp_path: Path
) -> None:
    config = configured(
        tmp_path, shipped(PROFILE, id="by-panel", judge={"panel": PANEL}), providers={}
    )
    keys = {"gemini_api_key": GEMINI_KEY, "anthropic_api_key": ""}
    done = await stage.cli("run", scoring_config_dir=config, http_port=0, **keys)
    assert done.code == 1
    assert "llm_providers.yaml: anthropic: api_key_env: ANTHROPIC_API_KEY is not set" in done.err
    assert "GEMINI" not in done.err


def answers(*points: int) -> list[Fault]:
    """Verdicts of so many points for each criterion, one after the other."""
    return [completed(verdict(given), read=1000, written=100) for given in points]


async def scored(stage: Stage, session: str, profile: str) -> Event:
    """The session's score by this profile."""
    event = await stage.answer(await stage.ask(session, profile_id=profile))
    assert event.topic == stage.topics.completed, event.data
    return event


async def samples_of(stage: Stage, event: Event) -> list[dict[str, Any]]:
    """The stored samples of a score."""
    sql = "SELECT samples FROM session_scores WHERE score_id = $1::text::uuid"
    ((samples,),) = await stage.rows(sql, event.data["score_id"])
    found: list[dict[str, Any]] = json.loads(samples)
    return found
