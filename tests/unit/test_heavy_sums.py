"""Equal texts of a batch are summed before they are added: the tables are those of one record after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.sketches.heavy import sketch as module

RNG = np.random.default_rng(1)
TEXTS = ["", "a", "ab", "abc", "a longer one than fits", "é", *(f"key {number}" for number in range(60))]
RECORDS = [None if number == 3 else TEXTS[number] for number in RNG.integers(0, len(TEXTS), 3_000)]


def tables(keys: Any, **more: Any) -> list[Any]:
    sketch = dps.HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=64, key_bytes=8, grid=0.5)
    sketch.update(keys, **more)
    return list(sketch._exact().values())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("more", [{}, {"weights": RNG.uniform(0, 12, 3_000)}, {"counts": RNG.integers(0, 5, 3_000)}],
                         ids=["ones", "weights", "counts"])  # fmt: skip
def test_sums_make_the_same_tables(kind: pa.DataType, more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [RECORDS[:1_000], [], RECORDS[1_000:]]
    column = pa.chunked_array([pa.array(piece, pa.string()).cast(kind) for piece in pieces])
    summed = tables(column, **more)
    monkeypatch.setattr(module, "_FEWEST", 10**9)
    for ours, alone in zip(summed, tables(column, **more), strict=True):
        np.testing.assert_array_equal(ours, alone)


def test_only_where_texts_repeat() -> None:
    repeated = pa.chunked_array([pa.array(["tea", "milk"] * 1_000)])
    texts, units = module._summed(repeated, None, 3) or (None, None)
    assert texts is not None
    assert dict(zip(texts.to_pylist(), units.tolist(), strict=True)) == {"tea": 3_000, "milk": 3_000}
    for column in (pa.array([f"{number}" for number in range(2_000)]), pa.array([7] * 2_000), pa.array(["tea"] * 10)):
        assert module._summed(pa.chunked_array([column]), None, 1) is None


def test_of_nothing_but_nulls_nothing_is_added() -> None:
    assert not any(array.any() for array in tables(pa.nulls(2_000, pa.string())))
