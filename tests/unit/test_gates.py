"""Gates: every kind at its threshold, and that what can't be measured does not pass."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.scoring.gates import GateResult, check_gates
from consumer.scoring.scorers import SCORERS, Measurements
from consumer.scoring.scorers.base import MAX_PLACES, Place, Subject
from tests.unit.builders import about, failed_call, gated, message, profile, session, tool_call

# Half of the calls failed, three tool calls of ten: 70.
RUN = about(session(message(), tool_call(), failed_call("b"), tool_call("c"), duration_ms=65_000))


def results(*gates: dict[str, Any], subject: Subject = RUN) -> tuple[GateResult, ...]:
    return check_gates(profile(gates=list(gates)).gates, Measurements(subject))


def result(gate: dict[str, Any], subject: Subject = RUN) -> GateResult:
    (found,) = results(gate, subject=subject)
    return found


def test_no_gates_no_results() -> None:
    assert check_gates((), Measurements(RUN)) == ()


# --- Rule scorers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "passed"),
    [(0, True), (69.99, True), (70, True), (70.01, False), (71, False), (100, False)],
)
def test_a_score_passes_at_its_threshold(threshold: float, passed: bool) -> None:
    assert result(gated("tool_count", threshold)) == GateResult(
        id="tool_count",
        check="tool_count",
        passed=passed,
        score=70.0,
        threshold=threshold,
        message=f"tool_count 70, needs {threshold:g}",
    )


def test_a_score_is_compared_before_it_is_rounded() -> None:
    # 2 of 3 calls worked: 66.666...
    found = result(gated("tool_error_rate", 66.67))
    assert (found.passed, found.score) == (False, 66.67)
    assert result(gated("tool_error_rate", 66.66)).passed


def test_a_gate_s_params_are_the_scorer_s() -> None:
    assert result(gated("latency_band", 70)).score == 50
    found = result(gated("latency_band", 70, params={"fair_up_to_s": 65}))
    assert (found.passed, found.score) == (True, 70)


def test_a_failed_gate_shows_where_and_a_passed_one_does_not() -> None:
    place = Place(step=3, excerpt="kubernetes.b: connection reset")
    assert result(gated("tool_error_rate", 67)).places == (place,)
    assert result(gated("tool_error_rate", 66)).places == ()


def test_at_most_five_places() -> None:
    many = about(session(*[failed_call()] * 9))
    assert len(result(gated("tool_error_rate", 1), many).places) == MAX_PLACES == 5


def test_what_a_rule_cannot_measure_does_not_pass() -> None:
    silent = about(session(message()))
    found = result(gated("tool_error_rate", 0), silent)
    assert found == GateResult(
        id="tool_error_rate",
        check="tool_error_rate",
        passed=False,
        score=None,
        threshold=0,
        message="not measurable: the session has no tool calls",
    )
    lenient = result(gated("tool_error_rate", 0, pass_if_not_applicable=True), silent)
    assert (lenient.passed, lenient.score, lenient.message) == (True, None, found.message)


def test_leniency_is_for_the_unmeasured_only() -> None:
    assert not result(gated("tool_count", 71, pass_if_not_applicable=True)).passed


# --- Budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "budget", "passed", "told"),
    [
        (0, 0, True, "0 tokens, at most 0"),
        (1100, 1100, True, "1100 tokens, at most 1100"),
        (1101, 1100, False, "1101 tokens, at most 1100"),
        (1_234_567, 2_000_000, True, "1234567 tokens, at most 2000000"),
    ],
)
def test_a_token_budget(used: int, budget: float, passed: bool, told: str) -> None:
    found = result(gated("token_budget", budget), about(session(total_tokens=used)))
    assert (found.passed, found.score, found.message) == (passed, used, told)
    assert (found.id, found.check, found.threshold) == ("token_budget", "token_budget", budget)


@pytest.mark.parametrize(
    ("used", "budget", "passed", "told"),
    [
        (0.0, 0, True, "0 USD, at most 0"),
        (0.5, 0.5, True, "0.5 USD, at most 0.5"),
        (0.5001, 0.5, False, "0.5001 USD, at most 0.5"),
    ],
)
def test_a_cost_budget(used: float, budget: float, passed: bool, told: str) -> None:
    found = result(gated("cost_budget", budget), about(session(), cost_usd=used))
    assert (found.passed, found.score, found.message) == (passed, used, told)


@pytest.mark.parametrize(("check", "unit"), [("token_budget", "tokens"), ("cost_budget", "USD")])
def test_unknown_use_does_not_pass(check: str, unit: str) -> None:
    unknown = about(session(total_tokens=None), cost_usd=None)
    found = result(gated(check, 10**9), unknown)
    assert (found.passed, found.score) == (False, None)
    assert found.message == f"not measurable: the session's {unit} are unknown"
    assert result(gated(check, 10**9, pass_if_not_applicable=True), unknown).passed


# --- Together ----------------------------------------------------------------------------------


def test_every_gate_is_checked_in_order() -> None:
    gates = [gated("tool_count", 71), gated("response_time", 50), gated("token_budget", 5, id="t")]
    assert [(r.id, r.passed) for r in results(*gates)] == [
        ("tool_count", False),
        ("response_time", True),
        ("t", False),
    ]


def test_an_error_inside_a_gate_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        by_quality = False

        def score(self, *_: object) -> None:
            raise ZeroDivisionError

    gates = profile(gates=[gated("tool_count", 0, pass_if_not_applicable=True)]).gates
    assert gates[0].typed_params is not None
    monkeypatch.setattr("consumer.scoring.scorers.SCORERS", {**SCORERS, "tool_count": Broken()})
    with pytest.raises(ZeroDivisionError):
        check_gates(gates, Measurements(RUN))


@given(st.integers(0, 12), st.floats(0, 100))
def test_a_gate_passes_exactly_from_its_threshold_on(calls: int, threshold: float) -> None:
    found = result(
        gated("tool_count", threshold), about(session(message(), *[tool_call()] * calls))
    )
    assert found.passed is (max(0, 100 - 10 * calls) >= threshold)
