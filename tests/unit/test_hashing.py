"""Fingerprints: published vectors, every container, nulls, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import json
from collections import deque
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
    "tuple": lambda: tuple(TEXTS),
    "deque": lambda: deque(TEXTS),
    "bytes": lambda: [text.encode() for text in TEXTS],
    "bytes and text": lambda: [TEXTS[0].encode(), *TEXTS[1:]],
    "numpy strings in a list": lambda: list(np.array(TEXTS)),
    "numpy U": lambda: np.array(TEXTS),
    "numpy S": lambda: np.array([text.encode() for text in TEXTS]),
    "numpy T": lambda: np.array(TEXTS, np.dtypes.StringDType()),
    "numpy object": lambda: np.array(TEXTS, object),
    "numpy strided": lambda: np.array([text for text in TEXTS for _ in range(2)])[::2],
    "arrow string": arrow_text(pa.string()),
    "arrow large_string": arrow_text(pa.large_string()),
    "arrow binary": arrow_text(pa.binary()),
    "arrow large_binary": arrow_text(pa.large_binary()),
    "arrow string_view": arrow_text(pa.string_view()),
    "arrow binary_view": arrow_text(pa.binary_view()),
    "arrow dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "arrow dictionary of views": lambda: pa.DictionaryArray.from_arrays(
        pa.array(range(6), pa.uint64()), pa.array(TEXTS, pa.string_view())
    ),
    "arrow slice": lambda: sliced(pa.array(TEXTS)),
    "arrow large slice": lambda: sliced(pa.array(TEXTS, pa.large_string())),
    "arrow view slice": lambda: pa.concat_arrays([pa.array(TEXTS, pa.string_view())] * 2).slice(6),
    "arrow dictionary slice": lambda: sliced(pa.array(TEXTS).dictionary_encode()),
    "arrow chunks": lambda: pa.chunked_array([TEXTS[:2], [], TEXTS[2:]], pa.string()),
    "arrow dictionary chunks": lambda: pa.chunked_array(
        [pa.array(TEXTS[:2]).dictionary_encode(), pa.array(TEXTS[2:]).dictionary_encode()]
    ),
    "arrow through an index": lambda: pa.array(TEXTS).take(pa.array(range(6))),
    "pandas": lambda: pd.Series(TEXTS),
    "pandas object": lambda: pd.Series(TEXTS, dtype=object),
    "pandas python strings": lambda: pd.Series(TEXTS, dtype="string[python]"),
    "pandas arrow": lambda: pd.Series(TEXTS, dtype=pd.ArrowDtype(pa.string())),
    "pandas category": lambda: pd.Series(TEXTS, dtype="category"),
    "pandas filtered": lambda: pd.Series([*TEXTS, "dropped"])[lambda s: s != "dropped"],
    "pandas index": lambda: pd.Index(TEXTS),
    "pandas extension array": lambda: pd.array(TEXTS),
    "polars": lambda: pl.Series(TEXTS),
    "polars binary": lambda: pl.Series([text.encode() for text in TEXTS]),
    "polars categorical": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
    "polars enum": lambda: pl.Series(TEXTS, dtype=pl.Enum(sorted(set(TEXTS)))),
    "polars chunks": lambda: pl.concat([pl.Series(TEXTS[:3]), pl.Series(TEXTS[3:])], rechunk=False),
}

INTEGER_CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: INTEGERS,
    "tuple": lambda: tuple(INTEGERS),
    "list with the unsigned form": lambda: [k % 2**64 for k in INTEGERS],
    "list with one unsigned form": lambda: [*INTEGERS[:4], 2**63, INTEGERS[5]],
    "list of numpy integers": lambda: [np.int64(k) for k in INTEGERS],
    "list of several numpy types": lambda: [np.int8(3), np.uint16(0), *INTEGERS[2:]],
    "numpy": lambda: np.array(INTEGERS),
    "numpy object": lambda: np.array(INTEGERS, object),
    "numpy uint64": lambda: np.array(INTEGERS).astype(np.uint64),
    "numpy strided": lambda: np.repeat(np.array(INTEGERS), 2)[::2],
    "numpy reversed": lambda: np.array(INTEGERS)[::-1].copy()[::-1],
    "numpy big-endian": lambda: np.array(INTEGERS).astype(">i8"),
    "numpy read-only": lambda: np.frombuffer(np.array(INTEGERS).tobytes(), np.int64),
    "arrow": lambda: pa.array(INTEGERS),
    "arrow uint64": lambda: pa.array([k % 2**64 for k in INTEGERS], pa.uint64()),
    "arrow slice": lambda: sliced(pa.array(INTEGERS)),
    "arrow dictionary": lambda: pa.array(INTEGERS).dictionary_encode(),
    "arrow chunks": lambda: pa.chunked_array([INTEGERS[:1], INTEGERS[1:]]),
    "pandas": lambda: pd.Series(INTEGERS),
    "pandas Int64": lambda: pd.Series(INTEGERS, dtype="Int64"),
    "pandas uint64": lambda: pd.Series(np.array(INTEGERS).astype(np.uint64)),
    "pandas index": lambda: pd.Index(INTEGERS),
    "polars": lambda: pl.Series(INTEGERS),
    "polars chunks": lambda: pl.concat([pl.Series(INTEGERS[:3]), pl.Series(INTEGERS[3:])], rechunk=False),
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


def test_fixed_size_binary() -> None:
    keys = [b"four", b"five", b"nine"]
    array = pa.array(keys, pa.binary(4))
    for column in (array, sliced(array)):
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
    "list of integers": (lambda: [1, None, 2, NAN], [1, 2]),
    "list of large integers": (lambda: [2**63, None, 2, NAN], [2**63, 2]),
    "object array": (lambda: np.array(["a", None, "b", np.float64("nan")], object), ["a", "b"]),
    "masked array": (lambda: np.ma.array([1, 7, 2, 7], mask=[0, 1, 0, 1]), [1, 2]),
    "arrow text": (lambda: sliced(pa.array(["a", None, "b", None])), ["a", "b"]),
    "arrow views": (lambda: pa.array(["a", None, "b", None], pa.string_view()), ["a", "b"]),
    "arrow integers": (lambda: sliced(pa.array([1, None, 2, None])), [1, 2]),
    "arrow dictionary": (lambda: sliced(pa.array(["a", None, "b", None]).dictionary_encode()), ["a", "b"]),
    "arrow null in the dictionary": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", None, "b"])),
        ["a", "b"],
    ),
    "arrow chunks": (lambda: pa.chunked_array([["a", None], ["b"], [None]]), ["a", "b"]),
    "pandas text": (lambda: pd.Series(["a", None, "b", NAN]), ["a", "b"]),
    "pandas object": (lambda: pd.Series(["a", None, "b", pd.NA], dtype=object), ["a", "b"]),
    "pandas Int64": (lambda: pd.Series([1, None, 2, pd.NA], dtype="Int64"), [1, 2]),
    "pandas category": (lambda: pd.Series(["a", None, "b", None], dtype="category"), ["a", "b"]),
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
    "integers and floats": lambda: [SECRET, 1.5],
    "booleans and integers": lambda: [True, SECRET],
    "integers and booleans": lambda: [SECRET, True],
    "integers and numpy booleans": lambda: [np.bool_(True), SECRET],
    "large integers and booleans": lambda: [2**63, True, SECRET],
    "object array of booleans": lambda: np.array([np.True_, SECRET], object),
    "integers and text": lambda: [SECRET, "8675309"],
    "text and integers": lambda: ["8675309", SECRET],
    "object array": lambda: np.array(["8675309", SECRET], object),
    "pandas mixture": lambda: pd.Series(["8675309", SECRET], dtype=object),
    "too large": lambda: [SECRET, 8675309 * 10**20],
    "just too large": lambda: [SECRET, 2**64],
    "just too small": lambda: [SECRET, -(2**63) - 1],
    "lone surrogate": lambda: ["8675309\ud800"],
    "lone surrogate in an array": lambda: np.array(["8675309\ud800"]),
    "dates and times": lambda: [datetime.date(8675, 3, 9), datetime.datetime(8675, 3, 9, 1)],
    "local times and others": lambda: [
        datetime.datetime(8675, 3, 9),
        datetime.datetime(8675, 3, 9, tzinfo=datetime.UTC),
    ],
    "decimals and integers": lambda: [decimal.Decimal("8675309"), SECRET],
    "a decimal of 30 digits": lambda: pa.array([decimal.Decimal(8675309 * 10**23)]),
    "numpy durations": lambda: np.array([8675309], "timedelta64[s]"),
    "lists": lambda: [[SECRET]],
    "structs": lambda: [{"8675309": SECRET}],
    "table": lambda: pa.table({"key": [SECRET]}),
    "pandas frame": lambda: pd.DataFrame({"key": [SECRET]}),
    "pandas multi-index": lambda: pd.MultiIndex.from_tuples([(SECRET, 1)]),
    "pandas periods": lambda: pd.Series(pd.period_range("2020", periods=2)),
    "polars frame": lambda: pl.DataFrame({"key": [SECRET]}),
    "polars 128-bit": lambda: pl.Series([SECRET], dtype=pl.Int128),
    "complex": lambda: np.array([8675309j]),
    "matrix": lambda: np.array([[SECRET]]),
    "scalar array": lambda: np.array(SECRET),
    "records": lambda: np.array([(SECRET,)], [("key", "i8")]),
    "objects": lambda: [object()],
    "one text": lambda: "8675309",
    "one bytes": lambda: b"8675309",
    "one integer": lambda: SECRET,
    "nothing": lambda: None,
    "generator": lambda: (k for k in [SECRET]),
    "set": lambda: {SECRET},
    "dictionary": lambda: {SECRET: 1},
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


def test_more_rows_begin_with_the_same_keys_and_all_differ() -> None:
    many = row_keys(7, 63)
    np.testing.assert_array_equal(row_keys(7, 5), many[:5])
    others = [row_keys(8, 63), row_keys(7, 63, "heavy"), row_keys(2**64 - 1, 63)]
    assert len({int(key) for keys in [many, *others] for key in keys}) == 4 * 63


@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("nulls", [False, True])
def test_a_slice_of_a_dictionary_has_the_fingerprints_of_its_rows(index: pa.DataType, nulls: bool) -> None:
    codes = [None if nulls and i % 5 == 2 else i * 7 % 9 for i in range(60)]
    column = pa.DictionaryArray.from_arrays(pa.array(codes, index), pa.array([f"key {i}" for i in range(9)]))
    for start, length in ((0, 60), (3, 41), (57, 3), (12, 0)):
        part = column.slice(start, length)
        coded, plain = fingerprint(part), fingerprint(part.dictionary_decode())
        assert coded.fingerprints.tolist() == plain.fingerprints.tolist()
        assert coded.skipped == plain.skipped
        assert nulls == (coded.kept is not None) or length < 5
        if coded.kept is not None:
            assert coded.kept.tolist() == plain.kept.tolist()


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
