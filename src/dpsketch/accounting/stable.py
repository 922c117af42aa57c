"""The symmetric p-stable law on the scale where it is a location family: t = p·ln|X|.

X has the characteristic function exp(−ζ|u|^p), 0 < p ≤ 1. Then |X|^p is ζ times a fixed law, so t = p·ln|X| is a fixed
law moved by ln ζ. That fixed law is log-concave: X is a normal variable times the root of a positive p/2-stable one,
the logarithm of each is log-concave (Simon 2011, "Multiplicative strong unimodality for positive stable laws", for an
index of at most ½), and sums of independent log-concave variables are log-concave. The ratio of two shifted densities
is therefore monotone in t, on which everything in :mod:`dpsketch.accounting.moment` rests.

**Computation.** Chambers, Mallows and Stuck's representation reads, for θ uniform in (0, π/2) and W exponential,

    t = Y(θ) − (1−p)·ln W,   Y(θ) = p·ln sin(pθ) + (1−p)·ln cos((1−p)θ) − ln cos θ.

Y is increasing, so its law has the distribution function (2/π)·θ(y) and the density (2/π)/Y'(θ), and t adds a Gumbel
variable of scale 1−p. Both are analytic, so the convolution is a sum over a uniform grid whose error falls
exponentially with its step; all terms are positive, so it keeps its relative precision in the tails (about 1e-14).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsketch.arrays import Floats

__all__ = ["LARGEST_BELOW_ONE", "SMALLEST_P", "StableTable", "stable_information", "stable_table"]

SMALLEST_P = 0.1
LARGEST_BELOW_ONE = 0.99
"""Between this and 1 the grid would have to be too fine; p = 1 itself is the Cauchy law in closed form."""

_TAIL = 41.5
"""The table leaves out tails of at most about e^−41.5 = 1e-18 on either side."""
_COARSEST = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class StableTable:
    """The law of t = p·ln|X| + shift, tabulated.

    Attributes
    ----------
    points : numpy.ndarray
        A uniform grid of t.
    density, slope : numpy.ndarray
        The density and its derivative.
    below, above : numpy.ndarray
        P(T ≤ t) and P(T > t), each with its own relative precision where it is small.
    """

    points: Floats
    density: Floats
    slope: Floats
    below: Floats
    above: Floats


def stable_table(p: float, *, shift: float = 0.0, reach: float = 0.0) -> StableTable:
    """Tabulate the law of p·ln|X| + ``shift`` on a grid that does not depend on the shift.

    Parameters
    ----------
    p : float
        Between :data:`SMALLEST_P` and :data:`LARGEST_BELOW_ONE`, or 1.
    shift : float
        ln ζ.
    reach : float
        How much farther to the right the grid goes than the standard law needs.
    """
    # P(|X| ≤ x) is close to 2·x·Γ(1+1/p)/π for small x, and P(T > t) is at most e^−t.
    start = -p * (_TAIL + math.log(2 / math.pi) + math.lgamma(1 + 1 / p))
    step = min(_COARSEST, 0.2 * p, 0.2 * (1 - p)) if p < 1 else _COARSEST
    count = math.ceil((_TAIL + 0.5 + reach - start) / step) + 1
    points = start + step * np.arange(count, dtype=np.float64)
    if p == 1:
        return _cauchy(points, shift)
    before, after = math.ceil(40 * max(p, 1 - p) / step), math.ceil(4.2 * (1 - p) / step)
    angle, rest, rise = _invert(p, start - shift + step * np.arange(-before, count + after, dtype=np.float64))
    gumbel = np.arange(-after, min(count + before, math.ceil((45 / p + 5) * (1 - p) / step))) * (step / (1 - p))
    decay = np.exp(-gumbel)
    kernel = np.exp(-gumbel - decay) * (step / (1 - p))

    def smooth(values: Floats, weights: Floats) -> Floats:
        return np.convolve(values, weights)[before + after : before + after + count]

    peak = (2 / math.pi) / rise
    return StableTable(
        points,
        smooth(peak, kernel),
        smooth(peak, kernel * (decay - 1) / (1 - p)),
        smooth((2 / math.pi) * angle, kernel),
        smooth((2 / math.pi) * rest, kernel),
    )


@lru_cache(maxsize=64)
def stable_information(p: float) -> float:
    """Return the Fisher information of one coordinate about ln ζ.

    Examples
    --------
    >>> [round(stable_information(p), 3) for p in (0.1, 0.25, 0.5, 0.75, 1)]
    [0.979, 0.879, 0.701, 0.579, 0.5]
    """
    law = stable_table(p)
    return float(np.sum(law.slope**2 / law.density) * (law.points[1] - law.points[0]))


def _cauchy(points: Floats, shift: float) -> StableTable:
    t = points - shift
    density = 1 / (math.pi * np.cosh(t))
    return StableTable(
        points,
        density,
        -density * np.tanh(t),
        (2 / math.pi) * np.arctan(np.exp(t)),
        (2 / math.pi) * np.arctan(np.exp(-t)),
    )


def _invert(p: float, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return θ with Y(θ) = y, π/2 − θ (exact where it is small) and Y'(θ)."""
    # In z = logit(2θ/π) the function is nearly linear, with slope p on the left and 1 on the right, and convex: Newton
    # from the right of the root converges without overshooting.
    z = np.maximum(y / p, y) + 2
    while True:
        small = np.exp(-np.abs(z))
        near, far = small / (1 + small), 1 / (1 + small)
        angle = (math.pi / 2) * np.where(z > 0, far, near)
        rest = (math.pi / 2) * np.where(z > 0, near, far)
        value = p * np.log(np.sin(p * angle)) + (1 - p) * np.log(np.cos((1 - p) * angle)) - np.log(np.sin(rest))
        rise = p * p / np.tan(p * angle) - (1 - p) ** 2 * np.tan((1 - p) * angle) + 1 / np.tan(rest)
        step = (value - y) / (rise * angle * rest * (2 / math.pi))
        if np.max(np.abs(step)) < 1e-12:  # quadratic: the values at hand are exact to double precision
            return angle, rest, rise
        z = z - step
