"""The δ of rounded Gaussian noise, summed exactly, and the σ that a budget takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, noise


def test_the_exact_delta_of_the_released_law_is_at_most_the_claim() -> None:
    """The rounded Gaussian's δ at ε, summed exactly over one row's outputs, and with halved σ far above it."""
    from scipy.special import ndtr

    def delta_of(sigma: float, epsilon: float, shift: int) -> float:
        z = np.arange(-int(40 * sigma) - 50, int(40 * sigma) + 50)
        p = ndtr((z + 0.5) / sigma) - ndtr((z - 0.5) / sigma)
        q = ndtr((z - shift + 0.5) / sigma) - ndtr((z - shift - 0.5) / sigma)
        return float(np.maximum(0, p - math.exp(epsilon) * q).sum())

    for epsilon in (0.1, 1.0, 4.0):
        sketch = dps.CountSketch(rows=1, width=4, unit=dps.per_record())
        (law,) = sketch.release(epsilon=epsilon, delta=1e-6).noise
        assert isinstance(law, noise.RoundedGaussian)
        assert 0.5e-6 < delta_of(law.sigma, epsilon, 1) <= 1e-6 * (1 + 1e-6)
        assert delta_of(law.sigma / 2, epsilon, 1) > 1e-4


def test_sigma_is_the_analytic_one() -> None:
    """σ per unit of sensitivity at δ = 1e-6, to the figures printed in MATH."""
    for epsilon, sigma in ((0.1, 36.30), (1.0, 4.2247), (4.0, 1.1935)):
        assert 1 / accounting.gaussian_mu(epsilon, 1e-6) == pytest.approx(sigma, rel=2e-4)
