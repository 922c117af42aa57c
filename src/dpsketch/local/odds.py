"""The odds that a local report may show, in exact arithmetic.

Every randomiser here decides by comparing a random integer with an integer threshold. The threshold comes from the
odds E = e^ε, and E is irrational: it is replaced by a fraction just *below* it, computed in integers alone, so that
every client in every language finds the same fraction and the realised ratio of two probabilities never exceeds e^ε.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number

__all__ = ["keep_threshold", "odds_below", "privacy_parameter"]

# Below, the odds differ from 1 by too little to be of use; above, a report promises next to nothing.
SMALLEST_EPSILON = 0.001
LARGEST_EPSILON = 20.0

_WORKING_BITS = 128
_KEPT_BITS = 48


def privacy_parameter(epsilon: Any) -> float:
    """Return the ε of a report, or refuse it."""
    number = real_number("epsilon", epsilon)
    if not SMALLEST_EPSILON <= number <= LARGEST_EPSILON:
        raise InvalidInput(
            f"epsilon of a local report must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}, not {number!r}."
        )
    return float(number)


@lru_cache(maxsize=256)
def odds_below(epsilon: float, shares: int = 1) -> Fraction:
    """Return a fraction that is at most e^(ε/shares), and below it by less than 2⁻⁴⁷.

    The series of the exponential is summed in integers, in units of 2⁻¹²⁸, with every division rounded down. All its
    terms are positive, so the sum is too small; it is then cut to 48 binary places.

    Examples
    --------
    >>> odds_below(1.0) < math.e, round(float(odds_below(1.0)), 12)
    (True, 2.718281828459)
    """
    exponent = math.floor(Fraction(epsilon) * 2**_WORKING_BITS / shares)
    term = total = 2**_WORKING_BITS
    k = 0
    while term:
        k += 1
        term = term * exponent // (k << _WORKING_BITS)
        total += term
    return Fraction(total >> (_WORKING_BITS - _KEPT_BITS), 2**_KEPT_BITS)


def keep_threshold(odds: Fraction, bits: int = 64) -> int:
    """Return the threshold of randomised response: keep the truth where a random word of ``bits`` bits lies below it.

    It is 2^bits · E/(E+1) rounded down, hence kept/flipped is at most E.
    """
    share: Fraction = odds / (odds + 1)
    return (share.numerator << bits) // share.denominator
