"""Rounding that a person can do again by hand: exact, and half up."""

from __future__ import annotations

import math
from fractions import Fraction


def exact(x: float | Fraction) -> Fraction:
    """The number as it is written: 0.285 is 285/1000, not 0.28499999999999998."""
    return x if isinstance(x, Fraction) else Fraction(repr(x))


def round_half_up(value: float | Fraction) -> int:
    """The nearest integer, .5 upwards."""
    return math.floor(exact(value) + Fraction(1, 2))
