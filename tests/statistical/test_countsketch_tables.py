"""The tables of MATH: error of the median under noise alone, and with sparse vectors, through the public API.

Every test here states its false-positive rate. Noise is seeded, so a pass is a pass for ever.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting

# rows: variance, mean size and .5/.9/.95/.99 quantiles of |median of k draws of N(0, k)| (Pagh and Thorup, Fig. 1).
MEDIAN_OF_NORMALS = {
    1: (1.0, 0.7979, 0.6745, 1.645, 1.960, 2.576),
    3: (1.3460, 0.9243, 0.7794, 1.908, 2.277, 3.005),
    5: (1.4342, 0.9542, 0.8049, 1.969, 2.350, 3.100),
    7: (1.4731, 0.9673, 0.8162, 1.996, 2.381, 3.139),
    15: (1.5254, 0.9848, 0.8316, 2.031, 2.422, 3.189),
    31: (1.5489, 0.9927, 0.8387, 2.047, 2.440, 3.210),
}

# rows: the same quantiles for t/b = 1 keys of value 10 (Fig. 3).
SPARSE_VECTORS = {
    1: (8.61, 19.10, 20.48, 30.06),
    3: (1.974, 10.59, 11.66, 19.36),
    7: (1.866, 7.816, 9.330, 11.53),
    15: (1.764, 4.755, 5.932, 8.329),
    31: (1.532, 3.786, 4.539, 6.048),
}

KEYS = 400_000
WIDTH = 50_000


def errors(rows: int, *, load: float, value: float, grid: float = 0.01, factor: float = 1.0) -> np.ndarray:
    """Errors of the median for absent keys, in units where a counter's noise is N(0, rows)."""
    # A fine grid makes the integer noise practically continuous: σ is √rows / grid steps.
    sketch = dps.CountSketch(rows=rows, width=WIDTH, unit=dps.per_record(max_weight=value), seed=11, grid=grid)
    present = np.arange(int(load * WIDTH))
    if len(present):
        sketch.update(present, weights=np.full(len(present), value))
    # ρ is chosen so that the noise's σ is √rows (times `factor`) in the keys' unit.
    rho = (value * math.sqrt(rows)) ** 2 / (2 * rows * factor**2)
    private = sketch.release(rho=rho)
    assert private.noise_scale == pytest.approx(factor * math.sqrt(rows), rel=1e-3)
    return private.estimate(np.arange(10**9, 10**9 + KEYS), estimator="median").value


@pytest.mark.parametrize("rows", MEDIAN_OF_NORMALS)
def test_median_of_normals(rows: int, seeded: None) -> None:
    """Within 2.5% of the table; keys that share cells make this ~5 standard errors (false positives below 1e-6)."""
    variance, mean, *quantiles = MEDIAN_OF_NORMALS[rows]
    found = errors(rows, load=0, value=1.0)
    assert found.var() == pytest.approx(variance, rel=0.04)
    assert np.abs(found).mean() == pytest.approx(mean, rel=0.025)
    assert np.quantile(np.abs(found), [0.5, 0.9, 0.95, 0.99]) == pytest.approx(quantiles, rel=0.03)


def test_the_table_would_reject_other_noise(seeded: None) -> None:
    """The twin: with σ·1.1 the same tolerances fail."""
    variance, mean, *quantiles = MEDIAN_OF_NORMALS[7]
    found = errors(7, load=0, value=1.0, factor=1.1)
    assert found.var() != pytest.approx(variance, rel=0.04)
    assert np.abs(found).mean() != pytest.approx(mean, rel=0.025)
    assert np.quantile(np.abs(found), [0.5, 0.9, 0.95, 0.99]) != pytest.approx(quantiles, rel=0.03)


