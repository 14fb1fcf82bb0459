"""From criterion scores to the total, the confidence and the risk, as in scoring.md."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.aggregate import (
    CriterionScore,
    NothingToScore,
    aggregate,
    band,
    free_form,
    judge_scores,
    on_scale,
    rule_scores,
    weighted_mean,
)
from consumer.scoring.profile import Scale
from consumer.scoring.rounding import round_half_up
from tests.unit.builders import (
    free_form_profile,
    judged,
    message,
    profile,
    ruled,
    rules_profile,
    session,
    tool_call,
)

FULL = Scale()
scales = st.tuples(st.integers(0, 99), st.integers(1, 100)).filter(lambda s: s[0] < s[1])
scores = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 1000).map(lambda w: w / 100)),
    min_size=1,
    max_size=8,
)


def line(criterion_id: str, score: int | None, weight: float = 1) -> CriterionScore:
    reason = None if score is not None else f"no {criterion_id}"
    return CriterionScore(id=criterion_id, weight=weight, score=score, not_applicable=reason)


def lines(*pairs: tuple[int | None, float]) -> tuple[CriterionScore, ...]:
    return tuple(line(f"c{n}", score, weight) for n, (score, weight) in enumerate(pairs))


# --- Rounding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (28.5, 29),
        (28.499999999999996, 28),
        (0.49999999999999994, 0),  # + 0.5 is 1.0 in binary floating point
        (99.5, 100),
        (Fraction(1, 2), 1),
        (Fraction(5, 2), 3),
        (Fraction(49, 100), 0),
    ],
)
def test_half_goes_up(value: float | Fraction, expected: int) -> None:
    assert round_half_up(value) == expected


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, 5, 10, 1000]))
def test_rounding_is_the_textbook_s(numerator: int, denominator: int) -> None:
    textbook = (Decimal(numerator) / denominator).quantize(Decimal(1), ROUND_HALF_UP)
    assert round_half_up(Fraction(numerator, denominator)) == textbook


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0, 0), (1, 100), (0.285, 29), (0.145, 15), (0.575, 58), (0.565, 57), (0.284, 28)],
)
def test_decimals_mean_what_they_say(x: float, expected: int) -> None:
    # 0.285 * 100 is 28.499999999999996 in binary floating point.
    assert on_scale(x, FULL) == expected


@pytest.mark.parametrize(("x", "expected"), [(0, 10), (0.5, 35), (0.49, 35), (0.48, 34), (1, 60)])
def test_a_scale_has_its_own_ends(x: float, expected: int) -> None:
    assert on_scale(x, Scale(min=10, max=60)) == expected


@given(scales, st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted))
def test_the_scale_bounds_and_keeps_the_order(scale: tuple[int, int], xs: list[float]) -> None:
    low, high = (on_scale(x, Scale(min=scale[0], max=scale[1])) for x in xs)
    assert scale[0] <= low <= high <= scale[1]


# --- The mean ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(80, 1)], 80),
        ([(90, 2), (50, 1), (50, 1)], 70),
        ([(50, 1), (51, 1)], 51),  # 50.5
        ([(74, 2), (89, 1), (70, 1)], 77),  # 76.75
        ([(0, 1), (0, 3)], 0),
        ([(100, 0.001), (0, 1000)], 0),
        ([(10, 0.1), (50, 0.1), (67, 0.2)], 49),  # 48.5; 48.49999999999999 in floating point
        ([(None, 50), (30, 1)], 30),  # the weight of what does not apply is left out
    ],
)
def test_the_weighted_mean(pairs: list[tuple[int | None, float]], expected: int) -> None:
    assert weighted_mean(lines(*pairs)) == expected


@given(scores)
def test_the_mean_lies_between_its_scores(pairs: list[tuple[int, float]]) -> None:
    values = [score for score, _ in pairs]
    assert min(values) <= weighted_mean(lines(*pairs)) <= max(values)


@given(scores, st.randoms())
def test_neither_order_nor_unit_of_weights_matters(
    pairs: list[tuple[int, float]], random: Random
) -> None:
    shuffled = random.sample(pairs, len(pairs))
    doubled = [(score, weight * 2) for score, weight in shuffled]
    assert weighted_mean(lines(*doubled)) == weighted_mean(lines(*pairs))


@given(scores)
def test_what_does_not_apply_changes_nothing(pairs: list[tuple[int, float]]) -> None:
    assert weighted_mean((*lines(*pairs), line("n/a", None, 77))) == weighted_mean(lines(*pairs))


def test_where_nothing_applies_there_is_no_total() -> None:
    with pytest.raises(NothingToScore) as error:
        aggregate(rules_profile(), (line("time", None), line("tokens", None)))
    expected = "no criterion applies to this session (time: no time; tokens: no tokens)"
    assert str(error.value) == expected


# --- Criterion scores --------------------------------------------------------------------------


def test_rule_criteria_are_scored_in_the_profile_s_order() -> None:
    lean = rules_profile(
        ruled("tool_count", id="tools"), ruled("response_time", id="time", weight=2)
    )
    run = session(message(), *[tool_call()] * 3, duration_ms=38_600)
    assert rule_scores(lean, run) == (
        CriterionScore(id="tools", weight=1, score=70),
        CriterionScore(id="time", weight=2, score=74),
    )


def test_a_rule_that_does_not_apply_says_why() -> None:
    lean = rules_profile(ruled("response_time", weight=2), ruled("tool_count"))
    first, second = rule_scores(lean, session(duration_ms=None))
    assert first == CriterionScore(
        id="response_time",
        weight=2,
        score=None,
        not_applicable="the session has no duration",
    )
    assert (second.score, second.not_applicable) == (90, None)
    total = aggregate(lean, (first, second))
    assert (total.total, total.scores) == (90, {"tool_count": 90})
    assert total.breakdown == (first, second)


def test_a_rule_s_tenth_is_exact_on_every_scale() -> None:
    lean = rules_profile(scale={"min": 0, "max": 25})
    (scored,) = rule_scores(lean, session(*[tool_call()] * 9))
    assert scored.score == 3  # 2.5, half up


def test_points_become_scores_on_the_scale() -> None:
    review = profile(criteria=[judged("a"), judged("b", max_points=3, weight=2)])
    assert judge_scores(review, {"a": 22, "b": 2}) == (
        CriterionScore(id="a", weight=1, score=88),
        CriterionScore(id="b", weight=2, score=67),
    )
    narrow = profile(criteria=[judged("a")], scale={"min": 50, "max": 60})
    assert judge_scores(narrow, {"a": 0})[0].score == 50
    assert judge_scores(narrow, {"a": 25})[0].score == 60


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ((22, 22, 22, 22), 88),
        ((25, 25, 25, 25), 100),
        ((0, 0, 0, 0), 0),
        ((13, 12, 13, 12), 50),
        ((1, 0, 0, 0), 1),
        ((7, 9, 8, 11), 35),
    ],
)
def test_four_criteria_of_25_points_add_up(points: tuple[int, ...], expected: int) -> None:
    review = profile(criteria=[judged(i) for i in "abcd"])
    given_points = dict(zip("abcd", points, strict=True))
    assert aggregate(review, judge_scores(review, given_points)).total == expected


def test_a_lean_run_by_the_weights_of_efficiency() -> None:
    lean = rules_profile(ruled("response_time", weight=2), ruled("token_efficiency"), ruled())
    run = session(
        message(),
        *[tool_call()] * 3,
        duration_ms=38_600,
        input_tokens=1000,
        output_tokens=1000,
    )
    total = aggregate(lean, rule_scores(lean, run))
    assert total.scores == {"response_time": 74, "token_efficiency": 89, "tool_count": 70}
    assert total.total == 77


# --- Risk, confidence, weakest -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "threshold", "risk"),
    [
        (39, 40, ("below_threshold",)),
        (40, 40, ()),
        (41, 40, ()),
        (40, 40.5, ("below_threshold",)),
        (0, 0, ()),
    ],
)
def test_risk_is_strictly_below_the_threshold(
    score: int, threshold: float, risk: tuple[str, ...]
) -> None:
    lean = rules_profile(quality_risk_threshold=threshold)
    assert aggregate(lean, (line("a", score),)).risk == risk


def test_the_default_threshold_is_40() -> None:
    assert aggregate(rules_profile(), (line("a", 39),)).risk == ("below_threshold",)
    assert aggregate(rules_profile(), (line("a", 40),)).risk == ()


def test_a_disqualified_session_gets_the_scale_s_minimum() -> None:
    total = aggregate(profile(), (line("a", 90),), disqualified=True)
    assert (total.total, total.risk) == (0, ("below_threshold", "disqualified"))
    assert total.scores == {"a": 90}
    high = profile(scale={"min": 50, "max": 60})
    total = aggregate(high, (line("a", 60),), disqualified=True)
    assert (total.total, total.risk) == (50, ("disqualified",))


def test_confidence_tells_rules_from_one_opinion() -> None:
    assert aggregate(rules_profile(), (line("a", 50),)).confidence == 0.9
    assert aggregate(profile(), (line("a", 50),)).confidence == 0.6


def test_the_weakest_three_come_lowest_first_and_in_order_on_a_tie() -> None:
    total = aggregate(
        profile(), (line("a", 30), line("b", 10), line("c", None), line("d", 30), line("e", 20))
    )
    assert total.weakest == ("b", "e", "a")
    assert aggregate(profile(), (line("a", 0), line("b", None))).weakest == ("a",)


@pytest.mark.parametrize(
    ("totals", "name"),
    [
        ((0, 44), "failed"),
        ((45, 59), "weak"),
        ((60, 74), "adequate"),
        ((75, 89), "good"),
        ((90, 100), "near-perfect"),
    ],
)
def test_the_bands_of_the_judge_s_prompt(totals: tuple[int, int], name: str) -> None:
    assert [band(total) for total in totals] == [name, name]


# --- Without criteria --------------------------------------------------------------------------


def test_a_free_form_total_is_the_judge_s_own() -> None:
    total = free_form(free_form_profile(), 62, {"method": 70, "evidence": 54})
    assert total.total == 62
    assert total.scores == {"evidence": 54, "method": 70}
    assert [c.id for c in total.breakdown] == ["evidence", "method"]
    assert (total.confidence, total.risk, total.weakest) == (0.6, (), ("evidence", "method"))


def test_a_free_form_total_is_put_on_the_scale() -> None:
    narrow = free_form_profile(scale={"min": 20, "max": 70}, quality_risk_threshold=46)
    assert free_form(narrow, 50, {}).total == 45
    assert free_form(narrow, 50, {}).risk == ("below_threshold",)
    assert free_form(narrow, 51, {}).total == 46  # 45.5, half up
    assert free_form(narrow, 51, {}).risk == ()


def test_a_disqualified_free_form_session_gets_the_minimum() -> None:
    narrow = free_form_profile(scale={"min": 20, "max": 70})
    total = free_form(narrow, 90, {"a": 90}, disqualified=True)
    assert (total.total, total.risk) == (20, ("below_threshold", "disqualified"))
