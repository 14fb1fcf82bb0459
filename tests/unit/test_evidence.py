"""Evidence-bound verdicts: which quotes count, and how many of them must."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.session import Session
from consumer.scoring.transcript import transcript
from consumer.scoring.verdict import MIN_QUOTE_CHARACTERS, Verdict, VerdictInvalid, check
from tests.unit.builders import (
    answer,
    criterion_answer,
    failed_call,
    free_form_answer,
    free_form_profile,
    message,
    profile,
    session,
    tool_call,
)

RUN = session(
    message("Thought: look at the pods"),
    tool_call(result='{"items": [{"pod": "miner-0", "phase": "Running", "role": "batch"}]}'),
    tool_call(result=" [] "),
    message("正常に動作しています"),
    failed_call(error="503"),
    message("..."),
)


def judged(*quotes: tuple[int, str], minimum: float = 0, run: Session = RUN) -> Verdict:
    """The verdict of an answer with these quotes, all for one criterion."""
    evidence = [{"step": step, "quote": quote} for step, quote in quotes]
    told = {
        "logical_flow": criterion_answer(evidence=evidence),
        "consistency": criterion_answer(5, evidence=[]),
    }
    by = profile(judge={"min_verified_quotes": minimum})
    return check(json.dumps(answer(criteria=told)), by, run, transcript(run))


def verified(step: int, quote: str) -> bool:
    (evidence,) = judged((step, quote)).criteria["logical_flow"].evidence
    return evidence.verified


def refused(*quotes: tuple[int, str], minimum: float) -> list[str]:
    with pytest.raises(VerdictInvalid) as refusal:
        judged(*quotes, minimum=minimum)
    return refusal.value.problems


# --- Which quotes count --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "quote"),
    [
        (1, "look at the pods"),
        (1, "pods"),
        (1, "t the"),
        (2, '"phase": "Running"'),
        (2, r"\"phase\": \"Running\""),
        (2, '"tool": "kubernetes.pods_get"'),
        (2, '"arguments": {"name": "miner-0"}'),
        (4, "正常に動"),
    ],
)
def test_words_of_the_step_count(step: int, quote: str) -> None:
    assert verified(step, quote)


@pytest.mark.parametrize(
    "quote",
    [
        "",
        " \n\t",
        '", "',
        ": ",
        "}]}",
        "at",
        "the",
        "a t h",
        '"step": 1',
        '{"step": 1, "stage": "analysis"',
        'stage": "analysis", "kind": "message", "role": "assistant", "text": "T',
        '"kind": "message", "role": "assistant"',
        '"role": "assis',
        '"text":',
    ],
)
def test_what_nearly_every_step_holds_does_not_count(quote: str) -> None:
    assert quote in "".join((transcript(RUN).steps[0].line, "}]} a t h \n\t ")), "it is there"
    assert not verified(1, quote)


@pytest.mark.parametrize(
    ("step", "quote"), [(3, "[]"), (3, " []\n"), (5, "503"), (6, "...")], ids=ascii
)
def test_a_few_characters_count_where_they_are_all_there_is(step: int, quote: str) -> None:
    assert verified(step, quote)


@pytest.mark.parametrize(("step", "quote"), [(3, "["), (5, "50"), (6, ".."), (1, "[]"), (5, "")])
def test_a_part_of_the_little_there_is_does_not_count(step: int, quote: str) -> None:
    assert not verified(step, quote)


def test_invisible_characters_of_the_step_need_not_be_quoted() -> None:
    run = session(message("o\u200bk"), message("lo\u200bok"))
    evidence = judged((1, "ok"), (2, "look"), run=run).criteria["logical_flow"].evidence
    assert [e.verified for e in evidence] == [True, True]


@given(st.text(), st.text(max_size=MIN_QUOTE_CHARACTERS - 1))
def test_a_short_quote_counts_only_as_a_whole(text: str, quote: str) -> None:
    run = session(message(text))
    found = judged((1, quote), run=run).criteria["logical_flow"].evidence[0].verified
    assert not found or quote.strip() == text.strip()


# --- The share -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quotes", "share"),
    [
        ([], None),
        ([(1, "look at the pods")], 1.0),
        ([(1, "look at the pods"), (1, "look at the nodes")], 0.5),
        ([(1, "look at the pods")] * 9 + [(1, "look at the nodes")], 0.5),
        ([(1, "look at  the pods"), (1, " look at the pods"), (1, "nodes")], 0.5),
        ([(1, "look at the pods"), (2, "look at the pods")], 0.5),
        ([(1, "nodes")] * 3, 0.0),
    ],
)
def test_the_share_counts_each_quote_once(
    quotes: list[tuple[int, str]], share: float | None
) -> None:
    assert judged(*quotes).verified_share == share


def test_a_quote_for_two_criteria_counts_for_both() -> None:
    both = {i: criterion_answer(5) for i in ("logical_flow", "consistency")}
    both["consistency"]["evidence"].append({"step": 1, "quote": "nodes"})
    verdict = check(json.dumps(answer(criteria=both)), profile(), RUN, transcript(RUN))
    assert verdict.verified_share == 2 / 3


# --- The minimum ---------------------------------------------------------------------------------

THREE_OF_FIVE = [(1, "look"), (1, "at the"), (1, "pods"), (1, "nodes"), (2, "deployment")]


@pytest.mark.parametrize("minimum", [0, 0.1, 0.6])
def test_enough_quotes_are_found(minimum: float) -> None:
    assert judged(*THREE_OF_FIVE, minimum=minimum).verified_share == 0.6


def test_too_few_quotes_are_found_and_the_judge_is_told_which() -> None:
    assert refused(*THREE_OF_FIVE, minimum=0.61) == [
        (
            "criteria: 60% of the quotes were found in their steps, 61% must be; "
            "quote word for word, 4 letters or digits at least"
        ),
        "criteria.logical_flow.evidence: step 1 does not say 'nodes'",
        "criteria.logical_flow.evidence: step 2 does not say 'deployment'",
    ]


def test_no_quote_at_all_is_not_enough_where_there_is_a_minimum() -> None:
    expected = "criteria: no evidence at all; quote the steps that decide, word for word"
    assert refused(minimum=0.01) == [expected]
    assert judged(minimum=0).verified_share is None


def test_what_the_judge_is_told_is_bounded() -> None:
    many = [(1, f"{number} " + "x" * 3000) for number in range(50)]
    problems = refused(*many, minimum=1)
    assert len(problems) == 6
    assert max(map(len, problems)) < 200


def test_other_problems_are_told_first() -> None:
    assert refused((9, "nodes"), minimum=1) == [
        "criteria.logical_flow.evidence: there is no step 9; steps are 1 to 6"
    ]


def test_a_free_form_answer_has_no_evidence_to_ask_for() -> None:
    free: Any = free_form_profile(judge={"min_verified_quotes": 1})
    assert check(json.dumps(free_form_answer()), free, RUN, transcript(RUN)).total_score == 62
