"""The exact privacy loss of a moment sketch.

A moment sketch has ``size`` independent coordinates of a p-stable law whose scale ζ (F_p plus a floor) changes by a
factor of at most ``ratio`` between neighbours. In t = p·ln|X| that is a shift by at most s = ln(ratio) of a log-concave
law (:mod:`dpsketch.accounting.stable`), so the full shift dominates every smaller one, and the loss
ℓ(t) = ln f(t) − ln f(t−s) falls from s/p to −s. Here the distribution of the sum of ``size`` such losses is computed,
in both directions.

**Rounding.** Every step moves the result towards less privacy. A cell of t is replaced by two points at the losses of
its ends, with weights that keep its mass under both laws: the cell is a post-processing of that pair, so the pair
dominates it. The points are moved to a grid of losses in the same way (Doroshenko et al. 2022, "connect the dots").
Tails, what a Chernoff bound allows outside the window of the convolution, and a bound on the Fourier transform's
floating-point error all count as an infinite loss.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpsketch.accounting.stable import LARGEST_BELOW_ONE, SMALLEST_P, stable_information, stable_table
from dpsketch.accounting.twopoint import GridLoss, on_grid
from dpsketch.arrays import Floats

__all__ = ["exact_moment_epsilon", "has_exact_loss", "moment_losses"]

_STEPS = 200
"""The grid has so many steps in the standard deviation of one coordinate's loss."""
_WINDOW_TAIL = 1e-16
_CELL_ERROR = 2.0**-43
"""Relative error allowed for the masses of a cell; what :func:`stable_table` reaches is a hundredth of it."""


def has_exact_loss(p: float, ratio: float) -> bool:
    """Say whether the loss can be computed for this p and this ratio of scales."""
    return (SMALLEST_P <= p <= LARGEST_BELOW_ONE or p == 1) and 1e-9 < math.log(ratio) < 20


@lru_cache(maxsize=8)
def moment_losses(p: float, size: int, ratio: float) -> tuple[GridLoss, GridLoss]:
    """Return the loss of the smaller scale against the larger, and of the larger against the smaller.

    Parameters
    ----------
    p, size, ratio
        The sketch: exponent, coordinates, largest ratio of the scales of two neighbours.
    """
    shift = math.log(ratio)
    small, large = stable_table(p, reach=shift), stable_table(p, shift=shift, reach=shift)
    loss = np.log(small.density) - np.log(large.density)
    mass, other = _cell_masses(small.below, small.above), _cell_masses(large.below, large.above)
    step = shift * math.sqrt(stable_information(p)) / _STEPS
    # Both are written with losses that increase: the first by going through t from the right.
    tails = float(small.above[-1]), float(small.below[0])
    falling = _split_cells(loss[::-1], mass[::-1], other[::-1], tails, shift / p)
    tails = float(large.below[0]), float(large.above[-1])
    rising = _split_cells(-loss, other, mass, tails, shift)
    # A transform of a probability vector is wrong by a few ulp a coefficient, its power by `size` times that.
    error = 2 * _WINDOW_TAIL + (size + 64) * 2.0**-48
    return _power(on_grid(*falling, step), size, error), _power(on_grid(*rising, step), size, error)


def exact_moment_epsilon(p: float, size: int, ratio: float, delta: float) -> float:
    """Return the ε of a moment sketch at δ; infinite where δ is too small for the computation to tell.

    Examples
    --------
    >>> n, most = 2**15, 16
    >>> ratio = ((n - 1) ** 0.5 + most**0.5) / n**0.5
    >>> round(exact_moment_epsilon(0.5, 50, ratio, 1e-6), 3)
    0.557
    """
    return max(_epsilon(loss, delta) for loss in moment_losses(p, size, ratio))


def _delta(loss: GridLoss, epsilon: float) -> float:
    """Return the mean of (1 − e^(ε − loss)) over the losses above ε."""
    values = (loss.start + np.arange(len(loss.mass))) * loss.interval
    worse = values > epsilon
    return min(1.0, loss.infinity - float(np.dot(loss.mass[worse], np.expm1(epsilon - values[worse]))))


