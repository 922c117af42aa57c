"""Noise that releases drew, held against its law: what was published, less the exact numbers, run by run.

Nothing here is the library's: the laws and the Gaussian δ are written down once more, and a draw is judged by its
spread, by its whole distribution, and by how it goes with every other draw of the same release and of the next one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from scipy.stats import gamma

from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.truncated import TruncatedLaplace

# Each judgement of a part is wrong at most this often; and a fifth less noise is missed at most that often.
WRONG, MISSED = 1e-8, 1e-3
LESS = 0.8
# Of a part so many numbers, evenly spaced, are compared one by one with those of all parts.
_COMPARED = 48
# Of two parts so many numbers are compared at all distances.
_SHIFTED, _SHIFTED_OVER_RUNS = 2**17, 2**15

Array = np.ndarray[Any, Any]


class Law(ABC):
    """A law of integers. The size of a draw has mean 1 and a known variance, and LESS of the noise a known mean."""

    less: float = LESS

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of the size of one draw."""

    @abstractmethod
    def below(self, z: Array) -> Array:
        """P(Z ≤ z)."""

    @abstractmethod
    def sizes(self, z: Array) -> Array:
        """A number for each draw that grows with it."""

    def limits(self, draws: int) -> tuple[float, float]:
        """Within which the mean size of so many draws lies, but for WRONG: it follows a gamma law, or nearly does."""
        shape = draws / self.variance
        return float(gamma.ppf(WRONG / 2, shape)) / shape, float(gamma.isf(WRONG / 2, shape)) / shape

    def least_draws(self) -> int:
        """Return of how many draws LESS of the noise is outside these limits, but for MISSED."""
        draws = 64
        while self.less * gamma.isf(MISSED, draws / self.variance) * self.variance / draws >= self.limits(draws)[0]:
            draws += draws // 16
        return draws


@dataclass(frozen=True)
class Gaussian(Law):
    """round(N(0, σ²))."""

    sigma: float
    less = LESS**2
    variance = 2.0

    def below(self, z: Array) -> Array:
        return np.asarray(ndtr((z + 0.5) / self.sigma))

    def sizes(self, z: Array) -> Array:
        return np.asarray(z.astype(np.float64) ** 2 / (self.sigma**2 + 1 / 12))


@dataclass(frozen=True)
class Laplace(Law):
    """P(z) ∝ exp(−|z|/scale) on the integers."""

    scale: float

    def below(self, z: Array) -> Array:
        ratio = math.exp(-1 / self.scale)
        tail = np.exp(-np.where(z >= 0, z + 1, -z) / self.scale) / (1 + ratio)
        return np.asarray(np.where(z >= 0, 1 - tail, tail))

    def sizes(self, z: Array) -> Array:
        ratio = math.exp(-1 / self.scale)
        return np.asarray(np.abs(z) * (1 - ratio**2) / (2 * ratio))

    @property
    def variance(self) -> float:
        ratio = math.exp(-1 / self.scale)
        return (1 + ratio) ** 2 / (2 * ratio) - 1


@dataclass(frozen=True)
class Truncated(Law):
    """P(z) ∝ exp(−rate·|z|) on the integers up to a bound."""

    rate: float
    bound: int

    def _chances(self) -> Array:
        masses = np.exp(-self.rate * np.abs(np.arange(-self.bound, self.bound + 1)))
        return np.asarray(masses / masses.sum())

    def below(self, z: Array) -> Array:
        through = np.concatenate([[0.0], np.cumsum(self._chances())])
        return np.asarray(through[np.clip(np.asarray(z).astype(int) + self.bound + 1, 0, len(through) - 1)])

    def sizes(self, z: Array) -> Array:
        return np.asarray(np.abs(z) / self._moments()[0])

    @property
    def variance(self) -> float:
        mean, square = self._moments()
        return square / mean**2 - 1

    def _moments(self) -> tuple[float, float]:
        sizes, chances = np.abs(np.arange(-self.bound, self.bound + 1)), self._chances()
        return float(sizes @ chances), float(sizes**2 @ chances)


def law_of(stated: Any) -> Law:
    """The law that a release states, in the words of this module."""
    match stated:
        case RoundedGaussian(sigma):
            return Gaussian(sigma)
        case DiscreteLaplace(epsilon, sensitivity):
            return Laplace(sensitivity / epsilon)
        case TruncatedLaplace(rate, bound):
            return Truncated(rate, bound)
    raise AssertionError("a release states a law that has no row here")


