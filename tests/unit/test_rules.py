"""The rule scorers at the corner points of scoring.md; a changed constant breaks a test."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.rules import SCORERS, NotApplicable, RuleResult
from tests.unit.builders import failed_call, message, session, tool_call

counts = st.integers(0, 10**7)


def score(scorer: str, **changes: Any) -> RuleResult:
    return SCORERS[scorer].score(session(**changes))


def calls(count: int) -> RuleResult:
    return SCORERS["tool_count"].score(session(message(), *[tool_call()] * count))


def ratio(output_tokens: int, input_tokens: int) -> RuleResult:
    return score("token_efficiency", output_tokens=output_tokens, input_tokens=input_tokens)


def number(result: RuleResult) -> Fraction:
    assert not isinstance(result, NotApplicable)
    return Fraction(result)


def test_each_scorer_is_known_by_its_own_name() -> None:
    assert {"response_time", "token_efficiency", "tool_count"} <= set(SCORERS)
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
    assert score("response_time", duration_ms=duration_ms) == expected


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
    assert ratio(output_tokens, input_tokens) == expected


@pytest.mark.parametrize("count", range(14))
def test_tool_count_is_exact(count: int) -> None:
    # In binary floating point 1 - 9/10 is less than a tenth, which can turn a total.
    assert calls(count) == max(Fraction(0), Fraction(10 - count, 10))


def test_failed_calls_count_as_calls() -> None:
    both = session(tool_call(), failed_call())
    assert SCORERS["tool_count"].score(both) == Fraction(8, 10)


def test_without_a_measure_there_is_no_score() -> None:
    missing = NotApplicable("the session has no duration")
    assert score("response_time", duration_ms=None) == missing
    unknown = NotApplicable("the session has no token counts")
    assert score("token_efficiency", input_tokens=None) == unknown
    assert score("token_efficiency", output_tokens=None) == unknown
    # No input is a count as well: it must not hide that the output was not counted.
    assert score("token_efficiency", input_tokens=0, output_tokens=None) == unknown


@given(duration_ms=counts, output_tokens=counts, input_tokens=counts, tools=st.integers(0, 30))
def test_scores_stay_within_bounds(
    duration_ms: int, output_tokens: int, input_tokens: int, tools: int
) -> None:
    run = session(
        *[tool_call()] * tools,
        message(),
        duration_ms=duration_ms,
        output_tokens=output_tokens,
        input_tokens=input_tokens,
    )
    for name in ("response_time", "token_efficiency", "tool_count"):
        assert 0 <= number(SCORERS[name].score(run)) <= 1


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
