"""Whether intervals of densities cover what they say: near the data, between and far away, over seeds and noise.

:func:`covered` measures it through the public names alone. Noise and hash seeds are fixed, so every figure repeats and
no check fails by chance. With fresh seeds (three times twenty) none of 84 settings of 64 rows fell below 94% in any
region; the lowest had 94.4%, the next 96.0%. Half-width intervals show the power.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import kernels
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.density import DensitySketch

pytestmark = pytest.mark.statistical

GAUSSIAN, PURE = {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0.0}


def spread_out(dim: int, n: int) -> np.ndarray:
    """A mixture of normal laws."""
    rng = np.random.default_rng(3)
    centres = 3.0 * rng.normal(size=(4, dim))
    return centres[rng.integers(4, size=n)] + rng.normal(size=(n, dim))


def crowded(dim: int, n: int) -> np.ndarray:
    """One small cluster: a row meets all of it or none."""
    return 2.0 + 0.3 * np.random.default_rng(3).normal(size=(n, dim))


def asked(kernel: kernels.Kernel, points: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Places near the records, in the box that holds them, and 4 to 50 bandwidths away."""
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(n, kernel.dim))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    distance = getattr(kernel, "bandwidth", 2.0) * np.exp(rng.uniform(np.log(4), np.log(50), size=(n, 1)))
    return {
        "near": points[:n] + 0.3 * rng.normal(size=(n, kernel.dim)),
        "between": rng.uniform(points.min(axis=0) - 1, points.max(axis=0) + 1, size=(n, kernel.dim)),
        "far": points.mean(axis=0) + distance * directions,
    }


def covered(
    kernel: kernels.Kernel, points: np.ndarray, rows: int, budget: dict[str, float], seeds: int, n: int, **how: Any
) -> dict[str, dict[str, float]]:
    """Return, for each region: the share covered, by intervals and by ones of half their width; their width, as a
    multiple of the error's 95% quantile; and the mean estimate over the mean truth."""
    places = asked(kernel, points, n)
    exact = {name: kernel.similarity(where, points).sum(axis=1) for name, where in places.items()}
    found: dict[str, list[Any]] = {name: [] for name in places}
    for seed in range(seeds):
        sketch = DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=100 + seed)
        sketch.update(points)
        with seeded_noise_for_tests_only(seed):
            private = sketch.release(**budget)
        for name, where in places.items():
            found[name].append(private.estimate(where, **how))
    result = {}
    for name, truth in exact.items():
        value, low, high = (np.array([getattr(one, side) for one in found[name]]) for side in ("value", "low", "high"))
        error = np.abs(value - truth)
        inside = (low <= truth) & (truth <= high)
        half = ((value + low) / 2 <= truth) & (truth <= (value + high) / 2)
        width = np.median((high - low).mean(axis=0) / 2 / np.quantile(error, 0.95, axis=0))
        result[name] = {
            "covered": float(inside.mean()),
            "halved": float(half.mean()),
            "width": float(width),
            "ratio": float(value.mean() / truth.mean()),
        }
    return result


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
@pytest.mark.parametrize("estimator", ["mean", "median_of_means"])
@pytest.mark.parametrize(
    ("kernel", "points"),
    [
        (kernels.Euclidean(1, 1.5), crowded),
        (kernels.Euclidean(2, 2.0, directions="independent"), spread_out),
        (kernels.Manhattan(2, 3.0), crowded),
        (kernels.Angular(2, 3), spread_out),
    ],
    ids=lambda given: given.__name__ if callable(given) else str(given),
)
def test_more_rows_cover_everywhere(
    kernel: kernels.Kernel, points: Any, estimator: str, budget: dict[str, float]
) -> None:
    """300 rows, both laws of noise; a median of means reads far values as large as they are."""
    found = covered(kernel, points(kernel.dim, 5000), 300, budget, 10, 40, estimator=estimator)
    assert min(region["covered"] for region in found.values()) >= 0.94
    assert 0.85 < found["far"]["ratio"] < 1.15


def test_groups_of_a_lattice_are_no_worse_than_others() -> None:
    """1,000 rows near a crowd: a median over every 23rd row of the lattice read 9% too much and covered 81%."""
    kernel = kernels.Manhattan(2, 3.0)
    found = covered(kernel, crowded(2, 2000), 1000, GAUSSIAN, 10, 30, estimator="median_of_means")
    assert min(region["covered"] for region in found.values()) >= 0.94
    assert abs(found["near"]["ratio"] - 1) < 0.02


@pytest.mark.parametrize("seed", [28, 75, 131, 200])
def test_near_a_tight_cluster_groups_of_rows_tell_more_than_neighbours(seed: int) -> None:
    """Releases that were missed while a mean's spread was that of neighbouring rows alone; of two thousand, 93.5% were
    covered. Each is covered with probability 0.95, and the seeds are fixed."""
    kernel = kernels.Euclidean(dim=2, bandwidth=1.0)
    points = np.random.default_rng(0).normal(-3, 0.05, (2000, 2))
    sketch = DensitySketch(kernel=kernel, rows=300, unit=dps.per_record(), seed=seed, bounds=[(-10, 10)] * 2)
    sketch.update(points)
    with seeded_noise_for_tests_only(seed):
        found = sketch.release(**GAUSSIAN).estimate(points[:1])
    assert found.low[0] <= kernel.similarity(points[:1], points).sum() <= found.high[0]


MAPS: dict[str, dict[str, Any]] = {
    "series": {"kernel": kernels.Gaussian(2, 2.0), "bounds": (-12, 12)},
    "nystrom": {
        "kernel": kernels.Gaussian(2, 2.0),
        "landmarks": np.random.default_rng(2).uniform(-12, 12, size=(150, 2)),
    },
    "linear": {"kernel": kernels.Linear(2)},
    "signs": {"kernel": kernels.Angular(2, 1), "rows": 64, "features": "signs"},
}


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["gaussian", "pure"])
@pytest.mark.parametrize("features", MAPS)
def test_features_cover_by_their_noise(features: str, budget: dict[str, float]) -> None:
    """300 releases, three places far apart: at least 0.893 of 95% intervals hold the truth.

    A place's cover is binomial: 0.893 is 4.5 deviations below 0.95, a false alarm has a chance of less than 1e-5 for
    each place. Intervals of half the width hold less than that, but for landmarks and signs, whose bounds are wide.
    """
    arguments, points = MAPS[features], spread_out(2, 1500).clip(-12, 12)
    places = np.array([[0.0, 0.5], [6.0, -6.0], [-5.0, 4.0]])
    truth = arguments["kernel"].similarity(places, points).sum(axis=1)
    sketch = DensitySketch(unit=dps.per_record(), **arguments)
    sketch.update(points)
    inside, half = np.zeros(3), np.zeros(3)
    with seeded_noise_for_tests_only(4):
        for _ in range(300):
            found = sketch.release(**budget).estimate(places)
            inside += (found.low <= truth) & (truth <= found.high)
            half += ((found.value + found.low) / 2 <= truth) & (truth <= (found.value + found.high) / 2)
    assert inside.min() / 300 >= 0.893
    if features in ("series", "linear"):
        assert half.max() / 300 < 0.893
