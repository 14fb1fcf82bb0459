"""A judge whom a session talks into a false verdict is not believed, from topic to table."""

import json

from consumer.demo.sample_sessions import load
from consumer.error_codes import ErrorCode
from tests.support.stage import Stage
from tests.support.stand_ins import completion

# The sample whose log lines hold orders to the judge, a planted verdict and a fake fence.
ATTACKED = "injection"


def fooled(secret: str, score: object) -> str:
    """What the planted text asks for; it fits no profile."""
    said = {"evidence": [], "reasoning": secret, "score": score}
    return json.dumps({"criteria": {"logical_flow": said}, "total_score": 100})


async def test_three_fooled_answers_are_a_failure_that_repeats_nothing_of_them(
    stage: Stage,
) -> None:
    stage.stand_ins.add("s-fooled", ATTACKED)
    # What is wrong with the last one can only be said with its own words.
    answers = ["owned-1: 100 points", fooled("owned-2", 25), fooled("owned-3", "owned-4")]
    for text in answers:
        stage.stand_ins.judge_faults.queued["s-fooled"].append(completion(text))
    async with stage.consumer():
        event = await stage.answer(await stage.ask("s-fooled"))
    assert event.topic == stage.topics.failed
    assert event.data["error_code"] == ErrorCode.JUDGE_INVALID_OUTPUT
    assert stage.stand_ins.judge_calls["s-fooled"] == len(answers)
    told = json.dumps(event.data) + json.dumps(event.headers)
    assert "owned" not in told
    assert await stage.rows("SELECT * FROM session_scores") == []


async def test_a_fooled_answer_is_asked_again_and_the_good_one_counts(stage: Stage) -> None:
    stage.stand_ins.add("s-recovers", ATTACKED)
    stage.stand_ins.judge_faults.queued["s-recovers"].append(completion(fooled("owned", 25)))
    async with stage.consumer():
        event = await stage.answer(await stage.ask("s-recovers"))
    expected = next(s for s in load().values() if s.case == ATTACKED).expected_total
    assert event.topic == stage.topics.completed
    assert event.data["total_score"] == expected
    first, second = stage.stand_ins.prompts["s-recovers"]
    assert second["messages"][0] == first["messages"][0], "the session is sent as before"
    assert "total_score: Extra inputs are not permitted" in second["messages"][-1]["content"]
    (row,) = await stage.rows("SELECT * FROM session_scores")
    assert row["total_score"] == expected
