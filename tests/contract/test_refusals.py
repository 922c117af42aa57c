"""Records that cannot be counted are refused as a whole batch, change nothing and are not named, in every kind.

A null counts for nothing and moves nobody else's weight or user; keys read alike from every column.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import CounterOverflow, DpsketchError, InvalidInput
from dpsketch.sketches.countsketch import CountSketchSpec
from sensitive import BUDGET, ROWS, Records, Row, everything

SECRET = 987_654_321

Change = Callable[[Records], Records]


def given(**columns: Any) -> Change:
    """Put values into a column: one for each record, or a function of how many there are."""

    def change(batch: Records) -> Records:
        n = len(batch[0])
        made = {name: value(n) if callable(value) else [value] * n for name, value in columns.items()}
        return batch[0], batch[1] | made

    return change


FRACTION = given(weights=0.5)
# A frame has columns of one length and one type each; one that is not named is not read.
OF_A_FRAME = ("no users", "users that are fractions")

# The column that a kind must take for the change to make sense, the level, and the change.
CHANGES: dict[str, tuple[str, str | None, Change]] = {
    "weight is no number": ("weights", None, given(weights=math.nan)),
    "weight without bound": ("weights", None, given(weights=math.inf)),
    "negative weight": ("weights", None, given(weights=-1)),
    "weight as text": ("weights", None, given(weights=str(SECRET))),
    "weight as truth": ("weights", None, given(weights=True)),
    "a weight too many": ("weights", None, given(weights=lambda n: [1] * (n + 1))),
    "a fraction of a grid of 1": ("weights", None, FRACTION),
    "count is a fraction": ("counts", "record", given(counts=1.0)),
    "negative count": ("counts", "record", given(counts=-SECRET)),
    "a count too few": ("counts", "record", given(counts=lambda n: [1] * (n - 1))),
    "counts of users": ("counts", "user", given(counts=1)),
    "users of records": ("users", "record", given(users=SECRET)),
    "disjoint users of records": ("disjoint_users", "record", given(disjoint_users=lambda _: True)),
    "no users": ("users", "user", given(users=lambda _: None)),
    "a user too many": ("users", "user", given(users=lambda n: [f"user {i}" for i in range(n + 1)])),
    "users of two types": ("users", "user", given(users=lambda n: ([str(SECRET), SECRET] * n)[:n])),
    "users that are fractions": ("users", "user", given(users=SECRET + 0.5)),
    "keys of two types": ("keys", None, lambda batch: ([*batch[0][:2], str(SECRET), SECRET], batch[1])),
}


def takes(row: Row, column: str, level: str | None) -> bool:
    """Whether a row's kind takes a column, at that level."""
    sketch = row.start()
    stream = isinstance(sketch, dps.ContinualSketch)
    counted = sketch.empty_day() if stream else sketch
    known = (*counted.takes, "keys" if counted.role == "key" else "points", *(() if stream else ("disjoint_users",)))
    return column in known and (level is None or ("users" in row.batches[0][1]) == (level == "user"))


CASES = [
    pytest.param(row, change, id=f"{row.name}: {name}")
    for row in ROWS
    for name, (column, level, change) in CHANGES.items()
    if takes(row, column, level)
    and not (change is FRACTION and row.name.startswith("moment"))  # which has a finer grid
    and (not row.frames or name in OF_A_FRAME)
]


@pytest.mark.parametrize(("row", "change"), CASES)
def test_a_bad_batch_is_refused_and_changes_nothing(row: Row, change: Change) -> None:
    sketch = row.filled(0)
    before = everything(sketch)
    records, columns = change(row.batches[1])
    with pytest.raises(DpsketchError) as refusal:
        row.give(sketch, records, columns)
    assert str(SECRET) not in str(refusal.value)
    assert everything(sketch) == before
    row.add(sketch, 1)  # and it goes on


# Moments are floats. A state that may be seized wraps round: a refusal that follows from it would be a second seizure.
WHOLE = [row for row in ROWS if takes(row, "counts", "record") and not row.name.startswith(("moment", "pan-private"))]


@pytest.mark.parametrize("row", WHOLE, ids=lambda row: row.name)
def test_counters_never_wrap(row: Row) -> None:
    """Neither by one batch, nor by a later one, nor by a merge."""
    keys = row.batches[0][0][:1]
    full = row.start()
    with pytest.raises(CounterOverflow):
        full.update(keys * 2, counts=[2**62, 2**62])
    full.update(keys, counts=[2**62 - 10**6])
    before = everything(full)
    for _ in range(2):
        with pytest.raises(CounterOverflow):
            full.update(keys, counts=[2 * 10**6])
    assert everything(full) == before
    if row.merges:
        partner = row.partner(full, 0)
        partner.update(keys, counts=[2 * 10**6])
        with pytest.raises(CounterOverflow):
            full.merge(partner)
        assert everything(full) == before


