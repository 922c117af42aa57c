"""Frames with the names of their columns are the columns: for every kind, and every library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import ROWS, Row, everything, frame_of


def objects(frame: pd.DataFrame) -> pd.DataFrame:
    """Keys and users as they come where nobody has said what they are."""
    return frame.astype({name: object for name in ("url", "visitor") if name in frame})


BY_COLUMN = [row for row in ROWS if not row.frames]
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda table: table.to_pandas(),
    "pandas of objects": lambda table: objects(table.to_pandas()),
    "polars": pl.from_arrow,
    "arrow table": lambda table: table,
    "arrow in pieces": lambda table: pa.concat_tables([table[:1], table[1:]]),
    "arrow batch": lambda table: table.combine_chunks().to_batches()[0],
    "arrow reader": lambda table: table.to_reader(max_chunksize=2),
    "duckdb": lambda table: duckdb.from_arrow(table),
}
NAMES = {"users": ("user", "visitor"), "weights": ("weight", "n"), "counts": ("count", "times")}


def table_of(row: Row, which: int) -> tuple[pa.Table, dict[str, Any]]:
    """The records of a batch as a table with a column that nobody asks for, and the names of the others."""
    records, given = row.batches[which]
    names: dict[str, Any] = {NAMES[argument][0]: NAMES[argument][1] for argument in given}
    columns: dict[str, Any] = {NAMES[argument][1]: values for argument, values in given.items()}
    if "density" in row.name:
        x, y = np.array(records).T
        names["points"] = ["x", "y"]
        columns |= {"x": x, "y": y}
    else:
        names["key"] = "url"
        columns["url"] = records
    return pa.table({"other": [[1]] * len(records), **columns}), names


def columns_of(row: Row, table: pa.Table, names: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    given = {plural: table.column(name) for plural, (role, name) in NAMES.items() if role in names}
    records = table.select(names["points"]) if "density" in row.name else table.column(names["key"])
    return records, given


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("row", BY_COLUMN, ids=lambda row: row.name)
def test_a_frame_is_its_columns(row: Row, make: Callable[[pa.Table], Any]) -> None:
    with seeded_noise_for_tests_only(3):
        by_name = row.start()
    with seeded_noise_for_tests_only(3):
        by_column = row.start()
    for which in (0, 1):
        table, names = table_of(row, which)
        by_name.update(make(table), **names)
        records, given = columns_of(row, table, names)
        if make is FRAMES["pandas of objects"] and "density" not in row.name:  # objects declare no type
            records = records.to_pylist()
        by_column.update(records, **given)
    assert everything(by_name) == everything(by_column)


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("row", [row for row in ROWS if row.frames], ids=lambda row: row.name)
def test_every_frame_gives_the_same_table(row: Row, make: Callable[[pa.Table], Any]) -> None:
    frame = frame_of(*row.batches[0])
    whole, made = row.start(), row.start()
    whole.update(frame)
    made.update(make(frame))
    assert everything(made) == everything(whole)


def counts(**unit: Any) -> dps.CountSketch:
    return dps.CountSketch(rows=3, width=64, unit=dps.per_user(**unit) if unit else dps.per_record())


FRAME = pa.table({"url": ["secret", "b", None], "visitor": [1, 2, 3], "n": [1.0, 1.0, None]})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"key": "url", "user": "uid"}, "no column 'uid'"),
    ({"user": "visitor"}, "say key= as well"),
    ({}, "frame: say which column"),
    ({"key": "url", "users": [1, 2, 3]}, "all by name, or all as columns"),
    ({"key": np.arange(3)}, "key= is the name of a column"),
    ({"points": ["url", "n"]}, "takes no points"),
]


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_what_is_refused_is_said_and_nothing_is_added(make: Callable[[pa.Table], Any]) -> None:
    sketch = counts(max_keys=2)
    for given, words in REFUSED:
        with pytest.raises(InvalidInput, match=words) as refused:
            sketch.update(make(FRAME), **given)
        assert "secret" not in str(refused.value)
        assert everything(sketch) == everything(counts(max_keys=2))
    sketch.update(FRAME, key="url", user="visitor")


def test_what_a_relation_fails_on_is_not_repeated() -> None:
    failing = duckdb.sql("select cast(x as int) url from (values ('1'), ('a secret')) t(x)")
    with pytest.raises(SourceError, match="could not be read") as refused:
        counts().update(failing, key="url")
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_a_relation_is_read_once() -> None:
    """Read twice, a relation without an order could give a record to another user."""
    reads = []

    class Counting:
        columns = FRAME.column_names

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            reads.append(1)
            return FRAME.__arrow_c_stream__(requested_schema)

    counts(max_keys=2).update(Counting(), key="url", user="visitor")
    assert len(reads) == 1
