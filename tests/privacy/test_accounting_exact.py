"""Composition held against exact sums, closed forms and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dpsketch.accounting import compose, gaussian_delta, gaussian_epsilon, rho_of
from dpsketch.accounting.composition import Atoms, Tally, grid_epsilon, renyi_epsilon
from dpsketch.accounting.twopoint import on_grid, pure_rho, two_point_atoms, two_point_renyi
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, PureCost, ZcdpCost
from oracles.deltas import composed_delta, grid_delta, renyi_delta


def enumerated_delta(epsilons: list[float], epsilon: float) -> float:
    """δ of randomised responses by going through every outcome."""
    total = 0.0
    for answers in itertools.product((1, -1), repeat=len(epsilons)):
        loss = math.fsum(sign * e for sign, e in zip(answers, epsilons, strict=True))
        probability = math.prod(1 / (1 + math.exp(-sign * e)) for sign, e in zip(answers, epsilons, strict=True))
        total += probability * max(0.0, -math.expm1(epsilon - loss))
    return total


def mixed_delta(epsilons: list[float], mu: float, epsilon: float) -> float:
    """δ of randomised responses and one Gaussian: the Gaussian's own δ at what each outcome leaves of ε."""
    total = 0.0
    for answers in itertools.product((1, -1), repeat=len(epsilons)):
        rest = epsilon - math.fsum(sign * e for sign, e in zip(answers, epsilons, strict=True))
        probability = math.prod(1 / (1 + math.exp(-sign * e)) for sign, e in zip(answers, epsilons, strict=True))
        total += probability * float(ndtr(mu / 2 - rest / mu) - math.exp(rest) * ndtr(-mu / 2 - rest / mu))
    return total


