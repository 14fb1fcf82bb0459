"""Gates: hard checks made before anything is paid for. They fail closed.

A rule scorer's gate passes at `score >= threshold` on 0-100; a budget's at `used <= threshold`.
What can't be measured does not pass, unless the gate says that it may.
"""

from __future__ import annotations

from dataclasses import dataclass

from consumer.scoring.profile import COST_BUDGET, TOKEN_BUDGET, Gate
from consumer.scoring.rounding import ratio
from consumer.scoring.scorers import Measurements
from consumer.scoring.scorers.base import Measured, NotApplicable, Place, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate's outcome. `score` is on 0-100 for rule scorers, tokens or USD for budgets."""

    id: str
    check: str
    passed: bool
    score: float | None
    threshold: float
    message: str
    places: tuple[Place, ...] = ()


def check_gates(gates: tuple[Gate, ...], measurements: Measurements) -> tuple[GateResult, ...]:
    """Every gate's outcome, in order."""
    return tuple(_check(gate, measurements) for gate in gates)


def _check(gate: Gate, measurements: Measurements) -> GateResult:
    if gate.check in {TOKEN_BUDGET, COST_BUDGET}:
        return _budget(gate, measurements.subject)
    result = measurements.result(gate.check, gate.typed_params)
    if isinstance(result, NotApplicable):
        return _unmeasured(gate, result.reason)
    return _scored(gate, result)


def _scored(gate: Gate, result: Measured) -> GateResult:
    n, d = ratio(result.score)
    score = 100 * n / d
    passed = score >= gate.threshold
    return GateResult(
        id=gate.id,
        check=gate.check,
        passed=passed,
        score=round(score, 2),
        threshold=gate.threshold,
        message=f"{gate.check} {_shown(score, gate.threshold)}, needs {gate.threshold:g}",
        places=() if passed else result.places,
    )


def _shown(score: float, threshold: float) -> str:
    """The score in few digits, but never rounded up to a threshold that it misses."""
    few = f"{score:.4g}"
    return repr(score) if score < threshold <= float(few) else few


def _budget(gate: Gate, subject: Subject) -> GateResult:
    tokens = gate.check == TOKEN_BUDGET
    used = subject.session.total_tokens if tokens else subject.cost_usd
    unit, digits = ("tokens", 15) if tokens else ("USD", 6)
    if used is None:
        return _unmeasured(gate, f"the session's {unit} are unknown")
    return GateResult(
        id=gate.id,
        check=gate.check,
        passed=used <= gate.threshold,
        score=used,
        threshold=gate.threshold,
        message=f"{used:.{digits}g} {unit}, at most {gate.threshold:.{digits}g}",
    )


def _unmeasured(gate: Gate, reason: str) -> GateResult:
    return GateResult(
        id=gate.id,
        check=gate.check,
        passed=gate.pass_if_not_applicable,
        score=None,
        threshold=gate.threshold,
        message=f"not measurable: {reason}",
    )
