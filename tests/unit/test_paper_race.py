"""The rivals and published forms of the RACE reproduction, against slow and obvious versions of themselves."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
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


def test_values_do_not_depend_on_blocks(race: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(1).uniform(0, 1, size=(50, 2))
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(2, 0.5), (0.0, 1.0), 4)
    whole = lattice.sensitive_values(points)
    monkeypatch.setattr(race.bernstein, "_BLOCK", 75)
    assert (lattice.sensitive_values(points) == whole).all()


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


def test_more_order_fits_better(race: ModuleType) -> None:
    """Without noise the iterated polynomial nears the function, as the operator's theory says."""
    points = np.random.default_rng(3).normal(size=(500, 1))
    kernel = dps.kernels.Euclidean(1, 1.0)
    lattice = race.bernstein.Lattice(kernel, (-4.0, 4.0), 40)
    exact = race.bernstein.PrivateBernstein(lattice, lattice.sensitive_values(points), RoundedGaussian(1.0))
    places = np.linspace(-3, 3, 50)[:, None]
    truth = kernel.similarity(places, points).sum(axis=1)
    wrong = [np.abs(exact.estimate(places, order=order) - truth).max() for order in (1, 2, 4, 8)]
    assert wrong == sorted(wrong, reverse=True)
    assert wrong[-1] < 0.02 * truth.max() < wrong[0]


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


def test_the_kernel_falls_with_distance() -> None:
    """What the sharp norms rest on, to well within the slack that they leave for rounding."""
    distances = np.concatenate([[0.0], np.geomspace(1e-8, 1e6, 20_000)])[:, None]
    values = dps.kernels.Euclidean(1, 1.0).similarity([[0.0]], distances)[0]
    assert np.diff(values).max() < 1e-12


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


@pytest.mark.statistical
def test_the_release_has_that_noise(race: ModuleType) -> None:
    """The mean size of 20,164 Laplace draws is within 5% of Δ/ε: 7.1 standard errors, a rate below 1e-11.

    Noise a tenth smaller is rejected by the same rule.
    """
    lattice = race.bernstein.Lattice(dps.kernels.Euclidean(2, 0.5), (0.0, 1.0), 141)
    with seeded_noise_for_tests_only(5):
        release = race.bernstein.release(lattice, np.zeros(lattice.shape, dtype=np.int64), epsilon=2.0, delta=0.0)
    scale = lattice.norms("published")[0] / 2
    size = np.abs(release.values).mean() / scale
    assert abs(size - 1) < 0.05
    assert abs(0.9 * size - 1) > 0.05


# The published forms.


def test_published_noise_is_floored_laplace(race: ModuleType) -> None:
    points = np.random.default_rng(6).normal(size=(200, 2))
    sketch = race.published.sketch_of(points, dps.kernels.Euclidean(2, 1.0), 20, seed=3, width=32)
    exact = race.published.nonprivate(sketch)
    assert exact.table.sum() == 200 * 20
    assert (race.published.nonprivate(sketch).table == exact.table).all()
    private = race.published.as_published(sketch, 2.0, np.random.default_rng(7))
    noise = np.random.default_rng(7).laplace(scale=20 / 2.0, size=exact.table.shape)
    slow = [math.floor(count + z) for count, z in zip(exact.table.ravel(), noise.ravel(), strict=True)]
    assert private.table.ravel().tolist() == slow


def test_the_published_classifier_tells_two_clouds_apart(race: ModuleType) -> None:
    rng = np.random.default_rng(8)
    labels = np.repeat([0, 1], 400)
    train = rng.normal(size=(800, 3)) + np.where(labels, 3.0, -3.0)[:, None] * [1, 0, 0]
    with seeded_noise_for_tests_only(9):
        for epsilon, delta in ((np.inf, 0.0), (20.0, 0.0), (5.0, 1e-6)):
            guess = race.published.classify(train, labels, train, rows=50, epsilon=epsilon, delta=delta, seed=1)
            assert (guess == labels).mean() > 0.95


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


def test_paired_points_are_charged_twice(race: ModuleType) -> None:
    """A record's two points are one user's: the sensitivity is 2R and 2√R, and R and √R where it is counted once."""
    paired = dps.DensitySketch(kernel=dps.kernels.Angular(3, power=4), rows=9, unit=dps.per_user(max_keys=2))
    single = dps.DensitySketch(kernel=dps.kernels.Angular(3, power=4), rows=9, unit=dps.per_record())
    moves = [sketch.spec.tables()[0].move for sketch in (paired, single)]
    assert [(move.l1, move.squared) for move in moves] == [(18, 36), (9, 9)]


def test_both_searches_find_the_bottom_of_a_bowl(race: ModuleType) -> None:
    bottom = np.array([0.4, -0.2, 0.1])

    def bowl(theta: np.ndarray) -> np.ndarray:
        return 0.1 * np.sum((theta[:, :-1] - bottom) ** 2, axis=1)

    for fit in (race.regression.descend, race.regression.fit_surfaces):
        assert fit(bowl, 4, np.random.default_rng(1)) == pytest.approx(bottom, abs=0.02)


def test_the_exact_loss_is_least_near_the_least_squares(race: ModuleType) -> None:
    features, target = linear_records(2)
    found = race.regression.fit_exactly(race.regression.records(features, target))
    assert found == pytest.approx([0.5, -0.3, 0.2], abs=0.02)


def test_mean_square_error(race: ModuleType) -> None:
    features, target = np.array([[1.0], [2.0]]), np.array([1.0, 1.0])
    assert race.regression.mean_square_error(features, target, np.array([1.0, 0.5])) == pytest.approx((0.25 + 2.25) / 2)
