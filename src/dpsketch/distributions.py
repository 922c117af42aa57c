"""Quantiles of the normal law, of Student's and of symmetric Beta laws, and the normal law's scaled tail.

They use the standard library alone: loading SciPy takes longer than a question to a release.

With ν degrees of freedom Student's variable lies beyond t ≥ 0 with probability ½·I_x(ν/2, ½), x = ν/(ν + t²)
(Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.5.27). The incomplete Beta function I is a continued
fraction (ibid., 26.5.8), which converges fast below its mean; above it, 1 less that of the complement is taken.
Newton's steps start from the normal quantile, which is never above Student's, and come from one side from then on: the
logarithm of the tail is concave in ln t, the probability of the middle in t.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeVar

from dpsketch.arrays import Floats

__all__ = ["beta_quantile", "normal_quantile", "scaled_tail", "student_quantile", "upper_quantile", "widening"]

Excess = TypeVar("Excess", float, Floats)

# From here on the continued fraction of the scaled tail needs no more terms than this to be right to the last digits.
_FRACTION_FROM = 3.0
_FRACTION_TERMS = 70
_STEPS = 100
_TERMS = 10_000
_CLOSE = 1e-15
_TINY = 1e-300
# Γ(a + ½)/Γ(a) divided by √a, in powers of 1/a (ibid., 6.1.47), right to the last digit from a = 50 on.
_RATIO = (1.0, -1 / 8, 1 / 128, 5 / 1024, -21 / 32768, -399 / 262144, 869 / 4194304, 39325 / 33554432)
_RATIO_FROM = 50.0


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
    return -NormalDist().inv_cdf(tail) if tail > 0 else math.inf


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
    for term in range(_FRACTION_TERMS, 0, -1):
        fraction = x + term / 2 / fraction
    return 1 / (math.sqrt(math.pi) * fraction)


def widening(quantile: float, excess: Excess) -> Excess:
    """Return the factor on the normal law's quantile for an error of excess kurtosis κ₄/variance².

    A sum of many Laplace draws is nearly normal. A single draw is not: 1.96 standard deviations hold with 93.8%, not
    95%. The fourth cumulant κ₄, which adds up as the variance does, tells between the two.

    Accuracy
    --------
    Cornish and Fisher's term, where it widens. For a single Laplace draw 95% are within 2.118 standard deviations, and
    this makes 2.166 of 1.96. An integer draw whose deviation is below 1 follows no such law: its interval needs half a
    step more, or ends at whole numbers.
    """
    return 1 + max(0.0, (quantile**2 - 3) / 24) * excess


def student_quantile(freedom: float, tail: float) -> float:
    """Return the point that Student's variable passes with probability ``tail``, at most ½.

    *Accuracy.* The relative error is below 10⁻¹² from one to 10⁵ degrees of freedom and for tails down to 10⁻¹⁵, as a
    test finds against arbitrary precision.

    Parameters
    ----------
    freedom : float
        Degrees of freedom, at least 1; infinitely many give the normal quantile.
    tail : float
        From 0 to ½.

    Examples
    --------
    >>> round(student_quantile(1, 0.25), 12), round(student_quantile(4, 0.025), 6)
    (1.0, 2.776445)
    """
    if tail <= 0:
        return math.inf
    point = upper_quantile(tail)
    if math.isinf(freedom) or point <= 0:
        return max(point, 0.0)
    constant = _gamma_ratio(freedom / 2) / math.sqrt(math.pi * freedom)
    for _ in range(_STEPS):
        beyond, within = _tail(freedom, point)
        density = constant * math.exp(-(freedom + 1) / 2 * math.log1p(point**2 / freedom))
        if tail < 0.25:
            factor = math.exp(math.log(beyond / tail) * beyond / (point * density))
        else:
            factor = 1 + (0.5 - tail - within) / (point * density)
        point *= factor
        if abs(factor - 1) <= _CLOSE:
            break
    return point


def beta_quantile(shape: float, tail: float) -> float:
    """Return the point that a Beta(shape, shape) variable passes with probability ``tail``, at most ½.

    If T is Student's with 2·shape degrees of freedom, ½ + ½·T/√(2·shape + T²) is such a variable.

    Examples
    --------
    >>> beta_quantile(1, 0.25), round(beta_quantile(3, 0.025), 6)
    (0.75, 0.853367)
    """
    point = student_quantile(2 * shape, tail)
    return 0.5 + 0.5 / math.sqrt(1 + 2 * shape / point**2) if point > 0 else 0.5


def _tail(freedom: float, point: float) -> tuple[float, float]:
    """Return the probabilities beyond a point above 0, and between it and 0."""
    a, square = freedom / 2, point**2
    near, far = square / (freedom + square), freedom / (freedom + square)
    # far^a·near^½/B(a, ½), where B(a, ½) = √π·Γ(a)/Γ(a + ½).
    front = math.exp(-a * math.log1p(square / freedom)) * math.sqrt(near) * _gamma_ratio(a) / math.sqrt(math.pi)
    if far < (a + 1) / (a + 2.5):
        beyond = front / a * _fraction(a, 0.5, far) / 2
        return beyond, 0.5 - beyond
    within = front / 0.5 * _fraction(0.5, a, near) / 2
    return 0.5 - within, within


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of a·B(a, b)·I_x(a, b)/(x^a·(1 − x)^b), by Lentz's method."""
    above, below = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, _TERMS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            above, below = _not_zero(1 + step / above), 1 / _not_zero(1 + step * below)
            value *= above * below
        if abs(above * below - 1) <= _CLOSE / 4:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _gamma_ratio(a: float) -> float:
    """Return Γ(a + ½)/Γ(a)."""
    factor = 1.0
    while a < _RATIO_FROM:
        factor *= a / (a + 0.5)
        a += 1
    return factor * math.sqrt(a) * math.fsum(each / a**power for power, each in enumerate(_RATIO))
