"""The type of a key comes from the caller or its column, and one key has one fingerprint by every way in."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.columns import canonical
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint
from sensitive import MERGING, Row, everything

RECORD = dps.per_record()
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

# What a release of other kinds shows includes names, of which there are as many as were found.
NAMELESS = [row for row in MERGING if row.name.endswith("record") and not row.name.startswith(("histogram", "table"))]


def described(document: files.Document) -> dict[str, Any]:
    """Return what a release's header says that is neither noisy, nor the guarantee, nor the charge."""
    noisy = {"guarantee", "charge", "ones", "count", "scale", "noisy_count", "moments"}
    found = {name: value for name, value in document.header.items() if name not in noisy}
    return found | {"receipts": [{**receipt, "charge": None} for receipt in found.get("receipts", [])]}


@pytest.mark.parametrize("row", NAMELESS, ids=lambda row: row.name)
def test_no_header_depends_on_whether_there_were_records_or_what_they_held(row: Row, tmp_path: Path) -> None:
    (first, second, *_), _ = row.batches[0]
    headers, notes, sizes = [], set(), set()
    null = [math.nan, 0.5] if isinstance(first, list) else None
    for i, records in enumerate(([], [first], [second, first], [null], None)):
        sketch = row.start()
        if records is not None:
            sketch.update(records)
        ledger = dps.Ledger(f"sqlite:///{tmp_path / f'{i}.db'}")
        ledger.create("d", epsilon=5.0, delta=1e-3, unit=RECORD)
        release = sketch.release(**BUDGET, ledger=ledger, dataset="d")
        document = release.to_document()
        headers.append((described(document), {name: np.shape(array) for name, array in document.arrays.items()}))
        notes.add(ledger.history("d")[-1].note)
        bare = {**described(document), "guarantee": None, "charge": None}
        # The type of a noisy integer in a file follows from its value.
        same = {n: np.zeros_like(a) if isinstance(a, np.ndarray) else a for n, a in document.arrays.items()}
        sizes.add(len(files.encode(files.Document(document.kind, False, bare, same))))
    assert all(header == headers[0] for header in headers)
    assert len(notes) == len(sizes) == 1


@pytest.mark.parametrize("kind", ["pan-private", "continual"])
@pytest.mark.parametrize(("key_type", "streams"), [("int", [[], [5], [None]]), ("text", [[], ["a"], [None]])])
def test_no_state_that_may_be_seized_and_no_day_shows_whether_there_were_records(
    kind: str, key_type: Any, streams: list[list[Any]]
) -> None:
    states, published = [], []
    shape: dict[str, Any] = {"rows": 3, "width": 8, "unit": RECORD, "key_type": key_type, **BUDGET}
    for stream in streams:
        if kind == "pan-private":
            sketch: Any = dps.PanPrivateCountSketch(**shape)
        else:
            sketch = dps.ContinualCountSketch(**shape, days=3)
        sketch.update(stream)
        data = sketch.to_sensitive_bytes()
        header = dict(files.decode(data, allow_sensitive=True).header)
        # The open sums of a continual sketch are exact: only the other's state may be seized.
        size = len(data) if kind == "pan-private" else None
        if kind == "continual":
            del header["today"], header["skipped"]
        states.append((size, header))
        release = sketch.publish() if kind == "pan-private" else sketch.publish_day()
        shown = dict(release.to_document().header)
        # A stream is named by a digest of what it published first, noise and all.
        for counters in shown["derived"].values():
            counters["streams"] = [(len(name), law) for name, law in counters["streams"]]
        published.append((shown, len(files.encode(release.to_document()))))
    assert all(state == states[0] for state in states)
    assert all(one == published[0] for one in published)
    assert published[0][0]["spec"]["key_type"] == key_type


