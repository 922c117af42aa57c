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
from dpsketch.hashing import fingerprint
from dpsketch.sketches.countsketch import Share

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
    "sparse, small domain": (lambda: dps.SparseHistogram(unit=RECORD, domain=64, max_value=9), NUMBERS),
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


@pytest.mark.parametrize("make", [SENSITIVE["counts"][0], SENSITIVE["sparse"][0]])
def test_a_column_with_a_type_of_its_own_states_it(make: Callable[[], Any]) -> None:
    for column, expected in TYPED:
        sketch = make()
        sketch.update(column)
        assert sketch.release(epsilon=1.0, delta=0).spec.key_type == expected
    for column in UNTYPED:
        sketch = make()
        sketch.update(column)
        assert sketch.release(epsilon=1.0, delta=0).spec.key_type is None


def test_what_a_batch_declares_is_not_what_its_values_are() -> None:
    batch = fingerprint([1, 2])
    assert (batch.key_type, batch.declared) == ("int", None)
    batch = fingerprint(np.array([1, 2]))
    assert (batch.key_type, batch.declared) == ("int", "int")
    assert fingerprint([], "text").declared is None


# Without a stated type, the question's type is that of the answer.


@pytest.mark.parametrize("kind", ["counts", "sparse"])
def test_the_questions_type_is_taken(kind: str) -> None:
    for key, other in ((5, "5"), ("5", 5)):
        sketch = SENSITIVE[kind][0]()
        sketch.update([key] * 9)
        private = dps.load(files.encode(sketch.release(epsilon=200.0, delta=0).to_document()))
        assert private.estimate([key]).value[0] > 7
        assert private.estimate([other]).value[0] < 5
        assert private.top(1, candidates=[key]).key == [key]


def test_survivors_without_a_type_are_not_listed_as_integers() -> None:
    sketch = dps.SparseHistogram(unit=RECORD)
    sketch.update([7], counts=[10_000])
    private = sketch.release(**BUDGET)
    for listing in (lambda: private.top(3), private.survivors):
        with pytest.raises(InvalidInput, match="key_type='int'"):
            listing()
    assert private.survivors(candidates=[7]).key == [7]


@pytest.mark.parametrize("kind", ["counts", "sparse", "distinct", "moment"])
def test_one_sketch_still_counts_one_type(kind: str) -> None:
    number, text = [1], ["a"]
    make = SENSITIVE[kind][0]
    sketch, other = make(), make()
    sketch.update(number)
    with pytest.raises(SpecMismatch, match="integer"):
        sketch.update(text)
    if kind != "moment":
        restored = dps.load_sensitive(sketch.to_sensitive_bytes())
        with pytest.raises(SpecMismatch, match="integer"):
            restored.update(text)
        other.update(text)
        for one, two in ((restored, other), (other, restored)):
            with pytest.raises(SpecMismatch, match="key_type"):
                one.merge(two)
        empty = make()
        empty.merge(restored)
        with pytest.raises(SpecMismatch, match="integer"):
            empty.update(text)


def test_lists_and_columns_of_one_type_go_together() -> None:
    listed, column = SENSITIVE["counts"][0](), SENSITIVE["counts"][0]()
    listed.update([1])
    column.update(np.array([1]))
    both = listed.release(**BUDGET) - column.release(**BUDGET)
    assert both.spec.key_type is None
    listed.merge(column)
    assert listed.spec.key_type == "int"
    with pytest.raises(SpecMismatch):
        listed.update(["a"])


@pytest.mark.parametrize("kind", ["moment", "moments"])
@pytest.mark.parametrize(("records", "stated"), [([5], None), (["a"], None), (np.array([5]), "int")])
def test_a_moments_spec_has_a_type_only_where_one_is_stated(kind: str, records: Any, stated: str | None) -> None:
    """It may have been read off values, and a spec is public; it is held against later keys all the same."""
    sketch, wrong = SENSITIVE[kind][0](), [5] if isinstance(records[0], str) else ["a"]
    sketch.update([])
    part, other = sketch.empty_like(), sketch.empty_like()
    part.update(records)
    other.update(wrong)
    assert part.spec.key_type == stated
    restored = type(part).from_sensitive_bytes(part.to_sensitive_bytes(include_secret=True))
    sketch.merge(restored)
    for each in (part, restored, sketch):
        assert each.spec.key_type == stated
        with pytest.raises(SpecMismatch):
            each.update(wrong)
        with pytest.raises(SpecMismatch, match="key_type"):
            each.merge(other)


def test_a_share_publishes_no_type_read_from_values() -> None:
    for stream in STREAMS:
        sketch = SENSITIVE["counts"][0]()
        sketch.update(stream)
        assert sketch.release(**BUDGET, share=Share(2, 1.0, 0)).spec.key_type is None