@pytest.mark.parametrize("rows", SPARSE_VECTORS)
def test_sparse_vectors(rows: int, seeded: None) -> None:
    """Within 4% of the table; a quantile on a steep stretch of the law is the hardest (false positives below 1e-6)."""
    found = errors(rows, load=1, value=10.0)
    assert np.quantile(np.abs(found), [0.5, 0.9, 0.95, 0.99]) == pytest.approx(SPARSE_VECTORS[rows], rel=0.04)


@pytest.mark.parametrize("estimator", ["median", "mean", "robust"])
@pytest.mark.parametrize("skew", [0.8, 1.1])
def test_intervals_cover(estimator: str, skew: float, seeded: None) -> None:
    """95% intervals cover 93–97% of frequent, middling and absent keys, over 25 hash seeds.

    Keys of one seed share cells, so an effective sample of about 25 × 400 keys: 5 standard errors are 1.1%.
    """
    keys = np.arange(20_000)
    counts = np.maximum(1, (100_000 / (keys + 1.0) ** skew)).astype(np.int64)
    groups = {"frequent": keys[:50], "middling": keys[50:2000], "absent": np.arange(10**6, 10**6 + 2000)}
    covered: dict[str, list[float]] = {name: [] for name in groups}
    for seed in range(25):
        sketch = dps.CountSketch(rows=7, width=1000, unit=dps.per_record(), seed=seed)
        sketch.update(keys, counts=counts)
        private = sketch.release(epsilon=1, delta=1e-6)
        for name, group in groups.items():
            found = private.estimate(group, estimator=estimator)
            truth = np.where(group < len(keys), counts[np.minimum(group, len(keys) - 1)], 0)
            covered[name].append(float(np.mean((found.low <= truth) & (truth <= found.high))))
    for name, shares in covered.items():
        assert 0.93 <= np.mean(shares) <= 0.97, name


def test_an_interval_from_the_noise_alone_would_not_cover(seeded: None) -> None:
    """The twin: ±1.96 standard errors of the noise cover far less than they say."""
    keys = np.arange(20_000)
    counts = np.maximum(1, (100_000 / (keys + 1.0) ** 1.1)).astype(np.int64)
    sketch = dps.CountSketch(rows=7, width=1000, unit=dps.per_record(), seed=1)
    sketch.update(keys, counts=counts)
    private = sketch.release(epsilon=1, delta=1e-6)
    error = np.abs(private.estimate(keys, estimator="median").value - counts)
    assert np.mean(error <= 1.96 * private.noise_scale * math.sqrt(math.pi / 2 / 7)) < 0.85


def test_a_release_is_the_sketch_plus_noise_of_the_stated_law(seeded: None) -> None:
    """Mean and variance of table − sketch within 5 standard errors (false positives below 1e-6), for each law."""
    from dpsketch import files

    sketch = dps.CountSketch(rows=5, width=65_536, unit=dps.per_record(max_weight=2, neighbours="replace"))
    sketch.update(np.arange(50_000), weights=np.full(50_000, 2))
    exact = np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])
    laws = {
        "gaussian": (
            {"epsilon": 1.0, "delta": 1e-6},
            (4 * math.sqrt(5) / accounting.gaussian_mu(1.0, 1e-6)) ** 2 + 1 / 12,
        ),
        "zcdp": ({"rho": 0.5}, (4 * math.sqrt(5)) ** 2 + 1 / 12),
        "laplace": ({"epsilon": 1.0, "delta": 0}, 0.5 / math.sinh(0.5 / 20) ** 2),
    }
    for budget, variance in laws.values():
        added = (sketch.release(**budget).table - exact).astype(float).ravel()
        assert abs(added.mean()) < 5 * math.sqrt(variance / added.size)
        kurtosis = np.mean(added**4) / np.mean(added**2) ** 2
        assert abs(added.var() / variance - 1) < 5 * math.sqrt((kurtosis - 1) / added.size)
        # The power: noise 5% smaller would have been seen.
        assert 5 * math.sqrt((kurtosis - 1) / added.size) < 0.05 * 2
