"""Text that Parquet stores as numbers of values is counted as the same text, value by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.sketches.feed import feed
from dpsketch.sources import Columns, open_source
from sensitive import everything

ENCODED = Columns(key="k", encoded=True)
KINDS: dict[str, Callable[[], Any]] = {
    "histogram": lambda: dps.Histogram(unit=dps.per_record()),
    "votes": lambda: dps.VoteHistogram(unit=dps.per_record(), max_counters=16),
    "counts": lambda: dps.CountSketch(rows=3, width=64, unit=dps.per_record()),
    "heavy": lambda: dps.HeavyHitters(rows=3, width=64, key_bytes=8, unit=dps.per_record()),
    "distinct": lambda: dps.DistinctSketch(buckets=16, unit=dps.per_record()),
}


def _keys(n: int = 3000) -> list[str | None]:
    """Return keys of which the last row group has some that the first ones lack, and the first some of their own."""
    rng = np.random.default_rng(1)
    keys: list[str | None] = [f"k{i // 1000}{'ä' * (key % 2)}{key}" for i, key in enumerate(rng.integers(0, 40, n))]
    return [None if i % 17 == 3 else key for i, key in enumerate(keys)]


def _written(path: Path, keys: Any, **options: Any) -> str:
    table = pa.table({"k": keys, "n": np.arange(len(keys)) % 5})
    pyarrow.parquet.write_table(table, path, row_group_size=1000, **options)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "counts"), [*((kind, None) for kind in KINDS), *((kind, "n") for kind in ("histogram", "counts", "heavy"))]
)
def test_a_sketch_holds_the_same(kind: str, counts: str | None, tmp_path: Path) -> None:
    source = _written(tmp_path / "t.parquet", _keys())
    held = []
    for columns in (replace(ENCODED, count=counts), Columns(key="k", count=counts)):
        sketch = KINDS[kind]()
        feed(sketch, open_source([source], columns, batch_rows=300))
        held.append(sketch)
    table = pyarrow.parquet.read_table(source)
    memory = KINDS[kind]()
    memory.update(table["k"], **({} if counts is None else {"counts": table["n"]}))
    assert held[0].skipped_nulls == held[1].skipped_nulls == memory.skipped_nulls > 0
    answers = [everything(sketch) for sketch in (*held, memory)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint32()])
def test_a_dictionary_in_memory_counts_as_its_rows_do(index: pa.DataType) -> None:
    """Of few values, each is added once for all of its rows; those that no row has, and nulls, add nothing."""
    codes = pa.array([None if i % 7 == 4 else i * i % 5 for i in range(90)], index)
    texts = pa.array(["a", "b", "never in a row", "d", "b"])  # a value may stand twice
    # NaN is no key, and a fraction is refused where a row has it.
    numbers = pa.array([float("nan"), 1.0, 0.5, 2.0, 1.0])
    for values in (texts, numbers):
        column = pa.DictionaryArray.from_arrays(codes, values)
        for keys in (column, column.slice(11, 40), column.slice(11, 7), column.slice(4, 1), column.slice(0, 0)):
            coded, plain = KINDS["counts"](), KINDS["counts"]()
            coded.update(keys)
            plain.update(keys.dictionary_decode())
            assert everything(coded) == everything(plain)
            assert (coded.cut, coded.skipped_nulls) == (plain.cut, plain.skipped_nulls)
    histogram = KINDS["histogram"]()  # Arrow's own question which rows of it are valid would end the process
    histogram.update(pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.nulls(1)))
    assert histogram.skipped_nulls == 3
    with pytest.raises(InvalidInput, match="whole numbers"):
        KINDS["counts"]().update(pa.DictionaryArray.from_arrays(pa.array([0, 2, 1], index), numbers))


def test_a_dictionary_is_refused_alike_however_many_rows_it_has() -> None:
    """An error that told how often values come would tell of the records."""
    told = set()
    for codes in ([0, 1], [0, 1, 0, 1]):
        keys = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([1, 2], pa.duration("s")))
        with pytest.raises(InvalidInput) as refusal:
            KINDS["counts"]().update(keys)
        told.add(str(refusal.value))
    assert len(told) == 1
