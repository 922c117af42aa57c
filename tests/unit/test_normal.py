"""The normal law and Student's without SciPy: held to arbitrary precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from dpsketch._compiled.normal import upper_quantiles
from dpsketch.accounting.gaussian import gaussian_epsilon, gaussian_mu
from dpsketch.distributions import scaled_tail, student_quantile, upper_quantile


def test_quantiles_are_right_from_the_middle_to_the_smallest_double() -> None:
    rng = np.random.default_rng(1)
    tails = np.concatenate([rng.uniform(0, 0.5, 300), 2.0 ** -rng.uniform(1, 1073, 600), [0.5, 0.075, 5e-324]])
    with mp.workprec(200):
        for tail, point in zip(tails.tolist(), upper_quantiles(tails).tolist(), strict=True):
            # One step of Newton's: its length is the error, up to the error's square.
            off = (mp.erfc(mpf(point) / mp.sqrt(2)) / 2 - mpf(tail)) / mp.npdf(point)
            assert abs(off) <= 2.0**-48 * max(point, 1e-3), tail


def test_one_quantile_is_right_too() -> None:
    """Near the middle, on both sides of where one approximation ends and another begins, and far out."""
    rng = np.random.default_rng(4)
    ends = 0.075 + np.arange(-50, 51) * 2.0**-56
    tails = np.concatenate([rng.uniform(0, 0.5, 2_000), 2.0 ** -rng.uniform(1, 1073, 500), ends, [0.5, 5e-324]])
    points = [upper_quantile(tail) for tail in tails.tolist()]
    np.testing.assert_allclose(points, upper_quantiles(tails), rtol=2.0**-48, atol=2.0**-56)
    assert upper_quantile(0.0) == math.inf


def test_the_scaled_tail_is_right() -> None:
    rng = np.random.default_rng(3)
    with mp.workprec(200):
        for x in [0.0, 1e-300, 3.0, *rng.uniform(0, 4, 200), *(10 ** rng.uniform(0, 8, 200))]:
            exact = mp.erfc(mpf(x)) * mp.exp(mpf(x) ** 2)
            assert abs(scaled_tail(x) / exact - 1) < 4e-15, x
    assert scaled_tail(math.inf) == 0


def test_gaussian_costs_are_found_from_the_smallest_to_the_largest() -> None:
    """The floating-point search only begins; the exact one must end at the same double wherever it began."""
    for epsilon in (0.0, 1e-300, 1e-9, 0.1, 1.0, 30.0, 1e3, 1e6):
        for delta in (5e-324, 1e-100, 1e-6, 0.3, 1 - 1e-12):
            mu = gaussian_mu(epsilon, delta)
            assert gaussian_epsilon(mu, delta) <= epsilon
            assert gaussian_epsilon(math.nextafter(mu * (1 + 1e-12), math.inf), delta) > epsilon or mu == 0


CONFIDENCES = (1e-3, 0.1, 0.45, 0.5, 0.55, 0.9, 0.95, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1 - 2e-15, 1 - 2**-53)


@pytest.mark.parametrize("freedom", [1, 2, 2.5, 3, 4, 8, 17, 100, 9_999, 1e5])
def test_students_quantile_is_right_to_a_millionth_of_a_millionth(freedom: float) -> None:
    """A point moved by 1e-12 of itself either way lies on the other side of the level."""

    def beyond(point: mpf) -> mpf:
        """How likely Student's variable passes a point, by its density's own integral in closed form."""
        return mp.betainc(mpf(freedom) / 2, 0.5, 0, freedom / (freedom + point**2), regularized=True) / 2

    with mp.workdps(40):
        for confidence in CONFIDENCES:
            tail = (1 - confidence) / 2
            found = mpf(student_quantile(freedom, tail))
            assert beyond(found * (1 + mpf("1e-12"))) < tail < beyond(found * (1 - mpf("1e-12")))