def problems(drawn: Mapping[str, Array], laws: Mapping[str, Law]) -> list[str]:
    """Say what is wrong with draws: for each part, runs × numbers. Wrongly with a probability below 3e-8 a part.

    The law is held to the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, which also holds for integers.
    """
    found = []
    for name, draws in drawn.items():
        law = laws[name]
        size, (low, high) = float(np.mean(law.sizes(draws))), law.limits(draws.size)
        if not low <= size <= high:
            found.append(f"{name}: spread {size:.2f} of the stated one")
        values, counts = np.unique(draws, return_counts=True)
        gap = np.abs(np.cumsum(counts) / draws.size - law.below(values)).max()
        if gap > math.sqrt(math.log(2 / WRONG) / (2 * draws.size)):
            found.append(f"{name}: not the stated law")
    return found + dependence({name: placed(draws, laws[name]) for name, draws in drawn.items()})


def placed(draws: Array, law: Law) -> Array:
    """Where draws stand in their law: from −1 to 1, half way between what is below and what is not above."""
    return np.asarray(law.below(draws) + law.below(draws - 1) - 1)


def dependence(places: Mapping[str, Array]) -> list[str]:
    """Say which parts go together that should not; places are runs × numbers in [−1, 1]. Wrongly once in 10⁸ times.

    The mean of the product of two places, and of their sizes, is held to Bernstein's inequality: number by number over
    the runs, of one run and of a run with the next; and at all distances in a row of all draws of a part, or between
    two parts. One draw that is used twice gives 1/3, which is far outside.
    """
    return _compared(places) + _shifted(places)


def _compared(places: Mapping[str, Array]) -> list[str]:
    chosen = {name: part[:, :: -(-part.shape[1] // _COMPARED)] for name, part in places.items()}
    names = np.repeat(list(chosen), [part.shape[1] for part in chosen.values()])
    all_places = np.concatenate(list(chosen.values()), axis=1)
    runs, numbers = all_places.shape
    reach = _bernstein(runs - 1, 3 * numbers**2) if runs > 1 else 1.0
    if reach > 1 / 3:
        return []
    sizes = _sizes(all_places)
    found = []
    for words, first, second in (
        ("share their draws", all_places, all_places),
        ("share the size of their draws", sizes, sizes),
        ("share their draws with the next release", all_places[:-1], all_places[1:]),
    ):
        products = first.T @ second / len(first)
        if first is second:
            np.fill_diagonal(products, 0)
        worst = np.unravel_index(int(np.abs(products).argmax()), products.shape)
        if abs(products[worst]) > reach:
            found.append(f"{names[worst[0]]} and {names[worst[1]]} {words}")
    return found


def _shifted(places: Mapping[str, Array]) -> list[str]:
    found = []
    for one, other in combinations_with_replacement(places, 2):
        runs, width = len(places[one]), min(places[one].shape[1], places[other].shape[1])
        width = min(width, max(1, (_SHIFTED if runs < 9 else _SHIFTED_OVER_RUNS) // runs))
        first, second = (places[name][:, :width].ravel() for name in (one, other))
        shifts = np.arange(1 if one == other else 0, len(first) - 300)
        if not len(shifts):
            continue
        reach = _bernstein(len(first) - shifts, 2 * len(first) * len(places) ** 2)
        for words, a, b in (("draws", first, second), ("size of their draws", _sizes(first), _sizes(second))):
            if any((np.abs(products) > reach).any() for products in _products(a, b, shifts)):
                found.append(f"{one} and {other} share {words} at a distance")
    return found


def _sizes(places: Array) -> Array:
    sizes = 2 * np.abs(places) - 1
    return np.asarray(sizes - sizes.mean(axis=0))


def _products(first: Array, second: Array, shifts: Array) -> tuple[Array, Array]:
    """The means of the products of two rows, of which the one or the other is shifted."""
    n = len(first)
    whole = 1 << (2 * n - 1).bit_length()
    sums = np.fft.irfft(np.conj(np.fft.rfft(first, whole)) * np.fft.rfft(second, whole), whole)
    return sums[shifts] / (n - shifts), sums[-shifts] / (n - shifts)


def _bernstein(runs: Any, pairs: int) -> Any:
    """What no mean of ``runs`` products passes among so many pairs, but with probability 1e-9.

    A product is at most 1 in size and has a variance of at most 1/9, or a quarter more in a row, where the products of
    one shift are a martingale; centred sizes reach 2 and 4/9 at most, which nothing near this limit depends on.
    """
    logarithm = math.log(2 * pairs / 1e-9)
    return logarithm / 3 / runs + np.sqrt((logarithm / 3 / runs) ** 2 + 5 / 18 * logarithm / runs)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε of Gaussian noise with this μ at a δ: of Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), in logarithms."""
    if mu == 0 or delta <= 0:
        return 0.0 if mu == 0 else math.inf
    goal = math.log(delta)

    def above(epsilon: float) -> float:
        first = float(log_ndtr(mu / 2 - epsilon / mu))
        second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return max(first + math.log1p(-math.exp(second - first)), -1e6) - goal if second < first else -1e6

    if above(0.0) <= 0:
        return 0.0
    return float(brentq(above, 0.0, mu * (mu / 2 + math.sqrt(-2 * goal)) + 1e-9, xtol=1e-13))
