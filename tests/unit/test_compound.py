"""Keys of several columns: tuples in Python, one unambiguous text each wherever they are counted or written."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.compound import CompoundKey, join_parts
from dpsketch.errors import DpsketchError, InvalidInput, SpecMismatch
from dpsketch.sketches.specs import fingerprint_of
from sensitive import everything

RECORD = dps.per_record()
KEYED: dict[str, Callable[[], Any]] = {
    "histogram": lambda: dps.Histogram(unit=RECORD),
    "counts": lambda: dps.CountSketch(rows=5, width=256, unit=RECORD),
    "heavy": lambda: dps.HeavyHitters(rows=5, width=256, key_bytes=16, unit=RECORD),
    "sparse": lambda: dps.SparseHistogram(unit=RECORD, expected_keys=8),
}
ALL = KEYED | {
    "distinct": lambda: dps.DistinctSketch(unit=RECORD),
    "distinct-set": lambda: dps.DistinctSet(unit=RECORD),
}
# Parts whose plain joins would be alike.
PARTS = {"o": ["a,b", "a", '"a', "", None], "d": ["c", "b,c", 'b",c', "x", "y"]}
KEYS = [("a,b", "c"), ("a", "b,c"), ('"a', 'b",c'), ("", "x")]
TABLE = pa.table({name: values * 300 for name, values in PARTS.items()} | {"n": [1, 2, 3, 4, 5] * 300})


def released(sketch: Any) -> Any:
    return sketch.release(epsilon=1.0, delta=0 if sketch.kind == "sparse" else 1e-6)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=30))
def test_a_row_is_what_a_csv_reader_reads_and_no_two_keys_share_one(keys: list[tuple[str, str, str]]) -> None:
    keys = [key for key in keys if not any("\x00" in part for part in key)]  # older CSV readers know no such field
    rows = join_parts([[key[i] for key in keys] for i in range(3)]).to_pylist() if keys else []
    assert rows == [str(CompoundKey(key)) for key in keys]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):  # as slices of columns, behind plain texts
        columns = [pa.array(["x"] * len(keys) + [key[i] for key in keys], kind).slice(len(keys)) for i in range(3)]
        assert join_parts(columns).to_pylist() == rows
    assert [tuple(next(csv.reader([row], strict=True))) for row in rows] == keys
    assert [CompoundKey.parsed(row, 3) for row in rows] == keys
    assert len(set(rows)) == len(set(keys))


@pytest.mark.parametrize("kind", KEYED)
def test_keys_of_two_columns_are_counted_asked_and_answered_as_tuples(kind: str, tmp_path: Path) -> None:
    sketch = KEYED[kind]()
    sketch.update(TABLE, key=("o", "d"))
    assert sketch.skipped_nulls == 300
    private = released(sketch)
    private.save(tmp_path / "out.dps")
    loaded: Any = dps.load(tmp_path / "out.dps")
    for release in (private, loaded):
        assert release.key_columns == ("o", "d")
        found = release.estimate([*KEYS, ("a", "c")])
        assert found.key == [*KEYS, ("a", "c")]
        assert np.abs(found.value - [300, 300, 300, 300, 0]).max() < 60
        assert set(release.top(4, candidates=[*KEYS, ("a", "c")]).key) == set(KEYS)
    if kind in ("histogram", "heavy"):
        assert set(loaded.top(10).key) == set(KEYS)
    if kind in ("counts", "heavy"):
        assert loaded.decode(KEYS).key == KEYS


@pytest.mark.parametrize("kind", ALL)
def test_plain_and_compound_keys_never_meet_in_one_sketch(kind: str) -> None:
    one, plain, other, swapped = (ALL[kind]() for _ in range(4))
    with pytest.raises(DpsketchError):  # an update that is refused states no columns
        one.update(TABLE, key=("o", "d"), user="n")
    assert one.spec.key_columns == ()
    one.update(TABLE, key=("o", "d"))
    before = everything(one)
    plain.update(TABLE, key="o")
    other.update(TABLE, key=("o", "n"))
    swapped.update(TABLE, key=("d", "o"))
    for sketch in (plain, other, swapped):
        assert fingerprint_of(sketch.spec) != fingerprint_of(one.spec)
        for left, right in ((one, sketch), (sketch, one)):
            with pytest.raises(SpecMismatch):
                left.merge(right)
        with pytest.raises(SpecMismatch, match="sketch of their own"):
            sketch.update(TABLE, key=("o", "d"))
    for wrong in (lambda: one.update(TABLE, key="o"), lambda: one.update(["a,b"]), lambda: one.update(TABLE["o"])):
        with pytest.raises(InvalidInput, match=r"several columns|list of tuples"):
            wrong()
    assert everything(one) == before
    one.update([("a", "b"), None, ("c", None)])  # tuples may come by themselves once the columns are known
    assert one.skipped_nulls == 302
