"""What a density estimates, how well, and whether its intervals cover near the data, between and far away.

Hash seeds and noise are fixed, so every figure repeats. Where a threshold stands for a law, its rate over fresh seeds
is stated with it, and a wrong law is shown to be rejected.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import kernels
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.density import DensitySketch
from dpsketch.sketches.density.functions import folds, row_functions
from dpsketch.sketches.density.spec import default_width

pytestmark = pytest.mark.statistical

GAUSSIAN, PURE = {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 0.0}
INDEPENDENT = kernels.Euclidean(2, 2.0, directions="independent")


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Euclidean(1, 1.5),
        kernels.Euclidean(2, (1.0, 3.0)),
        INDEPENDENT,
        kernels.Euclidean(2, 4.0, power=3),
        kernels.Manhattan(2, 2.0),
        kernels.Manhattan(6, 6.0, directions="independent"),
        kernels.Angular(5, 4),
    ],
    ids=str,
)
def test_rows_collide_with_the_exact_probability(kernel: kernels.Kernel) -> None:
    """Five points at growing distances from a first one; a kernel 15% wider, or of another power, is rejected.

    Compared with the exact kernel over 200 seeds, at 6.5 standard errors: a rate below 1e-9 for each point.
    """
    rng = np.random.default_rng(3)
    direction = rng.normal(size=kernel.dim)
    points = np.ones(kernel.dim) + np.outer([0, 0.2, 0.7, 1.5, 3, 8], direction / np.linalg.norm(direction))
    if isinstance(kernel, kernels.Angular):
        wrong: kernels.Kernel = kernels.Angular(kernel.dim, kernel.power + 1)
    else:
        wrong = type(kernel)(kernel.dim, tuple(1.15 * np.broadcast_to(kernel.bandwidth, kernel.dim)), kernel.power)
    width, found = default_width(kernel), []
    for seed in range(200):
        columns = row_functions(kernel, 200, seed).columns(np.asarray(points, np.float64), width)
        found.append((columns[1:] == columns[0]).mean(axis=1))
    shares = np.array(found)
    spread = shares.std(axis=0, ddof=1) / math.sqrt(len(shares))

    def deviations(claimed: kernels.Kernel) -> np.ndarray:
        exact = claimed.similarity(points[:1], points[1:])[0]
        if not (folds(claimed) or isinstance(claimed, kernels.Angular)):
            exact = exact + (1 - exact) / width
        return np.abs(shares.mean(axis=0) - exact) / np.maximum(spread, 1e-12)

    assert deviations(kernel).max() < 6.5
    assert deviations(wrong).max() > 6.5


# Coverage.


def spread_out(dim: int, n: int) -> np.ndarray:
    """A mixture of normal laws."""
    rng = np.random.default_rng(3)
    centres = 3.0 * rng.normal(size=(4, dim))
    return centres[rng.integers(4, size=n)] + rng.normal(size=(n, dim))


def crowded(dim: int, n: int) -> np.ndarray:
    """One small cluster: a row meets all of it or none."""
    return 2.0 + 0.3 * np.random.default_rng(3).normal(size=(n, dim))


def covered(
    kernel: kernels.Kernel, points: np.ndarray, rows: int, budget: dict[str, float], n: int, **how: Any
) -> dict[str, tuple[float, float, float]]:
    """Return, for places near the records, in their box, and 4 to 50 bandwidths away, over 10 seeds: the share covered
    by intervals and by ones of half their width, and the mean estimate over the mean truth."""
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(n, kernel.dim))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    distance = getattr(kernel, "bandwidth", 2.0) * np.exp(rng.uniform(np.log(4), np.log(50), size=(n, 1)))
    places = {
        "near": points[:n] + 0.3 * rng.normal(size=(n, kernel.dim)),
        "between": rng.uniform(points.min(axis=0) - 1, points.max(axis=0) + 1, size=(n, kernel.dim)),
        "far": points.mean(axis=0) + distance * directions,
    }
    found: dict[str, list[Any]] = {name: [] for name in places}
    for seed in range(10):
        sketch = DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=100 + seed)
        sketch.update(points)
        with seeded_noise_for_tests_only(seed):
            private = sketch.release(**budget)
        for name, where in places.items():
            found[name].append(private.estimate(where, **how))
    result = {}
    for name, where in places.items():
        truth = kernel.similarity(where, points).sum(axis=1)
        value, low, high = (np.array([getattr(one, side) for one in found[name]]) for side in ("value", "low", "high"))
        inside = np.mean((low <= truth) & (truth <= high))
        half = np.mean(((value + low) / 2 <= truth) & (truth <= (value + high) / 2))
        result[name] = float(inside), float(half), float(value.mean() / truth.mean())
    return result


@pytest.mark.parametrize("estimator", ["mean", "median_of_means"])
@pytest.mark.parametrize(
    ("kernel", "points", "rows", "budget"),
    [
        (INDEPENDENT, spread_out, 300, GAUSSIAN),
        (kernels.Manhattan(2, 3.0), crowded, 300, PURE),
        (kernels.Angular(2, 3), spread_out, 64, GAUSSIAN),
    ],
    ids=lambda given: given.__name__ if callable(given) else "" if isinstance(given, dict) else str(given),
)
def test_intervals_cover_everywhere(
    kernel: kernels.Kernel, points: Any, rows: int, budget: dict[str, float], estimator: str
) -> None:
    """With fresh seeds (three times twenty) none of 84 settings of 64 rows fell below 94% in any region; the lowest had
    94.4%, the next 96.0%. Where directions are independent, intervals of half the width do not cover."""
    found = covered(kernel, points(kernel.dim, 2000), rows, budget, 40, estimator=estimator)
    assert min(inside for inside, _, _ in found.values()) >= 0.94
    if rows == 300:
        assert 0.85 < found["far"][2] < 1.15
    if kernel is INDEPENDENT:
        assert min(half for _, half, _ in found.values()) < 0.9


def test_groups_of_a_lattice_are_no_worse_than_others() -> None:
    """1,000 rows near a crowd: a median over every 23rd row of the lattice read 9% too much and covered 81%."""
    kernel = kernels.Manhattan(2, 3.0)
    found = covered(kernel, crowded(2, 2000), 1000, GAUSSIAN, 30, estimator="median_of_means")
    assert min(inside for inside, _, _ in found.values()) >= 0.94
    assert abs(found["near"][2] - 1) < 0.02


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
    """150 releases, three places far apart: at least 0.867 of 95% intervals hold the truth.

    A place's cover is binomial: fewer than 130 of 150 have a chance of 2e-5 for each place. Intervals of half the width
    hold less than that, but for landmarks and signs, whose bounds are wide.
    """
    arguments, points = MAPS[features], spread_out(2, 1500).clip(-12, 12)
    places = np.array([[0.0, 0.5], [6.0, -6.0], [-5.0, 4.0]])
    truth = arguments["kernel"].similarity(places, points).sum(axis=1)
    sketch = DensitySketch(unit=dps.per_record(), **arguments)
    sketch.update(points)
    inside, half = np.zeros(3), np.zeros(3)
    with seeded_noise_for_tests_only(4):
        for _ in range(150):
            found = sketch.release(**budget).estimate(places)
            inside += (found.low <= truth) & (truth <= found.high)
            half += ((found.value + found.low) / 2 <= truth) & (truth <= (found.value + found.high) / 2)
    assert inside.min() >= 130
    if features in ("series", "linear"):
        assert half.max() < 130
