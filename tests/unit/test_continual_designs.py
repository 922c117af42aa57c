"""Designs of correlated noise: sensitivities against all patterns of days, and overflow."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsketch.core.codec import decode
from dpsketch.core.move import Distance
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.designs import Banded, Blocks, Contribution, Design, Recurrence

ONE = Contribution(Distance(1, 1, 1, 1))
YEAR = Recurrence((815474, 1039150), (17687928, 6449628), 14, 12)
# So coarse that the floors matter.
COARSE = Recurrence((815474, 1039150), (4318, 1575), 10, 4)
# Coarse enough for tables of a few hundred outcomes, as the exact audits need.
SHORT = Recurrence((524288, 786432), (12, 6), 4, 2)


def run(design: Design, days: list[np.ndarray]) -> np.ndarray:
    """What is published of some days' tables, before noise."""
    state = np.zeros((design.buffers, *days[0].shape), np.int64)
    found = [table for t, day in enumerate(days, start=1) for _, table in design.step(state, day, t)]
    return np.array(found)


def matrix(design: Design, n: int) -> np.ndarray:
    """How each day enters each publication, found by publishing one day after the other."""
    return run(design, list(np.eye(n, dtype=np.int64)))


def patterns(n: int, days: int, apart: int) -> list[tuple[int, ...]]:
    chosen = itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(1, days + 1))
    return [each for each in chosen if all(late - early >= apart for early, late in itertools.pairwise(each))]


def worst(design: Design, n: int, days: int, apart: int) -> int:
    """The largest squared norm of what a unit adds to all publications, over all days it may be in."""
    columns = matrix(design, n)
    return max(int(np.sum(columns[:, list(chosen)].sum(axis=1) ** 2)) for chosen in patterns(n, days, apart))


@pytest.mark.parametrize(("days", "apart"), [(1, 1), (2, 2), (3, 2), (9, 1)])
def test_bands_cost_what_the_worst_pattern_moves(days: int, apart: int) -> None:
    rng = np.random.default_rng(days * 10 + apart)
    for _ in range(20):
        bands = np.sort(rng.integers(1, 20, rng.integers(1, 6)))[::-1]
        bands[0] = bands.max() + 1
        design = Banded(tuple(bands.tolist()))
        unit = Contribution(Distance(3, 7, 3, 3), days, apart)
        assert design.sensitivity(unit, 9).l2 == pytest.approx(math.sqrt(7 * worst(design, 9, days, apart)), rel=1e-12)
        assert Fraction(design.sensitivity(unit, 9).l2) ** 2 >= 7 * worst(design, 9, days, apart)


def test_coefficients_that_rise_are_refused_for_the_formula_is_wrong_there() -> None:
    """Of c = 5, 0, 2, 3 a user on two days, two apart, of seven moves 106, where the columns 0 and 2 give 96."""
    columns = np.zeros((7, 7), np.int64)
    for t in range(7):
        columns[t:, t] = [5, 0, 2, 3, 0, 0, 0][: 7 - t]
    true = max(int(np.sum(columns[:, list(each)].sum(axis=1) ** 2)) for each in patterns(7, 2, 2))
    assert (true, int(np.sum(columns[:, [0, 2]].sum(axis=1) ** 2))) == (106, 96)
    for bands in ((5, 1, 2, 3), (5, 5), (3, 4)):
        with pytest.raises(InvalidInput, match="must fall"):
            Banded(bands)
        with pytest.raises(FileRefused):
            decode({"type": "Banded", "bands": list(bands)}, Design)
    with pytest.raises(InvalidInput, match="must fall"):
        Recurrence((1000, 2000), (2**25, 2**25), 14, 12)


@pytest.mark.parametrize(("days", "apart"), [(1, 1), (2, 1), (3, 2), (4, 3)])
@pytest.mark.parametrize("design", [Blocks((1, 3, 6)), Blocks.tree(12), Blocks((1, 4))], ids=str)
def test_blocks_cost_no_less_than_the_worst_pattern(design: Blocks, days: int, apart: int) -> None:
    unit = Contribution(Distance(1, 1, 1, 1), days, apart)
    bound = design.sensitivity(unit, 12)
    assert Fraction(bound.l2) ** 2 >= worst(design, 12, days, apart)
    if days == 1:
        assert bound.l2 == pytest.approx(math.sqrt(worst(design, 12, 1, 1)))
    assert bound.l1 == days * len(design.sizes)


def adversarial(design: Recurrence, n: int, rng: np.random.Generator) -> float:
    """The largest norm found by which one record of the first day moves a cell's publications."""
    most = 0.0
    for _ in range(30):
        others = rng.integers(-40, 41, (n, 1)) * (rng.random((n, 1)) < rng.random())
        for change in (1, -1):
            moved = others.copy()
            moved[0] += change
            far = run(design, list(moved)) - run(design, list(others))
            most = max(most, float(np.sqrt(np.sum(far.astype(float) ** 2))))
    return most


@pytest.mark.parametrize("design", [SHORT, COARSE, Recurrence((1048575,), (3,), 2, 0)], ids=["short", "coarse", "slow"])
def test_floors_are_paid_for(design: Recurrence) -> None:
    """No stream found moves further than the bound; the filter's part of it alone is passed."""
    far = adversarial(design, 60, np.random.default_rng(60))
    assert far <= design.sensitivity(ONE, 60).l2
    if design is SHORT:
        assert far > math.sqrt(float(design.column_squared(1, 1)))


def test_cells_too_large_are_held_and_nothing_overflows() -> None:
    huge = [np.array([2**62, -(2**62), 0])] * 3 + [np.zeros(3, np.int64)] * 400
    for design in (YEAR, Banded((1024, 900, 800))):
        published = run(design, huge)
        assert np.all(published[:, 0] >= 0)
        assert np.all(published[:, 1] <= 0)
        assert np.abs(published).max() < 2**62
