"""Keys read alike from every column, in every kind: a null counts for nothing, and a fraction is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsketch.errors import InvalidInput
from sensitive import ROWS, Row, everything


def with_null(records: Any, given: dict[str, Any], place: int) -> tuple[Any, dict[str, Any]]:
    """The records with one more, whose key is missing, at a place."""
    null = [math.nan, 0.5] if isinstance(records[0], list) else None
    beside = {"users": "nobody", "weights": 4}
    longer = {name: [*values[:place], beside[name], *values[place:]] for name, values in given.items()}
    return [*records[:place], null, *records[place:]], longer


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_null_moves_nothing(row: Row, place: int) -> None:
    sketch, twin = row.seeded(0), row.seeded()
    row.give(twin, *with_null(*row.batches[0], place))
    assert everything(sketch)[2] == everything(twin)[2]


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "arrow": pa.array,
    "a slice": lambda keys: pa.array([keys[0], *keys, None])[1:-1],
    "pieces": lambda keys: pa.chunked_array([pa.array(keys[:2]), pa.array(keys[2:])]),
    "dictionary": lambda keys: pa.array(keys).dictionary_encode(),
    "polars": pl.Series,
    "pandas": lambda keys: pd.Series(keys, dtype=object),
    "typed pandas": lambda keys: pd.Series(keys, dtype="string" if isinstance(keys[0], str) else "Int64"),
    "categories": lambda keys: pd.Series(keys, dtype="category"),
    # pandas turns whole numbers among which one is missing into floats.
    "whole floats": lambda keys: pd.Series(keys, dtype=object if isinstance(keys[0], str) else "float64"),
}


BY_KEY = [row for row in ROWS if "density" not in row.name]
# Keys are read in one place: two forms for each kind, and all of them for two kinds.
ALL_FORMS = [row for row in BY_KEY if row.name in ("histogram user", "ranges record")]


@pytest.mark.parametrize(
    ("row", "form"),
    [(row, form) for row in BY_KEY for form in ("pieces", "typed pandas")]
    + [(row, form) for row in ALL_FORMS for form in COLUMNS if form not in ("pieces", "typed pandas")],
    ids=lambda case: getattr(case, "name", case),
)
def test_every_column_gives_the_same_sketch(row: Row, form: str) -> None:
    """Keys that repeat, with a null among them: their column may state a type, and nothing else differs."""
    records, given = row.batches[0]
    records, given = with_null(records * 3, {name: values * 3 for name, values in given.items()}, 1)
    for left_out in ("", "weights"):
        columns = {name: values for name, values in given.items() if name != left_out}
        contents = []
        for keys in (records, COLUMNS[form](records)):
            sketch = row.seeded()
            row.give(sketch, keys, columns)
            told = [getattr(sketch, name, None) for name in ("cut", "skipped_nulls", "clipped_users")]
            contents.append((everything(sketch)[2], told))
        assert contents[0] == contents[1]


PRICES = [1.0, 16.99, 697.0, 3.5]
OF_FLOATS = [np.array, pd.Series, *(COLUMNS[form] for form in ("arrow", "pieces", "dictionary", "polars"))]


@pytest.mark.parametrize("row", BY_KEY, ids=lambda row: row.name)
def test_fractions_are_refused_and_nothing_is_counted(row: Row) -> None:
    sketch = row.start()
    before = everything(sketch)
    for column in OF_FLOATS:
        with pytest.raises(InvalidInput, match="not all whole numbers") as refused:
            row.give(sketch, column(PRICES), row.batches[0][1])
        assert not any(str(price) in str(refused.value) for price in PRICES)
        assert everything(sketch) == before
