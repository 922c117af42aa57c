"""The density's claims: exact where an exact computation exists, audited end to end, and mistakes are caught."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting, kernels, noise
from dpsketch.privacy import GaussianCost, PureCost
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.class_densities import centre_table, centre_vector

ROWS = 4
MU = accounting.gaussian_mu(1.0, 1e-6)
LINE = kernels.Euclidean(1, 1.0)

UNITS = [
    dps.per_record(),
    dps.per_record(neighbours="replace"),
    dps.per_user(max_keys=3),
    dps.per_user(max_keys=3, neighbours="replace"),
]


def empty(unit: dps.Unit, placement: str = "every_row") -> DensitySketch:
    return DensitySketch(kernel=LINE, rows=ROWS, width=16, unit=unit, placement=placement)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.level} {unit.neighbours}")
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_table_and_count_together_cost_the_budget_exactly(unit: dps.Unit, share: float) -> None:
    """The sensitivities are written out anew: m points a unit, R rows, two cells a row where one is replaced."""
    points, replaced = unit.max_keys, unit.neighbours == "replace"
    l1 = points * ROWS * (2 if replaced else 1)
    l2 = points * math.sqrt(ROWS * (2 if replaced else 1))
    for budget in ({"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.3}):
        private = empty(unit).release(**budget, count_share=share)
        assert isinstance(private.noise, noise.RoundedGaussian)
        square = (l2 / private.noise.sigma) ** 2
        if share:
            assert isinstance(private.count_noise, noise.RoundedGaussian)
            square += (points / private.count_noise.sigma) ** 2
        (cost,) = private.guarantee.costs
        assert isinstance(cost, GaussianCost)
        assert square <= cost.mu**2
        assert square == pytest.approx(cost.mu**2, rel=1e-11)
        assert accounting.gaussian_epsilon(math.sqrt(square), private.guarantee.delta) <= private.guarantee.epsilon
        # Halved noise would not do.
        assert accounting.gaussian_epsilon(2 * math.sqrt(square), private.guarantee.delta) > private.guarantee.epsilon
    pure = empty(unit).release(epsilon=0.7, delta=0, count_share=share)
    assert isinstance(pure.noise, noise.DiscreteLaplace)
    spent = pure.noise.epsilon * l1 / pure.noise.sensitivity
    if share:
        assert isinstance(pure.count_noise, noise.DiscreteLaplace)
        spent += pure.count_noise.epsilon * points / pure.count_noise.sensitivity
    assert spent <= 0.7
    assert spent == pytest.approx(0.7, rel=1e-11)
    (cost,) = pure.guarantee.costs
    assert isinstance(cost, PureCost)
    assert spent <= cost.epsilon <= 0.7


def test_one_row_a_record_needs_as_little_noise_as_one_counter() -> None:
    for unit, moved in zip(UNITS, (1, 2, 3, 6), strict=True):
        private = empty(unit, "one_row").release(epsilon=0.7, delta=0, count_share=0)
        assert private.noise == noise.DiscreteLaplace(0.7, moved)


def test_classes_share_one_budget() -> None:
    """A record is in one class: the tables of all classes move together by one record's bound, and no more is added."""
    X, y = np.array([[1.0, 2.0], [3.0, -1.0], [-2.0, 0.5]] * 20), np.array([0, 1, 2] * 20)
    model = DensityClassifier(epsilon=1.0, delta=1e-6, bounds=(-5, 5), classes=[0, 1, 2], rows=ROWS)
    model.fit(X, y)
    for private in model.densities_:
        assert isinstance(private.noise, noise.RoundedGaussian)
        assert (math.sqrt(ROWS) / private.noise.sigma) ** 2 == pytest.approx(0.95 * MU**2, rel=1e-11)
        assert private.guarantee == model.guarantee_
        assert private.noisy_count is None

    def tables(labels: np.ndarray, points: np.ndarray) -> np.ndarray:
        model = DensityClassifier(
            epsilon=1e6, delta=1e-6, bounds=(-5, 5), classes=[0, 1, 2], rows=ROWS, centre="middle"
        )
        return np.stack([private.table for private in model.fit(points, labels).densities_])

    whole = tables(y, X)
    assert np.abs(whole - tables(y[1:], X[1:])).sum() == ROWS
    moved = whole - tables(np.concatenate([[2], y[1:]]), np.concatenate([[[4.0, 4.0]], X[1:]]))
    assert np.abs(moved).sum() == 2 * ROWS
    assert math.sqrt((moved**2).sum()) == math.sqrt(2 * ROWS)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.level} {unit.neighbours}")
def test_a_private_centre_moves_by_at_most_what_it_is_charged_for(unit: dps.Unit) -> None:
    """Random and extreme neighbours, and the two parts' costs, which add up to the budget."""
    rng = np.random.default_rng(2)
    points, dim = unit.max_keys, 5
    bound = centre_table(unit, dim).between(unit.neighbours)
    for _ in range(300):
        corners = rng.choice([-1.0, 1.0, 7.0, 0.3], size=(2, points, dim))
        others = rng.uniform(-1, 1, size=(10, dim))
        without = np.concatenate([others, corners[1]]) if unit.neighbours == "replace" else others
        moved = centre_vector(np.concatenate([others, corners[0]])) - centre_vector(without)
        assert np.abs(moved).sum() <= bound.l1
        assert math.sqrt((moved.astype(float) ** 2).sum()) <= bound.l2
    corner = np.ones((points, dim))
    extreme = centre_vector(corner) - (centre_vector(-corner) if unit.neighbours == "replace" else 0)
    assert math.sqrt((extreme.astype(float) ** 2).sum()) > 0.85 * bound.l2
    model = DensityClassifier(
        epsilon=1.0, delta=1e-6, bounds=(-5, 5), classes=[0, 1], rows=ROWS, centre_share=0.1, unit=unit
    )
    model.fit(rng.uniform(-5, 5, size=(4, dim)), [0, 1, 0, 1], users=list("abcd") if unit.level == "user" else None)
    l2 = points * math.sqrt(ROWS * (2 if unit.neighbours == "replace" else 1))
    laws = {law.name: law.noise for law in model.densities_[0].drawn.receipts[0].laws}
    square = (l2 / laws["counters"].sigma) ** 2 + (bound.l2 / laws["centre"].sigma) ** 2
    assert square <= MU**2
    assert square == pytest.approx(MU**2, rel=1e-11)


def test_users_are_bounded_over_all_classes_together() -> None:
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    model = DensityClassifier(
        epsilon=1e6,
        delta=1e-6,
        bounds=(0, 40),
        classes=[0, 1],
        rows=ROWS,
        unit=dps.per_user(max_keys=3),
        centre="middle",
    )
    model.fit(X, y, users=["one"] * 20)
    assert sum(private.table[0].sum() for private in model.densities_) == 3
