"""The records of a table: in order and by relational steps they give the same answers; shapes favour no value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import SourceError
from dpsketch.laws import sorted as in_order
from dpsketch.laws.bounds import EDGES
from dpsketch.laws.groups import SCALE, Measure, TableContent
from dpsketch.laws.sorted import Records, SortedContent, whole_users
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches import store as stores
from dpsketch.sketches.store import Limit, StoreTables
from dpsketch.sketches.table import store as table_store
from dpsketch.sketches.table.store import RecordStore, record_rows

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


def three_values(users: int) -> RecordStore:
    """Return users with the values 0, 5 and 10 in each of two groups."""
    store = RecordStore(by_user=True, values=1, totals=(), samples=(0,))
    names, groups = np.repeat(np.arange(users), 6), np.tile(np.arange(2), 3 * users)
    values = np.tile(np.repeat([0.0, 5.0, 10.0], 2), users)
    store.add(record_rows(pa.chunked_array([pa.array(groups)]), pa.chunked_array([pa.array(names)]), [values]))
    return store


@pytest.mark.parametrize(("steps", "asked"), [("in order", []), ("relational", [0, 1])])
def test_the_value_of_a_shape_favours_none(steps: str, asked: list[int]) -> None:
    """Each of three values has a third of 3,000 users, within 5 deviations: it fails by chance once in 10⁶ runs.

    A draw that prefers one value, such as the least or that of a fixed order of values, is 77 deviations off.
    """
    store = three_values(3_000)
    with seeded_noise_for_tests_only(8):
        content = SortedContent(store.tables(), values=(0,), roomy=True) if steps == "in order" else related(store)
        for kind in ("record_mean", "quantiles"):
            kept = content.keep(np.array(asked, np.int64), lambda _: 2)
            shape = kept.shape(Measure("y", kind, 0, levels=3 * (kind == "quantiles")))
            bins = shape[np.searchsorted(EDGES, [0.0, 5.0, 10.0], side="right")]
            assert shape.sum() == bins.sum() == 3_000
            assert np.abs(bins - 1_000).max() < 5 * np.sqrt(3_000 * 2 / 9)


def test_records_in_another_order_are_refused() -> None:
    """Else a user would count twice."""

    def batch(persons: list[int], places: list[int]) -> Records:
        columns = np.array([persons, [0] * len(persons), places], np.int64)
        return Records(columns[0], columns[1], columns[2], {})

    prints, rows = np.arange(5), np.arange(5)
    for batches in (
        [batch([1, 2, 1], [0, 0, 0])],
        [batch([1, 1], [3, 2])],
        [batch([1, 2], [0, 0]), batch([1, 2], [1, 1])],
        [batch([2, 2], [1, 4]), batch([2, 3], [2, 0])],
    ):
        with pytest.raises(SourceError, match="another order"):
            [in_order.Pairs.of(records, rows, prints, -1) for records in whole_users(batches)]
    good = [batch([1, 2], [0, 0]), batch([2, 2], [1, 2]), batch([], []), batch([2, 3], [2, 0])]
    assert [each.persons.tolist() for each in whole_users(good)] == [[1], [2, 2, 2, 2], [3]]


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


@pytest.mark.parametrize(("limit", "bytes_of_a_record", "kind"), [
    (None, 2**40, SortedContent),
    ("256MB", 200, SortedContent),
    ("256MB", 2**40, TableContent),
])  # fmt: skip
def test_a_user_who_does_not_fit_into_memory_is_left_to_relational_steps(
    limit: str | None, bytes_of_a_record: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_store, "_RECORD_BYTES", bytes_of_a_record)
    store = filled("text")
    store.limit = None if limit is None else Limit.of(limit, None)
    content = store.content()
    assert type(content) is kind
    assert content.keep(np.arange(GROUPS), lambda _: GROUPS).users().sum() > 500
