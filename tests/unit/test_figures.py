"""The rule scorers at the corner points of scoring.md; a changed constant breaks a test."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.profile import typed_params
from consumer.scoring.scorers import SCORERS
from consumer.scoring.scorers.base import Measured, NotApplicable, Place, Result, Subject
from tests.unit.builders import about, failed_call, llm_call, message, session, tool_call

counts = st.integers(0, 10**7)
FIGURES = (
    "response_time",
    "token_efficiency",
    "tool_count",
    "tool_effectiveness",
    "tool_error_rate",
    "latency_band",
    "cost_band",
    "cost_efficiency",
)
NO_CALLS = NotApplicable("the session has no tool calls")
NO_COST = NotApplicable("the session's cost is unknown")


def measured(scorer: str, subject: Subject, **params: Any) -> Result:
    return SCORERS[scorer].score(subject, typed_params(scorer, params))


def score(scorer: str, **changes: Any) -> Result:
    return measured(scorer, about(session(**changes)))


def calls(count: int) -> Result:
    return measured("tool_count", about(session(message(), *[tool_call()] * count)))


def ratio(output_tokens: int, input_tokens: int) -> Result:
    return score("token_efficiency", output_tokens=output_tokens, input_tokens=input_tokens)


def number(result: Result) -> Fraction:
    assert isinstance(result, Measured), result
    return Fraction(result.score)


def test_each_scorer_is_known_by_its_own_name() -> None:
    assert set(FIGURES) <= set(SCORERS)
    assert all(scorer.name == name for name, scorer in SCORERS.items())


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [
        (0, 1),
        (10_000, 1),
        (10_001, Fraction(109_999, 110_000)),
        (38_600, Fraction(74, 100)),
        (65_000, Fraction(1, 2)),
        (119_999, Fraction(1, 110_000)),
        (120_000, 0),
        (10**12, 0),
    ],
)
def test_response_time(duration_ms: int, expected: Fraction) -> None:
    assert score("response_time", duration_ms=duration_ms) == Measured(expected)


@pytest.mark.parametrize(
    ("output_tokens", "input_tokens", "expected"),
    [
        (0, 1000, 1),
        (500, 1000, 1),
        (501, 1000, Fraction(4499, 4500)),
        (1000, 1000, Fraction(8, 9)),
        (2750, 1000, Fraction(1, 2)),
        (4999, 1000, Fraction(1, 4500)),
        (5000, 1000, 0),
        (10**9, 1, 0),
        (0, 0, 1),
        (99_999, 0, 1),
    ],
)
def test_token_efficiency(output_tokens: int, input_tokens: int, expected: Fraction) -> None:
    assert ratio(output_tokens, input_tokens) == Measured(expected)


@pytest.mark.parametrize("count", range(14))
def test_tool_count_is_exact(count: int) -> None:
    # In binary floating point 1 - 9/10 is less than a tenth, which can turn a total.
    assert number(calls(count)) == max(Fraction(0), Fraction(10 - count, 10))


def test_failed_calls_count_as_calls() -> None:
    both = session(tool_call(), failed_call())
    assert measured("tool_count", about(both)) == Measured(Fraction(8, 10))


def test_without_a_measure_there_is_no_score() -> None:
    missing = NotApplicable("the session has no duration")
    assert score("response_time", duration_ms=None) == missing
    unknown = NotApplicable("the session has no token counts")
    assert score("token_efficiency", input_tokens=None) == unknown
    assert score("token_efficiency", output_tokens=None) == unknown
    # No input is a count as well: it must not hide that the output was not counted.
    assert score("token_efficiency", input_tokens=0, output_tokens=None) == unknown


@given(
    duration_ms=counts,
    output_tokens=counts,
    input_tokens=counts,
    tools=st.lists(st.booleans(), min_size=1, max_size=15),
    cost=st.floats(0, 1e9),
    quality=st.floats(0, 1),
)
def test_scores_stay_within_bounds(
    duration_ms: int,
    output_tokens: int,
    input_tokens: int,
    tools: list[bool],
    cost: float,
    quality: float,
) -> None:
    run = session(
        *[tool_call() if ok else failed_call() for ok in tools],
        message(),
        duration_ms=duration_ms,
        output_tokens=output_tokens,
        input_tokens=input_tokens,
    )
    subject = about(run, cost_usd=cost, quality_so_far=quality)
    for name in FIGURES:
        assert 0 <= number(measured(name, subject)) <= 1, name


@given(st.tuples(counts, counts).map(sorted))
def test_more_time_never_scores_higher(durations: list[int]) -> None:
    less, more = (score("response_time", duration_ms=d) for d in durations)
    assert number(less) >= number(more)


@given(st.tuples(counts, counts).map(sorted), counts)
def test_more_output_never_scores_higher(outputs: list[int], input_tokens: int) -> None:
    less, more = (ratio(output, input_tokens) for output in outputs)
    assert number(less) >= number(more)


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 1000))
def test_only_the_ratio_of_tokens_counts(output: int, input_tokens: int, factor: int) -> None:
    assert ratio(output, input_tokens) == ratio(output * factor, input_tokens * factor)


# --- Tool calls --------------------------------------------------------------------------------


def test_tool_effectiveness_is_the_tool_report_s() -> None:
    run = session(failed_call("a"), tool_call("b"))
    subject = about(run)
    # Half of 40, 30 and 20 points, and the 10 for no repeated call.
    assert subject.report.effectiveness == 55
    assert measured("tool_effectiveness", subject) == Measured(Fraction(55, 100))
    assert measured("tool_effectiveness", about(session(tool_call()))) == Measured(Fraction(1))


def test_without_tool_calls_nothing_is_known_of_their_use() -> None:
    silent = about(session(message()))
    assert measured("tool_effectiveness", silent) == NO_CALLS
    assert measured("tool_error_rate", silent) == NO_CALLS
    assert measured("tool_count", silent) == Measured(Fraction(1))


def test_tool_error_rate_shows_where_calls_failed() -> None:
    run = session(
        message(),
        tool_call(),
        failed_call("pods_log", error="connection reset"),
        tool_call(failure="tool", error=None),
        tool_call(),
    )
    assert measured("tool_error_rate", about(run)) == Measured(
        Fraction(1, 2),
        (
            Place(step=3, excerpt="kubernetes.pods_log: connection reset"),
            Place(step=4, excerpt="kubernetes.pods_get: "),
        ),
    )
    assert measured("tool_error_rate", about(session(tool_call()))) == Measured(Fraction(1))


def test_at_most_five_failures_are_shown_each_of_them_short() -> None:
    run = session(*[failed_call(error="x" * 999)] * 7)
    found = measured("tool_error_rate", about(run))
    assert isinstance(found, Measured)
    assert found.score == 0
    assert [place.step for place in found.places] == [1, 2, 3, 4, 5]
    assert {place.excerpt for place in found.places} == {f"kubernetes.pods_log: {'x' * 120}"}


# --- Bands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_ms", "points"),
    [
        (0, 100),
        (5_000, 100),
        (5_001, 85),
        (10_000, 85),
        (10_001, 70),
        (20_000, 70),
        (20_001, 50),
        (10**9, 50),
    ],
)
def test_latency_band(duration_ms: int, points: int) -> None:
    assert score("latency_band", duration_ms=duration_ms) == Measured(Fraction(points, 100))


@pytest.mark.parametrize(
    ("duration_ms", "points"), [(500, 100), (501, 85), (2_000, 85), (3_000, 70), (3_001, 50)]
)
def test_the_bands_of_latency_can_be_set(duration_ms: int, points: int) -> None:
    subject = about(session(duration_ms=duration_ms))
    found = measured("latency_band", subject, best_up_to_s=0.5, good_up_to_s=2, fair_up_to_s=3)
    assert found == Measured(Fraction(points, 100))


def test_a_session_without_duration_has_no_band() -> None:
    assert score("latency_band", duration_ms=None) == NotApplicable("the session has no duration")


@pytest.mark.parametrize(
    ("cost", "points"),
    [
        (0.0, 100),
        (0.05, 100),
        (0.0501, 85),
        (0.10, 85),
        (0.1001, 70),
        (0.20, 70),
        (0.2001, 50),
        (999.0, 50),
    ],
)
def test_cost_band(cost: float, points: int) -> None:
    assert measured("cost_band", about(session(), cost_usd=cost)) == Measured(Fraction(points, 100))


@pytest.mark.parametrize(("cost", "points"), [(1.0, 100), (2.0, 85), (3.0, 70), (3.1, 50)])
def test_the_bands_of_cost_can_be_set(cost: float, points: int) -> None:
    bands = {"best_up_to_usd": 1, "good_up_to_usd": 2, "fair_up_to_usd": 3}
    found = measured("cost_band", about(session(), cost_usd=cost), **bands)
    assert found == Measured(Fraction(points, 100))


@pytest.mark.parametrize(
    ("made", "allowed", "points"), [(3, None, 100), (3, 4, 100), (3, 3, 100), (3, 2, 90)]
)
def test_too_many_model_calls_cost_ten_points(made: int, allowed: int | None, points: int) -> None:
    run = session(llm_calls=(llm_call(),) * made)
    found = measured("cost_band", about(run, cost_usd=0.01), max_llm_calls=allowed)
    assert found == Measured(Fraction(points, 100))
    dear = measured("cost_band", about(run, cost_usd=9), max_llm_calls=allowed)
    assert dear == Measured(Fraction(points - 50, 100))


@pytest.mark.parametrize(
    ("scorer", "params"),
    [
        ("latency_band", {"best_up_to_s": 10}),
        ("latency_band", {"good_up_to_s": 20}),
        ("latency_band", {"fair_up_to_s": 1}),
        ("cost_band", {"best_up_to_usd": 0.1}),
        ("cost_band", {"good_up_to_usd": 0.5, "fair_up_to_usd": 0.4}),
    ],
)
def test_bands_must_rise(scorer: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^params of {scorer}: the bands must rise: "):
        typed_params(scorer, params)


@pytest.mark.parametrize(
    ("scorer", "param", "value"),
    [
        ("latency_band", "best_up_to_s", 0),
        ("cost_band", "best_up_to_usd", -1),
        ("cost_band", "max_llm_calls", 0),
        ("cost_efficiency", "reference_points_per_usd", 0),
    ],
)
def test_bounds_are_above_zero(scorer: str, param: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^params of {scorer}: {param}: Input should be great"):
        typed_params(scorer, {param: value})


# --- Quality per dollar ------------------------------------------------------------------------


def per_dollar(cost: float | None, quality: float | None, **params: Any) -> Result:
    subject = about(session(), cost_usd=cost, quality_so_far=quality)
    return measured("cost_efficiency", subject, **params)


def test_an_unknown_cost_has_no_band_and_no_efficiency() -> None:
    assert measured("cost_band", about(session())) == NO_COST
    assert per_dollar(None, 0.8) == NO_COST


def test_without_quality_there_is_none_per_dollar() -> None:
    reason = "no criterion before this one tells the quality"
    assert per_dollar(0.1, None) == NotApplicable(reason)
    assert per_dollar(0.0, None) == NotApplicable(reason)


@pytest.mark.parametrize(
    ("cost", "quality", "share"),
    [
        (0.1, 0.8, 0.8),  # 80 points for a tenth of a dollar: 800 of 1000 a dollar
        (0.08, 0.8, 1.0),
        (0.01, 0.8, 1.0),
        (1.0, 0.5, 0.05),
        (0.5, 0.0, 0.0),
        (0.0, 0.3, 1.0),
        (0.0, 0.0, 1.0),
    ],
)
def test_quality_per_dollar_against_the_reference(
    cost: float, quality: float, share: float
) -> None:
    found = per_dollar(cost, quality)
    assert isinstance(found, Measured)
    assert float(found.score) == pytest.approx(share)


@pytest.mark.parametrize(("reference", "share"), [(100, 1.0), (1600, 0.5), (8000, 0.1)])
def test_the_reference_can_be_set(reference: float, share: float) -> None:
    found = per_dollar(0.1, 0.8, reference_points_per_usd=reference)
    assert isinstance(found, Measured)
    assert float(found.score) == pytest.approx(share)
