"""The rivals and published forms of the RACE reproduction, against slow and obvious versions of themselves."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.reproduce import find_papers

PACKAGE = "race_paper_under_test"


@pytest.fixture(scope="module")
def race() -> ModuleType:
    """The paper's folder as a package of its own name, so that a reproduction in the same process is not disturbed."""
    import importlib

    package = ModuleType(PACKAGE)
    package.__path__ = [str(Path(find_papers()) / "race")]
    sys.modules[PACKAGE] = package
    for name in ("bernstein", "published", "regression"):
        setattr(package, name, importlib.import_module(f"{PACKAGE}.{name}"))
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


# Slow, obvious versions.


def kernel_value(x: list[float], v: list[float], bandwidth: float) -> float:
    c = math.dist(x, v) / bandwidth
    if c == 0:
        return 1.0
    tail = 0.5 * math.erfc(1 / c / math.sqrt(2))
    return 1 - 2 * tail - math.sqrt(2 / math.pi) * c * (1 - math.exp(-1 / (2 * c * c)))


def lattice_places(degree: int, dim: int, low: float, high: float) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for _ in range(dim):
        places = [(*place, step) for place in places for step in range(degree + 1)]
    return places


def bernstein_polynomial(degree: int, v: int, x: float) -> float:
    return math.comb(degree, v) * x**v * (1 - x) ** (degree - v)


def iterated_basis(degree: int, v: int, x: float, order: int) -> float:
    """Σ_{i=1..order} C(order, i)(−1)^{i−1} B^{i−1}(b_v), by Aldà and Rubinstein's definition; B evaluates and sums."""

    def applied(times: int, y: float) -> float:
        if times == 0:
            return bernstein_polynomial(degree, v, y)
        return sum(applied(times - 1, u / degree) * bernstein_polynomial(degree, u, y) for u in range(degree + 1))

    return sum(math.comb(order, i) * (-1) ** (i - 1) * applied(i - 1, x) for i in range(1, order + 1))


def slow_values(points: np.ndarray, degree: int, low: float, high: float, bandwidth: float, steps: int) -> list[int]:
    values = []
    for place in lattice_places(degree, points.shape[1], low, high):
        where = [low + (high - low) * step / degree for step in place]
        values.append(sum(round(steps * kernel_value(list(x), where, bandwidth)) for x in points))
    return values


@pytest.mark.parametrize(("dim", "degree"), [(1, 7), (2, 4), (3, 3)])
def test_values_on_the_lattice(race: ModuleType, dim: int, degree: int) -> None:
    points = np.random.default_rng(1).uniform(-2, 3, size=(40, dim))
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(dim, 0.8), (-2.0, 3.0), degree)
    assert lattice.places().tolist() == pytest.approx(
        np.array([[-2 + 5 * step / degree for step in place] for place in lattice_places(degree, dim, -2, 3)])
    )
    slow = slow_values(points, degree, -2, 3, 0.8, race.bernstein.STEPS)
    assert lattice.sensitive_values(points).ravel().tolist() == slow


@pytest.mark.parametrize(("dim", "degree", "order"), [(1, 6, 1), (1, 6, 3), (2, 3, 2), (3, 2, 3)])
def test_the_polynomial(race: ModuleType, dim: int, degree: int, order: int) -> None:
    rng = np.random.default_rng(2)
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(dim, 1.0), (-1.0, 3.0), degree)
    values = rng.integers(-5000, 90000, size=lattice.shape)
    points = rng.uniform(-1, 3, size=(5, dim))
    release = race.bernstein.PrivateBernstein(lattice, values, RoundedGaussian(1.0))
    for point, found in zip(points, release.estimate(points, order=order), strict=True):
        slow = sum(
            values[place]
            / race.bernstein.STEPS
            * math.prod(iterated_basis(degree, v, (x + 1) / 4, order) for v, x in zip(place, point, strict=True))
            for place in lattice_places(degree, dim, -1, 3)
        )
        assert found == pytest.approx(slow, rel=1e-9)


@pytest.mark.parametrize(("dim", "degree", "bandwidth"), [(1, 20, 0.1), (1, 5, 2.0), (2, 8, 0.3), (3, 4, 0.4)])
def test_no_record_moves_the_values_further_than_the_norms(
    race: ModuleType, dim: int, degree: int, bandwidth: float
) -> None:
    """Exact norms of single records: on the lattice, between its places, at random, and outside of the bounds.

    The sharp norms are nearly reached, so they are not far too large; and norms a third below them are passed.
    """
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(dim, bandwidth), (0.0, 1.0), degree)
    rng = np.random.default_rng(4)
    records = np.vstack(
        [
            lattice.places(),
            np.clip(lattice.places() + 0.5 / degree, 0, 1),
            rng.uniform(size=(300, dim)),
            rng.uniform(-5, 5, size=(50, dim)),
            np.full((1, dim), 0.5),
        ]
    )
    moved = np.stack([lattice.sensitive_values(record[None, :]).ravel() for record in records])
    largest = [np.abs(moved).sum(axis=1).max(), np.sqrt((moved**2).sum(axis=1)).max()]
    published, sharp = lattice.norms("published"), lattice.norms("sharp")
    finer = lattice.norms("sharp", splits=8)
    for norm in range(2):
        assert largest[norm] <= finer[norm] <= sharp[norm] * (1 + 1e-12) <= published[norm] * (1 + 1e-12)
        assert largest[norm] > sharp[norm] / 1.5
    assert published == (
        race.bernstein.STEPS * (degree + 1) ** dim,
        pytest.approx(race.bernstein.STEPS * math.sqrt((degree + 1) ** dim)),
    )


def test_noise_is_calibrated_to_the_norms(race: ModuleType) -> None:
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(2, 0.5), (0.0, 1.0), 4)
    values = np.zeros(lattice.shape, dtype=np.int64)
    for bound in ("published", "sharp"):
        l1, l2 = lattice.norms(bound)
        pure = race.bernstein.release(lattice, values, epsilon=0.5, delta=0.0, bound=bound)
        assert pure.noise == DiscreteLaplace(0.5, l1)
        gaussian = race.bernstein.release(lattice, values, epsilon=1.0, delta=1e-6, bound=bound)
        assert gaussian.noise.sigma == pytest.approx(4.2247 * l2, rel=1e-4)
        assert gaussian.noise.sigma >= l2 / 0.23671


# The published forms.


def linear_records(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(3000, 2))
    return features, features @ [0.5, -0.3] + 0.2 + 0.05 * rng.normal(size=3000)


def test_losses_are_the_paired_kernel(race: ModuleType) -> None:
    """Both forms estimate the mean of (k(z, θ) + k(−z, θ))/2; here nearly without noise, from 4,000 rows."""
    vectors = race.regression.records(*linear_records(1))
    theta = np.array([[0.5, -0.3, 0.2, -1.0], [0.0, 0.0, 0.0, -1.0], [1.0, 1.0, 1.0, -1.0]])
    kernel = dps.kernels.Angular(4, power=4)
    slow = (kernel.similarity(theta, vectors) + kernel.similarity(theta, -vectors)).mean(axis=1) / 2
    for make in (race.regression.paired_loss, race.regression.single_loss):
        found = make(vectors, 4000, seed=1, epsilon=1e7, delta=0.0)(theta)
        assert found == pytest.approx(slow, rel=0.15)
        assert found.argmin() == slow.argmin() == 0
