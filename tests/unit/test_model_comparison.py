"""Models compared, by hand-made runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from consumer.analytics.models import Runs, compare


def runs(scores: Sequence[int], **columns: Sequence[float | None]) -> Runs:
    unknown = [None] * len(scores)
    given = {"costs_usd": unknown, "tokens": unknown, "durations_ms": unknown} | columns
    return Runs(provider="openai", model="gpt-5", scores=scores, **given)


def test_averages_are_over_what_is_known() -> None:
    found = compare(
        runs([60, 70, 95], costs_usd=[0.1, None, 0.3], tokens=[100, 200, 600]),
        disqualified=2,
        gate_failed=1,
    )

    assert (found.n, found.low_n, found.disqualified, found.gate_failed) == (3, True, 2, 1)
    assert found.average_score == pytest.approx(75)
    assert found.median_score == 70
    assert found.cost_n == 2
    assert found.average_cost_usd == pytest.approx(0.2)
    assert found.average_tokens == pytest.approx(300)
    assert found.average_duration_ms is None
    assert found.average_duration_ms_95 is None
    assert found.score_per_dollar == pytest.approx(75 / 0.2)


def test_free_runs_have_no_score_per_dollar() -> None:
    found = compare(runs([60, 70], costs_usd=[0.0, 0.0]))

    assert found.average_cost_usd == 0
    assert found.score_per_dollar is None
    assert found.score_per_dollar_95 is None


def test_intervals_hold_the_figures() -> None:
    scores = [40 + n % 50 for n in range(250)]
    found = compare(runs(scores, costs_usd=[0.01 + n % 7 / 100 for n in range(250)]))

    assert not found.low_n
    for figure, interval in (
        (found.average_score, found.average_score_95),
        (found.median_score, found.median_score_95),
        (found.average_cost_usd, found.average_cost_usd_95),
        (found.score_per_dollar, found.score_per_dollar_95),
    ):
        assert figure is not None
        assert interval is not None
        assert interval.low < figure < interval.high
    assert compare(runs(scores)) == compare(runs(scores))


def test_one_run_has_no_interval() -> None:
    found = compare(runs([60]))
    assert (found.average_score, found.average_score_95, found.median_score_95) == (60, None, None)
