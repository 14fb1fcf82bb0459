"""From criterion scores to the total, the confidence and the risk, as in scoring.md."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.aggregate import (
    CriterionScore,
    Findings,
    JudgeView,
    NothingToScore,
    Total,
    aggregate,
    band,
    look,
    on_scale,
    weighted_mean,
)
from consumer.scoring.gates import GateResult
from consumer.scoring.profile import Profile, Scale
from consumer.scoring.rounding import round_half_up, weighted
from consumer.scoring.scorers.base import Measured, NotApplicable, Place, Result, Subject
from tests.unit.builders import (
    about,
    failed_call,
    free_form_profile,
    gated,
    judged,
    message,
    profile,
    ruled,
    rules_profile,
    session,
    tool_call,
    two_tier_profile,
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
        weighted_mean((line("time", None), line("tokens", None)))
    expected = "no criterion applies to this session (time: no time; tokens: no tokens)"
    assert str(error.value) == expected


# --- Rule criteria -----------------------------------------------------------------------------

# Three tool calls of which one failed, with a duration of 0.74.
RUN = about(
    session(
        message(),
        tool_call("a"),
        failed_call("b"),
        tool_call("c"),
        duration_ms=38_600,
        input_tokens=1000,
        output_tokens=1000,
    )
)


def total_of(by: Profile, subject: Subject = RUN, judge: JudgeView | None = None) -> Total:
    return aggregate(by, look(by, subject), judge)


def several(criterion_id: str, *scorers: str, weight: float = 1) -> dict[str, object]:
    """A criterion that is the mean of several scorers."""
    return {"id": criterion_id, "weight": weight, "scorers": [{"scorer": s} for s in scorers]}


def test_golden_heuristic() -> None:
    lean = rules_profile(ruled("response_time", weight=2), ruled("token_efficiency"), ruled())
    total = total_of(lean)
    assert total == Total(
        total=77,
        ranking=None,
        breakdown=(
            CriterionScore(id="response_time", weight=2, score=74, x=Fraction(74, 100)),
            CriterionScore(id="token_efficiency", weight=1, score=89, x=Fraction(8, 9)),
            CriterionScore(id="tool_count", weight=1, score=70, x=Fraction(7, 10)),
        ),
        confidence=0.9,
        gates=(),
        disqualifier=None,
        risk=(),
    )
    assert total.scores == {"response_time": 74, "token_efficiency": 89, "tool_count": 70}
    assert total.weakest == ("tool_count", "response_time", "token_efficiency")
    assert total.failed_gates == ()


def test_rules_are_looked_at_with_their_params() -> None:
    lean = rules_profile(ruled("latency_band", params={"fair_up_to_s": 40}), ruled())
    assert look(lean, RUN) == Findings(
        results={
            "latency_band": (Measured(Fraction(70, 100)),),
            "tool_count": (Measured(Fraction(7, 10)),),
        }
    )


def test_places_come_with_the_criterion() -> None:
    lean = rules_profile(several("a", "tool_error_rate", "tool_count"))
    (line_,) = total_of(lean).breakdown
    assert line_.places == (Place(step=3, excerpt="kubernetes.b: connection reset"),)


def test_a_rule_that_does_not_apply_says_why() -> None:
    lean = rules_profile(ruled("response_time", weight=2), ruled("tool_count"))
    total = total_of(lean, about(session(duration_ms=None)))
    first, second = total.breakdown
    assert first == CriterionScore(
        id="response_time",
        weight=2,
        score=None,
        not_applicable="the session has no duration",
    )
    assert (second.score, second.not_applicable) == (90, None)
    assert (total.total, total.scores) == (90, {"tool_count": 90})


def test_a_profile_none_of_whose_rules_apply() -> None:
    lean = rules_profile(ruled("response_time"), several("cost", "cost_band", "cost_efficiency"))
    with pytest.raises(NothingToScore) as error:
        total_of(lean, about(session(duration_ms=None)))
    assert str(error.value) == (
        "no criterion applies to this session (response_time: the session has no duration; "
        "cost: the session's cost is unknown; the session's cost is unknown)"
    )


def test_several_scorers_are_averaged_and_rounded_once() -> None:
    lean = rules_profile(several("both", "response_time", "token_efficiency", "tool_count"))
    (line_,) = total_of(lean).breakdown
    x = (Fraction(74, 100) + Fraction(8, 9) + Fraction(7, 10)) / 3
    assert (line_.x, line_.score, line_.confidence) == (x, 78, 0.9)


def test_of_several_scorers_those_that_apply_count() -> None:
    lean = rules_profile(several("both", "cost_band", "response_time", "tool_count"))
    (line_,) = total_of(lean).breakdown
    assert (line_.x, line_.score, line_.not_applicable) == (Fraction(72, 100), 72, None)


def test_a_rule_s_tenth_is_exact_on_every_scale() -> None:
    lean = rules_profile(scale={"min": 0, "max": 25})
    (scored,) = total_of(lean, about(session(*[tool_call()] * 9))).breakdown
    assert scored.score == 3  # 2.5, half up


def test_cost_efficiency_sees_the_mean_of_the_criteria_before_it() -> None:
    # 72 points by two scorers of one criterion, 90 by another: 81 points for 0.10 USD.
    fast = session(message(), *[tool_call()] * 3, duration_ms=38_600)
    before = [several("work", "response_time", "tool_count"), ruled("latency_band")]
    lean = rules_profile(*before, ruled("cost_efficiency"), ruled("tool_effectiveness"))
    found = look(lean, about(fast, cost_usd=0.1)).results["cost_efficiency"]
    (result,) = found
    assert isinstance(result, Measured)
    assert float(result.score) == pytest.approx((0.72 + 0.5) / 2)
    first = rules_profile(ruled("cost_efficiency"), *before)
    assert look(first, about(fast, cost_usd=0.1)).results["cost_efficiency"] == (
        NotApplicable("no criterion before this one tells the quality"),
    )


# --- The judge's criteria ----------------------------------------------------------------------


def test_golden_llm() -> None:
    review = profile(criteria=[judged("a"), judged("b", max_points=3, weight=2)])
    total = total_of(review, judge=JudgeView(points={"a": 22, "b": 2}))
    assert total == Total(
        total=74,
        ranking=None,
        breakdown=(
            CriterionScore(id="a", weight=1, score=88, x=Fraction(22, 25), confidence=0.6),
            CriterionScore(id="b", weight=2, score=67, x=Fraction(2, 3), confidence=0.6),
        ),
        confidence=0.6,
        gates=(),
        disqualifier=None,
        risk=(),
    )


def test_the_confidence_is_that_of_the_weights_whatever_their_sum() -> None:
    review = profile(criteria=[judged("a"), judged("b")])
    heavy = [criterion.model_copy(update={"weight": 1e308}) for criterion in review.criteria]
    total = total_of(
        review.model_copy(update={"criteria": tuple(heavy)}),
        judge=JudgeView(points={"a": 22, "b": 2}),
    )
    assert total.confidence == 0.6


def test_points_become_scores_on_the_scale() -> None:
    narrow = profile(criteria=[judged("a")], scale={"min": 50, "max": 60})
    assert total_of(narrow, judge=JudgeView(points={"a": 0})).scores == {"a": 50}
    assert total_of(narrow, judge=JudgeView(points={"a": 25})).scores == {"a": 60}


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
    assert total_of(review, judge=JudgeView(points=given_points)).total == expected


def test_golden_hybrid() -> None:
    hybrid = profile(
        method="hybrid",
        criteria=[judged("flow", weight=2), several("use", "judge", "tool_count"), ruled()],
    )
    total = total_of(hybrid, judge=JudgeView(points={"flow": 20, "use": 10}))
    assert total.breakdown == (
        CriterionScore(id="flow", weight=2, score=80, x=Fraction(4, 5), confidence=0.6),
        CriterionScore(id="use", weight=1, score=55, x=Fraction(55, 100), confidence=0.75),
        CriterionScore(id="tool_count", weight=1, score=70, x=Fraction(7, 10), confidence=0.9),
    )
    # Weighted 2, 1 and 1: a mean of 71.25 points, and of 0.7125 for the confidence.
    assert (total.total, total.confidence, total.ranking) == (71, 0.7125, None)


def test_the_judge_s_confidence_is_taken_as_it_is() -> None:
    hybrid = profile(method="hybrid", criteria=[judged("flow", weight=3), ruled()])
    total = total_of(hybrid, judge=JudgeView(points={"flow": 20}, confidence=0.8))
    assert total.confidence == 0.825


def test_what_does_not_apply_has_no_say_in_the_confidence() -> None:
    hybrid = profile(method="hybrid", criteria=[judged("flow"), ruled("cost_band", weight=9)])
    assert total_of(hybrid, judge=JudgeView(points={"flow": 20})).confidence == 0.6


def test_without_a_judge_its_criteria_are_left_out() -> None:
    hybrid = profile(
        method="hybrid", criteria=[judged("flow", weight=9), several("use", "judge", "tool_count")]
    )
    total = total_of(hybrid)
    flow, use = total.breakdown
    assert flow.not_applicable == "the judge was not asked (rules only)"
    assert (flow.score, flow.x) == (None, None)
    assert (use.score, use.confidence, use.not_applicable) == (70, 0.9, None)
    assert (total.total, total.confidence) == (70, 0.9)


def test_why_the_judge_was_not_asked_is_told() -> None:
    def told(**changes: Any) -> str | None:
        by = profile(method="hybrid", criteria=[judged("flow"), ruled()], **changes)
        total = aggregate(by, look(by, RUN), None, unasked="no money")
        return total.breakdown[0].not_applicable

    assert told() == "the judge was not asked (no money)"
    # What code found comes first: with all the money there is it would not have been asked.
    gates = [gated("tool_count", 99)]
    assert told(gates=gates) == "the judge was not asked (gate failed: tool_count)"


def test_means_of_points_count_exactly() -> None:
    by = profile(criteria=[judged("a", max_points=3)])
    assert total_of(by, judge=JudgeView(points={"a": Fraction(1, 2)})).total == 17  # 16.67
    thirds = profile(criteria=[judged("a", max_points=100)])
    view = JudgeView(points={"a": Fraction(101, 2)})
    assert total_of(thirds, judge=view).total == 51
    assert total_of(thirds, judge=view).breakdown[0].x == Fraction(101, 200)


def test_a_judge_s_profile_by_rules_only_has_nothing_to_score() -> None:
    with pytest.raises(NothingToScore) as error:
        total_of(profile(criteria=[judged("flow")]))
    assert str(error.value) == (
        "no criterion applies to this session (flow: the judge was not asked (rules only))"
    )


# --- Gates and disqualifiers -------------------------------------------------------------------


def test_golden_two_tier() -> None:
    tiers = two_tier_profile(
        several("use", "judge", "tool_count", weight=0.15),
        ruled("response_time", weight=0.10),
        ruled("cost_band", weight=0.75),
        gates=[gated("tool_count", 70)],
    )
    total = total_of(tiers, judge=JudgeView(points={"use": 20}))
    gate = GateResult(
        id="tool_count",
        check="tool_count",
        passed=True,
        score=70.0,
        threshold=70,
        message="tool_count 70, needs 70",
    )
    assert total.gates == (gate,)
    assert total.scores == {"use": 75, "response_time": 74}
    # (75 * 0.15 + 74 * 0.10) / 0.25 = 74.6; the ranking is not rounded to points before
    assert (total.total, total.ranking, total.risk) == (75, 0.746, ())
    assert total.confidence == pytest.approx((0.75 * 0.15 + 0.9 * 0.10) / 0.25)


def test_a_ranking_tells_apart_what_a_total_does_not() -> None:
    tiers = two_tier_profile(ruled("response_time"), gates=[gated("tool_count", 0)])
    totals = [total_of(tiers, about(session(duration_ms=ms))) for ms in (38_600, 38_700)]
    assert [total.total for total in totals] == [74, 74]
    assert [total.ranking for total in totals] == [0.74, 0.7391]


def test_a_ranking_does_not_depend_on_the_scale() -> None:
    narrow = two_tier_profile(scale={"min": 40, "max": 60})
    total = total_of(narrow)
    assert (total.total, total.ranking) == (54, 0.7)


def test_only_two_tier_profiles_rank() -> None:
    assert total_of(rules_profile()).ranking is None
    assert total_of(rules_profile(gates=[gated("tool_count", 99)])).ranking is None


def test_a_failed_gate_brings_the_scale_s_minimum() -> None:
    tiers = two_tier_profile(
        judged("flow"),
        ruled(),
        gates=[gated("tool_error_rate", 70), gated("response_time", 90), gated()],
        scale={"min": 10, "max": 90},
    )
    total = total_of(tiers)
    assert (total.total, total.ranking) == (10, 0.0)
    assert total.failed_gates == ("tool_error_rate", "response_time")
    assert [gate.passed for gate in total.gates] == [False, False, True]
    assert total.risk == ("below_threshold", "gate_failed")
    assert total.scores == {"tool_count": 66}
    assert total.breakdown[0].not_applicable == (
        "the judge was not asked (gate failed: tool_error_rate, response_time)"
    )


def test_behind_a_failed_gate_nothing_needs_to_apply() -> None:
    total = total_of(profile(gates=[gated("tool_count", 99)], quality_risk_threshold=0))
    assert (total.total, total.scores, total.confidence) == (0, {}, 0.9)
    assert total.risk == ("gate_failed",)
    assert total.weakest == ()
    ranked = total_of(two_tier_profile(judged("flow"), gates=[gated("tool_count", 99)]))
    assert (ranked.total, ranked.ranking) == (0, 0.0)


def test_a_judge_asked_anyway_changes_nothing_behind_a_failed_gate() -> None:
    by = profile(criteria=[judged("a")], gates=[gated("tool_count", 99)], judge_anyway=True)
    total = total_of(by, judge=JudgeView(points={"a": 25}))
    assert (total.total, total.scores, total.risk) == (
        0,
        {"a": 100},
        ("below_threshold", "gate_failed"),
    )


def disqualified_by(pattern: str, *steps: Any, **changes: Any) -> str | None:
    by = rules_profile(disqualifiers=[f"pattern:{pattern}"])
    return look(by, about(session(*steps, **changes))).disqualifier


def test_a_pattern_in_the_agent_s_own_words_disqualifies() -> None:
    analysis = "All is fine. I ran RM  -RF / to be sure."
    told = disqualified_by(r"rm\s+-rf", final_analysis=analysis)
    assert told == "pattern:rm\\s+-rf (All is fine. I ran RM -RF / to be sure.)"
    told = disqualified_by("guess", message("This is a GUESS"), final_analysis="")
    assert told == "pattern:guess (This is a GUESS)"


def test_what_others_said_disqualifies_nobody() -> None:
    steps = (
        message("never use sudo", role="system"),
        message("use sudo", role="user"),
        tool_call(result="sudo", arguments={"sudo": "sudo"}),
    )
    assert disqualified_by("sudo", *steps, alert_data={"sudo": "sudo"}) is None


def test_no_pattern_reaches_from_one_message_into_the_next() -> None:
    steps = (message("I like cats"), message("and dogs"))
    assert disqualified_by(r"cats\s+and", *steps) is None
    assert disqualified_by(r"cats\s+and", message("cats and"), *steps) is not None


def test_the_first_pattern_that_hits_is_named() -> None:
    by = rules_profile(disqualifiers=["pattern:nowhere", "pattern:mines", "pattern:pod"])
    found = look(by, about(session(message("The pod."), final_analysis="It mines.")))
    assert found.disqualifier == "pattern:mines (It mines.)"
    assert found.refused == "disqualified: pattern:mines (It mines.)"


def test_text_that_cannot_be_encoded_is_searched_all_the_same() -> None:
    assert disqualified_by("bad", final_analysis="\ud800 bad") == "pattern:bad (\ud800 bad)"


def test_a_pattern_disqualifies_and_the_judge_is_not_asked() -> None:
    by = profile(disqualifiers=["pattern:mines", "It is rude."], scale={"min": 50, "max": 60})
    total = total_of(by, about(session()))
    assert (total.total, total.risk) == (50, ("disqualified",))
    assert total.disqualifier == "pattern:mines (The pod mines.)"
    assert total.breakdown[0].not_applicable == (
        "the judge was not asked (disqualified: pattern:mines (The pod mines.))"
    )


def test_the_judge_disqualifies() -> None:
    by = profile(criteria=[judged("a")], disqualifiers=["It is rude."])
    total = total_of(by, judge=JudgeView(points={"a": 25}, disqualifier="It is rude."))
    assert (total.total, total.scores) == (0, {"a": 100})
    assert (total.disqualifier, total.risk) == ("It is rude.", ("below_threshold", "disqualified"))


def test_what_code_found_is_named_before_what_the_judge_found() -> None:
    by = profile(criteria=[judged("a")], disqualifiers=["It is rude.", "pattern:mines"])
    view = JudgeView(points={"a": 25}, disqualifier="It is rude.")
    total = total_of(by, about(session()), view)
    assert total.disqualifier == "pattern:mines (The pod mines.)"


def test_every_reason_for_risk_is_told() -> None:
    by = rules_profile(
        gates=[gated("tool_count", 99)], disqualifiers=["pattern:mines"], quality_risk_threshold=1
    )
    total = total_of(by, about(session()))
    assert total.risk == ("below_threshold", "disqualified", "gate_failed")
    assert total.failed_gates == ("tool_count",)


# --- Risk, weakest -----------------------------------------------------------------------------


def scored(by: Profile, *results: tuple[str, Result]) -> Total:
    """The total of rule criteria that came to these results."""
    return aggregate(by, Findings(results={i: (result,) for i, result in results}), None)


@pytest.mark.parametrize(
    ("score", "threshold", "risk"),
    [
        (39, 40, ("below_threshold",)),
        (40, 40, ()),
        (41, 40, ()),
        (40, 40.5, ("below_threshold",)),
        (0, 0, ()),
        (39, None, ("below_threshold",)),
        (40, None, ()),
    ],
)
def test_risk_is_strictly_below_the_threshold(
    score: int, threshold: float | None, risk: tuple[str, ...]
) -> None:
    own = {} if threshold is None else {"quality_risk_threshold": threshold}
    lean = rules_profile(ruled(id="a"), **own)
    assert scored(lean, ("a", Measured(Fraction(score, 100)))).risk == risk


def test_the_weakest_three_come_lowest_first_and_in_order_on_a_tie() -> None:
    lean = rules_profile(*[ruled(id=i) for i in "abcde"])
    results: list[tuple[str, Result]] = [("c", NotApplicable("no"))]
    results += [(i, Measured(x)) for i, x in (("a", 0.3), ("b", 0.1), ("d", 0.3), ("e", 0.2))]
    assert scored(lean, *results).weakest == ("b", "e", "a")


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


def free_form(
    by: Profile, total: int | Fraction, breakdown: dict[str, int], **changes: Any
) -> Total:
    view = JudgeView(points={}, total=total, breakdown=breakdown, **changes)
    return total_of(by, judge=view)


def test_a_free_form_total_is_the_judge_s_own() -> None:
    total = free_form(free_form_profile(), 62, {"method": 70, "evidence": 54})
    assert total.total == 62
    assert total.scores == {"evidence": 54, "method": 70}
    assert [c.id for c in total.breakdown] == ["evidence", "method"]
    assert (total.confidence, total.risk, total.weakest) == (0.6, (), ("evidence", "method"))
    assert free_form(free_form_profile(), 62, {}, confidence=0.8).confidence == 0.8


def test_a_free_form_total_is_put_on_the_scale() -> None:
    narrow = free_form_profile(scale={"min": 20, "max": 70}, quality_risk_threshold=46)
    assert free_form(narrow, 50, {}).total == 45
    assert free_form(narrow, 50, {}).risk == ("below_threshold",)
    assert free_form(narrow, 51, {}).total == 46  # 45.5, half up
    assert free_form(narrow, 51, {}).risk == ()
    assert free_form(narrow, Fraction(101, 2), {}).total == 45  # 45.25


def test_a_disqualified_free_form_session_gets_the_minimum() -> None:
    narrow = free_form_profile(scale={"min": 20, "max": 70}, disqualifiers=["It is rude."])
    total = free_form(narrow, 90, {"a": 90}, disqualifier="It is rude.")
    assert (total.total, total.risk) == (20, ("below_threshold", "disqualified"))


def test_a_free_form_session_behind_a_failed_gate_gets_the_minimum() -> None:
    total = total_of(free_form_profile(gates=[gated("tool_count", 99)]))
    assert (total.total, total.breakdown, total.failed_gates) == (0, (), ("tool_count",))


SHARES = st.fractions(0, 1, max_denominator=100) | st.floats(0, 1)


@given(st.lists(st.tuples(SHARES, st.floats(0.001, 1e6)), min_size=1, max_size=20))
def test_weighted_means_are_exact(pairs: list[tuple[Fraction | float, float]]) -> None:
    exact = [
        (Fraction(repr(x)) if isinstance(x, float) else x, Fraction(repr(w))) for x, w in pairs
    ]
    expected = sum(x * w for x, w in exact) / sum(w for _, w in exact)
    assert Fraction(*weighted(pairs)) == expected
