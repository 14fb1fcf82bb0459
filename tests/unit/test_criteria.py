"""The criteria hash: the same for the same criteria everywhere, another for any that differ."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pydantic import create_model

from consumer.scoring import criteria as module
from consumer.scoring.criteria import JudgeSettings, criteria
from consumer.scoring.profile import Profile, parse_profile
from tests.unit.builders import gated, judged, profile, raw_profile, ruled, rules_profile

JUDGE = JudgeSettings(seats=(("openai", "gpt-4o"),), prompt="Judge: é\n", temperature=0.0)

# RFC 8785 by hand: keys sorted, no blanks, 1.0 as 1; what is at its default is left out.
LEAN = (
    '{"profile":{"criteria":[{"id":"tool_count","scorer":"tool_count","weight":1}],"id":"lean",'
    '"match_labels":["*"],"method":"heuristic","version":1},"scoring_version":2}'
)
LEAN_HASH = "9ca267264a1ca301992299ee031d4eeb732b10fb4422f15f956a59f25d43e2ae"
REVIEW_HASH = "8d6959fafebc1b36eba8e79e1aa6f0cf5ae2fe6270e5aa6eb237305e4d68ac50"


def hash_of(chosen: Profile, judge: JudgeSettings | None = JUDGE) -> str:
    return criteria(chosen, judge).hash


def test_the_hash_is_sha_256_over_canonical_json() -> None:
    assert hashlib.sha256(LEAN.encode()).hexdigest() == LEAN_HASH
    assert hash_of(rules_profile(), None) == LEAN_HASH


def test_the_hash_with_a_judge_never_moves_by_accident() -> None:
    # A change here means that every stored score counts as scored by other criteria.
    assert hash_of(profile()) == REVIEW_HASH


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from tests.unit.test_criteria import *\n"
        "print(hash_of(profile()), hash_of(rules_profile(), None))"
    )
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path), "LC_ALL": "C"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [REVIEW_HASH, LEAN_HASH]


def test_the_content_holds_all_that_can_change_a_score() -> None:
    found = criteria(profile(), JUDGE)
    assert found.content["profile"] == profile().body()
    judge = dict(found.content["judge"])
    schema = judge.pop("output_schema")
    assert list(schema["properties"]["criteria"]["properties"]) == ["logical_flow", "consistency"]
    assert judge == {
        "seats": [{"provider": "openai", "model": "gpt-4o"}],
        "prompt": "Judge: é\n",
        "temperature": 0.0,
        "samples": 1,
        "output_schema_version": 1,
    }
    assert criteria(rules_profile(), None).content.keys() == {"scoring_version", "profile"}
    assert found.content["scoring_version"] == 2
    json.dumps(found.content, allow_nan=False)


@pytest.mark.parametrize(
    "change",
    [
        {"seats": (("other", "gpt-4o"),)},
        {"seats": (("openai", "gpt-4o-mini"),)},
        {"seats": (("openai", "gpt-4o"), ("other", "gpt-4o"))},
        {"prompt": "Judge: é"},
        {"temperature": 0.1},
        {"samples": 2},
    ],
    ids=str,
)
def test_the_judge_s_settings_are_in_it(change: dict[str, Any]) -> None:
    assert hash_of(profile(), replace(JUDGE, **change)) != REVIEW_HASH


@pytest.mark.parametrize(
    "change",
    [
        {"id": "review-2"},
        {"version": 2},
        {"match_labels": ["code"]},
        {"scale": {"min": 0, "max": 99}},
        {"quality_risk_threshold": 41},
        {"judge": {"prompt": "other_prompt"}},
        {"judge": {"samples": 2}},
        {"judge": {"samples": 2, "adaptive_within": 10}},
        {"judge": {"min_verified_quotes": 0.5}},
        {"judge": {"panel": [{"provider": "openai"}, {"provider": "other"}]}},
        {"judge": {"on_budget_exhausted": "rules_only"}},
        {"criteria": [judged("logical_flow")]},
        {"gates": [gated()]},
        {"judge_anyway": True},
        {"actions": ["think"]},
        {"disqualifiers": ["It is rude."]},
        {"disqualifiers": ["pattern:rude"]},
        {"criteria": [judged("consistency", max_points=10), judged("logical_flow")]},
        {"criteria": [judged("logical_flow", weight=2), judged("consistency", max_points=10)]},
        {"criteria": [judged("logical_flow"), judged("consistency", max_points=11)]},
        {
            "criteria": [
                judged("logical_flow", description="?"),
                judged("consistency", max_points=10),
            ]
        },
    ],
    ids=str,
)
def test_all_of_the_profile_is_in_it(change: dict[str, Any]) -> None:
    assert hash_of(profile(**change)) != REVIEW_HASH


def test_another_rule_scorer_is_another_hash() -> None:
    other = rules_profile(ruled("response_time", id="tool_count"))
    assert hash_of(other, None) != LEAN_HASH


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ruled("latency_band"), ruled("latency_band", params={"best_up_to_s": 4})),
        (ruled(), {"id": "tool_count", "weight": 1, "scorers": [{"scorer": "tool_count"}]}),
    ],
    ids=["params", "scorers"],
)
def test_how_a_criterion_is_scored_is_in_it(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert hash_of(rules_profile(one), None) != hash_of(rules_profile(other), None)


def test_a_gate_s_threshold_and_params_are_in_it() -> None:
    hashes = {
        hash_of(profile(gates=[gated("latency_band", **changes)]))
        for changes in (
            {},
            {"threshold": 51},
            {"params": {"best_up_to_s": 4}},
            {"pass_if_not_applicable": True},
        )
    }
    assert len(hashes) == 4


def test_another_version_of_the_formulas_is_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORING_VERSION", module.SCORING_VERSION + 1)
    assert hash_of(rules_profile(), None) != LEAN_HASH
    assert hash_of(profile()) != REVIEW_HASH


def test_a_setting_that_a_later_version_adds_moves_no_hash() -> None:
    later = create_model("Later", __base__=Profile, added=(str, "as before"))
    assert hash_of(later.model_validate(raw_profile())) == REVIEW_HASH
    assert hash_of(later.model_validate(raw_profile(added="otherwise"))) != REVIEW_HASH


def test_with_and_without_a_judge_differ() -> None:
    assert hash_of(profile(), None) != REVIEW_HASH


def test_the_schema_and_its_version_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "SCHEMA_VERSION", 2)
        assert hash_of(profile()) != REVIEW_HASH
    with monkeypatch.context() as patch:
        patch.setattr(module, "output_schema", lambda _profile: {"type": "object"})
        assert hash_of(profile()) != REVIEW_HASH
    assert hash_of(profile()) == REVIEW_HASH


def test_how_the_file_is_written_does_not_matter() -> None:
    backwards = _backwards(raw_profile())
    assert list(backwards) != list(raw_profile())
    assert hash_of(parse_profile(backwards)) == REVIEW_HASH
    spelt_out = profile(
        quality_risk_threshold=40.0,
        scale={"max": 100, "min": 0},
        criteria=[
            judged("logical_flow", weight=1.0, max_points=25, name="", description=""),
            judged("consistency", max_points=10),
        ],
    )
    assert hash_of(spelt_out) == REVIEW_HASH


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _backwards(value[key]) for key in reversed(value)}
    return [_backwards(item) for item in value] if isinstance(value, list) else value
