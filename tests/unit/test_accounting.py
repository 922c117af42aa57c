"""Calibration and composition: closed forms, rounding, refusals."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch import accounting
from dpsketch.accounting import compose, fits, rho_of
from dpsketch.errors import InvalidInput
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, PureCost, ZcdpCost
from oracles.deltas import composed_delta


def oracle_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """Balle and Wang's formula at a precision that no cancellation here can use up."""
    with mpmath.workprec(1600):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


EPSILONS = [0.0, 1e-12, 1e-3, 0.1, 1.0, 4.0, 30.0, 1e3]
DELTAS = [1e-300, 1e-50, 1e-12, 1e-6, 0.1, 0.9]


@pytest.mark.parametrize(("epsilon", "delta"), list(itertools.product(EPSILONS, DELTAS)))
def test_gaussian_mu_is_the_largest_double_that_keeps_the_promise(epsilon: float, delta: float) -> None:
    mu = accounting.gaussian_mu(epsilon, delta)
    assert oracle_delta(epsilon, mu) <= delta < oracle_delta(epsilon, math.nextafter(mu, math.inf))


@pytest.mark.parametrize("mu", [1e-300, 1e-8, 0.01, 0.3, 1.0, 7.0, 100.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 0.3])
def test_gaussian_epsilon_is_the_smallest_double_that_holds(mu: float, delta: float) -> None:
    epsilon = accounting.gaussian_epsilon(mu, delta)
    assert oracle_delta(epsilon, mu) <= delta
    assert epsilon == 0 or oracle_delta(math.nextafter(epsilon, 0), mu) > delta


@given(st.floats(1e-300, 1e300))
@settings(deadline=None)
def test_zcdp_mu_is_rounded_down(rho: float) -> None:
    mu = accounting.zcdp_mu(rho)
    with mpmath.workprec(300):
        assert mpmath.mpf(mu) ** 2 / 2 <= rho < mpmath.mpf(math.nextafter(mu, math.inf)) ** 2 / 2


COSTS: list[Cost] = [
    PureCost(0.3),
    GaussianCost(0.25),
    ZcdpCost(0.02),
    ApproximateCost(0.2, 1e-9),
    MomentCost(0.5, 40, 1.02),
    MomentCost(0.05, 40, 1.002),
]


@pytest.mark.parametrize("cost", COSTS, ids=repr)
def test_one_cost_and_its_copies_in_every_form(cost: Cost) -> None:
    """A list, its reverse and a mapping of counts are one history; more copies never cost less, nor more than a sum."""
    single = compose([cost], delta=1e-6)
    total = compose([cost] * 5, delta=1e-6)
    assert compose({cost: 5}, delta=1e-6) == total
    assert compose(list(reversed([cost] * 5)), delta=1e-6) == total
    assert single < total <= 5 * compose([cost], delta=1e-6 / 5) * (1 + 1e-9)
    assert composed_delta([cost] * 5, epsilon=total) <= 1e-6 * (1 + 1e-5)
    assert composed_delta([cost] * 5, epsilon=total * 0.99) > 1e-6


def test_pure_costs_add_at_delta_zero_and_cost_less_above() -> None:
    assert compose([PureCost(0.5), PureCost(0.25)], delta=0) == 0.75
    assert compose([PureCost(0.1)] * 100, delta=1e-6) < 5 < 10 == compose([PureCost(0.1)] * 100, delta=0)


def test_mixtures_at_delta_zero_have_no_epsilon() -> None:
    assert compose([PureCost(1.0), GaussianCost(0.1)], delta=0) == math.inf
    assert compose([ApproximateCost(1.0, 1e-9)], delta=0) == math.inf
    assert compose([ApproximateCost(1.0, 0.0), MomentCost(0.5, 10, 1.01)], delta=0) == pytest.approx(
        1.0 + 20 * math.log(1.01)
    )


def test_approximate_costs_that_use_up_delta() -> None:
    assert compose([ApproximateCost(1.0, 1e-7)] * 3, delta=3e-7) == pytest.approx(3.0, abs=1e-12)
    assert compose([ApproximateCost(1.0, 1e-6)], delta=9e-7) == math.inf


@pytest.mark.parametrize("own", [1e-8, 5e-7, 9e-7])
@pytest.mark.parametrize("mu", [0.1, 0.3, 2.0])
def test_what_a_cost_uses_of_delta_is_not_there_for_noise(own: float, mu: float) -> None:
    """A mechanism that shows everything with probability δ₀ leaves Gaussian noise beside it δ − δ₀ at most."""
    together = compose([ApproximateCost(0.1, own), GaussianCost(mu)], delta=1e-6)
    assert together >= accounting.gaussian_epsilon(mu, (1e-6 - own) / (1 - own))


def test_nothing_costs_nothing_and_infinite_costs_have_no_bound() -> None:
    assert compose([], delta=0) == compose([], delta=1e-6) == 0
    assert compose([GaussianCost(0.0), PureCost(0.0), MomentCost(0.5, 10, 1.0)], delta=0) == 0
    assert composed_delta([], epsilon=0) == 0
    for cost in (PureCost(math.inf), GaussianCost(math.inf), ZcdpCost(math.inf)):
        assert compose([cost], delta=0.5) == math.inf
        assert composed_delta([cost], epsilon=5) == 1


OUT_OF_RANGE = [PureCost(-1.0), GaussianCost(-0.1), ZcdpCost(-0.1), ApproximateCost(1.0, 1.5), MomentCost(0.5, 10, 0.9)]


@pytest.mark.parametrize("cost", OUT_OF_RANGE, ids=repr)
def test_costs_out_of_range_are_refused(cost: Cost) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        compose([cost], delta=1e-6)


def test_fits_holds_a_budget_to_its_last_digit() -> None:
    assert fits([PureCost(0.1)] * 10, epsilon=1.0, delta=0)
    assert fits([PureCost(0.1)] * 3, epsilon=0.3, delta=0)
    assert not fits([PureCost(0.1)] * 10 + [PureCost(1e-9)], epsilon=1.0, delta=0)
    mu = accounting.gaussian_mu(1.0, 1e-6)
    assert fits([GaussianCost(mu)], epsilon=1.0, delta=1e-6)
    assert not fits([GaussianCost(mu * (1 + 1e-9))], epsilon=1.0, delta=1e-6)
    assert fits([GaussianCost(accounting.zcdp_mu(0.1))] * 5, rho=0.5)
    assert not fits([GaussianCost(accounting.zcdp_mu(0.1))] * 5 + [PureCost(1e-3)], rho=0.5)
    assert not fits([ApproximateCost(1e-9, 1e-9)], rho=100.0)


def test_rho_of_every_kind() -> None:
    assert rho_of([GaussianCost(0.5)] * 2) == 0.25
    assert rho_of([ZcdpCost(0.25), ZcdpCost(0.5)]) == 0.75
    assert rho_of([PureCost(1.0)]) == pytest.approx(math.tanh(0.5))
    assert rho_of([MomentCost(1.0, 100, 1.01)]) == pytest.approx(100 * math.log(1.01) ** 2 / 2, rel=1e-4)
    assert rho_of([PureCost(1.0), ApproximateCost(0.1, 1e-9)]) is None
    for cost in (GaussianCost(0.5), ZcdpCost(0.25), PureCost(1.0), MomentCost(1.0, 100, 1.01)):
        assert rho_of([cost] * 5) == pytest.approx(5 * rho_of([cost]))
