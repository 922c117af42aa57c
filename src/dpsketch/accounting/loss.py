"""Composition by privacy loss distributions: the law of ln(P/Q) under P, which adds when releases compose.

Bounded losses are replaced by their two-point pair (:mod:`dpsketch.accounting.twopoint`). Where these have few enough
atoms together, the sum is exact. Everything else is put on a grid, pessimistically, and composed by dp-accounting.

Two habits of that library are avoided. Its accountant ignores how often randomised response is used: losses are
composed here count by count, and never through its events. It doubles a Gaussian's sensitivity when records are
replaced: our μ already says what the relation does, so each is built as the library's add/remove pair.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsketch.accounting.gaussian import exact_root, round_up
from dpsketch.accounting.moment import moment_pld
from dpsketch.accounting.renyi import tally_rho
from dpsketch.accounting.tally import Tally
from dpsketch.accounting.twopoint import GridLoss, on_grid, two_point_atoms
from dpsketch.arrays import Floats

__all__ = ["ROOM", "Atoms", "composed_loss", "grid_epsilon", "transform_error"]


# Exact sums are made of at most so many atoms, and used down to this δ.
_MOST_ATOMS = 50_000
_LEAST_EXACT = 1e-250
# Covers the rounding of probabilities, which is relative and far smaller.
ROOM = 1e-9
_LEAST_ON_GRID = 1e-9
# The grid has so many steps in one standard deviation of the composed loss.
_STEPS = 1000
# Below the first deviation the library's differences of normal probabilities lose their digits; above the second, where
# ε is in the hundreds, its exponentials overflow.
_LEAST_DEVIATION = 1e-4
_MOST_DEVIATION = 25.0
# A Gaussian part below this, far below that of any release, has a standard deviation whose square overflows.
_LEAST_MU_SQUARED = 1e-200


@dataclass(frozen=True, slots=True)
class Atoms:
    """The exact loss distribution of pure and approximate costs.

    Attributes
    ----------
    loss, mass : numpy.ndarray
        The positive losses, and their probabilities under P where no cost fails.
    infinity : float
        The probability that an approximate cost fails.
    """

    loss: Floats
    mass: Floats
    infinity: float

    @classmethod
    def of(cls, tally: Tally) -> Atoms | None:
        """Build the distribution; None where it has too many atoms or other kinds of cost are present."""
        pairs = _pairs(tally)
        if not tally.bounded or tally.moments or math.prod(count + 1 for count in pairs.values()) > _MOST_ATOMS:
            return None
        loss, mass = np.zeros(1), np.ones(1)
        for epsilon, count in pairs.items():
            losses, masses = two_point_atoms(epsilon, epsilon, count)
            loss = np.add.outer(loss, losses).ravel()
            mass = np.multiply.outer(mass, masses).ravel()
        # Only losses above ε ≥ 0 count towards δ(ε).
        return cls(loss[loss > 0], mass[loss > 0], _failure(tally))

    def delta(self, epsilon: float) -> float:
        """Return δ(ε), a billionth above its value."""
        above = self.loss > epsilon
        gap = -np.expm1(epsilon - self.loss[above])
        return self.infinity + (1 - self.infinity) * float(gap @ self.mass[above]) * (1 + ROOM)

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε with δ(ε) ≤ ``delta``; infinite where there is none or δ is too small to tell."""
        if delta < max(self.infinity, _LEAST_EXACT):
            return math.inf
        low, high = 0.0, float(self.loss.max(initial=0.0))
        if self.delta(low) <= delta:
            return low
        while (middle := (low + high) / 2) not in (low, high):
            if self.delta(middle) <= delta:
                high = middle
            else:
                low = middle
        return high


def grid_epsilon(tally: Tally, delta: float) -> float:
    """Return ε at δ by dp-accounting; infinite where a grid cannot tell."""
    rest = (delta - transform_error(tally)) / (1 + ROOM)
    pld = composed_loss(tally) if delta >= _LEAST_ON_GRID and rest > 0 else None
    return math.inf if pld is None else float(pld.get_epsilon_for_delta(rest)) * (1 + ROOM)


