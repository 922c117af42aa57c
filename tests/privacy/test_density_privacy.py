"""A classifier's private centre and its users: how far they move, exactly. Draws are held in tests/contract."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import accounting
from dpsketch.sketches.density import DensityClassifier
from dpsketch.sketches.density.class_densities import centre_table, centre_vector

ROWS = 4
MU = accounting.gaussian_mu(1.0, 1e-6)

UNITS = [
    dps.per_record(),
    dps.per_record(neighbours="replace"),
    dps.per_user(max_keys=3),
    dps.per_user(max_keys=3, neighbours="replace"),
]


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
