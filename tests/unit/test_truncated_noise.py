"""Noise within a bound: its law, and that no permit adds it to a table."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chisquare

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, noise_from_json, seeded_noise_for_tests_only
from dpsketch.privacy import PureCost
from dpsketch.sketches.permit import Calibration, Part, Permit
from dpsketch.sketches.specs import Sensitivity
from dpsketch.truncated import TruncatedLaplace, law_from_json

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


@pytest.mark.parametrize("reach", [0.01, 1.0, 30.0])
def test_variance_of_wide_noise(reach: float) -> None:
    bound = 1 << 17
    law = TruncatedLaplace(reach / bound, bound)
    z = np.arange(1.0, bound + 1)
    masses = np.exp(-law.epsilon * z)
    assert law.variance == pytest.approx(2 * (z * z * masses).sum() / (1 + 2 * masses.sum()), rel=1e-11)


@pytest.mark.parametrize("law", [*LAWS, RoundedGaussian(2.0), DiscreteLaplace(0.5, 3)], ids=repr)
def test_json_round_trip(law: Any) -> None:
    assert law_from_json(json.loads(json.dumps(law.to_json()))) == law


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "truncated_laplace", "epsilon": 1.0},
        {"kind": "truncated_laplace", "epsilon": 1.0, "bound": 0},
        {"kind": "truncated_laplace", "epsilon": 1.0, "bound": 2.5},
        {"kind": "truncated_laplace", "epsilon": math.nan, "bound": 2},
        {"kind": "truncated_laplace", "epsilon": 2.0**-51, "bound": 2},
        {"kind": "truncated_laplace", "epsilon": 1.0, "bound": 2, "seed": 1},
        {},
    ],
)
def test_bad_json_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        law_from_json(value)


def test_it_is_no_additive_noise() -> None:
    law = TruncatedLaplace(1.0, 14)
    with pytest.raises(InvalidInput):
        noise_from_json(law.to_json())
    part = Part("a", law, Sensitivity(1, 1.0))  # type: ignore[arg-type]
    calibration = Calibration((part,), (PureCost(1.0),), 1.0, 0.0, None, "unpaid ends")
    with pytest.raises(InvalidInput, match="no part with additive noise"):
        calibration.law("a")
    with pytest.raises(InvalidInput, match="no part with additive noise"):
        Permit(calibration, dps.per_record(), None).add_noise(np.zeros(3, np.int64), "a")
