"""A key type comes from the caller or from a column's own type, never from the values that were there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import InvalidInput, SpecMismatch

RECORD = dps.per_record()
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

# Streams that may differ by a record, or by what it holds.
STREAMS: list[list[Any]] = [[], [5], ["a"], [None]]
NUMBERS: list[list[Any]] = [[], [5], [None]]
TEXTS: list[list[Any]] = [[], ["a"], [None]]
POINTS: list[list[Any]] = [[], [5.0], [None]]

SENSITIVE: dict[str, tuple[Callable[[], Any], list[list[Any]]]] = {
    "counts": (lambda: dps.CountSketch(rows=3, width=8, unit=RECORD), STREAMS),
    "sparse": (lambda: dps.SparseHistogram(unit=RECORD, max_value=9, expected_keys=50), STREAMS),

    "distinct": (lambda: dps.DistinctSketch(unit=RECORD, buckets=16), STREAMS),
    "distinct-set": (lambda: dps.DistinctSet(unit=RECORD), STREAMS),
    "moment": (lambda: dps.MomentSketch(p=0.5, size=10, unit=RECORD), STREAMS),
    "moments": (lambda: dps.MomentProfile(p=[0.5, 1.0], size=10, unit=RECORD), STREAMS),
    "heavy, integers": (lambda: dps.HeavyHitters(unit=RECORD, rows=3, width=8, key_bits=16), NUMBERS),
    "heavy, text": (lambda: dps.HeavyHitters(unit=RECORD, rows=3, width=8, key_bytes=3), TEXTS),
    "ranges": (lambda: dps.RangeSketch(unit=RECORD, bits=18, rows=3, width=8), NUMBERS),
    "quantiles": (lambda: dps.QuantileSketch(unit=RECORD, bits=18, quantiles=[0.5, 0.9], interval_share=0.5), NUMBERS),
    "points": (
        lambda: dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=4, width=8, unit=RECORD),
        POINTS,
    ),
}  # fmt: skip


def described(document: files.Document) -> dict[str, Any]:
    """Return what a release's header says that is neither noisy, nor the guarantee, nor the charge."""
    noisy = {"guarantee", "charge", "ones", "count", "scale", "noisy_count", "moments"}
    found = {name: value for name, value in document.header.items() if name not in noisy}
    return found | {"receipts": [{**receipt, "charge": None} for receipt in found.get("receipts", [])]}


@pytest.mark.parametrize("kind", SENSITIVE)
def test_no_header_depends_on_whether_there_were_records_or_what_they_held(kind: str, tmp_path: Path) -> None:
    make, streams = SENSITIVE[kind]
    headers, notes, sizes = [], set(), set()
    for i, stream in enumerate([*streams, None]):
        sketch = make()
        if stream is not None:
            sketch.update(stream)
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
@pytest.mark.parametrize(("key_type", "streams"), [("int", NUMBERS), ("text", TEXTS)])
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
        # The open sums of a continual sketch are exact, and so are these two: only the other's state may be seized.
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


# Which columns have a type.


TYPED: list[tuple[Any, str]] = [
    (np.array([], np.int64), "int"),
    (np.array([1], np.uint8), "int"),
    (np.array(["a"]), "text"),
    (np.ma.masked_array([1, 2], mask=[True, True]), "int"),
    (pa.array([], pa.string()), "text"),
    (pa.array([1]).dictionary_encode(), "int"),
    (pd.Series([1, 2]), "int"),
    (pd.Series([], dtype="string"), "text"),
    (pd.Series(["a"], dtype=pd.CategoricalDtype(pd.Index(["a"], dtype="string"))), "text"),
    (pl.Series([], dtype=pl.Int64), "int"),
    (pl.Series(["a"]), "text"),
]
UNTYPED: list[Any] = [
    [1], ("a",), [], range(3), np.array([1, 2], object), np.array([]), pa.nulls(2), pd.Series([1], dtype=object),
    pd.Series(["a"], dtype=pd.CategoricalDtype(pd.Index(["a"], dtype=object))), pd.Index(["a"], dtype=object),
    pl.Series([None]), np.ma.masked_array(["a", "b"], mask=[True, False], dtype=object),
]  # fmt: skip


def test_a_column_with_a_type_of_its_own_states_it() -> None:
    make = SENSITIVE["counts"][0]
    for column, expected in TYPED:
        sketch = make()
        sketch.update(column)
        assert sketch.release(epsilon=1.0, delta=0).spec.key_type == expected
    for column in UNTYPED:
        sketch = make()
        sketch.update(column)
        assert sketch.release(epsilon=1.0, delta=0).spec.key_type is None


# Without a stated type, the question's type is that of the answer.


@pytest.mark.parametrize("kind", ["counts", "sparse"])
def test_the_questions_type_is_taken(kind: str) -> None:
    for key, other in ((5, "5"), ("5", 5))[:: 1 if kind == "counts" else 2]:
        sketch = SENSITIVE[kind][0]()
        sketch.update([key] * 9)
        private = dps.load(files.encode(sketch.release(epsilon=200.0, delta=0).to_document()))
        assert private.estimate([key]).value[0] > 7
        assert private.estimate([other]).value[0] < 5
        assert private.top(1, candidates=[key]).key == [key]
