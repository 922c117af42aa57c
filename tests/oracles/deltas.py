"""What a history of costs comes to as a δ at an ε: the same bounds as ``compose``, seen from the other side.

The library states ε at a δ only. Simulations and closed forms of tests are compared with δ at an ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpsketch.accounting import composition, moments
from dpsketch.accounting.composition import _SLACK, ROOM, Atoms, Costs, Tally, composed_loss, transform_error
from dpsketch.accounting.gaussian import exact_delta, exact_root, round_up
from dpsketch.accounting.moments import has_exact_loss, stable_information, stable_table
from dpsketch.accounting.twopoint import GridLoss
from dpsketch.arrays import Floats

__all__ = ["composed_delta", "exact_moment_delta", "grid_delta", "least_moment_epsilon", "renyi_delta"]


def composed_delta(costs: Costs, *, epsilon: float) -> float:
    """Return the total δ of a history at this ε, rounded up."""
    return min(_deltas(Tally.of(costs), epsilon), default=1.0)


def _deltas(tally: Tally, epsilon: float) -> Iterator[float]:
    """Yield every bound on δ at ε that applies."""
    if not tally.finite:
        return
    if tally.only_gaussian:
        yield _gaussian_delta(tally, epsilon)
        return
    rest = epsilon * (1 + _SLACK) - tally.bounded_epsilon
    if rest >= 0:
        if tally.bounded:
            yield min(1.0, tally.failure)
        elif not tally.rho:
            yield min(1.0, tally.failure + _gaussian_delta(tally, rest))
        else:
            yield min(1.0, tally.failure + renyi_delta(tally.concentrated, rest))
    yield renyi_delta(tally, epsilon)
    if (lone := tally.lone_moment) is not None and has_exact_loss(lone.p, lone.ratio):
        yield exact_moment_delta(lone.p, lone.size, lone.ratio, epsilon)
        return
    atoms = Atoms.of(tally)
    yield grid_delta(tally, epsilon) if atoms is None else atoms.delta(epsilon)


def _gaussian_delta(tally: Tally, epsilon: float) -> float:
    return round_up(exact_delta(epsilon, exact_root(tally.mu_squared))) if tally.mu_squared else 0.0


def grid_delta(tally: Tally, epsilon: float) -> float:
    """Return δ at ε by dp-accounting; 1 where a grid cannot tell."""
    pld = composed_loss(tally)
    if pld is None:
        return 1.0
    return min(1.0, float(pld.get_delta_for_epsilon(epsilon)) * (1 + ROOM) + transform_error(tally))


def renyi_delta(tally: Tally, epsilon: float) -> float:
    """Return a δ that holds at ε."""

    def bound(alpha: Floats) -> Floats:
        return (alpha - 1) * (composition._curve(tally, alpha) - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)

    exponent = composition._least(bound)
    return min(1.0, tally.failure + math.exp(min(0.0, exponent + ROOM * (1 + abs(exponent)))))


def exact_moment_delta(p: float, size: int, ratio: float, epsilon: float) -> float:
    """Return the δ of a moment sketch at ε."""
    return max(moments._delta(loss, epsilon) for loss in moments.moment_losses(p, size, ratio))


def least_moment_epsilon(p: float, size: int, ratio: float, delta: float) -> float:
    """Return an ε below that of a moment sketch at δ.

    Every step moves the result towards more privacy: cells are merged, which is a post-processing, and losses are
    floored. With the library's, which rounds up, it brackets the truth.
    """
    shift = math.log(ratio)
    small, large = stable_table(p, reach=shift), stable_table(p, shift=shift, reach=shift)
    loss = np.log(small.density) - np.log(large.density)
    mass, other = (moments._cell_masses(each.below, each.above) for each in (small, large))
    spread = shift * math.sqrt(stable_information(p))
    step = min(spread / 200, 0.04 * spread / math.sqrt(size))
    falling = _merged_cells(loss[::-1], mass[::-1], other[::-1], float(small.below[0]))
    rising = _merged_cells(-loss, other, mass, float(large.above[-1]))
    sums = (moments._power(_floored(*each, step), size, 0.0) for each in (falling, rising))
    return max(moments._epsilon(each, delta) for each in sums)


def _merged_cells(loss: Floats, mass: Floats, other: Floats, last: float) -> tuple[Floats, Floats]:
    """Return points that one coordinate's loss dominates, with their weights; the lower tail is left out."""
    with np.errstate(divide="ignore", invalid="ignore"):
        merged = np.where(other > 0, np.log(mass / other), loss[:-1])
    return np.append(np.clip(merged, loss[:-1], loss[1:]), loss[-1]), np.append(mass, last)


def _floored(loss: Floats, mass: Floats, step: float) -> GridLoss:
    index = np.floor(loss / step).astype(np.int64)
    start = int(index.min())
    return GridLoss(step, start, np.bincount(index - start, mass).astype(np.float64), 0.0)
