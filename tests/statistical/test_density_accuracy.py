"""What a density estimates, and how well.

Hash seeds and noise are fixed, so every figure repeats. Where a threshold stands for a law, its rate over fresh seeds
is stated with it, and a wrong law is shown to be rejected.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import kernels
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.density import DensitySketch, PrivateDensity
from dpsketch.sketches.density.functions import folds, row_functions
from dpsketch.sketches.density.spec import default_width

pytestmark = pytest.mark.statistical

CENTRES = np.array([[-3, -3], [3, 3], [-1, 2], [2.5, -2]])
SPREADS = np.array([1.0, 0.8, 0.6, 1.2])
PLANE = kernels.Euclidean(2, 2.0)

KERNELS = [
    kernels.Euclidean(1, 1.5),
    kernels.Euclidean(2, 2.0),
    kernels.Euclidean(2, (1.0, 3.0)),
    kernels.Euclidean(2, 2.0, directions="independent"),
    kernels.Euclidean(3, 2.0),
    kernels.Euclidean(6, 4.0),
    kernels.Euclidean(2, 4.0, power=3),
    kernels.Manhattan(1, 2.0),
    kernels.Manhattan(2, 2.0),
    kernels.Manhattan(6, 6.0),
    kernels.Manhattan(2, 2.0, directions="independent"),
    kernels.Manhattan(2, 4.0, power=2),
    kernels.Angular(2, 3),
    kernels.Angular(5, 4),
    kernels.Angular(5, 2, directions="independent"),
]


def mixture(n: int, seed: int) -> np.ndarray:
    """The 2-D Gaussian mixture of the accuracy targets."""
    rng = np.random.default_rng(seed)
    which = rng.integers(4, size=n)
    return CENTRES[which] + rng.normal(size=(n, 2)) * SPREADS[which][:, None]


def near(points: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Places to ask about, each near a record."""
    return points[:n] + 0.3 * np.random.default_rng(seed).normal(size=(n, points.shape[1]))


def relative_errors(
    kernel: kernels.Kernel, points: np.ndarray, rows: int, seeds: range, budget: dict[str, float], **more: object
) -> np.ndarray:
    queries = near(points, 100, 1)
    exact = kernel.similarity(queries, points).sum(axis=1)
    found = []
    for seed in seeds:
        sketch = DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=seed, **more)
        sketch.update(points)
        found.append(sketch.release(**budget).estimate(queries).value / exact - 1)
    return np.array(found)


def rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def collisions(kernel: kernels.Kernel, points: object, seeds: int) -> np.ndarray:
    """For each seed and point, the share of 200 rows in which it meets the first point."""
    width = default_width(kernel)
    found = []
    for seed in range(seeds):
        functions = row_functions(kernel, 200, seed)
        columns = functions.columns(np.asarray(points, np.float64), width)
        found.append((columns[1:] == columns[0]).mean(axis=1))
    return np.array(found)


def check_collisions(kernel: kernels.Kernel, points: object, wrong: kernels.Kernel) -> None:
    """Compare with the exact kernel over 300 seeds, at 6.5 standard errors: a rate below 1e-9 for each point."""
    shares = collisions(kernel, points, 300)
    width = default_width(kernel)
    error = shares.std(axis=0, ddof=1) / math.sqrt(len(shares))

    def deviations(claimed: kernels.Kernel) -> np.ndarray:
        exact = claimed.similarity(points[:1], points[1:])[0]
        if not (folds(claimed) or isinstance(claimed, kernels.Angular)):
            exact = exact + (1 - exact) / width
        return np.abs(shares.mean(axis=0) - exact) / np.maximum(error, 1e-12)

    assert deviations(kernel).max() < 6.5
    assert deviations(wrong).max() > 6.5


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_rows_collide_with_the_exact_probability(kernel: kernels.Kernel) -> None:
    """Five points at growing distances from a first one; a kernel 15% wider, or of another power, is rejected."""
    rng = np.random.default_rng(3)
    direction = rng.normal(size=kernel.dim)
    points = np.ones(kernel.dim) + np.outer([0, 0.2, 0.7, 1.5, 3, 8], direction / np.linalg.norm(direction))
    if isinstance(kernel, kernels.Angular):
        wrong: kernels.Kernel = kernels.Angular(kernel.dim, kernel.power + 1)
    else:
        wrong = type(kernel)(kernel.dim, tuple(1.15 * np.broadcast_to(kernel.bandwidth, kernel.dim)), kernel.power)
    check_collisions(kernel, points, wrong)


def test_a_folded_kernel_is_the_plain_one_near_by_and_flat_far_away() -> None:
    """The exact folded kernel, from its Fourier series: (1/W)·Σ sinc²(m/W)·exp(−2π²m²c²/W²) over all m."""
    width = 64
    for distance in (0.3, 1.0, 5.0, width / 4, 4 * width):
        m = np.arange(1, 40 * width)
        waves = np.sinc(m / width) ** 2 * np.exp(-2 * (np.pi * m * distance / width) ** 2)
        folded = (1 + 2 * waves.sum()) / width
        plain = kernels.Euclidean(1, 1.0).similarity([[0.0]], [[distance]])[0, 0]
        assert folded == pytest.approx(1 / width if distance > width else plain, rel=1e-3)


