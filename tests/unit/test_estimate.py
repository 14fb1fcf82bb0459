"""Tokens of a text: bytes / 2, and what a model's own figures teach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.judge.estimate import LEAST, MOST, TokenEstimate


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a" * 200, 100), ("\u00e9" * 200, 200)])
def test_two_bytes_are_a_token_to_begin_with(text: str, tokens: int) -> None:
    assert TokenEstimate().tokens(text) == tokens


def test_a_report_counts_a_fifth() -> None:
    estimate = TokenEstimate()
    estimate.learn("a" * 200, 150)  # half as many again
    assert estimate.correction == pytest.approx(1.1)
    assert estimate.tokens("a" * 2000) == 1100
    estimate.learn("a" * 200, 60)
    assert estimate.correction == pytest.approx(1.0)


def test_a_handful_of_reports_is_believed() -> None:
    estimate = TokenEstimate()
    for _ in range(20):
        estimate.learn("a" * 400, 100)
    assert estimate.tokens("a" * 400) == pytest.approx(100, abs=2)


@pytest.mark.parametrize(("text", "tokens"), [("a" * 100, 0), ("", 100), ("", 0)])
def test_what_was_not_said_teaches_nothing(text: str, tokens: int) -> None:
    estimate = TokenEstimate()
    estimate.learn(text, tokens)
    assert estimate.correction == 1.0


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(1, 10**9))))
def test_no_report_moves_it_beyond_what_tokenisers_do(reports: list[tuple[str, int]]) -> None:
    estimate = TokenEstimate()
    for text, tokens in reports:
        estimate.learn(text, tokens)
    assert LEAST <= estimate.correction <= MOST


def test_the_limits_are_reached_by_enough_odd_reports() -> None:
    high, low = TokenEstimate(), TokenEstimate()
    for _ in range(100):
        high.learn("a", 10**6)
        low.learn("a" * 10**4, 1)
    assert high.correction == pytest.approx(MOST)
    assert low.correction == pytest.approx(LEAST)
