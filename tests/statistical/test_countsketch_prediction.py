"""What a spec predicts before anything is spent is what a release then shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise

CASES = {"gaussian": (7, 4096, {"epsilon": 0.2, "delta": 1e-6}), "laplace": (15, 1000, {"epsilon": 1.0, "delta": 0})}


@pytest.mark.parametrize(
    ("case", "skew"),
    [
        *(("gaussian", skew) for skew in (0.0, 0.8, 1.1)),
        *(pytest.param("laplace", skew, marks=pytest.mark.full) for skew in (0.0, 0.8)),
        ("laplace", 1.1),
    ],
)
def test_errors_are_predicted_within_a_fifth(case: str, skew: float) -> None:
    """Predicted with one hash seed, measured with others on sampled data: within 20%, intervals and decoding too."""
    keys = 20_000
    shares = np.arange(1, keys + 1.0) ** -skew
    counts = np.random.default_rng(3).multinomial(500_000, shares / shares.sum())
    rows, width, budget = CASES[case]
    spec = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=1).spec
    with noise.seeded_noise_for_tests_only(1):
        predicted = spec.predict(**budget, records=500_000, keys=keys, skew=skew)
    squares, decoded, halves = [], [], []
    for seed in (5, 6):
        sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed)
        sketch.update(np.arange(keys) + 10**9, counts=counts)
        with noise.seeded_noise_for_tests_only(seed):
            private = sketch.release(**budget)
        found = private.estimate(np.arange(keys) + 10**9)
        squares.append(np.mean((found.value - counts) ** 2))
        halves.append(found.high[0] - found.value[0])
        decoded.append(np.mean((private.decode(np.arange(keys) + 10**9).value - counts) ** 2))
    assert predicted.noise_scale == pytest.approx(private.noise_scale)
    assert predicted.error == pytest.approx(math.sqrt(np.mean(squares)), rel=0.2)
    assert predicted.half_width == pytest.approx(np.mean(halves), rel=0.2)
    assert predicted.decoded_error == pytest.approx(math.sqrt(np.mean(decoded)), rel=0.2)
    assert predicted.memory == 8 * rows * width


def test_a_guess_must_be_whole() -> None:
    spec = dps.CountSketch(rows=5, width=64, unit=dps.per_record()).spec
    for guess in ({}, {"records": 10}, {"counts": [1.0], "keys": 3}, {"counts": [-1.0]}):
        with pytest.raises(dps.DpsketchError):
            spec.predict(epsilon=1.0, delta=1e-6, **guess)
    assert spec.predict(epsilon=1.0, delta=1e-6, counts=[5, 3]).error > 0
