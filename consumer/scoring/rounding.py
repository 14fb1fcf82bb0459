"""Rounding that a person can do again by hand: exact, and half up.

All of it is done in whole numbers: their arithmetic is many times faster than Fraction's.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import lcm

Exact = int | Fraction
# Numerator and denominator; not always in lowest terms.
Ratio = tuple[int, int]


def ratio(x: float | Fraction) -> Ratio:
    """The number as it is written: 0.285 is 285/1000, not 0.28499999999999998."""
    return _written(x) if isinstance(x, float) else x.as_integer_ratio()


@lru_cache(maxsize=4096)  # weights, and the few shares that most criteria give
def _written(x: float) -> Ratio:
    # By way of Decimal: it reads a number three times as fast as Fraction does.
    return Decimal(repr(x)).as_integer_ratio()


def round_half_up(value: float | Fraction) -> int:
    """The nearest integer, .5 upwards."""
    return rounded(*ratio(value))


def rounded(numerator: int, denominator: int) -> int:
    """The nearest integer to a ratio, .5 upwards."""
    return (2 * numerator + denominator) // (2 * denominator)


def weighted(values: Iterable[tuple[float | Fraction, float]]) -> Ratio:
    """sum(value * weight) / sum(weight), exactly, of (value, weight)."""
    numerator, denominator, weight, unit = 0, 1, 0, 1
    for value, own in values:
        (n, d), (w, u) = ratio(value), ratio(own)
        # Of many values most have few denominators; their product would grow with each.
        common, units = lcm(denominator, d * u), lcm(unit, u)
        numerator = numerator * (common // denominator) + n * w * (common // (d * u))
        weight = weight * (units // unit) + w * (units // u)
        denominator, unit = common, units
    return numerator * unit, denominator * weight
