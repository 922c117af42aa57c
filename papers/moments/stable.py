"""Densities of symmetric p-stable laws, for the ratios of Figures 2 and 6."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch.accounting.moments import stable_table

Floats = npt.NDArray[np.float64]


def doubled_ratio(p: float, x: Floats) -> Floats:
    """Return D_{p,1}(x) / D_{p,2^p}(x) at positive x: a law's density over that of twice the variable.

    For p ≤ 1 from the table that the library's accounting rests on, for 1 < p < 2 from :func:`density`.
    """
    if p > 1:
        return np.asarray(density(p, x) / (density(p, x / 2) / 2))
    shift = p * math.log(2)
    one, two = stable_table(p, reach=shift), stable_table(p, shift=shift, reach=shift)
    # Both are densities of p·ln|X|, with the same factor to that of X.
    loss = np.log(one.density) - np.log(two.density)
    return np.asarray(np.exp(np.interp(p * np.log(x), one.points, loss)))


def density(p: float, x: Floats) -> Floats:
    """Return the density of the standard symmetric law, 1 < p < 2, at positive x.

    Zolotarev's integral, f(x) = p·x^{1/(p−1)}/(π(p−1)) · ∫ V·exp(−x^{p/(p−1)}·V) dθ over (0, π/2) with
    V = (cos θ/sin pθ)^{p/(p−1)}·cos((p−1)θ)/cos θ. In z = logit(2θ/π) the integrand is smooth and falls off
    exponentially on both sides, so equal steps are enough.
    """
    step = 0.002
    z = np.arange(-60, 60, step)
    angle, rest = (math.pi / 2) / (1 + np.exp(-z)), (math.pi / 2) / (1 + np.exp(z))
    power = p / (p - 1)
    log_v = power * (np.log(np.sin(rest)) - np.log(np.sin(p * angle))) + np.log(np.cos((p - 1) * angle) / np.sin(rest))
    weights = angle * rest * (2 / math.pi) * step
    found = np.empty(len(x))
    for i, log_x in enumerate(np.log(x)):
        exponent = power * log_x + log_v
        # x^{1/(p−1)}·V is e^exponent/x.
        found[i] = np.sum(weights * np.exp(exponent - np.exp(np.minimum(exponent, 50.0)))) / math.exp(log_x)
    return found * p / (math.pi * (p - 1))


def monotone_parts(values: Floats) -> int:
    """Return into how many rising and falling parts a curve falls; steps within rounding of each other are level.

    Examples
    --------
    >>> monotone_parts(np.array([2.0, 1.0, 0.5, 0.75, 0.75, 0.6]))
    3
    """
    steps = np.diff(np.log(values))
    signs = np.sign(steps[np.abs(steps) > 1e-9])
    return 1 + int(np.count_nonzero(signs[1:] != signs[:-1]))
