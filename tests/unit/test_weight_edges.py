"""The edges of what one user or record may weigh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.sketches.weights import WeightGrid


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


@pytest.mark.parametrize("units", [999_999_999, 2**35 + 1, 2**40])
def test_a_user_with_one_key_is_never_clipped(units: int) -> None:
    sketch = counts(unit=dps.per_user(max_keys=1, max_weight=units))
    sketch.update(["tea", "milk"], users=["ann", "bob"], weights=[units, units - 1])
    alone = counts(unit=dps.per_record(max_weight=units))
    alone.update(["tea", "milk"], weights=[units, units - 1])
    assert sketch.clipped_users == 0
    assert np.array_equal(sketch._table, alone._table)


def test_tiny_tables_clip_nobody_where_the_bound_is_the_worst_case() -> None:
    unit = dps.per_user(max_keys=2, max_weight=2**38 + 1)
    sketch = counts(rows=1, width=2, unit=unit)
    assert sketch.spec.sensitivity.l2 == 2 * (2**38 + 1)
    sketch.update(list("abcdefgh"), users=list("ppqqrrss"), weights=[2.0**38 + 1] * 8)
    assert sketch.clipped_users == 0


@pytest.mark.parametrize(
    ("max_weight", "step", "units"),
    [(0.3, 0.1, 3), (0.7, 0.1, 7), (1, 1e-9, 10**9), (1.1, 0.25, 4), (0.35, 0.1, 3), (2.5, 1, 2), (1 / 3, 1 / 3, 1)],
)
def test_the_bound_is_the_whole_steps_that_a_person_would_count(max_weight: float, step: float, units: int) -> None:
    assert WeightGrid(step, max_weight).max_units == units


def test_huge_weights_are_clipped_without_a_warning() -> None:
    assert WeightGrid(1e-9, 1).units([1e308], 1).tolist() == [10**9]
