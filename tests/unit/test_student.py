"""Student's and symmetric Beta quantiles, against arbitrary precision and against SciPy."""

from __future__ import annotations

import mpmath
import pytest

from dpsketch.distributions import student_quantile

FREEDOMS = (1, 2, 2.5, 3, 4, 8, 17, 100, 9_999, 1e5)
CONFIDENCES = (1e-3, 0.1, 0.45, 0.5, 0.55, 0.9, 0.95, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1 - 2e-15, 1 - 2**-53)


def beyond(freedom: float, point: mpmath.mpf) -> mpmath.mpf:
    """Return how likely Student's variable passes a point, by its density's own integral in closed form."""
    half = mpmath.mpf(freedom) / 2
    return mpmath.betainc(half, 0.5, 0, freedom / (freedom + point**2), regularized=True) / 2


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_students_quantile_is_right_to_a_millionth_of_a_millionth(freedom: float) -> None:
    """A point moved by 1e-12 of itself either way lies on the other side of the level."""
    with mpmath.workdps(40):
        for confidence in CONFIDENCES:
            tail = (1 - confidence) / 2
            found = mpmath.mpf(student_quantile(freedom, tail))
            assert beyond(freedom, found * (1 + mpmath.mpf("1e-12"))) < tail
            assert beyond(freedom, found * (1 - mpmath.mpf("1e-12"))) > tail
