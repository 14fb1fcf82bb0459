"""Scores that other programs stored: they are shown, replayed as far as they can be, and not judged
again unless somebody asks. See `tests/fixtures`.
"""

import json
from typing import Any
from uuid import UUID

import httpx
import pytest

from consumer.scoring.criteria import SCORING_VERSION
from tests.fixtures import Fixture, restore
from tests.support.stage import Stage

VERSION_1, JUDGED = "4fd32fd", "judged"
# Those for which no judge was asked: by rules, and behind a failed gate.
UNASKED = {"by-rules", "gated"}
LATER = UUID(int=1, version=4)
API = "/api/v1/scoring"

Row = dict[str, Any]


async def scores(stage: Stage) -> list[Row]:
    sql = "SELECT session_id, score_id::text, total_score, samples FROM session_scores"
    found = [dict(row) for row in await stage.rows(sql)]
    return [row | {"samples": json.loads(row["samples"])} for row in found]


async def test_what_version_1_did_not_store_is_told_in_a_sentence(stage: Stage) -> None:
    await restore(VERSION_1, stage.database_url)
    for row in await scores(stage):
        done = await stage.cli("replay", row["score_id"], "--json")
        if row["session_id"] in UNASKED:
            assert (done.code, "was made by rules only" in done.err) == (1, True)
            continue
        told = (
            f"score {row['score_id']} can't be rebuilt: another program made it (scoring version "
            "1), and did not store what it sent"
        )
        assert (done.code, done.err.strip()) == (3, told)
        assert [(s["matches"], s["rebuilt_sha256"]) for s in done.json] == [(None, None)] * len(
            row["samples"]
        )
        assert {sample["why_not"] for sample in done.json} == {told}
        for_people = await stage.cli("replay", row["score_id"], "--prompt")
        assert (for_people.code, for_people.out, for_people.err.strip()) == (3, "", told)
        shown = await stage.cli("show", row["session_id"])
        assert (shown.code, f"score     {row['score_id']}" in shown.out) == (0, True), shown.err


@pytest.mark.parametrize("name", [JUDGED])
async def test_judged_scores_replay_in_every_later_version(stage: Stage, name: str) -> None:
    """What is rebuilt from the tables is what went over the wire, by the judges' own account."""
    fixture = await restore(name, stage.database_url)
    judged = [row for row in await scores(stage) if row["samples"]]
    assert {row["session_id"] for row in judged} == fixture.cases.keys() - UNASKED
    rebuilt = []
    for row in judged:
        done = await stage.cli("replay", row["score_id"], "--json")
        assert (done.code, len(done.json)) == (0, len(row["samples"])), done.err
        assert all(sample["matches"] for sample in done.json)
        rebuilt += done.json
    found = {sample["rebuilt_sha256"] for sample in rebuilt}
    assert len(found) == len(rebuilt) > len(judged)
    assert found <= fixture.sent
    # All but one: a judge refused its first request for the temperature, and got another.
    assert len(fixture.sent - found) == 1
    unheated = {sample["model"] for sample in rebuilt if sample["temperature"] is None}
    assert unheated == {"picky-judge"}
    shown = (await stage.cli("show", "panel")).out
    assert "picky-judge, temperature not sent" in shown
    assert "gemini-2.5-flash, temperature 0;" in shown


async def test_nothing_is_judged_again_unless_somebody_asks(stage: Stage) -> None:
    """Over an upgrade: started, killed, started again, sent all old requests once more; then one
    asks.
    """
    fixture = await restore(VERSION_1, stage.database_url)
    before = {row["session_id"]: row for row in await scores(stage)}
    for session, case in fixture.cases.items():
        stage.stand_ins.add(session, case)
    stage.settings["scoring_llm_model"] = "stand-in-judge"  # as it was
    process = stage.process()
    process.start()
    process.kill()
    async with stage.consumer() as consumer, httpx.AsyncClient(base_url=consumer.url) as http:
        await told_again(stage)
        outdated = await served(http, fixture, before)
        assert stage.stand_ins.judge_calls.total() == 0
        after = {row["session_id"]: row for row in await scores(stage)}
        assert {**before, "later": after["later"]} == after
        for _ in range(2):  # the second one is answered by what the first one brought
            await stage.answer(await stage.ask("single"))
            assert stage.stand_ins.judge_calls == ({"single": 1} if outdated else {})
        score = (await http.get(f"{API}/sessions/single/score")).json()
        assert score["is_current_criteria"] is True
        assert (score["score_id"] == before["single"]["score_id"]) is not outdated


async def told_again(stage: Stage) -> None:
    """Sends all requests of the fixture again, under their ids, and waits until they are read."""
    rows = await stage.rows("SELECT request_id::text, session_id, profile_id FROM score_requests")
    for force in (False, True):
        again = [dict(row) | {"force_rescore": force} for row in rows]
        await stage.send(*(_without_nulls(request) for request in again), partition=0)
    stage.stand_ins.add("later", "simple")
    await stage.send({"session_id": "later", "request_id": str(LATER)}, partition=0)
    await stage.answer(LATER)


def _without_nulls(request: Row) -> Row:
    return {name: said for name, said in request.items() if said is not None}


async def served(http: httpx.AsyncClient, fixture: Fixture, before: dict[str, Row]) -> bool:
    """Each score is there as it was; answers whether they are outdated by now."""
    current = set()
    for session in fixture.cases:
        score = (await http.get(f"{API}/sessions/{session}/score")).json()
        assert score["score_id"] == before[session]["score_id"]
        assert score["total_score"] == before[session]["total_score"]
        assert len(score["samples"]) == len(before[session]["samples"])
        if score["judge_profile_id"] in {"alert-investigation", "efficiency-simple"}:
            current.add(score["is_current_criteria"])
    # Nothing but the version of scoring makes them so.
    assert current == {SCORING_VERSION == 1}
    return current == {False}
