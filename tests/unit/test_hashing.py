"""Fingerprints: published vectors, every container, nulls, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch._compiled.countsketch import cells
from dpsketch._compiled.hashing import hash_slices
from dpsketch.columns import valid_rows
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint, row_keys
from oracles import hashing as oracle

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "hashing.json").read_text(encoding="utf-8"))
NAN = float("nan")
TEXTS = ["red", "", "grün", "a text that is longer than thirty-two bytes", "red", "東京"]
INTEGERS = [3, 0, -1, 2**63 - 1, -(2**63), 3]


def expected(keys: list[Any]) -> list[int]:
    return [oracle.fingerprint(key) for key in keys]


# --- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["xxh64"], ids=lambda case: f"{len(case['bytes']) // 2}-{case['seed']}")
def test_published_values_of_xxh64(case: dict[str, Any]) -> None:
    data = np.frombuffer(bytes.fromhex(case["bytes"]), np.uint8)
    found = np.empty(1, np.uint64)
    hash_slices(data, np.array([0, len(data)], np.int32), np.uint64(case["seed"]), found)
    assert f"{found[0]:016x}" == case["hash"]


@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_fingerprints_are_the_committed_ones(kind: str) -> None:
    keys = [case["key"] for case in VECTORS[kind]]
    assert [f"{f:016x}" for f in fingerprint(keys).fingerprints] == [case["fingerprint"] for case in VECTORS[kind]]


@pytest.mark.parametrize("case", VECTORS["row_keys"], ids=lambda case: f"{case['seed']}-{case['purpose']}")
def test_row_keys_are_the_committed_ones(case: dict[str, Any]) -> None:
    keys = row_keys(case["seed"], len(case["keys"]), case["purpose"])
    assert [f"{key:016x}" for key in keys] == case["keys"]


def test_cells_are_the_committed_ones() -> None:
    for case in VECTORS["cells"]:
        keys = row_keys(case["seed"], len(case["buckets"]))
        buckets, signs = cells(fingerprint([case["key"]]).fingerprints, keys, case["width"])
        assert (buckets[0].tolist(), signs[0].tolist()) == (case["buckets"], case["signs"])


# --- containers ------------------------------------------------------------------------------------------------------


def sliced(array: pa.Array) -> pa.Array:
    """Surround an array with its own elements and cut them off again, so that it starts at an offset."""
    return pa.concat_arrays([array, array, array]).slice(len(array), len(array))


def arrow_text(kind: pa.DataType) -> Callable[[], Any]:
    return lambda: pa.array(TEXTS, pa.string()).cast(kind)


TEXT_CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "bytes and text": lambda: [TEXTS[0].encode(), *TEXTS[1:]],
    "numpy U": lambda: np.array(TEXTS),
    "numpy T": lambda: np.array(TEXTS, np.dtypes.StringDType()),
    "numpy object": lambda: np.array(TEXTS, object),
    "arrow string": arrow_text(pa.string()),
    "arrow large_string": arrow_text(pa.large_string()),
    "arrow binary": arrow_text(pa.binary()),
    "arrow string_view": arrow_text(pa.string_view()),
    "arrow dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "arrow slice": lambda: sliced(pa.array(TEXTS)),
    "arrow dictionary chunks": lambda: pa.chunked_array(
        [pa.array(TEXTS[:2]).dictionary_encode(), pa.array(TEXTS[2:]).dictionary_encode()]
    ),
    "pandas": lambda: pd.Series(TEXTS),
    "pandas arrow": lambda: pd.Series(TEXTS, dtype=pd.ArrowDtype(pa.string())),
    "pandas category": lambda: pd.Series(TEXTS, dtype="category"),
    "polars": lambda: pl.Series(TEXTS),
    "polars categorical": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
}

INTEGER_CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: INTEGERS,
    "list with one unsigned form": lambda: [*INTEGERS[:4], 2**63, INTEGERS[5]],
    "list of numpy integers": lambda: [np.int64(k) for k in INTEGERS],
    "numpy": lambda: np.array(INTEGERS),
    "numpy uint64": lambda: np.array(INTEGERS).astype(np.uint64),
    "numpy reversed": lambda: np.array(INTEGERS)[::-1].copy()[::-1],
    "numpy big-endian": lambda: np.array(INTEGERS).astype(">i8"),
    "arrow": lambda: pa.array(INTEGERS),
    "arrow slice": lambda: sliced(pa.array(INTEGERS)),
    "arrow chunks": lambda: pa.chunked_array([INTEGERS[:1], INTEGERS[1:]]),
    "pandas Int64": lambda: pd.Series(INTEGERS, dtype="Int64"),
    "polars": lambda: pl.Series(INTEGERS),
}


@pytest.mark.parametrize("container", TEXT_CONTAINERS)
def test_text_in_any_container(container: str) -> None:
    batch = fingerprint(TEXT_CONTAINERS[container](), "text")
    assert batch.fingerprints.dtype == np.uint64
    assert batch.fingerprints.tolist() == expected(TEXTS)
    assert (batch.key_type, batch.kept, batch.skipped) == ("text", None, 0)


@pytest.mark.parametrize("container", INTEGER_CONTAINERS)
def test_integers_in_any_container(container: str) -> None:
    batch = fingerprint(INTEGER_CONTAINERS[container](), "int")
    assert batch.fingerprints.dtype == np.uint64
    assert batch.fingerprints.tolist() == expected(INTEGERS)
    assert (batch.key_type, batch.kept, batch.skipped) == ("int", None, 0)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_narrow_integers_are_the_same_keys(kind: str) -> None:
    low = -128 if kind.startswith("i") else 0
    keys = [low, 0, 1, 127]
    for column in (np.array(keys, kind), sliced(pa.array(keys, pa.type_for_alias(kind))), pd.Series(keys, dtype=kind)):
        assert fingerprint(column).fingerprints.tolist() == expected(keys)


@given(st.lists(st.text() | st.none()))
def test_any_text(keys: list[str | None]) -> None:
    found = fingerprint(keys, "text")
    assert found.fingerprints.tolist() == expected([key for key in keys if key is not None])
    assert found.skipped == keys.count(None)


@given(st.lists(st.integers(-(2**63), 2**64 - 1) | st.none()))
def test_any_integers(keys: list[int | None]) -> None:
    found = fingerprint(keys, "int")
    assert found.fingerprints.tolist() == expected([key for key in keys if key is not None])
    assert found.skipped == keys.count(None)


# --- nulls and columns without a type --------------------------------------------------------------------------------

HOLES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "list of text": (lambda: ["a", None, "b", NAN], ["a", "b"]),
    "list of large integers": (lambda: [2**63, None, 2, NAN], [2**63, 2]),
    "object array": (lambda: np.array(["a", None, "b", np.float64("nan")], object), ["a", "b"]),
    "masked array": (lambda: np.ma.array([1, 7, 2, 7], mask=[0, 1, 0, 1]), [1, 2]),
    "arrow integers": (lambda: sliced(pa.array([1, None, 2, None])), [1, 2]),
    "arrow null in the dictionary": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", None, "b"])),
        ["a", "b"],
    ),
    "pandas text": (lambda: pd.Series(["a", None, "b", NAN]), ["a", "b"]),
    "pandas Int64": (lambda: pd.Series([1, None, 2, pd.NA], dtype="Int64"), [1, 2]),
    "polars": (lambda: pl.Series(["a", None, "b", None]), ["a", "b"]),
}


@pytest.mark.parametrize("case", HOLES)
def test_nulls_are_dropped_and_counted(case: str) -> None:
    make, keys = HOLES[case]
    batch = fingerprint(make())
    assert batch.fingerprints.tolist() == expected(keys)
    assert batch.kept is not None
    assert batch.kept.tolist() == [True, False, True, False]
    assert batch.skipped == 2


@pytest.mark.parametrize("key_type", ["int", "text", None])
def test_a_column_without_a_type_fits_any(key_type: Any) -> None:
    empty = [[], (), np.array([]), pa.nulls(0), pa.chunked_array([], pa.null()), pd.Series([], dtype=object)]
    for keys in [*empty, pl.Series([]), pa.nulls(0).dictionary_encode()]:
        batch = fingerprint(keys, key_type)
        assert (len(batch.fingerprints), batch.key_type, batch.kept, batch.skipped) == (0, key_type, None, 0)
    for keys in [[None, NAN], pa.nulls(2), pd.Series([None, None]), pl.Series([None, None])]:
        batch = fingerprint(keys, key_type)
        assert (len(batch.fingerprints), batch.key_type, batch.skipped) == (0, key_type, 2)
        assert batch.kept is not None
        assert batch.kept.tolist() == [False, False]


# --- refusals --------------------------------------------------------------------------------------------------------

SECRET = 8675309
REFUSED: dict[str, Callable[[], Any]] = {
    "floats": lambda: [8675309.0, 1.5],
    "integers and booleans": lambda: [SECRET, True],
    "integers and text": lambda: [SECRET, "8675309"],
    "pandas mixture": lambda: pd.Series(["8675309", SECRET], dtype=object),
    "too large": lambda: [SECRET, 8675309 * 10**20],
    "just too small": lambda: [SECRET, -(2**63) - 1],
    "lone surrogate": lambda: ["8675309\ud800"],
    "local times and others": lambda: [
        datetime.datetime(8675, 3, 9),
        datetime.datetime(8675, 3, 9, tzinfo=datetime.UTC),
    ],
    "a decimal of 30 digits": lambda: pa.array([decimal.Decimal(8675309 * 10**23)]),
    "numpy durations": lambda: np.array([8675309], "timedelta64[s]"),
    "lists": lambda: [[SECRET]],
    "table": lambda: pa.table({"key": [SECRET]}),
    "complex": lambda: np.array([8675309j]),
    "scalar array": lambda: np.array(SECRET),
    "objects": lambda: [object()],
    "one text": lambda: "8675309",
    "nothing": lambda: None,
    "generator": lambda: (k for k in [SECRET]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_that_the_message_hides_the_keys(case: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        fingerprint(REFUSED[case]())
    message = str(caught.value)
    assert "8675309" not in message
    assert message.endswith(".")
    # An error that pyarrow raised would quote the key, and a logger may print the chain.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_other_kind_of_key_is_a_mismatch() -> None:
    with pytest.raises(SpecMismatch, match="this sketch counts text keys; the batch has integer keys"):
        fingerprint([1], "text")
    with pytest.raises(SpecMismatch, match="this sketch counts integer keys; the batch has text keys"):
        fingerprint(pa.array([None], pa.string()), "int")


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "7", None])
def test_seeds_that_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        row_keys(seed, 3)


# --- the rest --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([None, 1, 2]), max_size=40),
    st.integers(0, 20),
    st.sampled_from([pa.int64(), pa.string(), pa.large_string(), pa.float64(), pa.null()]),
)
def test_rows_that_are_not_null_are_those_that_arrow_names(values: list[Any], start: int, kind: pa.DataType) -> None:
    """Of slices that begin anywhere in a byte, of arrays without a bitmap, and of nothing but nulls."""
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    cells = [None if value is None or pa.types.is_null(kind) else str(value) if texts else value for value in values]
    array = pa.array(cells, kind).slice(start)
    assert valid_rows(array).tolist() == array.is_valid().to_pylist()
