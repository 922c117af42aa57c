"""Discrete Laplace noise within a bound: for counts that are published where they pass a threshold, and for no others.

Between the noises of two counts that differ by one lies a point that only one of them reaches. So this law alone hides
nobody with δ = 0, and is no :data:`~dpsketch.noise.Noise`: a permit adds it to no table. A mechanism that pays for its
ends may draw from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch.noise import DiscreteLaplace, Noise, random_below
from dpsketch.numbers import hold_whole

__all__ = ["Law", "TruncatedLaplace"]


@dataclass(frozen=True, slots=True)
class TruncatedLaplace:
    """The law P(z) ∝ exp(−ε·|z|) on the integers from −``bound`` to ``bound``.

    Parameters
    ----------
    epsilon : float
        The rate, taken as the exact value of the double given; at least 2⁻⁵⁰.
    bound : int
        The largest noise; at least 1.

    Notes
    -----
    *Privacy.* For counts that differ by 1 the odds of every value that both reach differ by a factor of at most e^ε.
    Each reaches one value that the other does not, with the probability of ``bound`` (:attr:`end`).

    *Accuracy.* Never off by more than ``bound``.

    Examples
    --------
    >>> noise = TruncatedLaplace(epsilon=0.5, bound=20)
    >>> bool((abs(noise.sample(1000)) <= 20).all())
    True
    >>> print(noise.words)
    truncated discrete Laplace noise, scale = 2, at most 20
    """

    epsilon: float
    bound: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self._untruncated.epsilon)
        hold_whole(self, "bound", low=1, high=1 << 61)

    @property
    def _untruncated(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.epsilon, 1)

    def sample(self, size: int) -> npt.NDArray[np.int64]:
        """Draw ``size`` independent samples: discrete Laplace ones, drawn again while they pass the bound."""
        if self.epsilon * self.bound < 1:
            return self._nearly_uniform(size)
        whole = self._untruncated
        samples = whole.sample(size)
        beyond = np.flatnonzero(np.abs(samples) > self.bound)
        while len(beyond):
            samples[beyond] = whole.sample(len(beyond))
            beyond = beyond[np.abs(samples[beyond]) > self.bound]
        return samples

    def _nearly_uniform(self, size: int) -> npt.NDArray[np.int64]:
        """Draw uniform numbers within the bound, each kept with probability exp(−ε·|z|), which is never small here.

        Discrete Laplace noise that is not negative reaches k with probability exp(−ε·k), exactly: it is the coin.
        """
        samples = np.empty(size, np.int64)
        open_ = np.arange(size)
        while len(open_):
            drawn = random_below(2 * self.bound + 1, len(open_)).astype(np.int64) - self.bound
            coins = self._untruncated.sample(len(open_))
            kept = (coins >= 0) & (coins >= np.abs(drawn))
            samples[open_[kept]] = drawn[kept]
            open_ = open_[~kept]
        return samples

    @property
    def variance(self) -> float:
        """The variance, exact to double precision."""
        import mpmath

        # Σ z²·a^z and Σ a^z over 1 … k, closed; the differences lose at most 150 bits, as ε is at least 2⁻⁵⁰.
        with mpmath.workprec(400):
            a, k = mpmath.exp(-mpmath.mpf(self.epsilon)), self.bound
            last = a ** (k + 1)
            squares = a * (1 + a) - last * ((k + 1) ** 2 - (2 * k * k + 2 * k - 1) * a + k * k * a * a)
            return float(2 * squares / (1 - a) ** 2 / (1 + a - 2 * last))

    @property
    def end(self) -> float:
        """The probability of ``bound``, and of −``bound``."""
        return self.reaching(self.bound)

    def reaching(self, low: int) -> float:
        """Return P(Z ≥ ``low``) for a ``low`` of at least 1: (a^low − a^(k+1))/(1 + a − 2a^(k+1)), k the bound."""
        left = max(self.bound - low + 1, 0)
        return math.exp(-self.epsilon * low) * -math.expm1(-self.epsilon * left) / self.divisor

    @property
    def divisor(self) -> float:
        """1 + a − 2a^(k+1) with a = exp(−ε) and k the bound; P(z) is a^|z|·(1 − a) over this."""
        last = self.epsilon * (self.bound + 1)
        return math.exp(-self.epsilon) * -math.expm1(self.epsilon - last) - math.expm1(-last)

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return f"truncated discrete Laplace noise, scale = {1 / self.epsilon:.4g}, at most {self.bound}"


Law = Noise | TruncatedLaplace
