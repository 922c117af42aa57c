"""One key has one fingerprint by every way in, and is asked by the Python object or by its canonical text."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.columns import canonical
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.sources import Columns, open_source
from sensitive import everything

RECORD = dps.per_record()
ID = uuid.UUID("6F1C2D3E-0000-4000-8000-0123456789AB")
ZONED = datetime(2026, 11, 15, 10, 30, tzinfo=timezone(timedelta(hours=1)))

# Each type: its Arrow type, three values, and their canonical texts (or whole numbers).
TYPES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "date": (pa.date32(), [date(2026, 11, 15), date(1969, 1, 2), None], ["2026-11-15", "1969-01-02", None]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime(2026, 11, 15, 9, 30), datetime(1969, 1, 2, 3, 4, 5, 250_000), None],
        ["2026-11-15 09:30:00", "1969-01-02 03:04:05.25", None],
    ),
    "zoned timestamp": (
        pa.timestamp("us", "Europe/Paris"),
        [ZONED, datetime(1969, 1, 2, 3, tzinfo=UTC), None],
        ["2026-11-15 09:30:00Z", "1969-01-02 03:00:00Z", None],
    ),
    "time": (pa.time64("us"), [time(9, 30), time(9, 30, 0, 250_000), None], ["09:30:00", "09:30:00.25", None]),
    "boolean": (pa.bool_(), [True, False, None], ["true", "false", None]),
    "decimal": (
        pa.decimal128(12, 9),
        [Decimal("2.5"), Decimal("-0.000000001"), Decimal("3.00")],
        ["2.5", "-0.000000001", "3"],
    ),
    "whole decimal": (pa.decimal128(18, 0), [Decimal(7), Decimal(-7), None], [7, -7, None]),
    "float": (pa.float64(), [7.0, float("nan"), -0.0], [7, None, 0]),
    "narrow float": (pa.float32(), [7.0, None, -3.0], [7, None, -3]),
    "binary": (pa.binary(), [b"abc", b"\xff\x00", None], [b"abc", b"\xff\x00", None]),
}


def arrow(name: str) -> pa.Array:
    kind, values, _ = TYPES[name]
    return pa.array(values, kind)


WAYS: dict[str, Callable[[pa.Array], Any]] = {
    "arrow": lambda column: pa.table({"k": column}),
    "arrow dictionary": lambda column: pa.table({"k": column.dictionary_encode()}),
    "arrow slices": lambda column: pa.table({"k": pa.chunked_array([column[:1], column[1:]])}),
    "pandas": lambda column: pa.table({"k": column}).to_pandas(),
    "pandas of arrow": lambda column: pa.table({"k": column}).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas categories": lambda column: pa.table({"k": column}).to_pandas().astype("category"),
    "polars": lambda column: pl.from_arrow(pa.table({"k": column})),
    "duckdb": lambda column: duckdb.from_arrow(pa.table({"k": column})),
    "generator of polars": lambda column: iter(
        [pl.from_arrow(pa.table({"k": column[:1]})), pl.from_arrow(pa.table({"k": column[1:]}))]
    ),
}


def counted(name: str, *, text: bool = False) -> dps.CountSketch:
    sketch = dps.CountSketch(rows=3, width=64, unit=RECORD)
    canonical = TYPES[name][2]
    if text:
        canonical = [None if key is None else str(key).encode() for key in canonical]
    whole = any(isinstance(key, int) for key in canonical)
    sketch.update(pa.array(canonical, pa.int64() if whole else pa.binary()))
    return sketch


def content(sketch: Any) -> tuple[Any, Any, int]:
    _, header, arrays = everything(sketch)
    return arrays, header["spec"], sketch.skipped_nulls


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TYPES)
def test_every_library_brings_the_same_keys(name: str, way: str) -> None:
    sketch = dps.CountSketch(rows=3, width=64, unit=RECORD)
    sketch.update(WAYS[way](arrow(name)), key="k")
    table, spec, skipped = content(sketch)
    # Decimals that are objects are text, however many digits they have after the point.
    objects = name == "whole decimal" and way in ("pandas", "pandas categories")
    expected, wanted, nulls = content(counted(name, text=objects))
    assert (table, skipped) == (expected, nulls)
    if spec["key_type"] is not None:  # pandas has dates, times and decimals as objects, which declare nothing
        assert spec == wanted
    else:
        assert way.startswith("pandas")


@pytest.mark.parametrize("name", TYPES)
def test_keys_are_asked_as_objects_and_as_texts(name: str) -> None:
    kind, values, canonical = TYPES[name]
    text = canonical[0] if not isinstance(canonical[0], bytes) else canonical[0].decode()
    asked: list[Any] = [[text], pa.array([values[0]], kind)]
    if not isinstance(values[0], float):  # a list of floats declares no type
        asked.append([values[0]])
    counts = dps.CountSketch(rows=5, width=64, unit=RECORD)
    counts.update(pa.table({"k": pa.array([values[0]] * 2000, kind)}), key="k")
    released = counts.release(epsilon=1.0, delta=1e-6)
    assert all(released.estimate(keys).value[0] > 1900 for keys in asked)


def test_a_uuid_is_one_key_as_object_text_and_sixteen_bytes(tmp_path: Path) -> None:
    """Arrow's type, a list, an object column, and a Parquet file that DuckDB wrote."""
    text = str(ID)
    stored = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None, ID.bytes], pa.binary(16))[1:])
    prints = [
        fingerprint(keys).fingerprints.tolist()
        for keys in ([text], [ID], stored, np.array([ID], object), pd.Series([ID]), pl.Series([ID], dtype=pl.Object))
    ]
    assert all(one == prints[0] for one in prints)
    assert text == "6f1c2d3e-0000-4000-8000-0123456789ab"
    path = tmp_path / "t.parquet"
    duckdb.sql(f"SELECT '{ID}'::uuid AS k").write_parquet(str(path))
    (batch,) = open_source([str(path)], Columns(key="k"))
    assert batch.key is not None
    assert batch.key.to_pylist() == [text]


