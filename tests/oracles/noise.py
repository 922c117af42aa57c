"""Slow, obvious versions of what dpsketch.noise computes, in arbitrary precision.

The sampler compares a uniform with tail probabilities; these oracles invert the law instead, or sum its probabilities,
so that the two share no formula beyond the definition.
"""

from __future__ import annotations

from contextlib import contextmanager

import mpmath
import numpy as np
from mpmath import mp, mpf

import dpsketch.noise
from dpsketch.noise import DiscreteLaplace, RoundedGaussian

PRECISION = 700


def exact_magnitude(law, uniform):
    """The magnitude at an exact uniform: round(σ·|x|) with P(|X| ≥ |x|) = U, or the count of j with U < P(|Z| ≥ j)."""
    with mp.workprec(PRECISION):
        match law:
            case RoundedGaussian(sigma):
                return int(mp.floor(mpf(sigma) * exact_normal_quantile(uniform) + mpf("0.5")))
            case DiscreteLaplace(epsilon, sensitivity):
                rate = mpf(epsilon) / sensitivity
                return int(mp.floor((mp.log(2 / (1 + mp.exp(-rate))) - mp.log(uniform)) / rate))


def exact_normal_quantile(two_sided):
    """The x with P(|N(0,1)| ≥ x) = ``two_sided``, by Newton's method on the logarithm from a bracketed start."""
    with mp.workprec(PRECISION):
        target = mp.log(two_sided)
        x = mp.sqrt(-2 * target) if two_sided < mpf("0.3") else mp.sqrt(mp.pi / 2) * (1 - two_sided)
        for _ in range(200):
            tail = mp.erfc(x / mp.sqrt(2))
            step = (mp.log(tail) - target) * tail / (2 * mp.npdf(x))
            x += step
            if abs(step) < mpf(2) ** (60 - PRECISION):
                return x
    raise AssertionError("Newton's method did not settle")


def probabilities(law, largest):
    """P(Z = z) for z = −largest … largest, as multiprecision numbers."""
    with mp.workdps(50):
        match law:
            case RoundedGaussian(sigma):
                edges = [mp.erfc((mpf(j) - mpf("0.5")) / mpf(sigma) / mp.sqrt(2)) / 2 for j in range(largest + 2)]
                half = [edges[j] - edges[j + 1] for j in range(largest + 1)]
            case DiscreteLaplace(epsilon, sensitivity):
                ratio = mp.exp(-mpf(epsilon) / sensitivity)
                total = 1 + 2 * ratio / (1 - ratio)
                half = [ratio**j / total for j in range(largest + 1)]
        return [*half[:0:-1], *half]


def exact_variance(law):
    """Σ z²·P(z), summed until nothing is left to add."""
    with mp.workdps(50):
        match law:
            case RoundedGaussian(sigma):
                largest = int(40 * sigma) + 3
            case DiscreteLaplace(epsilon, sensitivity):
                largest = int(120 * sensitivity / epsilon) + 3
        masses = probabilities(law, largest)
        return float(mp.fsum(z * z * mass for z, mass in zip(range(-largest, largest + 1), masses, strict=True)))


def uniform_of(words):
    """The uniform whose bits are the low 63 of the first word and all of the others, then a one and zeros."""
    with mp.workprec(PRECISION):
        numerator = words[0] & (2**63 - 1)
        for word in words[1:]:
            numerator = (numerator << 64) | word
        return mpmath.ldexp(2 * numerator + 1, -(63 + 64 * (len(words) - 1)) - 1)


class ScriptedSource:
    """Hands out the words it was given, then refuses."""

    def __init__(self, words):
        self.words = list(words)

    def read(self, count):
        assert count % 8 == 0
        assert count <= 8 * len(self.words), "the sampler asked for more bits than the script holds"
        taken, self.words = self.words[: count // 8], self.words[count // 8 :]
        return np.array(taken, dtype="<u8").tobytes()


@contextmanager
def source(replacement):
    """Draw from ``replacement`` inside the block."""
    token = dpsketch.noise._source.set(replacement)
    try:
        yield replacement
    finally:
        dpsketch.noise._source.reset(token)