def transform_error(tally: Tally) -> float:
    """Return more than the convolutions by FFT can be wrong by: each by about 1e-15, over all its points together."""
    return 1e-12 + 1e-14 * (len(tally.pure) + len(tally.approximate) + len(tally.moments))


def _pairs(tally: Tally) -> dict[float, int]:
    """Return how often each randomised response occurs, those inside approximate costs included."""
    pairs = Counter(tally.pure)
    for (epsilon, _), count in tally.approximate.items():
        pairs[epsilon] += count
    pairs.pop(0.0, None)
    return dict(pairs)


def _failure(tally: Tally) -> float:
    """Return the probability that at least one approximate cost fails."""
    if any(delta == 1 for _, delta in tally.approximate):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-delta) for (_, delta), count in tally.approximate.items()))


def _deviation(tally: Tally) -> float:
    """Return roughly the standard deviation of the composed loss."""
    pairs = _pairs(tally)
    rest = Tally(tally.mu_squared, tally.rho, pairs, {}, tally.moments)
    return math.sqrt(2 * (tally_rho(rest) or 0.0))


def composed_loss(tally: Tally) -> Any:
    """Return dp-accounting's distribution of the whole history, or None where a grid is of no use."""
    deviation = _deviation(tally)
    if tally.rho or not _LEAST_DEVIATION < deviation < _MOST_DEVIATION or 0 < tally.mu_squared < _LEAST_MU_SQUARED:
        return None
    from dp_accounting.pld import privacy_loss_distribution as library

    interval = deviation / _STEPS
    parts = [
        _library(on_grid(*two_point_atoms(epsilon, epsilon, count), interval))
        for epsilon, count in _pairs(tally).items()
    ]
    for cost, count in tally.moments.items():
        parts.append(_either_way(*moment_pld(cost.p, cost.size, cost.ratio, interval)).self_compose(count))
    if tally.mu_squared:
        deviation = math.nextafter(1 / round_up(exact_root(tally.mu_squared)), 0.0)
        parts.append(library.from_gaussian_mechanism(deviation, value_discretization_interval=interval))
    failure = _failure(tally)
    if failure:
        parts.append(_library(GridLoss(interval, 0, np.full(1, 1 - failure), failure)))
    while len(parts) > 1:
        # Pairwise, so that many small distributions stay small for as long as they can.
        joined = [one.compose(other, 1e-16) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[2 * len(joined) :]
    return parts[0]


def _library(loss: GridLoss) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as library

    points = range(loss.start, loss.start + len(loss.mass))
    return library.PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(points, loss.mass.tolist(), strict=True)), loss.infinity, loss.interval
    )


def _either_way(one: GridLoss, other: GridLoss) -> Any:
    """Return a distribution that dominates both.

    Which of the two moments is the larger one may differ from release to release (a value can be taken away, or
    replaced), so that composing each direction with itself would not do. The larger of two δ(ε) is convex, hence the
    δ(ε) of some pair of laws.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library

    start = min(one.start, other.start)
    stop = max(one.start + len(one.mass), other.start + len(other.mass))
    deltas = np.maximum(_profile(one, start, stop), _profile(other, start, stop))
    return library.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(one.interval, start, stop - 1, np.minimum(deltas, 1.0))
    )


def _profile(loss: GridLoss, start: int, stop: int) -> Floats:
    """Return δ(ε) at the grid points from ``start`` to ``stop`` − 1, as a sum of positive terms only."""
    from scipy.signal import lfilter

    mass = np.zeros(stop - start)
    mass[loss.start - start : loss.start - start + len(loss.mass)] = loss.mass
    # From right to left: what lies above a point, each part shrunk by e^−(its distance), times 1 − e^−step, adds to δ.
    shrink = math.exp(-loss.interval)
    above = lfilter([1.0], [1.0, -shrink], mass[::-1])
    sums = np.concatenate([[0.0], np.cumsum(above[:-1])])
    return np.asarray(loss.infinity - math.expm1(-loss.interval) * sums[::-1])
