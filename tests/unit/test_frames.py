"""Frames with the names of their columns are the columns: for every kind, and every library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.mark.parametrize("row", BY_COLUMN, ids=lambda row: row.name)
def test_nulls_of_a_frame_are_those_of_its_columns(row: Row) -> None:
    table, names = table_of(row, 0)
    held = names["points"][0] if "points" in names else names["key"]
    at = table.column_names.index(held)
    holed = table.set_column(
        at, held, pa.array([None, *table.column(held).to_pylist()[1:]], table.schema.field(held).type)
    )
    with seeded_noise_for_tests_only(3):
        by_name = row.start()
    with seeded_noise_for_tests_only(3):
        by_column = row.start()
    by_name.update(pl.from_arrow(holed), **names)
    records, given = columns_of(row, holed, names)
    by_column.update(records, **given)
    assert everything(by_name) == everything(by_column)
    if hasattr(by_name, "skipped_nulls"):  # none of a state that may be seized
        assert by_name.skipped_nulls == (row.name != "pan-private")


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("row", [row for row in ROWS if row.frames], ids=lambda row: row.name)
def test_every_frame_gives_the_same_table(row: Row, make: Callable[[pa.Table], Any]) -> None:
    frame = frame_of(*row.batches[0])
    whole, made = row.start(), row.start()
    whole.update(frame)
    made.update(make(frame))
    assert everything(made) == everything(whole)


def test_a_day_is_a_frame() -> None:
    year = dps.ContinualCountSketch(
        days=2, rows=3, width=8, unit=dps.per_record(), key_type="text", epsilon=1.0, delta=1e-6
    )
    assert year.day(pa.table({"url": ["a", "b", "a"]}), key="url").estimate(["a"]).key == ["a"]


def counts(**unit: Any) -> dps.CountSketch:
    return dps.CountSketch(rows=3, width=64, unit=dps.per_user(**unit) if unit else dps.per_record())


FRAME = pa.table({"url": ["secret", "b", None], "visitor": [1, 2, 3], "n": [1.0, 1.0, None]})


def test_a_frame_states_the_type_of_its_keys() -> None:
    for make in ("polars", "arrow table", "duckdb", "pandas"):
        sketch = counts()
        sketch.update(FRAMES[make](FRAME[:0]), key="visitor")
        assert sketch.spec.key_type == "int", make
    sketch = counts()
    sketch.update(pd.DataFrame({"url": np.array(["a", "b"], object)}, dtype=object), key="url")
    assert sketch.spec.key_type is None


def test_repeated_records_and_disjoint_users_go_along() -> None:
    sketch, twin = counts(), counts()
    sketch.update(FRAME, key="url", count="visitor")
    twin.update(FRAME.column("url"), counts=FRAME.column("visitor"))
    assert everything(sketch) == everything(twin)
    users = counts(max_keys=2)
    users.update(FRAME, key="url", user="visitor", weight=None, disjoint_users=True)
    users.update(FRAME, key="url", user="visitor", disjoint_users=True)


def test_sums_of_duckdb_are_weights_and_counts() -> None:
    summed = duckdb.sql(
        "select url, sum(n) n, sum(n) / 1::decimal(9, 2) part from (values ('a', 2), ('a', 1)) t(url, n) group by 1"
    )
    sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record(max_weight=9))
    sketch.update(summed, key="url", weight="n")
    sketch.update(summed, key="url", count="n")
    twin = dps.CountSketch(rows=3, width=64, unit=dps.per_record(max_weight=9))
    twin.update(pa.array(["a"]), weights=[3])
    twin.update(pa.array(["a"]), counts=[3])
    assert everything(sketch) == everything(twin)
    huge = duckdb.sql("select 'a' url, 123456789012345678901234567890::hugeint n")
    with pytest.raises(SourceError) as refused:
        sketch.update(huge, key="url", count="n")
    assert "12345" not in str(refused.value)


def test_points_by_name_or_as_the_sketch_names_them() -> None:
    plane = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    unit = dps.per_user(max_keys=2)
    frame = pa.table({"who": ["u", "v"], "y": [0.5, 1.0], "x": [2.0, 3.0]})

    def density(**more: Any) -> dps.DensitySketch:
        return dps.DensitySketch(kernel=plane, rows=3, width=8, unit=unit, **more)

    for make in FRAMES.values():
        named, plain = density(columns=["x", "y"]), density(columns=["x", "y"])
        named.update(make(frame), user="who")
        plain.update(frame, users=frame.column("who"))
        ordered = density(columns=["x", "y"])
        ordered.update(make(frame), points=["y", "x"], user="who")
        assert everything(named) == everything(plain) == everything(ordered)
    by_keyword = density()
    by_keyword.update(points=[[0.5, 1.0]], users=["u"])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is not there": ({"key": "uri"}, "no column 'uri'"),
    "another name that is not there": ({"key": "url", "user": "uid"}, "no column 'uid'"),
    "no key": ({"user": "visitor"}, "say key= as well"),
    "nothing named": ({}, r"frame: say which column holds the keys, as in update\(frame, key='url'\)"),
    "nothing but columns": ({"users": [1, 2, 3]}, "frame: say which column"),
    "both forms": ({"key": "url", "users": [1, 2, 3]}, "all by name, or all as columns"),
    "several columns": ({"key": "url", "user": ("url", "visitor")}, "names one column"),
    "a column for a name": ({"key": np.arange(3)}, "key= is the name of a column.*say keys="),
    "a number for a name": ({"key": 0}, "the name of a column"),
    "points of keys": ({"points": ["url", "n"]}, "takes no points.*say key= instead"),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_said_and_nothing_is_added(
    make: Callable[[pa.Table], Any], given: dict[str, Any], words: str
) -> None:
    sketch = counts(max_keys=2)
    with pytest.raises(InvalidInput, match=words) as refused:
        sketch.update(make(FRAME), **given)
    assert "secret" not in str(refused.value)
    assert everything(sketch) == everything(counts(max_keys=2))
    sketch.update(FRAME, key="url", user="visitor")


def test_what_is_no_frame_is_refused() -> None:
    sketch = counts()
    for wrong in (["a"], {"url": ["a"]}, np.array(["a"]), pl.LazyFrame({"url": ["a"]}), None):
        with pytest.raises(InvalidInput, match="names of columns go with a frame"):
            sketch.update(wrong, key="url")
    with pytest.raises(InvalidInput, match=r"go with a frame.*nothing"):
        sketch.update(key="url")
    with pytest.raises(SourceError, match="could not be read as a frame"):
        sketch.update(pl.Series(["a"]), key="url")
    with pytest.raises(InvalidInput, match="frame: say which"):
        sketch.update(keys=FRAME)
    with pytest.raises(TypeError):
        sketch.update(FRAME, FRAME, key="url")


def test_a_column_is_no_frame_whatever_its_index_says() -> None:
    sketch = counts()
    sketch.update(pd.Series(["a", "b"], index=["columns", "schema"]))
    sketch.update(pd.DataFrame({"url": ["a"], "select": ["b"], "columns": ["c"]}), key="select")


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["url", "url"])
    for frame in (twice, pd.DataFrame([["a", "b"]], columns=["url", "url"])):
        with pytest.raises(InvalidInput, match="two columns 'url'"):
            counts().update(frame, key="url")
    plane = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    sketch = dps.DensitySketch(kernel=plane, rows=3, width=8, unit=dps.per_record())
    with pytest.raises(InvalidInput, match="different names"):
        sketch.update(FRAME, points=["n", "n"])


def test_a_kind_says_what_it_does_not_take() -> None:
    with pytest.raises(InvalidInput, match="a DistinctSketch takes no weights"):
        dps.DistinctSketch(buckets=16, unit=dps.per_record()).update(FRAME, key="url", weight="n")
    with pytest.raises(InvalidInput, match="a DistinctSketch takes no counts"):
        dps.DistinctSketch(buckets=16, unit=dps.per_record()).update(["a"], counts=[2])
    plane = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    with pytest.raises(InvalidInput, match=r"a DensitySketch takes no keys.*say points= instead"):
        dps.DensitySketch(kernel=plane, rows=3, width=8, unit=dps.per_record()).update(FRAME, key="url")


def test_what_a_relation_fails_on_is_not_repeated() -> None:
    failing = duckdb.sql("select cast(x as int) url from (values ('1'), ('a secret')) t(x)")
    with pytest.raises(SourceError, match="could not be read") as refused:
        counts().update(failing, key="url")
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_nothing_is_computed_for_a_wrong_name() -> None:
    def pieces() -> Iterator[pa.RecordBatch]:
        raise AssertionError("read")
        yield

    reader = pa.RecordBatchReader.from_batches(FRAME.schema, pieces())
    with pytest.raises(InvalidInput, match="no column 'uri'"):
        counts().update(reader, key="uri")


def test_a_struct_column_is_a_frame() -> None:
    sketch, twin = counts(), counts()
    sketch.update(FRAME.to_struct_array().chunk(0), key="url")
    twin.update(FRAME.column("url"))
    assert everything(sketch) == everything(twin)


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


def test_estimates_are_a_frame_too() -> None:
    found = dps.Estimates(["a", "b"], *[np.ones(2)] * 3, 0.9)
    sketch = counts()
    sketch.update(found, key="key")
    assert sketch.spec.key_type == "text"
