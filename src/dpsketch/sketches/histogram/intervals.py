"""What a published count says about the true one: intervals and posterior means.

A count that was listed *because* its noise carried it to the cutoff is no ordinary noisy count: the lower the true
one, the more its noise must have been upwards. :func:`selective` conditions on that. Counts with noise of their own,
of a public list or of a second stage, need no such care (:func:`ordinary`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import assert_never

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.distributions import upper_quantile, widening
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.histogram.calibration import least_whole
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = [
    "either_side", "half_width", "highest", "least_listed", "log_reaching", "lowest", "mean_beyond", "misfit",
    "most_missed", "ordinary",
    "posterior_is_cheap", "posterior_means", "prior_exponent", "selective", "sum_width",
]  # fmt: skip


# Limits are compared in logarithms, and where rounding could decide, the interval is the wider one.
_ROUNDING = 1e-9
# The posterior is summed over cells of a sixty-fourth of the noise's standard deviation, or of single counts. Beyond
# this many standard deviations above the cutoff the prior is straight within the noise, and has a closed form.
_CELLS = 64
_NEAR = 40
_EXPONENTS = (1.01, 6.0)
# A cutoff needs no more cells than this unless it is far higher than its noise asks for, as nobody's but a forger's is.
_MOST_CELLS = 1 << 13


def log_reaching(law: Law, values: npt.ArrayLike) -> Floats:
    """Return ln P(Z ≥ z) for whole numbers z.

    Examples
    --------
    >>> log_reaching(DiscreteLaplace(1.0, 1), [1, 0]).round(4).tolist()
    [-1.3133, -0.3133]
    """
    z = np.asarray(values, np.float64)
    match law:
        case RoundedGaussian(sigma):
            from scipy.special import log_ndtr

            found: Floats = log_ndtr((0.5 - z) / sigma)
            return found
        case DiscreteLaplace(epsilon, sensitivity):
            rate = epsilon / sensitivity
            return either_side(z, lambda upper: -rate * upper - math.log1p(math.exp(-rate)))
        case TruncatedLaplace(rate, bound):

            def upper_tail(upper: Floats) -> Floats:
                left = np.maximum(bound + 1 - upper, 0.0)
                with np.errstate(divide="ignore"):
                    found: Floats = np.log(-np.expm1(-rate * left)) - rate * upper - math.log(law.divisor)
                return found

            return either_side(z, upper_tail)
        case never:
            assert_never(never)


def selective(counts: Integers, law: Law, cutoff: int, tail: float) -> tuple[Integers, Integers]:
    """Return an interval for each true count, given that it was listed.

    Parameters
    ----------
    counts : array of int
        Noisy counts y, all at least ``cutoff``.
    law : Law
        Their noise.
    cutoff : int
        The least noisy count that is listed.
    tail : float
        How often each of the two limits may miss; 0.025 for 95 % intervals. For k intervals at once a k-th of that.

    Accuracy
    --------
    Every true count c ≥ 1 lies in its interval with probability at least 1 − 2·tail, given that it is listed. The
    interval holds the c for which P_c(Y ≥ y | Y ≥ T) and P_c(Y ≤ y | Y ≥ T) both exceed ``tail``: each is at or below
    it with probability at most ``tail``. Both are monotone in c, as the laws are log-concave. The noisy count itself
    is always in: it is added where y lies so close to the cutoff that every c would make it surprisingly low.

    Examples
    --------
    >>> low, high = selective(np.array([15, 17, 20, 25]), TruncatedLaplace(1.0, 14), 15, 0.025)
    >>> low.tolist(), high.tolist()
    ([1, 3, 17, 22], [17, 20, 23, 28])
    """
    distinct, place = np.unique(_listed(counts, cutoff), return_inverse=True)
    low = lowest(distinct, partial(log_reaching, law), cutoff, tail, least_listed(law, cutoff))
    return low[place], highest(distinct, law, cutoff, tail)[place]


def least_listed(law: Law, cutoff: int) -> int:
    """Return the least true count that can be listed."""
    return max(1, cutoff - law.bound) if isinstance(law, TruncatedLaplace) else 1


def most_missed(limits: int, tail: float) -> int:
    """Return how many of so many limits miss at most, with probability 1 − ``tail``, if each misses with ``tail``."""
    from scipy.special import bdtr

    return least_whole(lambda missed: float(bdtr(missed, limits, tail)) >= 1 - tail, 0) if limits else 0


def lowest(
    values: Integers, log_reaching: Callable[[Integers], Floats], cutoff: int | Integers, tail: float, least: int = 1
) -> Integers:
    """Return the least c ≥ ``least`` with P_c(Y ≥ y | Y ≥ T) above ``tail``, for each y; it is y at most.

    ``log_reaching`` is ln P(Z ≥ z) of the noise Z = Y − c.
    """
    log_tail = math.log(tail) - _ROUNDING

    def high_enough(c: Integers) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = log_reaching(values - c) - log_reaching(cutoff - c) > log_tail
        return found

    return _first(high_enough, np.full_like(values, least), values)


def highest(values: Integers, law: Law, cutoff: int | Integers, tail: float) -> Integers:
    """Return the largest c with P_c(Y ≤ y | Y ≥ T) above ``tail``, for each y; it is y at least."""
    most = math.exp(math.log(tail) - _ROUNDING)

    def too_high(c: Integers) -> npt.NDArray[np.bool_]:
        beyond = np.minimum(log_reaching(law, values + 1 - c) - log_reaching(law, cutoff - c), 0.0)
        found: npt.NDArray[np.bool_] = -np.expm1(beyond) <= most
        return found

    # From so far above y on, y is too low: the count reaches the cutoff with a probability of at least one half.
    return _first(too_high, values + 1, values + 1 + half_width(law, tail / 4)) - 1


def ordinary(counts: Integers, law: Law, tail: float) -> tuple[Integers, Integers]:
    """Return an interval for each true count that has noise of its own and no threshold; true counts are at least 0.

    Accuracy
    --------
    Each limit misses with probability at most ``tail``: it is the law's exact quantile away.

    Examples
    --------
    >>> low, high = ordinary(np.array([2, 30]), DiscreteLaplace(1.0, 1), 0.025)
    >>> low.tolist(), high.tolist()
    ([0, 27], [5, 33])
    """
    reach = half_width(law, tail)
    return np.maximum(counts - reach, 0), np.maximum(counts + reach, 0)


def mean_beyond(law: Law, values: npt.ArrayLike) -> Floats:
    """Return an upper bound on E[Z | Z ≥ z] for whole numbers z: what passing a threshold says of the noise.

    For z ≥ 1 discrete Laplace noise is memoryless, z + a/(1−a), and truncated noise is below that. For z ≤ 0 the part
    between z and −z cancels. A rounded Gaussian is within ½ of the Gaussian, whose mean beyond x is σ·φ/Φ.

    Examples
    --------
    >>> mean_beyond(DiscreteLaplace(1.0, 1), [14, -30]).round(3).tolist()
    [14.582, 0.0]
    """
    z = np.asarray(values, np.float64)
    if isinstance(law, RoundedGaussian):
        from scipy.special import erfcx

        x = (z - 0.5) / (law.sigma * math.sqrt(2))
        # Far below 0 erfcx overflows, and the mean is 0.
        with np.errstate(over="ignore"):
            found: Floats = law.sigma * math.sqrt(2 / math.pi) / erfcx(x) + 0.5
        return found
    rate = law.epsilon if isinstance(law, TruncatedLaplace) else law.epsilon / law.sensitivity
    beyond = np.where(z >= 1, z, 1 - z)
    mean = beyond - 1 / np.expm1(-rate) - 1
    shares = np.where(z >= 1, 0.0, log_reaching(law, beyond) - log_reaching(law, z))
    below: Floats = mean * np.exp(shares)
    return below


def prior_exponent(counts: Integers, law: Law, cutoff: int) -> float:
    """Return the s of a prior c^(−s) on true counts c ≥ 1 under which the listed ones are the likeliest."""
    from scipy.optimize import minimize_scalar

    cells = _PriorCells(law, cutoff)
    if not len(_listed(counts, cutoff)):
        raise InvalidInput("no count was listed, and nothing can be said of how they are distributed.")
    near, often = np.unique(counts[counts <= cells.last], return_counts=True)
    logs = math.fsum(np.log(counts[counts > cells.last]))

    def surprise(s: float) -> float:
        masses, centres = cells.prior(s)
        seen = math.fsum(often * np.interp(near, cells.middles, np.log(cells.smeared(masses)))) - s * logs
        return len(counts) * math.log(cells.listed(masses, centres, s)) - seen

    return float(minimize_scalar(surprise, bounds=_EXPONENTS, method="bounded", options={"xatol": 1e-3}).x)


def posterior_means(counts: Integers, law: Law, cutoff: int) -> Floats:
    """Return what each listed count is expected to be, under the prior of :func:`prior_exponent`.

    Accuracy
    --------
    Listed counts are too high on average, those near the cutoff the most. Means take that back: they serve sums, such
    as what all listed keys have together. For a single count they gain little.
    """
    counts = _listed(counts, cutoff)
    if not len(counts):
        return np.zeros(0)
    s = prior_exponent(counts, law, cutoff)
    cells = _PriorCells(law, cutoff)
    masses, centres = cells.prior(s)
    likely, weighed = cells.smeared(masses), cells.smeared(masses * centres)
    values = counts.astype(np.float64)
    means: Floats = values - s * law.variance / values
    near = counts <= cells.last
    means[near] = np.interp(values[near], cells.middles, weighed / likely)
    return means


def posterior_is_cheap(law: Law, cutoff: int) -> bool:
    """Say whether posterior means take little time and memory. A file may state any cutoff that keeps its promise."""
    return _PriorCells.number(law, cutoff) <= _MOST_CELLS


def misfit(counts: Integers, law: Law, cutoff: int) -> float:
    """Return how far the listed counts are from what the prior of :func:`prior_exponent` predicts of them.

    It is the largest difference between the share of listed counts up to a value and the share that is predicted, over
    all values (Kolmogorov's distance): public, as both are.
    """
    cells = _PriorCells(law, cutoff)
    s = prior_exponent(counts, law, cutoff)
    masses, centres = cells.prior(s)
    ends = cells.ends
    seen = np.searchsorted(np.sort(counts), ends, side="right") / len(counts)
    predicted = np.cumsum(np.where(ends >= cutoff, cells.smeared(masses), 0.0)) / cells.listed(masses, centres, s)
    return float(np.abs(seen - predicted)[ends <= cells.last].max())


class _PriorCells:
    """The true counts from 1 on in cells of equal width, up to where the noise sees the prior as straight."""

    def __init__(self, law: Law, cutoff: int) -> None:
        self._law, self._cutoff = law, cutoff
        width, self.last, below = self._shape(law, cutoff)
        self._width, self._size = width, self.number(law, cutoff)
        self.middles: Floats = np.arange(self._size, dtype=np.float64) * width + (width + 1) / 2
        offsets = np.arange(-below, self._size + 1) * width - (width - 1) // 2
        self._noise = -np.diff(np.exp(log_reaching(law, offsets)))
        self._below = below

    @staticmethod
    def _shape(law: Law, cutoff: int) -> tuple[int, int, int]:
        """Return the width of a cell, the last count of interest, and how many cells noise reaches down."""
        deviation = math.sqrt(law.variance)
        width = 2 * int(deviation / _CELLS / 2) + 1  # odd, so that a cell has a middle
        return width, cutoff + int(_NEAR * deviation) + 1, int(20 * deviation / width) + 2

    @classmethod
    def number(cls, law: Law, cutoff: int) -> int:
        """Return how many cells there are."""
        width, last, below = cls._shape(law, cutoff)
        return last // width + 1 + below

    @property
    def ends(self) -> Floats:
        """The largest count of each cell."""
        return self.middles + (self._width - 1) / 2

    def prior(self, s: float) -> tuple[Floats, Floats]:
        """Return what the prior c^(−s) gives each cell, and where its mass has its centre."""
        first = np.arange(1.0, self._width + 1)
        powers = first**-s
        masses: Floats = self._width * np.power(self.middles, -s)
        centres = self.middles.copy()
        masses[0] = powers.sum()
        centres[0] = (first * powers).sum() / masses[0]
        return masses, centres

    def smeared(self, masses: Floats) -> Floats:
        """Return the cells' masses with noise added."""
        return np.asarray(np.convolve(masses, self._noise)[self._below : self._below + self._size], np.float64)

    def listed(self, masses: Floats, centres: Floats, s: float) -> float:
        """Return the mass of all counts that are listed, those beyond the cells included."""
        from scipy.special import zeta

        reaching = np.exp(log_reaching(self._law, np.ceil(self._cutoff - centres)))
        return float((masses * reaching).sum() + zeta(s, self._size * self._width + 1))


def _listed(counts: Integers, cutoff: int) -> Integers:
    if len(counts) and counts.min() < cutoff:
        raise InvalidInput("a count below the cutoff was given: expected counts that were listed.")
    return counts


def either_side(z: Floats, upper: Callable[[Floats], Floats]) -> Floats:
    """Return ln P(Z ≥ z) of a symmetric law from that for z ≥ 1."""
    tail = upper(np.where(z >= 1, z, 1 - z))
    return np.where(z >= 1, tail, np.log1p(-np.exp(np.minimum(tail, 0.0))))


def half_width(law: Law, tail: float) -> int:
    """Return the least q with P(Z > q) ≤ ``tail``."""
    return least_whole(lambda q: float(log_reaching(law, q + 1)) <= math.log(tail), 0)


def sum_width(law: Law, counts: int, tail: float, *, beside: float = 0.0) -> int:
    """Return q so that the sum Z of the noise of so many counts has P(|Z| > q) ≤ 2·``tail``.

    ``beside`` is the variance of further noise in the sum.

    Accuracy
    --------
    The quantile of a normal law, with Cornish and Fisher's term for the heavy tails of few Laplace draws where it
    widens, and rounded up: sums are whole numbers. Tests hold it to exact convolutions of 1 to 50 draws, for ε from 0.1
    to 3 and confidences from one half to 0.999.
    """
    variance = counts * law.variance + beside
    if not variance:
        return 0
    # Laplace noise has an excess kurtosis of 3 + 1/variance, truncated noise of less.
    heavy = 0.0 if isinstance(law, RoundedGaussian) else counts * (3 * law.variance + 1) * law.variance / variance**2
    quantile = upper_quantile(tail)
    return math.ceil(quantile * widening(quantile, heavy) * math.sqrt(variance))


def _first(holds: Callable[[Integers], npt.NDArray[np.bool_]], low: Integers, high: Integers) -> Integers:
    """Return for each place the first number from which on something holds; it does at ``high``."""
    low, high = low.copy(), high.copy()
    while (low < high).any():
        middle = low + (high - low) // 2
        found = holds(middle)
        high = np.where(found, middle, high)
        low = np.where(found, low, np.minimum(middle + 1, high))
    return low