def _epsilon(loss: GridLoss, delta: float) -> float:
    """Return the smallest ε ≥ 0 with δ(ε) ≤ ``delta``."""
    if delta <= loss.infinity:
        return math.inf
    if _delta(loss, 0.0) <= delta:
        return 0.0
    low, high = max(0, -loss.start), len(loss.mass)
    guess = _guess(loss, low, delta)
    while high - low > 1:
        middle = min(max(guess, low + 1), high - 1)
        if _delta(loss, (loss.start + middle) * loss.interval) <= delta:
            high, guess = middle, middle - 1
        else:
            low, guess = middle, middle + 1
    # The root lies between this loss and the next, where only losses from the next on count.
    upper = loss.mass[low + 1 :]
    decayed = float(np.dot(upper, np.exp(-loss.interval * np.arange(1, len(upper) + 1))))
    above = loss.infinity + float(np.sum(upper)) - delta
    return max(0.0, (loss.start + low) * loss.interval + math.log(above / decayed))


def _guess(loss: GridLoss, first: int, delta: float) -> int:
    """Return about where δ falls to ``delta``, from differences of sums that lose some digits but cost one pass."""
    values = (loss.start + np.arange(first, len(loss.mass))) * loss.interval
    shrunk = np.exp(-np.minimum(values, 700.0))
    above = np.cumsum(loss.mass[first:][::-1])[::-1]
    other = np.cumsum((loss.mass[first:] * shrunk)[::-1])[::-1]
    return first + int(np.count_nonzero(loss.infinity + above - other / shrunk > delta)) - 1


def _cell_masses(below: Floats, above: Floats) -> Floats:
    """Return the masses between neighbouring points, from whichever tail keeps its precision."""
    return np.maximum(np.where(below[1:] < 0.5, np.diff(below), -np.diff(above)), 0.0)


def _split_cells(
    loss: Floats, mass: Floats, other: Floats, tails: tuple[float, float], largest: float
) -> tuple[Floats, Floats]:
    """Return points that dominate one coordinate's loss, with their weights.

    ``loss`` increases; ``mass`` and ``other`` are the cells' masses under the law that the loss is taken under and
    under the other one; ``tails`` are the masses below the first point and above the last.
    """
    loss = np.minimum(np.maximum.accumulate(loss), largest)
    width = -np.expm1(loss[:-1] - loss[1:])
    raised = mass - np.exp(loss[:-1]) * other + _CELL_ERROR * mass
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where((width > 0) & (raised < width * mass), np.maximum(raised / width, 0.0), mass)
    weights = np.zeros(len(loss) + 1)
    weights[1:-1] += share
    weights[:-2] += mass - share
    weights[0] += tails[0]
    weights[-1] += tails[1]
    return np.append(loss, largest), weights


def _power(single: GridLoss, size: int, error: float) -> GridLoss:
    """Return the distribution of the sum of ``size`` independent losses."""
    low, high = _window(single, size)
    start = max(size * single.start, math.floor(low / single.interval))
    stop = min(size * (single.start + len(single.mass) - 1), math.ceil(high / single.interval))
    length = 1 << (stop - start + 1).bit_length()
    folded = np.bincount(np.arange(len(single.mass)) % length, single.mass, minlength=length)
    total = np.maximum(np.fft.irfft(np.fft.rfft(folded) ** size, length), 0.0)
    # Entry i of the transform stands for the loss (size·start + i)·interval, up to multiples of its length.
    total = np.roll(total, (size * single.start - start) % length)[: stop - start + 1]
    return GridLoss(single.interval, start, total, size * single.infinity + error)


def _window(single: GridLoss, size: int) -> tuple[float, float]:
    """Return ends that the sum of ``size`` losses passes with probability at most 1e-16 each (Chernoff)."""
    losses = (single.start + np.arange(len(single.mass))) * single.interval
    mean = float(np.dot(losses, single.mass))
    spread = math.sqrt(float(np.dot((losses - mean) ** 2, single.mass)))
    reaches = []
    for side in (1.0, -1.0):
        best = math.inf
        for tilt in np.geomspace(1, 60, 24) / (spread * math.sqrt(size)):
            exponents = tilt * side * (losses - mean)
            if exponents.max() < 700:
                growth = math.log(float(np.dot(np.exp(exponents), single.mass)))
                best = min(best, (size * growth - math.log(_WINDOW_TAIL)) / float(tilt))
        reaches.append(best)
    return size * mean - reaches[1], size * mean + reaches[0]
