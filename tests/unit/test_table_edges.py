"""Records at the edge of what a table takes, through ``release()``: what counts, what is clipped, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import DpsketchError
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import everything

# So much that nothing is added, but for the rounding of values to a grid.
EXACT: dict[str, Any] = {"rho": 1e9}


def table(*columns: Any, **options: Any) -> dps.Table:
    return dps.Table(by="g", columns=columns or (dps.count(),), **options)


def released(sketch: dps.Table, frame: Any, groups: Any = ("a", "b"), **budget: Any) -> dict[str, dict[str, float]]:
    """The numbers of listed groups by name, and of all others."""
    sketch.update(frame)
    private = sketch.release(**(budget or EXACT), groups=list(groups))
    rows = {row.pop("g"): row for row in private.to_json()}
    return rows | {"others": private.others}


def test_what_is_missing_counts_for_nothing() -> None:
    """A null or NaN as a group, user or value; two null users are nobody."""
    whole = pa.table({"g": ["a", "b"], "u": ["ann", "bob"], "x": [1.0, 2.0]})
    holes = pa.table(
        {
            "g": ["a", None, "b", "a", "b", "b"],
            "u": ["ann", "cid", "bob", None, None, "dan"],
            "x": [1.0, 1.0, 2.0, 1.0, 1.0, math.nan],
        }
    )
    columns = (dps.users(), dps.count(), dps.sum("x", bounds=(0, 9)))
    contents = []
    for frame in (whole, holes):
        sketch = table(*columns, user="u", max_keys=2)
        found = released(sketch, frame)
        assert [round(found[group]["users"]) for group in ("a", "b")] == [1, 1]
        kind, header, arrays = everything(sketch)
        contents.append((kind, {**header, "skipped": 0}, arrays))
    assert contents[0] == contents[1]
    assert sketch.skipped_nulls == 4


def test_infinite_and_huge_values_are_clipped() -> None:
    values = [math.inf, 1e300, 2.0**45, -math.inf, -1e300, 4.0]
    frame = pa.table({"g": ["a"] * 6, "u": [*"abcdef"], "x": values})
    for user in ({}, {"user": "u", "max_keys": 1}):
        found = released(table(dps.users(), dps.sum("x", bounds=(-10, 10)), **user), frame)
        assert found["a"]["sum_x"] == pytest.approx(14.0, abs=0.01)
        assert found["b"]["sum_x"] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("keys", [1, 3])
def test_one_user_with_everything_is_one_user(keys: int) -> None:
    """Ten thousand records in fifty groups, each far beyond the bounds."""
    n = 10_000
    frame = pa.table({"g": [f"g{i % 50}" for i in range(n)], "u": ["ann"] * n, "x": [1e9] * n})
    columns = (dps.users(), dps.count(), dps.sum("x", bounds=(0, 1)), dps.mean("x", bounds=(0, 1)))
    sketch = table(*columns, user="u", max_keys=keys, max_records=2)
    found = released(sketch, frame, [f"g{i}" for i in range(40)])
    for name, most in (("users", keys), ("count", 2 * keys), ("sum_x", keys)):
        assert sum(row[name] for row in found.values()) == pytest.approx(most, abs=0.01)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"epsilon": 1.0, "delta": 1e-6}, {"user": "u", "max_keys": 2}),
        ({"epsilon": 1.0, "delta": 0.0, "groups": []}, {}),
    ],
)
def test_a_table_without_records_is_released(given: dict[str, Any], options: dict[str, Any]) -> None:
    for frame in (None, pa.table({"g": pa.array([], pa.string()), "u": pa.array([], pa.int64()), "x": [0.0][:0]})):
        sketch = table(dps.users(), dps.sum("x"), dps.quantiles("x", [0.5], grid=1), **options)
        if frame is not None:
            sketch.update(frame)
        private = sketch.release(**given)
        assert len(private) == 0
        assert private.to_arrow().num_rows == 0
        assert set(private.others) >= {"users", "sum_x", "quantile_x_0.5"}
        again = dps.PrivateTable.from_document(files.decode(files.encode(private.to_document()), allow_sensitive=False))
        assert again.to_json() == private.to_json()


def test_many_equal_values_between_two_steps_keep_their_sum() -> None:
    """Half a step of the grid of three columns: rounded down, 200,000 of them would lose 97.7; at random, ± 0.22.

    Wrongly with a probability below 1e-8.
    """
    n, x = 200_000, 0.5 / 1024
    frame = pa.table({"g": ["a"] * n, **{name: np.full(n, x) for name in "xyz"}})
    sums = [dps.sum(name, bounds=(0, 1)) for name in "xyz"]
    found = released(table(*sums), frame, epsilon=100.0, delta=0.0)
    for name in "xyz":
        assert abs(found["a"][f"sum_{name}"] - n * x) < 6 * math.sqrt(n) / 2048 + 1


@pytest.mark.parametrize("user", [False, True])
def test_the_order_and_the_parts_of_records_leave_the_state_and_the_answer(user: bool) -> None:
    """Zeros of either sign are equal; of values that share the word by which one is drawn, the same is taken."""
    n, rng = 120, np.random.default_rng(1)
    some = np.arange(2.0**40, 2.0**42, 2.0**20 + 7)
    words = some * 0.6180339887498949 % 1
    found, counts = np.unique(words, return_counts=True)
    # Of the large ones all have one word, and lie in several bins of a shape.
    values = np.append(rng.choice([0.0, -0.0, 1.5, -2.5], 60), rng.choice(some[words == found[counts.argmax()]], 60))
    frame = pa.table({"g": rng.choice([*"abc"], n), "u": rng.integers(0, 9, n), "x": values})
    options: dict[str, Any] = {"user": "u", "max_keys": 2} if user else {}
    quantiles = dps.quantiles("x", [0.5])

    def parts(order: np.ndarray, split: int) -> Any:
        sketch = table(dps.users(), dps.sum("x"), quantiles, **options)
        sketch.update(frame.take(order[:split]))
        other = sketch.empty_like()
        other.update(iter([frame.take(order[split:-9]), frame.take(order[-9:])]))
        sketch.merge(other)
        with seeded_noise_for_tests_only(8):
            private = sketch.release(epsilon=9.0, delta=0.0 if user else 1e-6, groups=["c", "a"] if user else None)
        return everything(sketch), files.encode(private.to_document())

    first, other = parts(np.arange(n), 60), parts(np.random.default_rng(1).permutation(n), 20)
    assert other[0] == first[0]
    if user:  # a record is rounded, and takes a slot, by its number
        assert other[1] == first[1]


COLUMNS: dict[str, Any] = {
    "whole numbers past 2**53": pa.array([2**53 + 1, 5]),
    "unsigned": pa.array([2**64 - 1, 5], pa.uint64()),
    "decimals": pa.array([1, 5], pa.decimal128(30, 2)),
    "half precision": pa.array(np.array([1, 5], np.float16)),
    "nulls alone": pa.nulls(2),
}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns_of_numbers_are_taken_whatever_their_values(form: str) -> None:
    found = released(table(dps.sum("x", bounds=(0, 5))), pa.table({"g": ["a", "b"], "x": COLUMNS[form]}))
    assert found["b"]["sum_x"] == pytest.approx(0 if form == "nulls alone" else 5, abs=0.01)


@pytest.mark.parametrize("values", [["secret", "7"], [True, False], [b"secret", b"7"]])
def test_columns_of_anything_else_are_refused_without_a_value(values: list[Any]) -> None:
    with pytest.raises(DpsketchError) as refusal:
        table(dps.sum("x")).update(pd.DataFrame({"g": ["a", "b"], "x": values}))
    assert "secret" not in str(refusal.value)


def test_a_public_list_names_each_group_once() -> None:
    """Named twice, a record of it would count in two rows."""
    frame = pa.table({"g": ["a"] * 5 + ["b"] * 3})
    for groups in (["a", "b", "a"], [b"a", b"b", b"a"], pa.table({"g": ["a", "b", "a"]})):
        sketch = table()
        sketch.update(frame)
        private = sketch.release(**EXACT, groups=groups)
        assert sorted(private.groups) == ["a", "b"]
        assert private.to_arrow().column("count").to_pylist() == pytest.approx([5, 3], abs=0.01)
