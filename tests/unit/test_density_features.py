"""Feature maps of densities: what a record adds, what is paid for it, and what is answered, through the public path."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import kernels
from dpsketch._compiled import density as compiled
from dpsketch._compiled.vectors import add_features
from dpsketch.core.move import Distance
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.density import DensitySketch, DensitySpec

STEPS = 1 << 24
BOUNDS = (-1.0, 1.0)
LANDMARKS = np.random.default_rng(1).uniform(-1, 1, size=(25, 2))
MAPS = ("fourier", "series", "nystrom", "linear", "signs")
RELATIONS = ("add_remove", "replace")
UNITS = [make(neighbours=each) for make in (dps.per_record, partial(dps.per_user, 3)) for each in RELATIONS]


def started(features: str, unit: dps.Unit | None = None, **more: Any) -> DensitySketch:
    kernel: kernels.Kernel = kernels.Gaussian(2, 0.4)
    match features:
        case "fourier":
            more = {"rows": 60, **more}
        case "series":
            more = {"bounds": BOUNDS, **more}
        case "nystrom":
            more = {"landmarks": LANDMARKS, **more}
        case "linear":
            kernel = kernels.Linear(2)
        case "signs":
            kernel, more = kernels.Angular(2, 1), {"rows": 60, **more}
    return DensitySketch(kernel=kernel, unit=unit or dps.per_record(), features=features, **more)


def counted(features: str, points: Any) -> np.ndarray:
    sketch = started(features)
    sketch.update(points)
    return np.array(sketch._exact()["counters"])


def bound(spec: DensitySpec) -> Distance:
    """How far the counters of two neighbouring datasets lie apart, as is paid for."""
    return spec.tables()[0].between(spec.unit.neighbours)


def test_lengths_and_sizes_are_held_on_the_integers() -> None:
    """Whatever the floats were: longer ones by a little or by much, and what is no number."""
    cases = [[1.0000001, 0.0], [0.7071068, 0.7071068], [1.2, 0.9], [2.0, 2.0], [math.nan, 1.0], [-1.0000001, 1e-7]]
    for case in cases:
        for sizes in (0, STEPS, math.isqrt(2 * STEPS**2)):
            made = np.zeros(2, np.int64)
            add_features(made, np.array([case]), STEPS, STEPS**2, sizes)
            assert sum(int(each) ** 2 for each in made) <= STEPS**2
            assert not sizes or np.abs(made).sum() <= sizes
            assert np.abs(made).max() >= STEPS // 2
    # Cut towards 0 on both sides.
    made = np.zeros(2, np.int64)
    add_features(made, np.array([[0.5 + 0.9 / STEPS, -0.5 - 0.9 / STEPS]]), STEPS, STEPS**2, 0)
    assert made.tolist() == [STEPS // 2, -STEPS // 2]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.level} {unit.neighbours}")
@pytest.mark.parametrize("features", MAPS)
def test_no_unit_moves_the_table_further_than_is_paid_for(features: str, unit: dps.Unit) -> None:
    """The bound is written out anew: m·S, and 2m·S where a unit is replaced; the noise is for no less."""
    m, times = unit.max_keys, 2 if unit.neighbours == "replace" else 1
    steps = math.sqrt(60) if features == "signs" else STEPS
    private = started(features, unit).release(epsilon=1.0, delta=1e-6)
    assert isinstance(private.noise, RoundedGaussian)
    (cost,) = private.guarantee.costs
    assert private.noise.sigma >= times * m * steps / cost.mu
    assert bound(private.spec).l2 == pytest.approx(times * m * steps, rel=1e-12)
    # A unit of m records far apart, or of m that are nearly one, and one that points the other way.
    ends = [np.array([[1.0, 1e-7 * i] for i in range(m)]), np.array([[-1.0, 1e-7 * i] for i in range(m)])]
    far = [
        np.array([[math.cos(t), math.sin(t)] for t in range(m)]),
        np.array([[0.1 * t, 0.0] for t in range(1, m + 1)]),
    ]
    for added, removed in (ends, far):
        moved = counted(features, added).astype(object)
        if times == 2:
            moved = moved - counted(features, removed).astype(object)
        assert sum(int(each) ** 2 for each in moved.ravel()) <= bound(private.spec).l2 ** 2 * (1 + 1e-12)
        assert sum(abs(int(each)) for each in moved.ravel()) <= bound(private.spec).l1


@pytest.mark.parametrize("features", ["fourier", "series", "linear"])
def test_answers_are_kernel_sums(features: str) -> None:
    """With hardly any noise: Fourier features up to six standard errors of their rows, the others up to their bound."""
    rng = np.random.default_rng(5)
    points, asked = rng.uniform(-0.8, 0.8, size=(400, 2)), rng.uniform(-0.8, 0.8, size=(30, 2))
    sketch = started(features, **({"rows": 2000} if features == "fourier" else {}))
    sketch.update(points)
    private = sketch.release(epsilon=80.0, delta=1e-6)
    found = private.estimate(asked, confidence=1 - 1e-9)
    truth = private.spec.kernel.similarity(asked, points).sum(axis=1)
    room = 6 * 400 / math.sqrt(2 * 2000) if features == "fourier" else 0.5
    assert np.all(np.abs(found.value - truth) < room)
    assert np.all((found.low < truth) & (truth < found.high))
    assert np.all(np.abs(private.density(asked).value - truth / 400) < room / 100)


def test_what_does_not_fit_is_refused() -> None:
    unit, bell = dps.per_record(), kernels.Gaussian(2, 1.0)
    wrongs: tuple[dict[str, Any], ...] = (
        {"kernel": kernels.Euclidean(2, 1.0), "rows": 5, "features": "fourier"},
        {"kernel": kernels.Angular(2, 2), "rows": 5, "features": "signs"},
        {"kernel": bell, "features": "wavelets", "rows": 5},
        {"kernel": bell, "features": "fourier", "rows": 5, "placement": "one_row"},
        {"kernel": bell, "features": "nystrom", "landmarks": [[math.nan, 0.0]]},
    )
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            DensitySketch(unit=unit, **wrong)
    with pytest.raises(InvalidInput, match="count_share"):
        started("fourier").release(epsilon=1.0, delta=1e-6, count_share=0)
    with pytest.raises(InvalidInput, match="outside"):
        started("series").release(epsilon=1.0, delta=1e-6).estimate([[5.0, 0.0]])
    many = np.arange(4097.0)  # their factor takes a time that grows with the third power of their number
    with pytest.raises(InvalidInput, match="at most 4,096 points, and these are 4,097"):
        DensitySketch(kernel=kernels.Gaussian(1, 0.5), features="nystrom", landmarks=many, unit=unit)


def test_laplace_noise_is_for_the_sum_of_sizes() -> None:
    """For a series it is Σ√(2p), less than √features; for others √features, in steps."""
    for features in MAPS:
        private = started(features).release(epsilon=2.0, delta=0)
        assert isinstance(private.noise, DiscreteLaplace)
        size = private.table.size
        exact = 60 if features == "signs" else math.sqrt(size) * STEPS
        if features == "series":
            assert bound(private.spec).l1 < 0.95 * exact
        else:
            assert bound(private.spec).l1 == math.floor(exact)
        # Table and count together: 0.95 and 0.05 of ε.
        assert private.noise.epsilon * bound(private.spec).l1 / private.noise.sensitivity <= 0.95 * 2.0


def test_landmarks_that_are_far_say_so() -> None:
    """Three landmarks leave most of the kernel: the interval is wide, and holds the truth all the same."""
    points = np.random.default_rng(8).uniform(-1, 1, size=(400, 2))
    sketch = started("nystrom", landmarks=[[0.0, 0.0], [0.9, 0.9], [-0.9, 0.9]])
    sketch.update(points)
    private = sketch.release(epsilon=40.0, delta=1e-6)
    found, truth = private.estimate(points[:50]), private.spec.kernel.similarity(points[:50], points).sum(axis=1)
    assert np.all((found.low <= truth) & (truth <= found.high))
    assert np.max(np.abs(found.value - truth)) > 20  # what the noise alone would not explain


@pytest.mark.parametrize("size", [1, 33, 330])
def test_landmarks_are_solved_alike_to_the_bit_whatever_the_tiles(size: int) -> None:
    """Below and above a tile, a block of columns and the points that are solved together; and as NumPy does."""
    rng = np.random.default_rng(size)
    columns = np.ascontiguousarray(3 * rng.normal(size=(3, size)))
    points = np.concatenate([rng.normal(size=(70, 3)), np.zeros((1, 3)), np.full((1, 3), 1e6)])
    lower = compiled.factor(columns, 1e-6)
    found = compiled.landmark_features(points, columns, lower)
    for i in range(len(points)):
        assert np.array_equal(compiled.landmark_features(points[i : i + 1], columns, lower), found[i : i + 1])
    squares = np.sum((points[:, :, None] - columns) ** 2, axis=1)
    values = np.linalg.solve(np.triu(lower).T, np.exp(-squares / 2).T).T
    np.testing.assert_allclose(found[:, :-1], values, atol=1e-9)
    np.testing.assert_allclose(np.sum(found**2, axis=1), 1.0, atol=1e-9)
    assert np.all(np.isfinite(compiled.landmark_features(np.full((1, 3), np.nan), columns, lower)))
