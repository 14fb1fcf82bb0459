"""`score-consumer replay`: what the judge was asked, byte for byte, and what it says to it now."""

import copy
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from consumer.demo import sample_sessions
from tests.support.judging import JUDGE, completed, verdict
from tests.support.stage import Stage

# Some 40 KB a tool call.
LINES = 1_000


async def test_a_judgement_is_rebuilt_and_asked_again(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    stage.stand_ins.add("s-simple", "simple")
    stage.stand_ins.add("s-long", "good", **long_detail())
    async with stage.consumer():
        good, simple, long = [
            (await stage.answer(await stage.ask(session))).data
            for session in ("s-good", "s-simple", "s-long")
        ]
    for score, elided in ((good, False), (long, True)):
        (sent,) = stage.stand_ins.prompts[score["session_id"]]
        (stored,) = await stage.rows(
            "SELECT elision FROM session_scores WHERE score_id = $1::text::uuid", score["score_id"]
        )
        assert (stored["elision"] is not None) is elided
        done = await stage.cli("replay", score["score_id"], "--json")
        assert done.code == 0, done.err
        (sample,) = done.json
        assert sample["matches"] is True
        assert sample["request_sha256"] == sample["rebuilt_sha256"]
        assert (sample["provider"], sample["model"]) == (JUDGE, "scripted-judge")
        printed = await stage.cli("replay", score["score_id"], "--prompt")
        assert printed.out == sent["messages"][0]["content"] + "\n"
    for_people = await stage.cli("replay", good["score_id"])
    assert (for_people.code, "matches" in for_people.out) == (0, True)
    assert stage.stand_ins.judge_calls["s-good"] == 1, "nobody was asked"
    by_rules = await stage.cli("replay", simple["score_id"])
    assert (by_rules.code, by_rules.out) == (1, "")
    assert "was made by rules only" in by_rules.err
    unknown = await stage.cli("replay", nobody := str(uuid4()))
    assert unknown.code == 1
    assert f"there is no score {nobody}" in unknown.err
    await asked_again(stage, good)


async def asked_again(stage: Stage, score: Mapping[str, Any]) -> None:
    """Another verdict on the same prompt: the difference is told, and one call more is made."""
    session, score_id = str(score["session_id"]), str(score["score_id"])
    refused = await stage.cli("replay", score_id, "--send", "--max-cost", "1")
    assert (refused.code, refused.out) == (1, "")
    assert "a model without a price" in refused.err
    assert stage.stand_ins.judge_calls[session] == 1, "what can't be kept is not promised"
    another = completed(verdict(25), read=10, written=10)
    stage.stand_ins.judge_faults.queued[session].append(another)
    done = await stage.cli("replay", score_id, "--send", "--json")
    assert done.code == 0, done.err
    assert stage.stand_ins.judge_calls[session] == 2
    first, second = stage.stand_ins.prompts[session]
    assert second == first, "the whole request, not only its prompt"
    changes = {change["criterion"]: change for change in done.json[0]["changes"]}
    prepared = next(s for s in sample_sessions.load().values() if s.case == "good").verdict
    assert prepared
    assert {name: change["then"] for name, change in changes.items()} == {
        name: said["score"] for name, said in prepared["criteria"].items()
    }
    assert {change["now"] for change in changes.values()} == {25}
    for_people = await stage.cli("replay", score_id, "--send")
    assert "Asked again" in for_people.out
    assert stage.stand_ins.judge_calls[session] == 3
    assert len(await stage.rows("SELECT FROM session_scores")) == 3, "nothing of it is stored"


async def test_what_was_changed_or_pruned_is_said(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    async with stage.consumer():
        score_id = (await stage.answer(await stage.ask("s-good"))).data["score_id"]
    await stage.rows("ALTER TABLE session_scores DISABLE TRIGGER session_scores_immutable")
    nonce = "UPDATE session_scores SET samples = jsonb_set(samples, '{0, nonce}', to_jsonb(%s))"
    ((sample,),) = await stage.rows("SELECT samples->0->>'nonce' FROM session_scores")
    await stage.rows(nonce % "'another'::text")
    other = await stage.cli("replay", score_id, "--json")
    assert (other.code, other.json[0]["matches"]) == (1, False)
    assert "what is stored is not what was sent then" in other.err
    assert "differs" in (await stage.cli("replay", score_id)).out
    await stage.rows(nonce % f"'{sample}'::text")
    await stage.rows("UPDATE judge_sent SET content = substring(content FROM 1 FOR 100)")
    broken = await stage.cli("replay", score_id)
    assert (broken.code, broken.out) == (3, "")
    assert f"what the judge of score {score_id} was sent is damaged" in broken.err
    assert "Traceback" not in broken.err
    kept = ("prune", "--older-than", "1", "--inputs-older-than", "30", "--json")
    assert (await stage.cli(*kept)).json["inputs"] == 0
    await stage.rows("UPDATE judge_sent SET used_at = now() - interval '31 days'")
    assert (await stage.cli("prune", "--older-than", "1", "--json")).json["inputs"] == 0
    assert (await stage.cli("prune")).code == 1, "it has to be said what"
    inputs = await stage.cli("prune", "--inputs-older-than", "30", "--json")
    assert inputs.json == {"deleted": 0, "spend": 0, "inputs": 2}
    gone = await stage.cli("replay", score_id, "--send", "--json")
    assert (gone.code, gone.json[0]["matches"]) == (3, None)
    assert gone.json[0]["why_not"] == f"what the judge of score {score_id} was sent is pruned"
    assert gone.json[0]["why_not"] in gone.err
    assert stage.stand_ins.judge_calls["s-good"] == 1


def long_detail() -> dict[str, Any]:
    """The good session, with tool results that no judge has room for."""
    sample = next(s for s in sample_sessions.load().values() if s.case == "good")
    stages = copy.deepcopy(sample.detail["stages"])
    lines = "".join(f"\n2025-12-05T10:{n % 60:02}:00Z request {n} served" for n in range(LINES))
    for stage in stages:
        for call in (*stage["mcp_communications"], *stage["chronological_interactions"]):
            if result := call["details"].get("tool_result"):
                result["result"] += lines
    return {"stages": stages}