@pytest.mark.parametrize("make", [dps.PanPrivateCountSketch, partial(dps.ContinualCountSketch, days=3)])
def test_what_shows_a_state_or_a_day_asks_for_the_type_of_its_keys(make: Any) -> None:
    shape: dict[str, Any] = {"rows": 3, "width": 8, "unit": RECORD}
    with pytest.raises(InvalidInput, match="key_type"):
        make(**shape, **BUDGET)
    sketch, part = make(**shape, **BUDGET, key_type="text"), dps.CountSketch(**shape)
    with pytest.raises(SpecMismatch, match="text"):
        sketch.update([5])
    part.update([5])
    with pytest.raises(SpecMismatch, match="key_type"):
        (sketch.merge if make is dps.PanPrivateCountSketch else sketch.merge_today)(part)


OBJECTS = pd.CategoricalDtype(pd.Index(["a"], dtype=object))
TYPED: list[Any] = [
    np.array([], np.int64), np.ma.masked_array([1, 2], mask=[True, True]), pa.array([1]).dictionary_encode(),
    pd.Series([], dtype="string"), pd.Series(["a"], dtype="string").astype("category"), pl.Series(["a"]),
]  # fmt: skip
UNTYPED: list[Any] = [
    [1], [], range(3), np.array([1, 2], object), np.array([]), pa.nulls(2), pd.Series([1], dtype=object),
    pd.Series(["a"], dtype=OBJECTS), pl.Series([None]),
]  # fmt: skip


def test_a_column_with_a_type_of_its_own_states_it() -> None:
    """The type of values without one is told by the records, and so not at all."""
    for column in TYPED + UNTYPED:
        sketch = dps.CountSketch(rows=3, width=8, unit=RECORD)
        sketch.update(column)
        stated = sketch.release(epsilon=1.0, delta=0).spec.key_type
        assert (stated is not None) == any(column is each for each in TYPED), column


def test_the_questions_type_is_taken() -> None:
    for key, other in ((5, "5"), ("5", 5)):
        sketch = dps.CountSketch(rows=3, width=8, unit=RECORD)
        sketch.update([key] * 9)
        private = dps.load(files.encode(sketch.release(epsilon=200.0, delta=0).to_document()))
        assert private.estimate([key]).value[0] > 7
        assert private.estimate([other]).value[0] < 5
        assert private.top(1, candidates=[key]).key == [key]


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
    "arrow dictionary": lambda column: pa.table({"k": column.dictionary_encode()}),
    "pandas": lambda column: pa.table({"k": column}).to_pandas(),
    "pandas categories": lambda column: pa.table({"k": column}).to_pandas().astype("category"),
    "polars": lambda column: pl.from_arrow(pa.table({"k": column})),
    "duckdb": lambda column: duckdb.from_arrow(pa.table({"k": column})),
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

    def empty() -> dps.CountSketch:
        return dps.CountSketch(rows=3, width=16, unit=dps.per_record(max_weight=3))

    expected = empty()
    expected.update(["a", None, "c", "d"], weights=[1, 1, 3, 2])
    for column in (weights, pa.array(weights), pd.Series(weights), pl.Series(weights)):
        sketch = empty()
        sketch.update(["a", "b", "c", "d"], weights=column)
        assert content(sketch) == content(expected), type(column)
    with pytest.raises(InvalidInput, match="finite"):  # of NumPy it may be the outcome of a computation
        sketch.update(["a"], weights=np.array([np.nan]))
    with pytest.raises(InvalidInput, match="length"):
        sketch.update(["a"], weights=[1, None])


def test_values_that_arrow_writes_as_one_placeholder_are_refused() -> None:
    for users in (
        pa.array([Decimal(1), Decimal(2)], pa.decimal256(76, 0)).view(pa.decimal256(76, 100)),
        pa.array([2**62, 2**62 + 1], pa.timestamp("s")),
        pa.array([2**31 - 1, 2**31 - 2], pa.int32()).view(pa.date32()),
    ):
        with pytest.raises(InvalidInput, match="outside what its type"):
            canonical(users)