def test_the_unit_of_a_timestamp_does_not_matter() -> None:
    moment, month = datetime(2026, 11, 15, 9, 30), fingerprint(["2026-11-01"]).fingerprints
    for unit in ("s", "ns"):
        for column in (pa.array([moment], pa.timestamp(unit)), np.array([moment], f"M8[{unit}]")):
            assert fingerprint(column).fingerprints == fingerprint(["2026-11-15 09:30:00"]).fingerprints
    assert fingerprint(np.array(["2026-11"], "M8[M]")).fingerprints == month


@pytest.mark.parametrize(("kind", "digits"), [(np.float16, 11), (np.float32, 24), (np.float64, 53)])
def test_floats_are_whole_numbers_below_the_first_that_their_type_skips(kind: Any, digits: int) -> None:
    """2**digits + 1 is stored as 2**digits, so that neither of them is known."""
    largest = 2**digits - 1
    batch = fingerprint(np.array([largest, -largest, np.nan, 1], kind))
    assert (batch.key_type, batch.declared, batch.skipped) == ("int", None, 1)
    assert batch.fingerprints.tolist() == fingerprint(np.array([largest, -largest, 1])).fingerprints.tolist()
    for beyond in (2.0**digits, -(2.0**digits), np.inf, 0.5):
        with pytest.raises(InvalidInput, match="not all whole numbers"):
            fingerprint(np.array([1, beyond], kind))


def test_decimals_are_compared_before_they_are_cast() -> None:
    """No float lies between 2⁵³ and 2⁵³ + 2, which decimals tell apart."""
    column = pa.array([Decimal("9007199254740993.00")], pa.decimal128(20, 2))
    assert fingerprint(column, "int").fingerprints == fingerprint([2**53 + 1]).fingerprints
    with pytest.raises(InvalidInput, match="not all whole numbers"):
        fingerprint(pa.array([Decimal("9007199254740993.25")], pa.decimal128(20, 2)), "int")


def test_records_without_a_weight_are_missing_as_those_without_a_key_are() -> None:
    weights = [1.0, None, 3.0, 2.0]
    columns: dict[str, Any] = {
        "list": weights, "arrow": pa.array(weights), "pandas": pd.Series(weights), "polars": pl.Series(weights),
    }  # fmt: skip
    expected = dps.CountSketch(rows=3, width=16, unit=dps.per_record(max_weight=3))
    expected.update(["a", None, "c", "d"], weights=[1, 1, 3, 2])
    for name, column in columns.items():
        sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record(max_weight=3))
        sketch.update(["a", "b", "c", "d"], weights=column)
        assert content(sketch) == content(expected), name
    by_name = dps.CountSketch(rows=3, width=16, unit=dps.per_record(max_weight=3))
    by_name.update(pd.DataFrame({"k": ["a", "b", "c", "d"], "w": weights}).astype({"k": object}), key="k", weight="w")
    assert content(by_name) == content(expected)
    with pytest.raises(InvalidInput, match="finite"):  # of NumPy it may be the outcome of a computation
        sketch.update(["a"], weights=np.array([np.nan]))
    with pytest.raises(InvalidInput, match="length"):
        sketch.update(["a"], weights=[1, None])


@pytest.mark.parametrize(
    "users",
    [
        pa.array([Decimal(1), Decimal(2)], pa.decimal256(76, 0)).view(pa.decimal256(76, 100)),
        pa.array([2**62, 2**62 + 1], pa.timestamp("s")),
        pa.array([2**31 - 1, 2**31 - 2], pa.int32()).view(pa.date32()),
    ],
    ids=["decimal", "timestamp", "date"],
)  # fmt: skip
def test_values_that_arrow_writes_as_one_placeholder_are_refused(users: pa.Array) -> None:
    with pytest.raises(InvalidInput, match="outside what its type"):
        canonical(users)
