"""Rounding that a person can do again by hand: exact, and half up."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

# Whole numbers stay int: their arithmetic is many times faster than Fraction's.
Exact = int | Fraction

_HALF = Fraction(1, 2)
_HALF_DECIMAL = Decimal("0.5")


def exact(x: float | Fraction) -> Exact:
    """The number as it is written: 0.285 is 285/1000, not 0.28499999999999998."""
    return _written(x) if isinstance(x, float) else x


@lru_cache(maxsize=4096)  # weights, and the few shares that most criteria give
def _written(x: float) -> Exact:
    # By way of Decimal: it reads a number three times as fast as Fraction does.
    return int(x) if x.is_integer() else Fraction(Decimal(repr(x)))


def round_half_up(value: float | Fraction | Decimal) -> int:
    """The nearest integer, .5 upwards."""
    if isinstance(value, Decimal):
        return math.floor(value + _HALF_DECIMAL)
    number = exact(value)
    return number if isinstance(number, int) else math.floor(number + _HALF)
