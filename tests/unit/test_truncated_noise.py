"""Noise within a bound: its law, and that no permit adds it to a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chisquare

from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.truncated import TruncatedLaplace

LAWS = [TruncatedLaplace(rate, bound) for rate, bound in ((1.0, 14), (0.1, 109), (0.5, 1), (0.01, 5), (5.0, 3))]


def exact(law: TruncatedLaplace) -> list[Any]:
    """P(Z = z) for z = −bound … bound, as multiprecision numbers."""
    with mp.workdps(50):
        weights = [mp.exp(-mpf(law.epsilon) * abs(z)) for z in range(-law.bound, law.bound + 1)]
        return [weight / mp.fsum(weights) for weight in weights]


def p_value(sample: Any, law: TruncatedLaplace) -> float:
    """Pearson's chi-square; cells that expect fewer than 40 are joined at both ends."""
    masses = np.array([float(mass) for mass in exact(law)]) * len(sample)
    observed = np.bincount(sample + law.bound, minlength=len(masses))
    inside = np.flatnonzero(masses >= 40)
    first, last = inside[0], inside[-1] + 1

    def joined(cells: Any) -> list[float]:
        middle = cells[first:last].astype(float)
        middle[0] += cells[:first].sum()
        middle[-1] += cells[last:].sum()
        return list(middle)

    return float(chisquare(joined(observed), joined(masses), sum_check=False).pvalue)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_samples_have_the_law(law: TruncatedLaplace) -> None:
    """False-positive rate 1e-9 a case, up to the chi-square approximation; a rate 4 % off is noticed."""
    with seeded_noise_for_tests_only(11):
        sample = law.sample(200_000)
        other = TruncatedLaplace(law.epsilon * 1.04, law.bound).sample(200_000)
    assert np.abs(sample).max() <= law.bound
    assert p_value(sample, law) > 1e-9
    if law.bound > 5:
        assert p_value(other, law) < 1e-9


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_variance_and_end(law: TruncatedLaplace) -> None:
    masses = exact(law)
    variance = mp.fsum(z * z * mass for z, mass in zip(range(-law.bound, law.bound + 1), masses, strict=True))
    assert law.variance == pytest.approx(float(variance), rel=1e-12)
    assert law.end == pytest.approx(float(masses[0]), rel=1e-12)
    for low in range(1, law.bound + 3):
        tail = float(mp.fsum(masses[low + law.bound :]))
        assert law.reaching(low) == pytest.approx(tail, rel=1e-12)
