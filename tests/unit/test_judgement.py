"""What several samples come to: means, how far they lie apart, and whose words are shown."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.aggregate import JudgeView, aggregate, look
from consumer.scoring.elision import Elision
from consumer.scoring.judgement import (
    Judgement,
    Sample,
    means_of,
    points_given,
    total_cost_usd,
    view_of,
)
from consumer.scoring.profile import Profile
from consumer.scoring.sent import sent_request
from consumer.scoring.verdict import (
    Approach,
    CriterionVerdict,
    MissingTool,
    Verdict,
)
from tests.unit.builders import about, free_form_profile, judged, profile, session

RUDE, WRONG = "It is rude.", "It is wrong."
ELISION = Elision(strategy=["cut_results"], bytes=500, ratio=0.5)


def verdict(points: dict[str, int] | None = None, **changes: Any) -> Verdict:
    criteria = {
        name: CriterionVerdict(points=given, reasoning="why", evidence=())
        for name, given in (points or {}).items()
    }
    fields: dict[str, Any] = {
        "criteria": criteria,
        "total_score": None,
        "score_breakdown": {},
        "reasoning": "in all",
        "missing_tools": (),
        "approaches": (),
        "disqualified": "disqualifier_triggered" in changes,
        "disqualifier_triggered": None,
        "injection_suspected": False,
    }
    return Verdict(**{**fields, **changes})


def sample(said: Verdict | None = None, **changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "verdict": said or verdict(),
        "provider": "main",
        "model": "judge-1-2026",
        "fingerprint": None,
        "asked_model": "judge-1",
        "dialect": "json_schema",
        "max_tokens": 1000,
        "temperature": 0.0,
        "calls": 1,
        "input_tokens": 1000,
        "output_tokens": 100,
        "cost_usd": 0.5,
        "nonce": "n",
        "request": sent_request(b"judge\nprompt n", "prompt n", "n"),
    }
    return Sample(**{**fields, **changes})


def judgement(*said: Verdict, totals: tuple[int, ...] | None = None) -> Judgement:
    samples = tuple(sample(one) for one in said)
    return Judgement(samples=samples, totals=totals or (50,) * len(said))


def totalling(*totals: int, **changes: Any) -> Judgement:
    """Samples with these totals, each saying its own; changes are the samples'."""
    samples = tuple(sample(verdict(reasoning=f"said {t}"), **changes) for t in totals)
    return Judgement(samples=samples, totals=totals)


# --- Agreement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "sd", "confidence"),
    [
        ((70,), None, 0.6),
        ((70, 70), 0, 1.0),
        ((60, 70), 7.0711, 0.7172),  # n - 1: 5 * sqrt(2), not 5
        ((50, 60, 70), 10, 0.6),
        ((40, 65, 90), 25, 0.0),
        ((0, 100), 70.7107, 0.0),
    ],
)
def test_confidence_is_how_close_the_totals_lie(
    totals: tuple[int, ...], sd: float | None, confidence: float
) -> None:
    made = totalling(*totals)
    assert made.sd == (None if sd is None else pytest.approx(sd, abs=1e-4))
    assert made.confidence == confidence
    assert made.view.confidence == confidence


@pytest.mark.parametrize(
    ("totals", "confidence"), [((70,), 0.4), ((70, 70), 0.8), ((50, 60, 70), 0.4), ((40, 90), 0.0)]
)
def test_what_was_left_out_costs_confidence(totals: tuple[int, ...], confidence: float) -> None:
    assert totalling(*totals, elision=ELISION).confidence == confidence


@given(st.lists(st.integers(0, 100), min_size=1, max_size=10), st.booleans())
def test_confidence_is_a_share(totals: list[int], elided: bool) -> None:
    made = totalling(*totals, elision=ELISION if elided else None)
    assert 0 <= made.confidence <= 1


def test_the_elision_told_is_the_worst() -> None:
    less = Elision(strategy=["references"], bytes=900, ratio=0.1)
    samples = (sample(elision=less), sample(elision=ELISION), sample())
    made = Judgement(samples=samples, totals=(50, 50, 50))
    assert made.elision == ELISION
    assert made.confidence == 0.8
    assert totalling(50, 50).elision is None


# --- Means -------------------------------------------------------------------------------------


def test_means_are_exact() -> None:
    given = ({"flow": 20, "use": 1}, {"flow": 21, "use": 0}, {"flow": 21, "use": 0})
    view = judgement(*map(verdict, given)).view
    assert view == JudgeView(
        points={"flow": Fraction(62, 3), "use": Fraction(1, 3)},
        total=None,
        breakdown={},
        disqualifier=None,
        confidence=1.0,
    )


def test_a_mean_is_over_those_that_give_points() -> None:
    given = [{"a": 10, "b": 4}, {"a": 20}]
    assert points_given(given) == {"a": [10, 20], "b": [4]}
    assert means_of(given) == {"a": 15, "b": 4}
    assert means_of([]) == {}


def test_the_mean_is_rounded_once_and_half_up() -> None:
    by = profile(criteria=[judged("flow", max_points=100)])

    def total_of(*points: int) -> int:
        view = judgement(*(verdict({"flow": n}) for n in points)).view
        return aggregate(by, look(by, about(session())), view).total

    assert total_of(50, 51) == 51  # 50.5
    assert total_of(50, 50, 51) == 50  # 50.33
    assert total_of(56, 57) == 57  # 56.5, which rounds to even elsewhere


