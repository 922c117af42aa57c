"""Composition by Rényi divergences: the way that takes every kind of cost, generic ρ included.

At each order α > 1 the divergences of the releases add. The sum is turned into (ε, δ) by

    ε = R(α) + ln(1 − 1/α) − (ln δ + ln α)/(α − 1)

(Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy", Proposition 12). Every order gives
a valid bound, so the search over orders needs no care to be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsketch.accounting.moment import moment_rho
from dpsketch.accounting.tally import Tally
from dpsketch.accounting.twopoint import pure_rho, two_point_renyi
from dpsketch.arrays import Floats

__all__ = ["renyi_epsilon", "tally_rho"]


# Covers rounding in the sums over orders, with room to spare.
_ROOM = 1e-9


def tally_rho(tally: Tally) -> float | None:
    """Return the total ρ; None where a cost has none, because its loss is unbounded with some δ."""
    if tally.approximate:
        return None
    return math.fsum(
        [float(tally.mu_squared / 2), tally.rho]
        + [count * pure_rho(epsilon) for epsilon, count in tally.pure.items()]
        + [count * moment_rho(cost.p, cost.size, cost.ratio) for cost, count in tally.moments.items()]
    )


def renyi_epsilon(tally: Tally, delta: float) -> float:
    """Return an ε that holds at δ; infinite where the approximate costs' own δ leave nothing."""
    rest = delta - tally.failure
    if rest <= 0:
        return math.inf

    def bound(alpha: Floats) -> Floats:
        return _curve(tally, alpha) + np.log1p(-1 / alpha) - (math.log(rest) + np.log(alpha)) / (alpha - 1)

    return max(0.0, _least(bound) * (1 + _ROOM))


def _least(bound: Callable[[Floats], Floats]) -> float:
    """Return the smallest value of a bound over orders: a wide grid first, then a fine one around its best point."""
    grid = np.linspace(math.log(1e-6), math.log(1e9), 400)
    best = math.inf
    for _ in range(3):
        with np.errstate(over="ignore"):  # a forged file may state any ε: its bound is infinite, and the file refused
            values = bound(1 + np.exp(grid))
        index = int(np.nanargmin(values))
        best = min(best, float(values[index]))
        grid = np.linspace(grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)], 60)
    return best


def _curve(tally: Tally, alpha: Floats) -> Floats:
    """Return the summed Rényi divergence at each order."""
    total = alpha * (float(tally.mu_squared / 2) + tally.rho)
    for epsilon, count in tally.pure.items():
        total = total + count * two_point_renyi(alpha, epsilon, epsilon)
    for (epsilon, _), count in tally.approximate.items():
        total = total + count * two_point_renyi(alpha, epsilon, epsilon)
    for cost, count in tally.moments.items():
        shift = math.log(cost.ratio)
        worst = np.maximum(two_point_renyi(alpha, shift / cost.p, shift), two_point_renyi(alpha, shift, shift / cost.p))
        total = total + count * cost.size * worst
    return total
