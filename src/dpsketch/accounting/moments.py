"""The privacy loss of a moment sketch: a bound for every p, and its exact law where that can be computed.

**The law.** X has the characteristic function exp(−ζ|u|^p), 0 < p ≤ 1. Then |X|^p is ζ times a fixed law, so
t = p·ln|X| is a fixed law moved by ln ζ. That fixed law is log-concave: X is a normal variable times the root of a
positive p/2-stable one, the logarithm of each is log-concave (Simon 2011, "Multiplicative strong unimodality for
positive stable laws", for an index of at most ½), and sums of independent log-concave variables are log-concave. The
ratio of two shifted densities is therefore monotone in t, on which everything here rests.

*Computation.* Chambers, Mallows and Stuck's representation reads, for θ uniform in (0, π/2) and W exponential,

    t = Y(θ) − (1−p)·ln W,   Y(θ) = p·ln sin(pθ) + (1−p)·ln cos((1−p)θ) − ln cos θ.

Y is increasing, so its law has the distribution function (2/π)·θ(y) and the density (2/π)/Y'(θ), and t adds a Gumbel
variable of scale 1−p. Both are analytic, so the convolution is a sum over a uniform grid whose error falls
exponentially with its step; all terms are positive, so it keeps its relative precision in the tails (about 1e-14).

**The bound.** A moment sketch has ``size`` independent coordinates of such a law, whose scale ζ (F_p plus a floor)
changes by a factor of at most ``ratio`` between neighbours: a shift of t by at most s = ln(ratio). The density of t
grows like e^{t/p} on the left and falls like e^−t on the right, and is log-concave, so that a coordinate's loss stays
between −s and s/p, and both ends are approached in the tails.

**The exact law.** The full shift dominates every smaller one, and the loss ℓ(t) = ln f(t) − ln f(t−s) falls from s/p
to −s. The distribution of the sum of ``size`` such losses is computed in both directions.

*Rounding.* Every step moves the result towards less privacy. A cell of t is replaced by two points at the losses of
its ends, with weights that keep its mass under both laws: the cell is a post-processing of that pair, so the pair
dominates it. The points are moved to a grid of losses in the same way (Doroshenko et al. 2022, "connect the dots").
Tails, what a Chernoff bound allows outside the window of the convolution, and a bound on the Fourier transform's
floating-point error all count as an infinite loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsketch.accounting.twopoint import GridLoss, on_grid, pure_rho, two_point_atoms
from dpsketch.arrays import Floats

__all__ = [
    "LARGEST_BELOW_ONE", "SMALLEST_P", "StableTable", "exact_moment_epsilon", "has_exact_loss", "moment_epsilon",
    "moment_losses", "moment_pld", "moment_rho", "stable_information", "stable_table",
]  # fmt: skip

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


def moment_epsilon(p: float, size: int, ratio: float) -> float:
    """Return the largest loss: (size/p)·ln(ratio), which the tails approach."""
    return size / p * math.log(ratio)


def moment_rho(p: float, size: int, ratio: float) -> float:
    """Return a ρ: a coordinate's loss spans η = (1+1/p)·ln(ratio), and a span of η is η²/8-zCDP.

    For the η²/8 see Cesar and Rogers 2021, "Bounding, concentrating, and truncating", and Dong, Durfee and Rogers 2020,
    "Optimal differential privacy composition for exponential mechanisms".
    """
    shift = math.log(ratio)
    return size * min(((1 + 1 / p) * shift) ** 2 / 8, pure_rho(shift / p))


def moment_pld(p: float, size: int, ratio: float, interval: float) -> tuple[GridLoss, GridLoss]:
    """Return the sketch's loss on a grid, when the moment is the smaller one, and when it is the larger one.

    Where the exact law cannot be computed, a coordinate's two extreme losses stand for it: the two-point pair with
    these dominates it.
    """
    if has_exact_loss(p, ratio):
        smaller_exact, larger_exact = moment_losses(p, size, ratio)
        return _regrid(smaller_exact, interval), _regrid(larger_exact, interval)
    shift = math.log(ratio)
    smaller = two_point_atoms(shift / p, shift, size)
    larger = two_point_atoms(shift, shift / p, size)
    return on_grid(*smaller, interval), on_grid(*larger, interval)


def _regrid(loss: GridLoss, interval: float) -> GridLoss:
    losses = (loss.start + np.arange(len(loss.mass), dtype=np.float64)) * loss.interval
    moved = on_grid(losses, loss.mass, interval)
    return GridLoss(interval, moved.start, moved.mass, loss.infinity + moved.infinity)
