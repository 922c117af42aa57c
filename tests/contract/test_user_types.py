"""A person is one user: columns of users of another type are refused by every kind, partial, file and stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SourceError, SpecMismatch
from dpsketch.sketches.feed import feed
from dpsketch.sources import Columns, open_source
from sensitive import BUDGET, ROWS, Row, copied, everything

BY_USER = [row for row in ROWS if row.name.endswith("user")]
BIG = 2**24 + 1  # the first whole number that a single float skips
DAY = date(2026, 11, 15)
MOMENT = datetime(2026, 11, 15)
ID = uuid.UUID("6f1c2d3e-0000-4000-8000-0123456789ab")

# One person's id as columns of two types.
CHANGES: dict[str, tuple[pa.Array, pa.Array]] = {
    "whole and text": (pa.array([5]), pa.array(["5"])),
    "decimal and text": (pa.array([Decimal("5.00")], pa.decimal128(9, 2)), pa.array(["5.00"])),
    "decimal and whole": (pa.array([Decimal("5.00")], pa.decimal128(9, 2)), pa.array([5])),
    "date and timestamp": (pa.array([DAY]), pa.array([MOMENT])),
    "timestamps, one with a zone": (pa.array([MOMENT]), pa.array([MOMENT.replace(tzinfo=UTC)])),
    "time and text": (pa.array([time(9)]), pa.array(["09:00"])),
    "boolean and whole": (pa.array([True]), pa.array([1])),
    "boolean and text": (pa.array([True]), pa.array(["True"])),
    "UUID and text": (pa.array([ID.bytes], pa.uuid()), pa.array([str(ID).upper()])),
    "UUID and bytes": (pa.array([ID.bytes], pa.uuid()), pa.array([ID.bytes], pa.binary(16))),
    "bytes and text": (pa.array([ID.bytes], pa.binary(16)), pa.array([str(ID)])),
    "one pattern of 64 bits": (pa.array([-1]), pa.array([2**64 - 1], pa.uint64())),
}

# Columns of one type, whose users are the same people.
SAME: dict[str, tuple[Any, Any]] = {
    "floats": (pa.array([BIG - 2]), pa.array([BIG - 2], pa.float32())),
    "whole decimals": (pa.array([5]), pa.array([Decimal(5)], pa.decimal128(18, 0))),
    "scales": (pa.array([Decimal("5.0")], pa.decimal128(9, 1)), pa.array([Decimal("5.000")], pa.decimal128(9, 3))),
    "units of time": (pa.array([MOMENT], pa.timestamp("s")), pa.array([MOMENT], pa.timestamp("ns"))),
    "UUIDs": (pa.array([ID.bytes], pa.uuid()), [ID]),
    "unsigned": (pa.array([7], pa.uint32()), pa.array([7], pa.int16())),
    "dictionary": (pa.array(["ann"]).dictionary_encode(), ["ann"]),
}


def added(row: Row, sketch: Any, which: int, user: Any) -> None:
    """Add a batch in which all records are of one user."""
    records, given = row.batches[which]
    column = user.take(pa.array([0] * len(records))) if isinstance(user, pa.Array) else user * len(records)
    row.give(sketch, records, {**given, "users": column})


# Types are told apart in one place: one change shows that a kind asks there, and one kind shows all changes.
COUNTS = next(row for row in BY_USER if row.name == "counts user")


@pytest.mark.parametrize(
    ("row", "change"),
    [(row, "whole and text") for row in BY_USER]
    + [(row, "one pattern of 64 bits") for row in BY_USER]
    + [(COUNTS, change) for change in CHANGES],
    ids=lambda case: getattr(case, "name", case),
)
def test_users_of_another_type_are_refused(row: Row, change: str) -> None:
    """In a second update, in a merge, and after the sketch was written and read."""
    for first, second in (CHANGES[change], CHANGES[change][::-1]):
        sketch = row.start()
        added(row, sketch, 0, first)
        part = sketch.empty_like()
        added(row, part, 1, second)
        before = everything(sketch)
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            added(row, sketch, 1, second)
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            sketch.merge(part)
        assert everything(sketch) == before
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            added(row, copied(sketch), 1, second)


@pytest.mark.parametrize(
    ("row", "form"),
    [(row, "floats") for row in BY_USER] + [(COUNTS, form) for form in SAME],
    ids=lambda case: getattr(case, "name", case),
)
def test_a_person_is_one_user_in_columns_of_one_type(row: Row, form: str) -> None:
    first, second = SAME[form]
    sketch, twin = row.seeded(), row.seeded()
    added(row, sketch, 0, first)
    added(row, twin, 0, second)
    assert everything(sketch) == everything(twin)


@pytest.mark.parametrize("row", BY_USER, ids=lambda row: row.name)
def test_users_that_may_be_two_people_are_refused(row: Row) -> None:
    """2**24 + 1 is 2**24 as a single float; and in a list -1 and 2**64 - 1 have one pattern of bits."""
    sketch = row.start()
    before = everything(sketch)
    for kind, limit in ((pa.float16(), 2.0**11), (pa.float32(), 2.0**24), (pa.float64(), 2.0**53)):
        for user in (limit, -limit, 0.5):
            with pytest.raises(InvalidInput, match="not all whole numbers"):
                added(row, sketch, 0, pa.array(np.array([user], kind.to_pandas_dtype()), kind))
    if not row.frames:
        records, given = row.batches[0]
        with pytest.raises(InvalidInput, match="negative integers and integers of 2"):
            row.give(sketch, records, {**given, "users": [-1, 2**64 - 1, *[1] * (len(records) - 2)]})
    assert everything(sketch) == before


@pytest.mark.parametrize("change", ["whole and text", "date and timestamp", "one pattern of 64 bits"])
@pytest.mark.parametrize("kind", [dps.CountSketch, dps.Histogram])
def test_a_stream_takes_users_of_one_type_on_all_days(kind: Any, change: str) -> None:
    first, second = CHANGES[change]
    sketch = kind(unit=dps.per_user(max_keys=1), key_type="text")
    stream = dps.ContinualSketch(sketch, days=4, user_days=1, **BUDGET)
    stream.day(["a"], users=first)
    stream.day([], users=[])
    for continued in (stream, copied(stream)):
        before = everything(continued)
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            continued.day(["a"], users=second)
        assert everything(continued) == before
    stream.day(["a"], users=first)
    assert stream.dropped_records == 1  # the same person, on a second day


def test_objects_are_known_by_their_value_not_by_their_place_in_memory() -> None:
    people = pl.Series("user", ["".join(["an", "n"]) for _ in range(50)], dtype=pl.Object)
    sketch = dps.CountSketch(rows=1, width=2, unit=dps.per_user(max_keys=1))
    sketch.update(pl.DataFrame({"key": ["x"] * 50, "user": people}), key="key", user="user")
    assert np.abs(sketch.release(rho=1e9).table).sum() == 1


def files_of(users: Iterable[pa.Array], folder: Path) -> list[str]:
    """Write each column of users to a file of its own."""
    paths = []
    for number, column in enumerate(users):
        paths.append(str(folder / f"{number}.parquet"))
        pa.parquet.write_table(pa.table({"k": ["x"] * len(column), "u": column}), paths[-1])
    return paths


@pytest.mark.parametrize("change", CHANGES)
def test_sources_have_users_of_one_type(change: str, tmp_path: Path) -> None:
    """Within one reading, and over two readings into one sketch."""
    paths = files_of(CHANGES[change], tmp_path)
    columns = Columns(key="k", user="u")
    for sorted_ in (False, True):
        with pytest.raises(SourceError, match="One person could count as two"):
            list(open_source(paths, columns, sort_by_user=sorted_))
    for kind in (dps.Histogram(unit=dps.per_user(1)), dps.CountSketch(rows=3, width=8, unit=dps.per_user(1))):
        whole = kind.kind != "histogram"
        feed(kind, open_source(paths[:1], columns, sort_by_user=whole))
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            feed(kind, open_source(paths[1:], columns, sort_by_user=whole))
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            kind.update(["x"], users=CHANGES[change][1])


def test_users_are_read_alike_where_that_is_asked_for(tmp_path: Path) -> None:
    decimal, unsigned = pa.array([Decimal("5.00")], pa.decimal128(9, 2)), pa.array([5], pa.uint64())
    paths = files_of([pa.array([5]), pa.array(["5"]), unsigned, decimal, pa.array([5.0])], tmp_path)
    for user_type, sources, user in (("int", paths, 5), ("text", paths[:3], "5")):
        batches = list(open_source(sources, Columns(key="k", user="u", user_type=user_type)))
        assert [batch.user.to_pylist() for batch in batches if batch.rows] == [[user]] * len(sources)
    # Two people of one 64-bit pattern.
    paths = files_of([pa.array(["-1", str(2**64 - 1)])], tmp_path)
    with pytest.raises(SourceError, match="not a whole 64-bit number"):
        list(open_source(paths, Columns(key="k", user="u", user_type="int")))


@pytest.mark.parametrize(
    "users", [pa.array([5.0]), pa.array([5.0], pa.float32()), pa.array([Decimal("5.00")]), pa.array([Decimal(5)])]
)
def test_floats_and_decimals_are_not_read_as_the_text_of_another_source(users: pa.Array, tmp_path: Path) -> None:
    """Such a column is the text 5 here, and 5.0 or 5.00 in a CSV file: one person would count as two."""
    [own], other = files_of([users], tmp_path), str(tmp_path / "other.csv")
    Path(other).write_text("k,u\nx,5.0\n")
    columns = Columns(key="k", user="u", user_type="text")
    for paths in ([own, other], [other, own]):
        with pytest.raises(SourceError, match="One person could count as two"):
            list(open_source(paths, columns))
    sketch = dps.Histogram(unit=dps.per_user(1), key_type="text")
    feed(sketch, open_source([own], columns))
    for others in (["5.0"], [5]):
        with pytest.raises(SpecMismatch, match="one person could count as two"):
            sketch.update(["x"], users=others)