@given(st.lists(st.integers(0, 25), min_size=1, max_size=10))
def test_one_criterion_s_total_is_the_mean_by_hand(points: list[int]) -> None:
    by = profile(criteria=[judged("flow")])
    view = judgement(*(verdict({"flow": n}) for n in points)).view
    total = aggregate(by, look(by, about(session())), view).total
    # floor(4 * mean + 1/2), in whole numbers
    assert total == (8 * sum(points) + len(points)) // (2 * len(points))


def test_the_spread_of_each_criterion() -> None:
    made = judgement(verdict({"a": 10, "b": 4}), verdict({"a": 14, "b": 4}))
    assert made.spread == {"a": pytest.approx(2.8284, abs=1e-4), "b": 0}
    assert judgement(verdict({"a": 10})).spread == {}


def free_form(total: int, **breakdown: int) -> Verdict:
    return verdict(total_score=total, score_breakdown=breakdown)


def test_free_form_totals_are_averaged_and_so_is_what_they_consist_of() -> None:
    made = judgement(free_form(61, method=50, tools=9), free_form(62, method=51))
    assert made.view.total == Fraction(123, 2)
    assert made.view.breakdown == {"method": 51, "tools": 9}
    by: Profile = free_form_profile()
    total = aggregate(by, look(by, about(session())), made.view)
    assert (total.total, total.scores) == (62, {"method": 51, "tools": 9})


def test_a_total_of_zero_is_a_total() -> None:
    assert judgement(free_form(0)).view.total == 0


def test_one_verdict_s_view_is_its_own() -> None:
    said = verdict({"a": 10}, disqualifier_triggered=RUDE)
    assert view_of(said) == JudgeView(points={"a": 10}, breakdown={}, disqualifier=RUDE)
    said = free_form(62, method=70)
    assert view_of(said) == JudgeView(points={}, total=62, breakdown={"method": 70})


# --- Disqualifying -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ([RUDE], RUDE),
        ([None], None),
        ([RUDE, None], None),  # a tie is no majority
        ([RUDE, None, RUDE], RUDE),
        ([RUDE, None, None], None),
        ([RUDE, WRONG, WRONG], WRONG),
        ([RUDE, WRONG], RUDE),
        ([WRONG, RUDE, None], WRONG),
        ([RUDE, WRONG, None, None], None),
    ],
)
def test_a_majority_disqualifies(named: list[str | None], told: str | None) -> None:
    made = judgement(*(verdict(disqualifier_triggered=text) for text in named))
    assert made.disqualifier == told
    assert made.view.disqualifier == told


@pytest.mark.parametrize("suspected", list(product([True, False], repeat=2)))
def test_one_suspicion_is_enough(suspected: tuple[bool, ...]) -> None:
    made = judgement(*(verdict(injection_suspected=one) for one in suspected))
    assert made.injection_suspected is any(suspected)


# --- Words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "shown"),
    [
        ((70,), 70),
        ((50, 60, 70), 60),
        ((90, 20, 21), 21),  # the mean is 43.67
        ((40, 60), 40),  # the first on a tie
        ((60, 40), 60),
        ((100, 0, 0, 34), 34),
    ],
)
def test_the_verdict_shown_lies_nearest_to_the_mean(totals: tuple[int, ...], shown: int) -> None:
    assert totalling(*totals).verdict.reasoning == f"said {shown}"


def missing(name: str, rationale: str = "why") -> MissingTool:
    return MissingTool(tool_name=name, rationale=rationale, availability="unknown")


def test_missing_tools_are_those_of_all_each_once() -> None:
    made = judgement(
        verdict(missing_tools=(missing("b", "first"), missing("a"))),
        verdict(missing_tools=(missing("c"), missing("b", "second"))),
        verdict(),
    )
    assert made.missing_tools == (missing("b", "first"), missing("a"), missing("c"))


def approach(name: str, description: str = "") -> Approach:
    return Approach(name=name, description=description, steps=("look",))


def test_approaches_are_those_of_the_verdict_shown_and_then_others() -> None:
    others = verdict(approaches=(approach("x"), approach("a", "another's"), approach("y")))
    shown = verdict(approaches=(approach("b"), approach("a", "its own")))
    made = judgement(others, shown, others, totals=(10, 50, 91))
    assert made.approaches == (approach("b"), approach("a", "its own"), approach("x"))


def test_a_single_verdict_s_words_are_all_that_is_told() -> None:
    said = verdict(
        missing_tools=(missing("a"),), approaches=tuple(approach(n) for n in ("a", "b", "c"))
    )
    made = judgement(said)
    assert (made.verdict, made.missing_tools) == (said, said.missing_tools)
    assert made.approaches == said.approaches


# --- Cost --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "usd"),
    [((0.5,), 0.5), ((0.5, 0.25), 0.75), ((0.5, None), None), ((None,), None), ((0.0, 0.0), 0.0)],
)
def test_the_cost_is_known_in_full_or_not_at_all(
    costs: tuple[float | None, ...], usd: float | None
) -> None:
    assert total_cost_usd([replace(sample(), cost_usd=cost) for cost in costs]) == usd
