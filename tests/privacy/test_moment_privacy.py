"""The moment sketch's claims: the exact loss, bracketed, and sensitivities by enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dpsketch import accounting
from dpsketch.accounting.moments import exact_moment_epsilon, stable_information, stable_table
from dpsketch.privacy import MomentCost, Neighbours, per_record, per_user
from dpsketch.sketches.moment import MomentSketch, MomentSpec
from dpsketch.sketches.moment import as_published as paper
from dpsketch.sketches.moment.spec import moment_ratio
from oracles import moment as oracle
from oracles.deltas import least_moment_epsilon

RECORDS, MOST, KEYS = 2**15, 16, 2**20
# ε at δ = 1e-6 for one of 2¹⁵ records of weight up to 16 replaced; sizes 50, 200, 1000; then basic composition at 50.
TABLE = {
    0.25: (5.22, 11.0, 29.2, 208),
    0.5: (0.558, 1.146, 2.71, 69.3),
    0.75: (0.0628, 0.131, 0.309, 23.1),
    1.0: (0.0067, 0.0144, 0.0346, 0.0229),
}
INFORMATION = {0.1: 0.979, 0.25: 0.879, 0.5: 0.701, 0.75: 0.579, 1.0: 0.500}


def replaced_ratio(p: float) -> float:
    """The exact ratio where each of so many records counts for at least 1, before and after one is replaced."""
    return float(((RECORDS - 1) ** p + MOST**p) / RECORDS**p)


@pytest.mark.parametrize("p", TABLE)
def test_the_table_of_epsilons_is_bracketed_within_one_percent(p: float) -> None:
    ratio = replaced_ratio(p)
    assert ratio < MomentSpec(p, 50, per_record(max_weight=MOST, neighbours="replace"), public_total=RECORDS).ratio(0.0)
    for size, published in zip((50, 200, 1000), TABLE[p], strict=False):
        above = exact_moment_epsilon(p, size, ratio, 1e-6)
        below = least_moment_epsilon(p, size, ratio, 1e-6)
        assert below <= above <= 1.01 * below
        assert above == pytest.approx(published, rel=0.01)
        assert accounting.compose([MomentCost(p, size, ratio)], delta=1e-6) <= above
    loose = paper.theorem_1_ratio(p, records=RECORDS, keys=KEYS, max_weight=MOST)
    assert loose >= ratio * (1 - 1e-12)
    assert 50 / p * math.log(loose) == pytest.approx(TABLE[p][3], rel=0.01)


@pytest.mark.parametrize("p", INFORMATION)
def test_the_law_is_log_concave_and_carries_the_stated_information(p: float) -> None:
    assert stable_information(p) == pytest.approx(INFORMATION[p], abs=6e-4)
    law = stable_table(p)
    bend = np.diff(np.log(law.density), 2)
    assert bend.max() < 1e-12
    assert law.below[-1] == pytest.approx(1, abs=1e-13)
    assert law.above[0] == pytest.approx(1, abs=1e-13)
    # The loss of a coordinate approaches s/p on the left and −s on the right, and never passes them.
    shift = 0.1
    moved = stable_table(p, shift=shift)
    loss = np.log(law.density / moved.density)
    assert loss[0] == pytest.approx(shift / p, rel=1e-6)
    assert loss[-1] == pytest.approx(-shift, rel=1e-6)
    assert np.diff(loss).max() < 1e-12


@pytest.mark.parametrize("p", [0.1, 1.0])
def test_calibration_spends_the_budget_and_no_more(p: float) -> None:
    for epsilon, delta in ((0.1, 1e-6), (8.0, 1e-3)):
        ratio = moment_ratio(p, 50, epsilon, delta)
        assert 0.9999 * epsilon < accounting.compose([MomentCost(p, 50, ratio)], delta=delta) <= epsilon
        # The bracket from below shows that little was left on the table.
        assert least_moment_epsilon(p, 50, ratio, delta) > 0.98 * epsilon
    pure = moment_ratio(p, 50, 1.0, 0.0)
    assert accounting.compose([MomentCost(p, 50, pure)], delta=0) == pytest.approx(1.0, rel=1e-9)
    tiny = moment_ratio(p, 50, 1.0, 1e-30)
    assert pure <= tiny < moment_ratio(p, 50, 1.0, 1e-3)
    assert accounting.compose([MomentCost(p, 50, tiny)], delta=1e-30) <= 1.0


@pytest.mark.parametrize("p", [0.5, 1.0])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_a_null_record_that_becomes_a_full_one_is_an_addition_to_the_release(p: float, relation: Neighbours) -> None:
    """The ratio that the release is charged for, against that of the scales it drew from."""
    for rows in (4, 40):
        released = []
        for last in ([None], ["b"]):
            unit = per_record(neighbours=relation)
            sketch = MomentSketch(p=p, size=200, unit=unit, public_total=rows, key_type="text")
            sketch.update(["a"] * rows + last)
            released.append(sketch.release(epsilon=0.1, delta=1e-6))
        (one,), (other,) = (private.guarantee.costs for private in released)
        assert one == other
        assert isinstance(one, MomentCost)
        low, high = rows**p + released[0].floor, rows**p + 1 + released[1].floor
        assert high / low <= one.ratio
        assert exact_moment_epsilon(p, 200, high / low, 1e-6) <= 0.1 * 1.01


# Sensitivity, by enumeration of small universes: for every relation, with and without a floor.

FLOORS = (0.0, 0.5, 30.0)
Case = tuple[MomentSpec, Any, bool]


def replaced_records(p: float) -> Iterator[Case]:
    """Records of which any may count for nothing."""
    for least, keys, most in ((2, 2, 3), (3, 3, 2), (4, 2, 4), (4, 3, 1)):
        spec = MomentSpec(p, 10, per_record(max_weight=most, neighbours="replace"), public_total=least)
        yield spec, oracle.replaced_records(least, keys, most), True


def added_records(p: float) -> Iterator[Case]:
    for least, keys, most in ((0, 2, 3), (1, 3, 3), (3, 3, 2)):
        spec = MomentSpec(p, 10, per_record(max_weight=most), public_total=least)
        yield spec, oracle.added_records(least, keys, most), least == 0


def changed_users(p: float) -> Iterator[Case]:
    for replace in (True, False):
        for users, keys, pairs, most in ((2, 3, 2, 2), (3, 3, 2, 1)):
            unit = per_user(pairs, max_weight=most, neighbours="replace" if replace else "add_remove")
            for known in (0, users):
                spec = MomentSpec(p, 10, unit, public_total=known)
                yield spec, oracle.changed_users(users, keys, pairs, most, replace=replace), False


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("cases", [replaced_records, added_records, changed_users])
def test_no_unit_changes_a_moment_by_more_than_stated(cases: Callable[[float], Iterator[Case]], p: float) -> None:
    """Records by nearly as much; where nothing is known of the rest, users and floors have room."""
    for spec, neighbours, tight in cases(p):
        neighbours = list(neighbours)
        for floor in FLOORS if spec.public_total else FLOORS[1:]:
            found = oracle.largest_ratio(neighbours, p, floor)
            assert found <= spec.ratio(floor)
            if tight or (cases is added_records and floor == 0):
                assert found == pytest.approx(spec.ratio(floor), rel=1e-9)


@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("replace", [True, False])
def test_turnstile_records(p: float, replace: bool) -> None:
    unit = per_record(max_weight=2, neighbours="replace" if replace else "add_remove")
    nothing_known = MomentSpec(p, 10, unit, stream="turnstile")
    found = oracle.largest_ratio(oracle.turnstile(-99, 2, 2, 3, replace=replace, strict=False), p, 1.5)
    assert found == pytest.approx(nothing_known.ratio(1.5), rel=1e-9)
    for least in (2, 4):
        known = MomentSpec(p, 10, unit, stream="turnstile", public_total=least)
        for floor in FLOORS:
            pairs = oracle.turnstile(least, 3, 2, 6, replace=replace, strict=True)
            assert oracle.largest_ratio(pairs, p, floor) <= known.ratio(floor)
