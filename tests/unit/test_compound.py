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


def counted(sketch: Any) -> Any:
    """Return the integers and names that a sketch holds, without its ids and secrets."""
    document = sketch._to_document()
    held = {name: value for name, value in document.arrays.items() if "secret" not in name and "hash" not in name}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in held.items()}


@pytest.mark.parametrize("kind", ALL)
def test_specs_and_files_say_of_which_columns_keys_are(kind: str) -> None:
    plain, compound = ALL[kind](), ALL[kind]()
    plain.update(["a", "b"])
    compound.update(TABLE, key=("o", "d"))
    assert plain.spec.to_json()["key_columns"] == []
    assert compound.spec.to_json()["key_columns"] == ["o", "d"]
    assert fingerprint_of(plain.spec) != fingerprint_of(compound.spec)
    with pytest.raises(DpsketchError):  # an update that is refused states no columns
        plain.update(TABLE, key=("o", "d"), user="n")
    assert plain.spec.key_columns == ()
    again = type(compound).from_sensitive_bytes(compound.to_sensitive_bytes())
    assert again.spec == compound.spec
    again.update(TABLE, key=("o", "d"))
    assert released(compound).spec.key_columns == ("o", "d")


@pytest.mark.parametrize("kind", ALL)
def test_plain_and_compound_keys_never_meet_in_one_sketch(kind: str) -> None:
    one, plain, other, swapped = (ALL[kind]() for _ in range(4))
    one.update(TABLE, key=("o", "d"))
    before = counted(one)
    plain.update(TABLE, key="o")
    other.update(TABLE, key=("o", "n"))
    swapped.update(TABLE, key=("d", "o"))
    for sketch in (plain, other, swapped):
        for left, right in ((one, sketch), (sketch, one)):
            with pytest.raises(SpecMismatch):
                left.merge(right)
        with pytest.raises(SpecMismatch, match="sketch of their own"):
            sketch.update(TABLE, key=("o", "d"))
    with pytest.raises(InvalidInput, match="several columns"):
        one.update(TABLE, key="o")
    with pytest.raises(InvalidInput, match="list of tuples"):
        one.update(["a,b", "c,d"])
    with pytest.raises(InvalidInput, match="list of tuples"):
        one.update(TABLE["o"])
    assert counted(one) == before
    one.update([("a", "b"), None, ("c", None)])  # tuples may come by themselves once the columns are known
    assert one.skipped_nulls == 302


@pytest.mark.parametrize("kind", KEYED)
def test_what_is_no_tuple_of_the_columns_is_refused_without_quoting_it(kind: str) -> None:
    sketch = KEYED[kind]()
    sketch.update(TABLE, key=("o", "d"))
    release = released(sketch)
    wrong: list[Any] = [["a,b"], [("a",)], [("a", "b", "c")], [None], [("a", 1.5)], [("a", ["b"])], "ab", [b"ab"]]
    for asked in wrong:
        with pytest.raises(InvalidInput) as refused:
            release.estimate(asked)
        assert "'a'" not in str(refused.value)
        assert "1.5" not in str(refused.value)
    for key in (("o", "o"), ("o", 1), ("o", "nowhere"), ("o", None)):
        with pytest.raises(InvalidInput):
            KEYED[kind]().update(TABLE, key=key)
