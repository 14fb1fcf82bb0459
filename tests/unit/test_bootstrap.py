"""Intervals: against what is known of them, and always the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer.analytics.bootstrap import GROUPS, Interval, intervals, median_interval


def mean_of(sums: Sequence[float]) -> tuple[float, ...]:
    return (sums[1] / sums[0],)


def interval_of_mean(values: Sequence[float]) -> Interval:
    (found,) = intervals([[1.0, value] for value in values], mean_of)
    assert found is not None
    return found


def test_golden() -> None:
    """These numbers change only with the method: then reports of before can't be compared."""
    found = interval_of_mean([12, 40, 55, 61, 62, 70, 71, 80, 93, 97])

    assert found == pytest.approx((48.1, 78.1), abs=0.01)
    assert median_interval([12, 40, 55, 61, 62, 70, 71, 80, 93, 97]) == (40, 93)


@pytest.mark.parametrize("size", [30, GROUPS, 1000, 20_000])
def test_an_interval_of_a_mean_is_that_of_the_normal_distribution(size: int) -> None:
    """Central limit theorem: mean +- 1.96 standard errors, for few values and groups of many."""
    draw = Random(size)
    values = [draw.gauss(60, 12) for _ in range(size)]
    half = 1.96 * stdev(values) / math.sqrt(size)

    low, high = interval_of_mean(values)

    assert (low + high) / 2 == pytest.approx(mean(values), abs=0.25 * half)
    assert (high - low) / 2 == pytest.approx(half, rel=0.2)


def test_the_mean_lies_in_its_interval_as_often_as_promised() -> None:
    draw = Random(7)
    hits = 0
    for _ in range(200):
        low, high = interval_of_mean([draw.uniform(0, 100) for _ in range(40)])
        hits += low <= 50 <= high

    assert 0.9 <= hits / 200 <= 0.99


def test_the_median_lies_in_its_interval_as_often_as_promised() -> None:
    draw = Random(8)
    for size in (25, 40, 301):
        found = [median_interval([draw.uniform(0, 100) for _ in range(size)]) for _ in range(200)]
        hits = sum(i.low <= 50 <= i.high for i in found if i)
        assert 0.9 <= hits / 200 <= 1


def test_a_median_interval_is_what_drawing_comes_to() -> None:
    """The formula against ten thousand resamples."""
    draw = Random(3)
    values = sorted(draw.randint(0, 100) for _ in range(41))
    medians = sorted(sorted(draw.choices(values, k=41))[20] for _ in range(10_000))

    found = median_interval(values)

    assert found is not None
    assert found.low == pytest.approx(medians[249], abs=2)
    assert found.high == pytest.approx(medians[9749], abs=2)


def test_too_few_values_have_no_interval() -> None:
    assert intervals([], mean_of) == []
    assert intervals([[1.0, 5.0]], mean_of) == [None]
    assert median_interval([5]) is None


def test_a_figure_that_some_repetition_lacks_has_no_interval() -> None:
    def ratio(sums: Sequence[float]) -> tuple[float | None]:
        return (sums[0] / sums[1] if sums[1] else None,)

    assert intervals([[1.0, 0.0], [1.0, 0.0], [1.0, 5.0]], ratio) == [None]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=150))
@example([0.0, 5e-324])  # closer together than any finite scale could tell apart
def test_an_interval_lies_within_the_values_and_is_always_the_same(values: list[float]) -> None:
    found = interval_of_mean(values)

    slack = 1e-6 + 1e-9 * max(map(abs, values))
    assert min(values) - slack <= found.low <= found.high <= max(values) + slack
    assert interval_of_mean(values) == found


@given(st.lists(st.integers(0, 100), min_size=2, max_size=500))
def test_a_median_lies_in_its_interval(values: list[int]) -> None:
    found = median_interval(values)

    assert found is not None
    ordered = sorted(values)
    assert found.low <= ordered[(len(values) - 1) // 2]
    assert found.high >= ordered[len(values) // 2]
    assert {found.low, found.high} <= set(values)
