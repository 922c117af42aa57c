"""Losses with two values: the worst pair of laws behind every mechanism with a bounded privacy loss.

Let the loss ln(P/Q) stay between −``down`` and ``up``. Under Q the ratio P/Q has mean 1 and a bounded range, and the
expectation of a convex function of it is largest when all mass sits at the two ends. Every δ(ε) and every Rényi
divergence is such an expectation. So the pair whose loss is ``up`` with probability

    (1 − e^−down) / (1 − e^−(up+down))    under P, and −``down`` otherwise,

dominates all others. With up = down = ε it is randomised response, as in Kairouz, Oh and Viswanath 2015, "The
composition theorem for differential privacy".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsketch.arrays import Floats

__all__ = ["GridLoss", "on_grid", "pure_rho", "two_point_atoms", "two_point_renyi"]


@dataclass(frozen=True, slots=True)
class GridLoss:
    """A privacy loss distribution on multiples of ``interval``.

    Attributes
    ----------
    interval : float
        The grid's step.
    start : int
        The first grid point that has mass, in steps.
    mass : numpy.ndarray
        The probability, under P, of the loss at each grid point from ``start`` on.
    infinity : float
        The probability that the loss is without bound.
    """

    interval: float
    start: int
    mass: Floats
    infinity: float


def pure_rho(epsilon: float) -> float:
    """Return the ρ of an ε-private mechanism: ε·tanh(ε/2), which is at most ε²/2 and at most ε.

    Randomised response is the worst such mechanism. Its Rényi divergence is ln(cosh((α−½)ε)/cosh(ε/2))/(α−1). Against
    u² with u = α − ½, the slope of ln cosh(uε) is ε·tanh(uε)/(2u), which falls with u and is ε·tanh(ε/2) at u = ½. As
    α(α−1) = u² − ¼, the divergence is at most α·ε·tanh(ε/2), with equality as α → 1.
    """
    return epsilon * math.tanh(epsilon / 2)


def two_point_renyi(alpha: Floats, up: float, down: float) -> Floats:
    """Return the pair's Rényi divergence at each order."""
    if up + down < 1e-3:
        # A span of η is η²/8-zCDP. That is within a millionth here, where the formula below starts to cancel.
        return alpha * (up + down) ** 2 / 8
    weight = math.expm1(-down) / math.expm1(-(up + down))
    log_other = -down + math.log(math.expm1(-up) / math.expm1(-(up + down)))
    order = alpha - 1
    high = np.logaddexp(math.log(weight) + order * up, log_other - order * down)
    low = np.log1p(weight * np.expm1(np.minimum(order * up, 1.0)) + math.exp(log_other) * np.expm1(-order * down))
    return np.asarray(np.where(order * up < 1.0, low, high) / order)


def two_point_atoms(up: float, down: float, count: int) -> tuple[Floats, Floats]:
    """Return the losses of ``count`` copies of the pair, ascending, with their probabilities under P.

    The probabilities are binomial. They are found from their successive ratios, away from the mode on both sides, so
    that rounding stays near 1e-13 wherever they matter.
    """
    log_odds = math.log(math.expm1(-down) / math.expm1(-up)) + down
    weight = math.expm1(-down) / math.expm1(-(up + down))
    mode = min(count, int((count + 1) * weight))
    steps = np.arange(count, dtype=np.float64)
    ratios = np.log((count - steps) / (steps + 1)) + log_odds
    logs = np.concatenate([-np.cumsum(ratios[:mode][::-1])[::-1], [0.0], np.cumsum(ratios[mode:])])
    mass = np.exp(logs)
    ups = np.arange(count + 1, dtype=np.float64)
    return ups * up - (count - ups) * down, mass / math.fsum(mass)


def on_grid(loss: Floats, mass: Floats, interval: float) -> GridLoss:
    """Put atoms on a grid so that no δ(ε) shrinks.

    Each atom is divided between its two neighbours such that its mass under P and its mass under Q both stay what they
    were: the "connect the dots" rule of Doroshenko et al. 2022. Tails of less than 1e-18 are moved up, on the right to
    infinity.
    """
    tail = 1e-18
    low = int(np.searchsorted(np.cumsum(mass), tail))
    high = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), tail))
    lost = float(mass[high:].sum())
    kept = mass[low:high].copy()
    kept[0] += mass[:low].sum()
    loss = loss[low:high]
    below = np.floor(loss / interval)
    upper = np.clip(np.expm1(below * interval - loss) / math.expm1(-interval), 0.0, 1.0) * kept
    index = below.astype(np.int64)
    start = int(index[0])
    length = int(index[-1]) - start + 2
    out = np.zeros(length)
    np.add.at(out, index - start, kept - upper)
    np.add.at(out, index - start + 1, upper)
    return GridLoss(interval, start, out, lost)
