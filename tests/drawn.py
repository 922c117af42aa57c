"""Noise that releases drew, held against its law: what was published, less the known table, run by run.

Nothing here is the library's: the laws are written down once more, and a draw is judged by its spread, by its whole
distribution, and by how it goes with every other draw of the same release and of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.truncated import TruncatedLaplace

# Of a part only so many numbers, evenly spaced, are compared with all others.
_COMPARED = 48
# Standard deviations that a mean of many draws stays within: outside it is once in 5·10⁸.
_FAR = 6.0

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Gaussian:
    """round(N(0, σ²))."""

    sigma: float

    def below(self, z: Array) -> Array:
        """P(Z ≤ z)."""
        return np.asarray(ndtr((z + 0.5) / self.sigma))

    def spread(self, z: Array) -> tuple[float, float]:
        """A mean that is 1 for this law and grows with the noise, and its standard deviation."""
        variance = self.sigma**2 + 1 / 12
        return float(np.mean(z.astype(np.float64) ** 2)) / variance, math.sqrt(2 / z.size)


@dataclass(frozen=True)
class Laplace:
    """P(z) ∝ exp(−|z|/scale) on the integers."""

    scale: float

    def below(self, z: Array) -> Array:
        """P(Z ≤ z)."""
        ratio = math.exp(-1 / self.scale)
        tail = np.exp(-np.where(z >= 0, z + 1, -z) / self.scale) / (1 + ratio)
        return np.asarray(np.where(z >= 0, 1 - tail, tail))

    def spread(self, z: Array) -> tuple[float, float]:
        """As above; E|Z| is 2a/(1 − a²), and |Z| has about the standard deviation of an exponential variable."""
        ratio = math.exp(-1 / self.scale)
        mean = 2 * ratio / (1 - ratio**2)
        deviation = math.sqrt(2 * ratio / (1 - ratio) ** 2 - mean**2)
        return float(np.mean(np.abs(z))) / mean, deviation / mean / math.sqrt(z.size)


@dataclass(frozen=True)
class Truncated:
    """P(z) ∝ exp(−rate·|z|) on the integers up to a bound."""

    rate: float
    bound: int

    def _chances(self) -> Array:
        masses = np.exp(-self.rate * np.abs(np.arange(-self.bound, self.bound + 1)))
        return np.asarray(masses / masses.sum())

    def below(self, z: Array) -> Array:
        """P(Z ≤ z)."""
        through = np.concatenate([[0.0], np.cumsum(self._chances())])
        return np.asarray(through[np.clip(np.asarray(z).astype(int) + self.bound + 1, 0, len(through) - 1)])

    def spread(self, z: Array) -> tuple[float, float]:
        """As above, by the mean size."""
        sizes, chances = np.abs(np.arange(-self.bound, self.bound + 1)), self._chances()
        mean = float(sizes @ chances)
        deviation = math.sqrt(float(sizes**2 @ chances) - mean**2)
        return float(np.mean(np.abs(z))) / mean, deviation / mean / math.sqrt(z.size)


Law = Gaussian | Laplace | Truncated


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
    """Say what is wrong with draws: for each part, runs × numbers. Wrongly with a probability below 1e-8 a part.

    *Spread*: six standard deviations of its mean. *Law*: the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart,
    which also holds for integers. *Dependence*: each draw's place in its own law is a number in [−1, 1] with mean 0 and
    a variance of at most 1/3; the mean of the product of two, and of their sizes, is held to Bernstein's inequality,
    for all pairs of one run and for all of a run with the next.
    """
    found = []
    for name, draws in drawn.items():
        size, deviation = laws[name].spread(draws)
        if abs(size - 1) > _FAR * deviation:
            found.append(f"{name}: spread {size:.2f} of the stated one")
        values, counts = np.unique(draws, return_counts=True)
        gap = np.abs(np.cumsum(counts) / draws.size - laws[name].below(values)).max()
        if gap > math.sqrt(math.log(2e9) / (2 * draws.size)):
            found.append(f"{name}: not the stated law")
    return found + dependence({name: placed(draws, laws[name]) for name, draws in drawn.items()})


def placed(draws: Array, law: Law) -> Array:
    """Where draws stand in their law: from −1 to 1, half way between what is below and what is not above."""
    return np.asarray(law.below(draws) + law.below(draws - 1) - 1)


def dependence(places: Mapping[str, Array]) -> list[str]:
    """Say which parts go together that should not; places are runs × numbers in [−1, 1]."""
    chosen = {name: part[:, :: -(-part.shape[1] // _COMPARED)] for name, part in places.items()}
    names = np.repeat(list(chosen), [part.shape[1] for part in chosen.values()])
    all_places = np.concatenate(list(chosen.values()), axis=1)
    runs, numbers = all_places.shape
    sizes = 2 * np.abs(all_places) - 1
    sizes -= sizes.mean(axis=0)
    reach = _bernstein(runs - 1, 3 * numbers**2)
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


def _bernstein(runs: int, pairs: int) -> float:
    """What no mean of ``runs`` products passes among so many pairs, but with probability 1e-9.

    A product is at most 1 in size and has a variance of at most 1/9; centred sizes reach 2 and 4/9 at most, which
    nothing near this limit depends on.
    """
    logarithm = math.log(2 * pairs / 1e-9)
    return logarithm / 3 / runs + math.sqrt((logarithm / 3 / runs) ** 2 + 2 / 9 * logarithm / runs)
