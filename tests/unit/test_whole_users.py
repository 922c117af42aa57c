"""Sorted sources are cut so that each user lies in one batch; and the edges of what a user may weigh."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.bounding import whole, whole_users
from dpsketch.sketches.weights import WeightGrid
from dpsketch.sources import Batch


def sketch(max_keys: int = 4, max_weight: float = 3, **changes: object) -> dps.CountSketch:
    unit = dps.per_user(max_keys, max_weight=max_weight)
    return dps.CountSketch(**{"rows": 3, "width": 8, "unit": unit, "seed": 5, **changes})


def content(some: dps.CountSketch) -> tuple[object, ...]:
    document = files.decode(some.to_sensitive_bytes(), allow_sensitive=True)
    arrays = {name: array.tolist() for name, array in document.arrays.items() if name != "partials"}
    return document.header["mass"], document.header["skipped"], arrays


def batches(users: list[object], keys: list[object], weights: list[float] | None, size: int) -> Iterator[Batch]:
    for start in range(0, len(users), size):
        part = slice(start, start + size)
        weight = None if weights is None else pa.array(weights[part], pa.float64())
        yield Batch(pa.array(keys[part]), pa.array(users[part]), weight, (), len(users[part]))


def fed(batched: Iterator[Batch], **changes: object) -> tuple[dps.CountSketch, list[Batch]]:
    some = sketch(**changes)
    cut = list(whole_users(batched, some.spec))
    for batch in cut:
        some.update(batch.key, users=batch.user, weights=batch.weight)
    return some, cut


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("fold_bytes", "kind", "weighted"), [(0, "int", True), (200, "text", False), (1 << 25, "text", True)]
)
def test_any_cut_gives_the_table_of_one_update(
    size: int, fold_bytes: int, kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_FOLD_BYTES", fold_bytes)
    rng = np.random.default_rng(2)
    users = np.sort(np.concatenate([rng.integers(0, 40, 120), np.full(150, 17)]))  # one of them in many batches
    keys = rng.integers(0, 30, len(users))
    weights = (rng.integers(0, 9, len(users)) / 2).tolist() if weighted else None
    as_key = (lambda x: f"{x:03}") if kind == "text" else int
    people, things = [as_key(x) for x in users.tolist()], [as_key(x) for x in keys.tolist()]
    once = sketch(grid=0.1, key_type=kind)
    once.update(things, users=people, weights=weights)
    some, cut = fed(batches(people, things, weights, size), grid=0.1, key_type=kind)
    assert content(some) == content(once)
    if fold_bytes == 1 << 25:
        assert sum(batch.rows for batch in cut) == len(users)


@pytest.mark.parametrize("units", [999_999_999, 2**40])
def test_a_user_with_one_key_is_never_clipped(units: int) -> None:
    users, alone = sketch(1, units), sketch(unit=dps.per_record(max_weight=units))
    users.update(["tea", "milk"], users=["ann", "bob"], weights=[units, units - 1])
    alone.update(["tea", "milk"], weights=[units, units - 1])
    assert users.clipped_users == 0
    assert np.array_equal(users._exact()["counters"], alone._exact()["counters"])


def test_the_bound_is_the_whole_steps_that_a_person_would_count() -> None:
    for max_weight, step, units in (
        (0.3, 0.1, 3), (0.7, 0.1, 7), (1, 1e-9, 10**9), (1.1, 0.25, 4), (0.35, 0.1, 3), (2.5, 1, 2), (1 / 3, 1 / 3, 1)
    ):  # fmt: skip
        assert WeightGrid(step, max_weight).max_units == units
    assert WeightGrid(1e-9, 1).units([1e308], 1).tolist() == [10**9]
