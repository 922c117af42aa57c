"""The normal law's quantiles and scaled tail, with nothing but NumPy: loading SciPy takes longer than a small run."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsketch.arrays import Floats

__all__ = [
    "CENTRAL",
    "CENTRE",
    "TAIL",
    "near_quantiles",
    "normal_quantile",
    "scaled_tail",
    "upper_quantile",
    "upper_quantiles",
]


# The rational approximations of Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (Applied
# Statistics 37, 1988), whose relative error is about 10⁻¹⁶: numerator and denominator, from the highest power down.
CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
TAIL = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.2426609473880784386e-3, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip
_BLOCK = 16_384  # twice as many would be new pages of memory in every step
CENTRAL = 0.425
_FAR_FROM = 5.0
# From here on the continued fraction needs no more terms than this to be right to the last digits.
_FRACTION_FROM = 3.0
_TERMS = 70


def normal_quantile(confidence: float) -> float:
    """Return what a standard normal variable stays within with this probability.

    Examples
    --------
    >>> round(normal_quantile(0.95), 6), normal_quantile(1.0)
    (1.959964, inf)
    """
    return upper_quantile((1 - confidence) / 2)


def upper_quantile(tail: float) -> float:
    """Return the point that a normal variable passes with this probability, at most ½."""
    return float(upper_quantiles(np.array([tail]))[0]) if tail > 0 else math.inf


def upper_quantiles(tails: Floats, near: Callable[[Floats, Floats, Floats], None] | None = None) -> Floats:
    """Return for each probability, above 0 and at most ½, the point that a normal variable passes with it.

    Whoever draws many gives the compiled form of :func:`near_quantiles`, which has the same bits.

    *Accuracy.* The relative error is below 2⁻⁴⁸, as a test finds against arbitrary precision; no proof is known.

    Examples
    --------
    >>> upper_quantiles(np.array([0.5, 0.025])).round(4)
    array([0.  , 1.96])
    """
    points = np.empty_like(tails)
    for start in range(0, len(tails), _BLOCK):
        block, found = tails[start : start + _BLOCK], points[start : start + _BLOCK]
        q = 0.5 - block
        r = np.log(block)
        np.negative(r, out=r)
        np.sqrt(r, out=r)
        r -= 1.6
        (near or near_quantiles)(q, r, found)
        if (far := r > _FAR_FROM - 1.6).any():  # less than once in 10¹⁰ draws, which are settled one by one anyway
            found[far] = _ratio(_FAR, r[far] - (_FAR_FROM - 1.6))
    return points


def near_quantiles(q: Floats, r: Floats, points: Floats) -> None:
    """Write the points of the tails ½ − q, where r is √(−ln tail) − 1.6, as far as those are above e⁻²⁵."""
    # Both approximations for every point: what a draw costs must not tell how large it is.
    centre = np.square(q)
    np.subtract(CENTRAL**2, centre, out=centre)
    centre = _ratio(CENTRE, centre)
    centre *= q
    points[:] = np.where(q > CENTRAL, _ratio(TAIL, r), centre)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Floats) -> Floats:
    above, below = (_polynomial(each, x) for each in coefficients)
    above /= below
    return above


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    total = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= x
    total += coefficients[-1]
    return total


def scaled_tail(x: float) -> float:
    """Return exp(x²)·erfc(x) for x ≥ 0, without overflow, to a relative error of about 10⁻¹⁵.

    Examples
    --------
    >>> scaled_tail(0.0), round(scaled_tail(1e6) * math.sqrt(math.pi), 12)
    (1.0, 1e-06)
    """
    if x < _FRACTION_FROM:
        return math.exp(x * x) * math.erfc(x)
    # √π·exp(x²)·erfc(x) = 1/(x + ½/(x + 1/(x + 1½/(x + …)))), from the end on.
    fraction = x
    for term in range(_TERMS, 0, -1):
        fraction = x + term / 2 / fraction
    return 1 / (math.sqrt(math.pi) * fraction)
