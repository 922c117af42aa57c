"""Tables: records at the edge of what is taken; and in order and by relational steps they give the same answers."""

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
from dpsketch.laws import sorted as in_order
from dpsketch.laws.bounds import EDGES
from dpsketch.laws.groups import SCALE, Measure, TableContent
from dpsketch.laws.sorted import SortedContent
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches import store as stores
from dpsketch.sketches.store import StoreTables
from dpsketch.sketches.table.store import RecordStore, record_rows
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


def test_a_table_without_records_is_released() -> None:
    budget = {"epsilon": 1.0, "delta": 1e-6}
    for groups, options in ((None, {"user": "u", "max_keys": 2}), (["a"], {})):
        sketch = table(dps.users(), dps.sum("x"), dps.quantiles("x", [0.5], grid=1), **options)
        sketch.update(pa.table({"g": pa.array([], pa.string()), "u": pa.array([], pa.int64()), "x": [0.0][:0]}))
        private = sketch.release(**budget, groups=groups)
        assert len(private) == private.to_arrow().num_rows == len(groups or ())
        assert set(private.others) >= {"users", "sum_x", "quantile_x_0.5"}
        again: Any = dps.load(files.encode(private.to_document()))
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


KINDS = ("count", "total", "user_mean", "record_mean")
GROUPS = 40


def filled(owners: str, records: int = 1_500) -> RecordStore:
    """Return records of users of whom some have one group and some all; every value of a user is the same."""
    rng = np.random.default_rng(5)
    users = np.minimum(rng.pareto(0.7, records) * 3, 400).astype(np.int64)
    groups = np.minimum(rng.pareto(0.9, records) * 2, GROUPS - 1).astype(np.int64)
    named: Any = users - 7 if owners == "int" else np.char.add("user ", users.astype(str))
    store = RecordStore(by_user=True, values=2, totals=(0, 1), samples=(0, 1))
    groups[:GROUPS] = np.arange(GROUPS)
    values = [np.exp(users % 23 - 9.0), rng.normal(0, 50, records)]
    rows = record_rows(pa.chunked_array([pa.array(groups)]), pa.chunked_array([pa.array(named)]), values)
    for start in range(0, records, 500):
        store.add(rows._replace(table=rows.table.slice(start, 500)))
    return store


def related(store: RecordStore) -> TableContent:
    """Return the same records as relational steps have them."""
    store.tables()
    store._make_pairs()
    tables = StoreTables(store._opened(), True, store.key_type or "text", None)
    return TableContent(tables, by_user=True, columns=store.columns)


def answers(content: TableContent, asked: Any, cap: int) -> list[Any]:
    """Return all that a law asks of the records of a table."""
    with seeded_noise_for_tests_only(3):
        found: list[Any] = []
        for known in (np.empty(0, np.int64), np.array([0, 2, 5])):
            found += [np.concatenate(each) for each in zip(*content.weights(known, 4), strict=True)]
        ranges: list[Any] = []

        def most(held: Any) -> int:
            ranges.append(held)
            return cap

        kept = content.keep(asked, most)
        found += [*ranges, kept.users()]
        for place, kind in enumerate(KINDS):
            for value in (-1,) if kind == "count" else (0, 1):
                measure = Measure(f"m{place}", kind, value)
                found += [kept.centred(measure, bounds, 4) for bounds in ((-20.0, 35.5), (2.0, 2.0), (0.0, 1e-300))]
        bounds = (-3.0, 90.0)
        found.append(kept.cells([(Measure("a", "count"), (1.0, 6.0)), (Measure("b", "total", 1), bounds)], 1 << 15))
        found.append(kept.cells([], 1 << 15))
        edges = [-40.0, -3.0, 0.0, 9.5, 60.0, float("inf"), float("inf")]
        tree = Measure("q", "quantiles", 1, levels=3)
        found += [kept.leaves(tree, edges, SCALE), kept.slots(tree, edges[:5], np.arange(7), SCALE)]
    return found


@pytest.mark.parametrize(
    ("owners", "asked", "cap"),
    [("text", [], 3), ("int", [4, -1, 0, 17, 2], 1), ("text", [4, -1, 0, 17, 2], 3), ("int", [*range(40)], 41)],
)
def test_records_in_order_answer_as_relational_steps_do(
    owners: str, asked: list[int], cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are so small that many users lie in several of them."""
    monkeypatch.setattr(stores, "_BATCH", 64)
    store, places = filled(owners), np.array(asked, np.int64)
    tables = store.tables()
    expected = answers(related(store), places, cap)
    for roomy in (True, False):
        found = answers(SortedContent(tables, values=(0, 1), roomy=roomy), places, cap)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one, other)


def test_the_value_of_a_shape_favours_none() -> None:
    """Each of three values has a third of 3,000 users, within 5 deviations: it fails by chance once in 10⁶ runs."""
    store = RecordStore(by_user=True, values=1, totals=(), samples=(0,))
    groups, users = (pa.chunked_array([each]) for each in (np.zeros(9000, np.int64), np.repeat(np.arange(3000), 3)))
    store.add(record_rows(groups, users, [np.tile([0.0, 5.0, 10.0], 3000)]))
    content = SortedContent(store.tables(), values=(0,), roomy=True)
    shape = content.keep(np.array([], np.int64), lambda _: 2).shape(Measure("y", "record_mean", 0))
    bins = shape[np.searchsorted(EDGES, [0.0, 5.0, 10.0], side="right")]
    assert bins.sum() == 3000
    assert np.abs(bins - 1000).max() < 5 * np.sqrt(3000 * 2 / 9)


def test_totals_are_exact_where_doubles_are_not() -> None:
    """A user's values of 2⁴² and less add up to the nearest double of the exact total, in any order."""
    store = RecordStore(by_user=True, values=1, totals=(0,), samples=())
    values = np.array([2.0**42, -(2.0**42), 2.0**-20, 2.0**42, 2.0**-20, -(2.0**42)])
    users = np.zeros(6, np.int64)
    store.add(record_rows(pa.chunked_array([pa.array(users)]), pa.chunked_array([pa.array(users)]), [values]))
    (records,) = store.tables().in_order((0,))
    pairs = in_order.Pairs.of(records, np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    assert pairs.amount(Measure("x", "total", 0), np.arange(1)).tolist() == [2.0**-19]


@pytest.mark.parametrize("user", ["u", None])
def test_a_memory_limit_changes_no_table(user: str | None) -> None:
    rng = np.random.default_rng(4)
    users = rng.integers(0, 1_000, 8_000)
    groups = np.char.add("group ", np.minimum(rng.pareto(1, 8_000) * 3, 60).astype(int).astype(str))
    frame = pa.table({"u": users, "g": groups, "x": np.exp(users % 11), "y": rng.normal(0, 5, 8_000)})
    columns = [dps.users(), dps.count(), dps.sum("y"), dps.mean("x"), dps.quantiles("x", [0.5])][user is None :]
    found = []
    for limit in (None, "256MB"):
        table = dps.Table(by="g", columns=columns, user=user, memory_limit=limit)
        for batch in frame.to_batches(max_chunksize=3_000):
            table.update(pa.Table.from_batches([batch]))
        with seeded_noise_for_tests_only(2):
            found.append(table.release(epsilon=2, delta=1e-5).to_arrow())
    assert found[0].num_rows > 5
    assert found[0].equals(found[1])
