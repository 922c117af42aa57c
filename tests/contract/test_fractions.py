"""A column of keys that are not all whole numbers is refused, by every kind; none is dropped."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import ROWS, Row, everything

BY_KEY = [row for row in ROWS if not isinstance(row.batches[0][0][0], list)]
PRICES = [1.0, 16.99, 697.0, 3.5]

COLUMNS: dict[str, Callable[[list[float]], Any]] = {
    "numpy": np.array,
    "narrow numpy": lambda values: np.array(values, np.float32),
    "arrow": pa.array,
    "dictionary": lambda values: pa.array(values).dictionary_encode(),
    "chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "pandas": pd.Series,
    "nullable pandas": lambda values: pd.Series(values, dtype="Float64"),
    "pandas categories": lambda values: pd.Series(values, dtype="category"),
    "polars": pl.Series,
}


@pytest.mark.parametrize("form", COLUMNS)
@pytest.mark.parametrize("row", BY_KEY, ids=lambda row: row.name)
def test_fractions_are_refused_and_nothing_is_counted(row: Row, form: str) -> None:
    _, given = row.batches[0]
    sketch = row.start()
    before = everything(sketch)
    with pytest.raises(InvalidInput, match="not all whole numbers") as refused:
        row.give(sketch, COLUMNS[form](PRICES), given)
    assert not any(str(price) in str(refused.value) for price in PRICES)
    assert everything(sketch) == before


@pytest.mark.parametrize("row", BY_KEY, ids=lambda row: row.name)
def test_whole_floats_count_and_nan_is_missing(row: Row) -> None:
    """pandas turns whole numbers among which one is missing into floats."""
    _, given = row.batches[0]
    contents = []
    for keys in (pd.Series([1.0, None, 3.0, 1.0]), pa.array([1, None, 3, 1])):
        with seeded_noise_for_tests_only(7):  # a secret, or the noise of a state, that is the same in both
            sketch = row.start()
        row.give(sketch, keys, given)
        contents.append(everything(sketch))
    assert contents[0] == contents[1]


def test_decimals_with_a_fraction_are_refused_where_whole_numbers_are_counted() -> None:
    prices = pa.array([Decimal("16.99"), Decimal("3.00")])
    unit = dps.per_record()
    for sketch in (dps.RangeSketch(bits=14, unit=unit), dps.HeavyHitters(key_bits=12, unit=unit)):
        with pytest.raises(InvalidInput, match="not all whole numbers"):
            sketch.update(prices)