def root(delta_at: Callable[[float], float], delta: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


@pytest.mark.parametrize("epsilons", [[1.1] * 10, [0.1] * 9, [0.5, 1.0, 2.0, 0.25], [3.0] * 4 + [0.2] * 5, [1e-4] * 5])
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


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("kind", ["pure", "gaussian", "mixed"])
def test_n_equal_costs_are_n_compositions(kind: str, relation: str) -> None:
    """Composing one release at a time, by hand and exactly, gives what composing all at once gives."""
    factor = 1 if relation == "add_remove" else 2
    epsilon, mu, n = 0.15 * factor, 0.12 * factor, 8
    one: list[Cost] = {
        "pure": [PureCost(epsilon)],
        "gaussian": [GaussianCost(mu)],
        "mixed": [PureCost(epsilon), GaussianCost(mu)],
    }[kind]
    pures = [epsilon] * (0 if kind == "gaussian" else n)
    noise = 0.0 if kind == "pure" else mu * math.sqrt(n)
    exact = root(lambda e: mixed_delta(pures, noise, e) if noise else enumerated_delta(pures, e), 1e-5)
    assert exact * (1 - 1e-9) <= compose(one * n, delta=1e-5) <= exact * 1.001


def test_the_library_doubles_a_replaced_gaussian_and_we_do_not() -> None:
    """Ten Gaussians of σ = 2: a cost whose μ = 1/2 already counts the replacement is not doubled again."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    def library(relation: NeighboringRelation) -> float:
        return float(PLDAccountant(relation).compose(GaussianDpEvent(2.0), 10).get_epsilon(1e-6))

    costs: list[Cost] = [GaussianCost(0.5)] * 10
    assert compose(costs, delta=1e-6) == pytest.approx(library(NeighboringRelation.ADD_OR_REMOVE_ONE), rel=1e-3)
    assert compose(costs, delta=1e-6) == gaussian_epsilon(math.sqrt(2.5), 1e-6)
    doubled = compose([GaussianCost(1.0)] * 10, delta=1e-6)
    assert library(NeighboringRelation.REPLACE_ONE) == pytest.approx(doubled, rel=1e-3)
    # Next to a pure cost the same Gaussians go through the library.
    assert compose([*costs, PureCost(0.01)], delta=1e-6) == pytest.approx(compose(costs, delta=1e-6), rel=0.01)


def test_many_different_costs_stay_quick_and_tight() -> None:
    costs: list[Cost] = [PureCost(0.02 + 1e-5 * i) for i in range(400)] + [GaussianCost(0.1)]
    close = compose([PureCost(0.022)] * 400 + [GaussianCost(0.1)], delta=1e-6)
    assert compose(costs, delta=1e-6) == pytest.approx(close, rel=0.02)


def test_renyi_composition_is_above_the_exact_and_near_it() -> None:
    for mu in (0.1, 1.0, 4.0):
        tally = Tally.of([ZcdpCost(mu * mu / 2)])
        exact = gaussian_epsilon(mu, 1e-6)
        assert exact < renyi_epsilon(tally, 1e-6) < exact * 1.15
        assert renyi_delta(tally, exact) > 1e-6
    for costs in ([PureCost(0.3)] * 50, [PureCost(2.0)] * 3, [PureCost(1e-4)] * 1000):
        tally = Tally.of(costs)
        assert renyi_epsilon(tally, 1e-6) >= compose(costs, delta=1e-6)


def test_zcdp_alone_against_the_textbook_bound() -> None:
    """The tight conversion lies below ρ + 2√(ρ ln(1/δ)), and above the Gaussian that has this ρ."""
    rho, delta = 0.3, 1e-6
    ours = compose([ZcdpCost(rho)], delta=delta)
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) < ours < rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert compose([ZcdpCost(rho / 3)] * 3, delta=delta) == pytest.approx(ours, rel=1e-9)
    mixed = compose([ZcdpCost(rho), GaussianCost(0.2), PureCost(0.1), ApproximateCost(0.1, 1e-9)], delta=delta)
    assert ours < mixed < ours + gaussian_epsilon(0.2, delta) + 0.2


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


@pytest.mark.parametrize(("up", "down", "count"), [(0.5, 0.5, 7), (0.8, 0.2, 30), (0.1, 0.4, 200), (5.0, 5.0, 3)])
def test_atoms_are_a_pair_of_probability_laws(up: float, down: float, count: int) -> None:
    loss, mass = two_point_atoms(up, down, count)
    assert mass.sum() == pytest.approx(1, abs=1e-13)
    assert (mass * np.exp(-loss)).sum() == pytest.approx(1, abs=1e-11)
    weight = (1 - math.exp(-down)) / (1 - math.exp(-up - down))
    exact = [math.comb(count, j) * weight**j * (1 - weight) ** (count - j) for j in range(count + 1)]
    np.testing.assert_allclose(mass, exact, rtol=1e-11)
    assert loss[0] == pytest.approx(-count * down)
    assert loss[-1] == pytest.approx(count * up)


@pytest.mark.parametrize("interval", [0.003, 0.1, 1.0, 7.0])
def test_putting_atoms_on_a_grid_keeps_both_laws_and_lowers_no_delta(interval: float) -> None:
    loss, mass = two_point_atoms(0.8, 0.3, 25)
    grid = on_grid(loss, mass, interval)
    points = (grid.start + np.arange(len(grid.mass))) * interval
    assert grid.infinity + grid.mass.sum() == pytest.approx(1, abs=1e-13)
    assert (grid.mass * np.exp(-points)).sum() == pytest.approx(1, abs=1e-10)
    assert grid.mass.min() >= 0
    for epsilon in np.linspace(-5, 15, 41):
        exact = (mass * np.maximum(0, -np.expm1(np.minimum(0, epsilon - loss)))).sum()
        ours = grid.infinity + (grid.mass * np.maximum(0, -np.expm1(np.minimum(0, epsilon - points)))).sum()
        assert ours >= exact * (1 - 1e-12)


SAMPLES = 1_000_000
# Hoeffding: a mean of so many values in [0, 1] is off by more than this with probability below 1e-9.
REACH = math.sqrt(math.log(2e9) / (2 * SAMPLES))


def simulated_delta(losses: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(0, -np.expm1(np.minimum(0, epsilon - losses))).mean())


def gaussian_losses(mu: float, rng: np.random.Generator) -> np.ndarray:
    return mu * ndtri(rng.random(SAMPLES)) + mu * mu / 2


def response_losses(epsilon: float, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(SAMPLES) < 1 / (1 + math.exp(-epsilon)), epsilon, -epsilon)


@pytest.mark.statistical
def test_a_mixture_against_simulation() -> None:
    """False-positive rate below 2e-9; a Gaussian with a tenth more noise or a response less is told apart."""
    rng = np.random.default_rng(20260401)
    costs: list[Cost] = [GaussianCost(0.5)] * 4 + [PureCost(0.4)] * 3
    losses = sum((gaussian_losses(0.5, rng) for _ in range(4)), np.zeros(SAMPLES))
    losses = sum((response_losses(0.4, rng) for _ in range(3)), losses)
    for epsilon in (0.5, 1.5):
        seen = simulated_delta(losses, epsilon)
        assert abs(composed_delta(costs, epsilon=epsilon) - seen) < REACH
        for wrong in ([GaussianCost(0.5 / 1.1)] * 4 + [PureCost(0.4)] * 3, costs[:-1]):
            assert abs(composed_delta(wrong, epsilon=epsilon) - seen) > REACH


def cauchy_losses(ratio: float, size: int, larger: bool, rng: np.random.Generator) -> np.ndarray:
    """Losses of a sketch with p = 1: coordinates of scale 1 against scale ``ratio``, or the other way round."""
    total = np.zeros(SAMPLES)
    for _ in range(size):
        x = np.tan(np.pi * (rng.random(SAMPLES) - 0.5)) * (ratio if larger else 1.0)
        loss = np.log(1 / (1 + x**2)) - np.log((1 / ratio) / (1 + (x / ratio) ** 2))
        total += -loss if larger else loss
    return total


@pytest.mark.statistical
def test_moment_sketches_that_move_both_ways_against_simulation() -> None:
    """Two releases, in one the moment grows, in the other it shrinks. False-positive rate below 4e-9 one-sided.

    The bound must lie above the simulated δ, and for the right ratio not far above it; for a smaller ratio it falls
    below.
    """
    rng = np.random.default_rng(20260402)
    ratio, size = 3.0, 4
    cost = MomentCost(1.0, size, ratio)
    there = cauchy_losses(ratio, size, False, rng)
    back = cauchy_losses(ratio, size, True, rng)
    for epsilon in (1.0, 2.0):
        one_way = max(simulated_delta(there, epsilon), simulated_delta(back, epsilon))
        assert one_way - REACH < composed_delta([cost], epsilon=epsilon) < one_way * 1.01 + REACH
        seen = simulated_delta(there + back, epsilon)
        assert seen - REACH < composed_delta([cost, cost], epsilon=epsilon) < seen * 1.1 + REACH
        smaller = MomentCost(1.0, size, 2.5)
        assert composed_delta([smaller, smaller], epsilon=epsilon) < seen - REACH


def test_a_moment_sketch_without_an_exact_law_is_dominated_by_its_two_extreme_losses() -> None:
    """At p = 0.05 the pure bound, the ρ bound and the two-point law are all that is known; none may be beaten."""
    cost = MomentCost(0.05, 50, 1.001)
    assert compose([cost], delta=0) == pytest.approx(50 / 0.05 * math.log(1.001))
    assert compose([cost], delta=1e-6) < compose([cost], delta=0)
    assert compose([cost], delta=1e-6) <= compose([ZcdpCost(rho_of([cost]) or 0.0)], delta=1e-6) * (1 + 1e-9)
