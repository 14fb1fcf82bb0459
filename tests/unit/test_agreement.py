"""Judge against human, by hand-made examples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.analytics.agreement import NAMES, agreement, weighted_kappa

scores = st.integers(0, 100)
pairs = st.lists(st.tuples(scores, scores), min_size=1, max_size=60)


def test_kappa_by_hand() -> None:
    """Three classes, weights 0, 1/4, 1: observed 3/10 of a pair, expected by the margins."""
    table = [[4, 1, 0], [1, 2, 0], [0, 1, 1]]
    # rows 5 3 2, columns 5 4 1, of 10. Observed: (1 + 1 + 1) / 4 = 0.75.
    # Expected: (5*4 + 3*5 + 3*1 + 2*4) / 4 / 10 + (5*1 + 2*5) / 10 = 1.15 + 1.5 = 2.65.
    assert weighted_kappa(table) == pytest.approx(1 - 0.75 / 2.65)


def test_a_small_table_by_hand() -> None:
    found = agreement([(80, 80), (80, 60), (50, 40), (95, 92), (10, 30)])

    assert found.n == 5
    assert found.low_n
    assert found.mean_absolute_error == pytest.approx((0 + 20 + 10 + 3 + 20) / 5)
    assert found.bias == pytest.approx((0 - 20 - 10 - 3 + 20) / 5)
    assert found.bands == NAMES == ("failed", "weak", "adequate", "good", "near-perfect")
    assert found.table == [
        [1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert found.mean_absolute_error_95 is not None
    low, high = found.mean_absolute_error_95
    assert 0 <= low < 10.6 < high <= 20


def test_nothing_to_compare() -> None:
    none = agreement([])
    assert (none.n, none.mean_absolute_error, none.kappa, none.kappa_95) == (0, None, None, None)
    assert none.table == [[0] * 5] * 5

    one = agreement([(80, 70)])
    assert (one.n, one.mean_absolute_error, one.mean_absolute_error_95) == (1, 10, None)


def test_kappa_is_unknown_where_all_are_in_one_band() -> None:
    found = agreement([(80, 81), (82, 80)])
    assert found.kappa is None
    assert found.kappa_95 is None
    assert found.mean_absolute_error == 1.5


def test_low_n_ends_at_twenty() -> None:
    assert agreement([(80, 70)] * 19).low_n
    assert not agreement([(80, 70)] * 20).low_n


# Each makes two thousand resamples.
@settings(max_examples=20)
@given(pairs)
def test_figures_keep_their_bounds_whoever_comes_first(given: list[tuple[int, int]]) -> None:
    found, other = agreement(given), agreement([(b, a) for a, b in given])

    assert found.mean_absolute_error is not None
    assert found.bias is not None
    assert abs(found.bias) <= found.mean_absolute_error + 1e-9
    assert other.bias == pytest.approx(-found.bias)
    if found.kappa is None:
        assert other.kappa is None
        return
    assert -1 - 1e-9 <= found.kappa <= 1
    assert other.kappa == pytest.approx(found.kappa)
    agreed = all(found.table[i][j] == 0 for i in range(5) for j in range(5) if i != j)
    assert (found.kappa == 1) == agreed
