"""Fingerprints: published vectors, every container, nulls, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import json
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
TEXTS = ["red", "", "grün", "a text that is longer than thirty-two bytes", "red", "東京"]
INTEGERS = [3, 0, -1, 2**63 - 1, -(2**63), 3]
NARROW = [0, 1, 127]


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
    """Surround an array with its elements in reverse and cut them off again, so that it starts at an offset."""
    around = pa.array(array.to_pylist()[::-1], array.type)
    return pa.concat_arrays([around, array, around]).slice(len(array), len(array))


# Columns that lie in memory in a way of their own, and their keys. Others are in tests/contract/test_refusals.py.
CONTAINERS: dict[str, tuple[Any, list[Any]]] = {
    "bytes and text": ([TEXTS[0].encode(), *TEXTS[1:]], TEXTS),
    "numpy U": (np.array(TEXTS), TEXTS),
    "numpy T": (np.array(TEXTS, np.dtypes.StringDType()), TEXTS),
    "numpy object": (np.array(TEXTS, object), TEXTS),
    **{
        f"a slice of {kind}": (sliced(pa.array(TEXTS).cast(kind)), TEXTS)
        for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    },
    "a slice of bytes of one size": (sliced(pa.array([b"ab", None, b"cd"], pa.binary(2))), ["ab", None, "cd"]),
    "a slice of integers": (sliced(pa.array(INTEGERS)), INTEGERS),
    "dictionaries": (
        pa.chunked_array([pa.array(TEXTS[:2]).dictionary_encode(), pa.array(TEXTS[2:]).dictionary_encode()]),
        TEXTS,
    ),
    "polars categories": (pl.Series(TEXTS, dtype=pl.Categorical), TEXTS),
    "list with one unsigned form": ([*INTEGERS[:4], 2**63, INTEGERS[5]], INTEGERS),
    "list of numpy integers": ([np.int64(k) for k in INTEGERS], INTEGERS),
    "numpy uint64": (np.array(INTEGERS).astype(np.uint64), INTEGERS),
    "numpy reversed": (np.array(INTEGERS)[::-1].copy()[::-1], INTEGERS),
    "numpy big-endian": (np.array(INTEGERS).astype(">i8"), INTEGERS),
    "numpy masked": (np.ma.array([1, 7, 2], mask=[0, 1, 0]), [1, None, 2]),
    "a null in the dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", None, "b"])),
        ["a", None, "b", None],
    ),
    "nothing but nulls": (pa.nulls(2), [None, None]),
    "nothing": (pa.chunked_array([], pa.null()), []),
} | {kind: (np.array(NARROW, kind), NARROW) for kind in ("int8", "int16", "int32", "uint8", "uint16", "uint32")}


@pytest.mark.parametrize("container", CONTAINERS)
def test_keys_in_any_container(container: str) -> None:
    column, keys = CONTAINERS[container]
    batch = fingerprint(column)
    kept = [key is not None for key in keys]
    assert batch.fingerprints.tolist() == expected([key for key in keys if key is not None])
    assert batch.skipped == keys.count(None)
    assert batch.kept is None if all(kept) else batch.kept.tolist() == kept


@given(st.lists(st.text() | st.none()) | st.lists(st.integers(-(2**63), 2**64 - 1) | st.none()))
def test_any_keys(keys: list[Any]) -> None:
    found = fingerprint(keys)
    assert found.fingerprints.tolist() == expected([key for key in keys if key is not None])
    assert found.skipped == keys.count(None)


# --- refusals --------------------------------------------------------------------------------------------------------

SECRET = 8675309
REFUSED: dict[str, Any] = {
    "floats": [8675309.0, 1.5],
    "integers and booleans": [SECRET, True],
    "integers and text": [SECRET, "8675309"],
    "pandas mixture": pd.Series(["8675309", SECRET], dtype=object),
    "too large": [SECRET, 8675309 * 10**20],
    "just too small": [SECRET, -(2**63) - 1],
    "lone surrogate": ["8675309\ud800"],
    "local times and others": [datetime.datetime(8675, 3, 9), datetime.datetime(8675, 3, 9, tzinfo=datetime.UTC)],
    "a decimal of 30 digits": pa.array([decimal.Decimal(8675309 * 10**23)]),
    "numpy durations": np.array([8675309], "timedelta64[s]"),
    "lists": [[SECRET]],
    "table": pa.table({"key": [SECRET]}),
    "complex": np.array([8675309j]),
    "scalar array": np.array(SECRET),
    "one text": "8675309",
    "generator": (k for k in [SECRET]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_that_the_message_hides_the_keys(case: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        fingerprint(REFUSED[case])
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
