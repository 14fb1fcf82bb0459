"""A stored judgement again: the same request byte for byte, and what the judge says to it now."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from consumer.errors import ConfigError
from consumer.judge.panel import Judge
from consumer.pipeline import criteria_of, score_session
from consumer.ports import Completion
from consumer.replay import CannotReplay, Replayed, as_json, points_in, rebuild, send
from consumer.scoring.criteria import SCORING_VERSION
from consumer.scoring.profile import Profile
from consumer.scoring.score import Score, new_score
from consumer.scoring.sent import Content
from consumer.scoring.session import Session
from consumer.scoring.verdict import VerdictInvalid, output_schema
from tests.unit.builders import (
    REQUEST_ID,
    about,
    answer_json,
    completion,
    criterion_answer,
    free_form_answer,
    free_form_profile,
    message,
    profile,
    session,
    tool_call,
)
from tests.unit.judges import ERRAND, FakeProvider, judge, member

SCORE_ID = UUID(int=7)
ANSWERED = {"model": "judge-1-2026-01-01", "fingerprint": None}
LONG = session(message(), *(tool_call(id=f"call-{n}", result=f"{n} " * 5000) for n in range(4)))


@dataclass
class Tables:
    """What is stored of one score."""

    kept: Score
    content: dict[str, Any]
    contents: dict[str, Content] = field(default_factory=dict)

    async def score(self, score_id: UUID) -> Score | None:
        return self.kept if score_id == self.kept.score_id else None

    async def criteria(self, criteria_hash: str) -> dict[str, Any]:
        assert criteria_hash == self.kept.criteria_hash
        return self.content

    async def sent(self, sha256s: Sequence[str]) -> dict[str, Content]:
        return {name: self.contents[name] for name in sha256s if name in self.contents}


async def scored(asked: Judge, by: Profile, run: Session) -> Tables:
    """A session that is judged and stored."""
    found = about(run)
    made = await score_session(found, by, asked, ERRAND)
    criteria = criteria_of(by, asked)
    kept = new_score(
        score_id=SCORE_ID,
        request_id=REQUEST_ID,
        triggered_by="tests",
        subject=found,
        profile=by,
        criteria_hash=criteria.hash,
        total=made.total,
        judgement=made.judgement,
        duration_ms=1,
    )
    stored = json.loads(json.dumps(criteria.content))
    return Tables(kept, stored, {content.sha256: content for content in kept.sent})


def giving(flow: int) -> Completion:
    points = {"logical_flow": flow, "consistency": 5}
    return completion(answer_json(criteria={i: criterion_answer(n) for i, n in points.items()}))


@pytest.mark.parametrize("run", [session(), LONG], ids=["whole", "elided"])
async def test_every_sample_s_request_is_rebuilt_as_it_was_sent(run: Session) -> None:
    one, other = FakeProvider(), FakeProvider(name="other", model="judge-2")
    learnt = member(other, context_window=9000)
    learnt.line.estimate("judge-2").correction = 1.25
    seats = [{"provider": "main", "model": "judge-1"}, {"provider": "other", "model": "judge-2"}]
    by = profile(judge={"panel": seats})

    replayed = await rebuild(await scored(judge(one, learnt), by, run), SCORE_ID)

    assert [sample.matches for sample in replayed] == [True, True]
    sent = [provider.calls[0].prompt for provider in (one, other)]
    assert [sample.prompt for sample in replayed] == sent
    assert (len(sent[1]) < len(sent[0])) is (run is LONG)


async def rebuilt(*answers: Completion, by: Profile | None = None) -> tuple[Replayed, Judge]:
    asked = judge(FakeProvider(list(answers)))
    (replayed,) = await rebuild(await scored(asked, by or profile(), session()), SCORE_ID)
    return replayed, asked


@pytest.mark.parametrize("change", [{"nonce": "another"}, {"request_sha256": "0" * 64}])
async def test_what_is_not_the_same_is_told(change: dict[str, str]) -> None:
    tables = await scored(judge(FakeProvider()), profile(), session())
    (sample,) = tables.kept.samples
    tables.kept = replace(tables.kept, samples=({**sample, **change},))
    (replayed,) = await rebuild(tables, SCORE_ID)
    assert not replayed.matches


async def test_what_cannot_be_rebuilt_says_why() -> None:
    asked = judge(FakeProvider())
    tables = await scored(asked, profile(), session())

    async def why_not() -> str | None:
        (replayed,) = await rebuild(tables, SCORE_ID)
        assert (replayed.request, replayed.prompt, replayed.rebuilt_sha256) == (None, "", None)
        assert not replayed.matches
        (told,) = as_json([replayed], [])
        assert (told["matches"], told["why_not"]) == (None, replayed.why_not)
        with pytest.raises(CannotReplay, match=str(replayed.why_not)[:20]):
            await send(replayed, asked)
        return replayed.why_not

    of = f"what the judge of score {SCORE_ID} was sent"
    frame, prompt = tables.contents
    tables.contents[frame] = replace(tables.contents[frame], packed=b"x")
    assert await why_not() == f"{of} is damaged"
    del tables.contents[prompt]
    assert await why_not() == f"{of} is pruned"
    (sample,) = tables.kept.samples
    del sample["sent_sha256"]
    assert await why_not() == (
        f"score {SCORE_ID} can't be rebuilt: another program made it (scoring version "
        f"{SCORING_VERSION}), and did not store what it sent"
    )
    with pytest.raises(CannotReplay, match=f"there is no score {UUID(int=8)}"):
        await rebuild(tables, UUID(int=8))
    tables.kept = replace(tables.kept, samples=())
    with pytest.raises(CannotReplay, match="was made by rules only: no judge was asked"):
        await rebuild(tables, SCORE_ID)


async def test_asked_again_a_judge_may_say_something_else() -> None:
    replayed, asked = await rebuilt(giving(20), giving(23))
    again = await send(replayed, asked)
    assert list(again.changes) == [("logical_flow", 20, 23), ("consistency", 5, 5)]
    provider = asked.members[next(iter(asked.members))].provider
    assert isinstance(provider, FakeProvider)
    (repeated,) = provider.repeated
    assert repeated.content == replayed.request
    assert len(provider.calls) == 1
    assert as_json([replayed], [again]) == [
        {
            "provider": "main",
            "model": "judge-1",
            "temperature": 0.0,
            "request_sha256": replayed.rebuilt_sha256,
            "rebuilt_sha256": replayed.rebuilt_sha256,
            "matches": True,
            "why_not": None,
            "prompt_bytes": len(replayed.prompt.encode()),
            "answered": {"then": ANSWERED, "now": ANSWERED},
            "changes": [
                {"criterion": "logical_flow", "then": 20, "now": 23},
                {"criterion": "consistency", "then": 5, "now": 5},
            ],
        }
    ]
    assert "changes" not in as_json([replayed], [])[0]


async def test_criteria_that_only_one_answer_has_are_told() -> None:
    def free(**breakdown: int) -> Completion:
        return completion(json.dumps(free_form_answer(score_breakdown=breakdown)))

    answers = (free(method=70, evidence=54), free(method=60, tools=1))
    replayed, asked = await rebuilt(*answers, by=free_form_profile())
    again = await send(replayed, asked)
    assert list(again.changes) == [("method", 70, 60), ("evidence", 54, None), ("tools", None, 1)]


@pytest.mark.parametrize(
    "criteria",
    [
        {},
        7,
        {"logical_flow": criterion_answer(20), "consistency": 5},
        *(
            {"logical_flow": criterion_answer(n), "consistency": criterion_answer(5)}
            for n in (-1, 26, 20.0, True, "20", None)
        ),
    ],
)
def test_points_that_are_none_are_refused(criteria: object) -> None:
    with pytest.raises(VerdictInvalid, match="no valid points for "):
        points_in(answer_json(criteria=criteria), output_schema(profile()))


@pytest.mark.parametrize("breakdown", [None, {}, [], {"method": 101}, {"method": True}])
def test_a_breakdown_that_is_none_is_refused(breakdown: object) -> None:
    answer = json.dumps(free_form_answer(score_breakdown=breakdown))
    with pytest.raises(VerdictInvalid, match="no valid points for "):
        points_in(answer, output_schema(free_form_profile()))


async def test_an_answer_that_does_not_pass_is_told() -> None:
    replayed, asked = await rebuilt(giving(20), completion("no"))
    with pytest.raises(CannotReplay, match="the answer is not acceptable: there is no complete"):
        await send(replayed, asked)


async def test_a_judge_that_is_gone_is_told_with_those_there_are() -> None:
    replayed, _ = await rebuilt(giving(20))
    other = judge(FakeProvider(name="other", model="judge-2"))
    with pytest.raises(ConfigError, match=r"main / judge-1 is not configured; .*: other / judge-2"):
        await send(replayed, other)
    with pytest.raises(ConfigError, match="there are: none"):
        await send(replayed, judge())
