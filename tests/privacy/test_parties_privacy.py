"""Shares of noise, by exact enumeration in one counter: the law of the sum, its gap, and the δ that it really has."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpsketch.core.move import Move, Table
from dpsketch.laws.shares import MergedShares, OneShare, Share, sum_gap
from dpsketch.privacy import Budget


def rounded_gaussian(sigma: float, reach: int) -> np.ndarray:
    """P(round(N(0, σ²)) = k) for |k| ≤ reach, each from the smaller tail."""
    k = np.abs(np.arange(-reach, reach + 1))
    return ndtr(-(k - 0.5) / sigma) - ndtr(-(k + 0.5) / sigma)


def law_of_sum(sigmas: list[float], reach: int) -> np.ndarray:
    """The law of a sum of rounded Gaussians on |k| ≤ reach, by convolution."""
    law = np.zeros(2 * reach + 1)
    law[reach] = 1.0
    for sigma in sigmas:
        law = np.convolve(law, rounded_gaussian(sigma, reach), mode="same")
    return law


def private_law(sigma: float, parties: int, reach: int) -> np.ndarray:
    """The law Q of round(N(0, hs²) + U₂ + … + U_h), from its transform.

    At k it is the density of N(0, hs²) + U₁ + … + U_h. The integrand is smooth and falls like a Gaussian, so that the
    trapezoidal rule is exact to the last digits.
    """
    edge = 9 / (sigma * math.sqrt(parties))
    t = np.linspace(-edge, edge, 4001)
    transform = np.exp(-parties * (sigma * t) ** 2 / 2) * np.sinc(t / (2 * math.pi)) ** parties
    k = np.arange(-reach, reach + 1)
    return np.cos(np.outer(k, t)) @ transform * (t[1] - t[0]) / (2 * math.pi)


def delta_of(law: np.ndarray, shift: int, epsilon: float) -> float:
    """The exact δ at ε of adding this noise to a counter that moves by ``shift``, the worse of both directions."""
    moved = np.zeros_like(law)
    moved[shift:] = law[: len(law) - shift]
    one, other = (np.maximum(0, a - math.exp(epsilon) * b).sum() for a, b in ((law, moved), (moved, law)))
    return float(max(one, other))


@pytest.mark.parametrize("parties", [2, 3, 5, 10])
@pytest.mark.parametrize("sigma", [1.0, 1.2, 1.4])
def test_the_gap_is_bounded(sigma: float, parties: int) -> None:
    """The total variation between the sum and the private law, enumerated, is below the proven bound.

    For two parties it is not far below: the bound is made for them, and is loose for more.
    """
    reach = math.ceil(parties + 9 * sigma * math.sqrt(parties))
    measured = 0.5 * np.abs(law_of_sum([sigma] * parties, reach) - private_law(sigma, parties, reach)).sum()
    assert measured <= sum_gap(sigma, parties)
    if parties == 2:
        assert measured > 1e-3 * sum_gap(sigma, parties)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("parties", "honest"), [(10, 1.0), (10, 0.5), (3, 1.0)])
def test_the_released_shares_keep_the_promise_exactly(epsilon: float, parties: int, honest: float) -> None:
    """One row, one counter: the honest shares' sum, enumerated in their finer steps, has at most δ; fewer have more."""
    stated = Table("counters", (1, 2), Move.each(1, 1, signed=True)), "add_remove", Share(parties, honest)
    one = OneShare(*stated, Budget(epsilon, 1e-6))
    law, finer = one.noise, one.shared.finer
    sure = Share(parties, honest).honest_parties
    reach = math.ceil(12 * law.sigma * math.sqrt(sure))

    def delta(shares: int, at: float) -> float:
        return delta_of(law_of_sum([law.sigma] * shares, reach), finer, at)

    assert 0.8e-6 < delta(sure, epsilon) <= 1e-6
    assert delta(sure - 1, epsilon) > 1.2e-6
    # With a party missing the promise is weaker, and kept.
    together = MergedShares(*stated, Budget(epsilon, 1e-6), parties - 1).asked.epsilon
    assert together > epsilon
    assert 0.8e-6 < delta(sure - 1, together) <= 1e-6
    # A share by itself keeps its own.
    assert 0.8e-6 < delta(1, one.asked.epsilon) <= 1e-6
