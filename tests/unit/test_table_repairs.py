"""Tables, their streams and their neighbours: defects that were found and repaired, each in a small test."""

from __future__ import annotations

import sys
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsketch.columns import as_column, has_schema
from dpsketch.sketches.frames import read_columns


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_being_imported_is_looked_at_safely(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Another thread imports it: the module stands there, and has no classes yet."""
    keys, frame = np.array([1, 2, 3]), pa.table({"k": [1], "w": [1.0]})
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert as_column(keys).to_pylist() == [1, 2, 3]
    assert has_schema(keys)
    assert not has_schema(["a"])
    (columns,) = read_columns(frame, {"key": "k", "weight": "w"}, {}, kind="Histogram", takes=("weights",))
    assert len(columns.records) == 1


def test_columns_of_libraries_are_still_known() -> None:
    assert has_schema(pd.Series([1]))
    assert has_schema(pd.Series(["a"]).astype("string").astype("category"))
    assert not has_schema(pd.Series([1, "a"], dtype=object))
    assert not has_schema(pl.Series([object()]))
    assert as_column(pl.Series([1, 2])).to_pylist() == [1, 2]
