"""Composition held against exact sums and closed forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from dpsketch.accounting import compose, gaussian_delta, gaussian_epsilon, rho_of
from dpsketch.accounting.composition import Atoms, Tally, grid_epsilon
from dpsketch.accounting.twopoint import pure_rho, two_point_renyi
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, PureCost, ZcdpCost
from oracles.deltas import composed_delta, grid_delta


def outcomes(epsilons: list[float]) -> Iterator[tuple[float, float]]:
    """The loss and the probability of every outcome of randomised responses."""
    for answers in itertools.product((1, -1), repeat=len(epsilons)):
        losses = [sign * e for sign, e in zip(answers, epsilons, strict=True)]
        yield math.fsum(losses), math.prod(1 / (1 + math.exp(-loss)) for loss in losses)


def enumerated_delta(epsilons: list[float], epsilon: float) -> float:
    return sum(chance * max(0.0, -math.expm1(epsilon - loss)) for loss, chance in outcomes(epsilons))


def mixed_delta(epsilons: list[float], mu: float, epsilon: float) -> float:
    """δ of randomised responses and one Gaussian: the Gaussian's own δ at what each outcome leaves of ε."""

    def left(rest: float) -> float:
        return float(ndtr(mu / 2 - rest / mu) - math.exp(rest) * ndtr(-mu / 2 - rest / mu))

    return sum(chance * left(epsilon - loss) for loss, chance in outcomes(epsilons))


def root(delta_at: Callable[[float], float], delta: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize("epsilons", [[1.1] * 8, [0.5, 1.0, 2.0, 0.25], [3.0] * 3 + [0.2] * 4, [1e-4] * 5])
def test_pure_costs_compose_to_the_enumerated_delta(epsilons: list[float]) -> None:
    costs = [PureCost(e) for e in epsilons]
    for share in (0.0, 0.2, 0.5, 0.9, 0.999):
        epsilon = share * math.fsum(epsilons)
        exact = enumerated_delta(epsilons, epsilon)
        assert exact * (1 - 1e-12) <= composed_delta(costs, epsilon=epsilon) <= exact * (1 + 1e-8)
    for delta in (1e-2, 1e-6, 1e-12):
        exact = root(lambda e: enumerated_delta(epsilons, e), delta)
        assert compose(costs, delta=delta) == pytest.approx(exact, rel=1e-7, abs=1e-12)


def test_the_grid_agrees_with_the_exact_sum_and_never_falls_below() -> None:
    for costs in ([PureCost(0.3)] * 50, [PureCost(0.1), PureCost(0.7)] * 8, [ApproximateCost(0.2, 1e-8)] * 20):
        tally = Tally.of(costs)
        exact = Atoms.of(tally)
        assert exact is not None
        for delta in (1e-3, 1e-6, 1e-8):
            if exact.infinity < delta:
                assert exact.epsilon(delta) <= grid_epsilon(tally, delta) <= exact.epsilon(delta) * 1.001
        for epsilon in (0.5, 2.0, 4.0):
            assert exact.delta(epsilon) <= grid_delta(tally, epsilon) <= exact.delta(epsilon) * 1.01 + 2e-12


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0])
def test_the_grid_agrees_with_the_gaussian_closed_form_and_never_falls_below(mu: float) -> None:
    tally = Tally.of([GaussianCost(mu)])
    for delta in (1e-2, 1e-6, 1e-9):
        exact = gaussian_epsilon(mu, delta)
        # At δ = 1e-9 the room for the transform's rounding is a thousandth of δ.
        assert exact <= grid_epsilon(tally, delta) <= exact * 1.002 + 1e-9
    for epsilon in (0.0, mu, 3 * mu):
        assert gaussian_delta(epsilon, mu) <= grid_delta(tally, epsilon) <= gaussian_delta(epsilon, mu) * 1.001 + 2e-12


@pytest.mark.parametrize(
    ("epsilons", "mu"),
    [([0.2] * 6, 0.5), ([1.0], 1.0), ([1.1] * 8, 0.3), ([0.05, 0.4, 0.8], 2.0), ([0.01], 0.5), ([2.0], 0.001)],
)
def test_mixtures_against_their_exact_delta(epsilons: list[float], mu: float) -> None:
    costs: list[Cost] = [*map(PureCost, epsilons), GaussianCost(mu)]
    for delta in (1e-3, 1e-6):
        exact = root(lambda e: mixed_delta(epsilons, mu, e), delta)
        assert exact * (1 - 1e-12) <= compose(costs, delta=delta) <= exact * 1.002
        assert delta * (1 - 1e-9) <= composed_delta(costs, epsilon=exact) <= delta * 1.2


def test_generic_rho_is_never_taken_for_a_gaussian() -> None:
    """A mechanism with two outcomes can be ρ-zCDP and yet have, at one ε, a larger δ than the Gaussian with that ρ."""
    rho, up = 0.02, 1.33
    weight = exact_weight(rho, up)
    epsilon = 1.3
    delta = weight * -math.expm1(epsilon - up)
    assert delta > gaussian_delta(epsilon, math.sqrt(2 * rho))
    # The conversion is tight: this mechanism all but reaches it.
    assert delta <= composed_delta([ZcdpCost(rho)], epsilon=epsilon) <= delta * 1.001


def exact_weight(rho: float, up: float) -> float:
    """The largest probability of loss ``up`` in a two-outcome mechanism that is ρ-zCDP in both directions."""

    def divergence(weight: float, alpha: np.ndarray) -> np.ndarray:
        p = np.array([weight, 1 - weight])
        q = np.array([weight * math.exp(-up), 1 - weight * math.exp(-up)])
        one = np.log(np.exp(np.outer(alpha - 1, np.log(p / q))) @ p) / (alpha - 1)
        other = np.log(np.exp(np.outer(alpha - 1, np.log(q / p))) @ q) / (alpha - 1)
        return np.maximum(one, other)

    alpha = 1 + np.geomspace(1e-3, 400, 4000)
    low, high = 1e-15, 0.5
    for _ in range(200):
        middle = math.sqrt(low * high)
        if np.all(divergence(middle, alpha) <= alpha * rho):
            low = middle
        else:
            high = middle
    # The orders between those looked at allow a little less.
    return low * (1 - 1e-4)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 3.0, 20.0])
def test_the_rho_of_a_pure_cost_bounds_every_order_and_is_reached_at_one(epsilon: float) -> None:
    alphas = np.array([1 + 1e-7, 1.001, 1.5, 2, 5, 50, 1e4])
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        for alpha in alphas:
            a = mpmath.mpf(float(alpha))
            exact = mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))) / (a - 1)
            assert exact <= a * pure_rho(epsilon) * (1 + 1e-12)
            ours = two_point_renyi(np.array([alpha]), epsilon, epsilon)[0] * (1 + 1e-9)
            assert exact <= ours <= exact * (1 + 1e-4)
    assert pure_rho(epsilon) <= min(epsilon, epsilon**2 / 2)
    assert rho_of([PureCost(epsilon)]) == pure_rho(epsilon)