@pytest.mark.parametrize(
    ("kernel", "wrong"),
    [
        (PLANE, kernels.Euclidean(2, 2.3)),
        (kernels.Euclidean(2, 4.0, power=2), kernels.Euclidean(2, 4.6, power=2)),
        (kernels.Manhattan(2, 3.0), kernels.Manhattan(2, 3.5)),
        (kernels.Angular(2, 3), kernels.Angular(2, 4)),
    ],
    ids=lambda kernel: kernel.name,
)
def test_estimates_are_unbiased_for_the_exact_kernel_sum(kernel: kernels.Kernel, wrong: kernels.Kernel) -> None:
    """Over 150 seeds, noise and the subtraction of collisions included; 6.5 standard errors, a rate below 1e-9 each.

    The sums of a kernel 15% wider, or of another power, are rejected.
    """
    points = mixture(1000, 5)
    queries = near(points, 4, 6)
    found = []
    width = None if isinstance(kernel, kernels.Angular) or folds(kernel) else 16
    with seeded_noise_for_tests_only(11):
        for seed in range(150):
            sketch = DensitySketch(kernel=kernel, rows=40, unit=dps.per_record(), seed=seed, width=width)
            sketch.update(points)
            found.append(sketch.release(epsilon=20.0, delta=1e-3).estimate(queries).value)
    error = np.std(found, axis=0, ddof=1) / math.sqrt(150)

    def deviation(claimed: kernels.Kernel) -> float:
        exact = claimed.similarity(queries, points).sum(axis=1)
        return float(np.abs((np.mean(found, axis=0) - exact) / error).max())

    assert deviation(kernel) < 6.5
    assert deviation(wrong) > 6.5


def test_without_the_subtraction_a_rehash_is_biased(seeded: None) -> None:
    points = mixture(2000, 5)
    kernel = kernels.Manhattan(2, 3.0)
    debiased = relative_errors(kernel, points, 300, range(5), {"epsilon": 5.0, "delta": 1e-6}, width=16)
    assert abs(debiased.mean()) < 0.02
    sketch = DensitySketch(kernel=kernel, rows=300, unit=dps.per_record(), width=16)
    sketch.update(points)
    queries = near(points, 100, 1)
    private = sketch.release(epsilon=5.0, delta=1e-6)
    raw = private.table[np.arange(300), private.spec.cells(np.asarray(queries, np.float64))].mean(axis=1)
    assert (raw / kernel.similarity(queries, points).sum(axis=1) - 1).mean() > 0.1


def test_the_mixture_with_a_hundred_rows(seeded: None) -> None:
    """N = 10⁵, ε = 1, δ = 1e-6: at most 3.5% with stratified directions; independent ones have about twice the error.

    Over 160 seeds the figure was 2.6% (2.9% in the worst group of eight), so fresh seeds stay below 3.5% with a margin
    of more than six standard errors.
    """
    points, budget = mixture(100_000, 2), {"epsilon": 1.0, "delta": 1e-6}
    stratified = rmse(relative_errors(PLANE, points, 100, range(8), budget))
    independent = kernels.Euclidean(2, 2.0, directions="independent")
    assert stratified <= 0.035
    assert rmse(relative_errors(independent, points, 100, range(8), budget)) > 1.4 * stratified


def digits_accuracy(seeds: range, **changes: object) -> float:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from dpsketch.sketches.density import DensityClassifier

    data = load_digits()
    scores = []
    for seed in seeds:
        train, test, train_y, test_y = train_test_split(
            data.data, data.target, test_size=0.3, random_state=seed, stratify=data.target
        )
        arguments: dict[str, object] = {"epsilon": 1.0, "delta": 1e-5, "rows": 800, "power": 4, **changes}
        model = DensityClassifier(bounds=(0, 16), classes=range(10), seed=seed, **arguments)
        scores.append(model.fit(train, train_y).score(test, test_y))
    return float(np.mean(scores))


def test_digits(seeded: None) -> None:
    """At least .83 over 20 seeds, from public pixel bounds alone; Laplace noise at as many rows is near chance.

    Over fresh noise it is .860 ± .005 with nothing else read (the middle of the bounds as centre), and .858 ± .003 with
    a private centre inside the same budget.
    """
    assert digits_accuracy(range(20), centre="middle") >= 0.83
    assert digits_accuracy(range(20)) >= 0.83
    assert digits_accuracy(range(2), delta=0.0) < 0.4


def private_auc(private: PrivateDensity, points: np.ndarray, odd: np.ndarray) -> float:
    scores = private.anomaly_score(points)
    ranks = np.argsort(np.argsort(scores)) + 1
    positive = odd.astype(bool)
    return float(
        (ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2) / (positive.sum() * (~positive).sum())
    )


def test_anomalies_of_real_data(real_data, seeded: None) -> None:
    """Shuttle (UCI): the density of all records, at ε = 1, ranks the anomalies first."""
    data = np.load(real_data / "kde" / "32_shuttle.npz")
    sketch = DensitySketch(
        kernel=kernels.Manhattan(9, 75.0, power=3), rows=200, unit=dps.per_record(), bounds=(-150, 150)
    )
    points = data["X"].astype(float)
    sketch.update(points)
    private = sketch.release(epsilon=1.0, delta=1e-6)
    assert private_auc(private, np.clip(points[:20_000], -150, 150), data["y"][:20_000]) > 0.97