@pytest.mark.parametrize("row", [row for row in ROWS if not row.frames], ids=lambda row: row.name)
def test_records_go_by_their_name(row: Row) -> None:
    records, columns = row.batches[0]
    sketch, twin = row.seeded(), row.seeded()
    sketch.update(records, **columns)
    twin.update(**{"keys" if takes(row, "keys", None) else "points": records}, **columns)
    assert everything(sketch) == everything(twin)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "continual" in row.name or "pan" in row.name], ids=lambda row: row.name
)
def test_a_stream_refuses_keys_of_several_columns(row: Row) -> None:
    """Its spec does not name them, so that its answers would be to other questions."""
    frame = pa.table({"key": ["a", "b"], "other": ["c", "d"]})
    stream = row.filled(0)
    before = everything(stream)
    with pytest.raises(InvalidInput, match="one column"):
        stream.update(frame, key=["key", "other"])
    with pytest.raises(TypeError):
        stream.update([1], disjoint_users=True)
    assert everything(stream) == before


# A record without a stated weight has weight 1, which a grid must hold.

UNIT = dps.per_record(max_weight=9)
TABLE = {"rows": 3, "width": 64, "key_type": "int"}
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "counts": (dps.CountSketch, TABLE),
    "continual": (dps.ContinualCountSketch, {"days": 4, **TABLE, **BUDGET}),
    "pan-private": (dps.PanPrivateCountSketch, TABLE | BUDGET),
    "heavy": (dps.HeavyHitters, {"rows": 3, "width": 64, "key_bits": 16}),
    "ranges": (dps.RangeSketch, {"bits": 8}),
    "quantiles": (dps.QuantileSketch, {"bits": 8, "quantiles": [0.5]}),
    "sparse": (dps.SparseHistogram, {"domain": 2**20, "max_value": 100}),
    "moment": (dps.MomentSketch, {"p": 0.5, "size": 20}),
    "moments": (dps.MomentProfile, {"p": [0.5, 1], "size": 20}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_holds_weight_1_or_is_refused(kind: str) -> None:
    start, shape = KINDS[kind]
    for step in (3, 0.67, 0.3, 1.5):
        with pytest.raises(InvalidInput, match="whole number of steps"):
            start(unit=UNIT, grid=step, **shape)
    for unit, step in ((UNIT, 0.1), (dps.per_record(max_weight=0.75), 0.5)):
        start(unit=unit, grid=step, **shape).update([5, 5, 7])


def test_a_release_on_a_grid_that_is_refused_now_can_still_be_read(tmp_path: Path) -> None:
    """Earlier versions wrote them, for weights that are multiples of the step."""
    spec = CountSketchSpec(3, 64, UNIT, grid=3, key_type="int")
    sketch = dps.CountSketch.from_spec(spec)
    sketch.update([5], weights=[9.0])
    sketch.release(**BUDGET).save(tmp_path / "coarse.dps")
    assert dps.load(tmp_path / "coarse.dps").spec == spec


def with_null(records: Any, given: dict[str, Any], place: int, missing: str = "key") -> tuple[Any, dict[str, Any]]:
    """The records with one more, whose key or user is missing, at a place."""
    null = [math.nan, 0.5] if isinstance(records[0], list) else None
    beside = {"users": "nobody", "weights": 4}
    if missing == "user":
        null, beside["users"] = records[-1], None
    longer = {name: [*values[:place], beside[name], *values[place:]] for name, values in given.items()}
    return [*records[:place], null, *records[place:]], longer


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize(
    ("row", "missing"),
    [
        pytest.param(row, missing, id=f"{row.name}, {missing}")
        for row in ROWS
        for missing in ("key", *(["user"] if "users" in row.batches[0][1] else []))
    ],
)
def test_a_null_moves_nothing(row: Row, missing: str, place: int) -> None:
    """A record without a user is nobody's, and those after it keep their own keys, values and weights."""
    sketch, twin = row.seeded(0), row.seeded()
    row.give(twin, *with_null(*row.batches[0], place, missing))
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


@pytest.mark.parametrize("row", BY_KEY, ids=lambda row: row.name)
def test_every_column_gives_the_same_sketch(row: Row) -> None:
    """Keys that repeat, with a null among them: their column may state a type, and nothing else differs."""
    records, given = row.batches[0]
    records, given = with_null(records * 3, {name: values * 3 for name, values in given.items()}, 1)

    def counted(keys: Any, left_out: str) -> Any:
        sketch = row.seeded()
        row.give(sketch, keys, {name: values for name, values in given.items() if name != left_out})
        return everything(sketch)[2], [
            getattr(sketch, name, None) for name in ("cut", "skipped_nulls", "clipped_users")
        ]

    # Keys are read in one place: two forms for each kind, and all of them for two kinds.
    all_forms = row.name in ("histogram user", "ranges record")
    for left_out in ("", "weights"):
        wanted = counted(records, left_out)
        for form in COLUMNS if all_forms else ("pieces", "typed pandas"):
            assert counted(COLUMNS[form](records), left_out) == wanted, form


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
