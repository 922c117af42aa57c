"""From whatever holds keys (a list, an array, a Series) to a column of Arrow's, without changing a key on the way."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.canonical import is_canonical
from dpsketch.errors import InvalidInput

__all__ = ["as_column", "has_schema", "uncountable", "valid_rows"]

# Arrow's conversion of a list imports pandas where it is installed, which takes as long as a million keys.
_SHORT_LIST = 10_000


def as_column(keys: Any) -> pa.ChunkedArray:
    """View or convert any accepted container as a chunked Arrow array, of whatever type it has."""
    column: Any = None
    pandas = sys.modules.get("pandas")
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        column = keys
    elif isinstance(keys, np.ndarray):
        column = _from_numpy(keys)
    elif isinstance(keys, str | bytes | bytearray | memoryview):
        raise InvalidInput("keys is a single text; expected a sequence of keys. Put it into a list.")
    elif pandas is not None and isinstance(keys, pandas.Series | pandas.Index):
        if keys.dtype == object:
            column = _from_numpy(keys.to_numpy())
        else:
            with suppress(pa.ArrowException):
                column = pa.array(keys, from_pandas=True)
    elif _holds_objects(keys):
        column = _from_sequence(keys.to_list())
    elif hasattr(keys, "__arrow_c_stream__"):
        with suppress(pa.ArrowException):
            column = pa.chunked_array(keys)
    elif hasattr(keys, "__arrow_c_array__") or hasattr(keys, "__arrow_array__"):
        with suppress(pa.ArrowException):
            column = pa.array(keys)
    elif isinstance(keys, Sequence):
        column = _from_sequence(keys)
    elif hasattr(keys, "__array__"):
        column = _from_numpy(np.asarray(keys))
    else:
        raise InvalidInput(
            f"keys is a {type(keys).__name__}; expected a list, a NumPy or Arrow array, or a pandas or polars Series."
        )
    if column is None:
        raise InvalidInput(f"keys is a {type(keys).__name__} of a type that Arrow does not know. Convert it to text.")
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def valid_rows(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows of an array of numbers or texts are not null; Arrow's own booleans import pandas to be read.

    Examples
    --------
    >>> valid_rows(pa.array(["a", None, "b"]).slice(1))
    array([False,  True])
    """
    bits = array.buffers()[0]
    if bits is None:
        return np.full(len(array), not array.null_count)
    byte, first = divmod(array.offset, 8)
    count = first + len(array)
    packed = np.frombuffer(bits, np.uint8, -(-count // 8), byte)
    return np.unpackbits(packed, count=count, bitorder="little")[first:].view(np.bool_)


def has_schema(keys: Any) -> bool:
    """Say whether a container has a type of its own; that of a list, or of Python's objects, is that of its values."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(keys, pandas.Series | pandas.Index):
        kind = keys.dtype.categories.dtype if isinstance(keys.dtype, pandas.CategoricalDtype) else keys.dtype
        return str(kind) != "object"
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return True
    if _holds_objects(keys):
        return False
    if any(hasattr(keys, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_array__")):
        return True
    # NumPy's floats are what an empty array is, and what integers with gaps become.
    return hasattr(keys, "__array__") and np.asarray(keys).dtype.kind not in "Of"


def _holds_objects(keys: Any) -> bool:
    """Say whether this is a polars column of Python's objects, which polars exports by their addresses in memory."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(keys, polars.Series) and keys.dtype == polars.Object


def _from_numpy(keys: npt.NDArray[Any]) -> Any:
    if keys.ndim != 1:
        raise InvalidInput(f"keys has {keys.ndim} dimensions; expected one. Pass one column, or ravel() it.")
    if keys.dtype.kind in "OUST" or isinstance(keys, np.ma.MaskedArray):
        return _from_sequence(keys)
    if keys.dtype.kind in "iu":
        native = np.ascontiguousarray(keys, keys.dtype.newbyteorder("="))
        # Arrow's own conversion would import pandas.
        return pa.Array.from_buffers(pa.from_numpy_dtype(native.dtype), len(native), [None, pa.py_buffer(native)])
    if keys.dtype == np.float64 and len(keys) == 0:
        return pa.nulls(0)  # what np.array([]) is
    if keys.dtype.kind == "M":
        unit = np.datetime_data(keys.dtype)[0]
        kind = {"Y": "D", "M": "D", "W": "D", "D": "D", "h": "s", "m": "s"}.get(unit, unit)
        keys = keys.astype(f"datetime64[{kind}]")
    if keys.dtype.kind in "bfM":
        column: Any = None
        with suppress(pa.ArrowException):
            column = pa.array(np.ascontiguousarray(keys, keys.dtype.newbyteorder("=")))
        if column is not None:
            return column
    raise uncountable(keys.dtype.name)


def _from_sequence(keys: Any) -> Any:
    """Let Arrow find the common type of Python objects; nothing it says about them may reach a message."""
    column: Any = None
    kinds = set(map(type, keys))
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        if kinds == {int}:
            return _from_numpy(np.array(keys, np.int64))
        if kinds == {UUID}:
            return pa.array([key.bytes for key in keys], pa.uuid())
        if kinds == {str} and len(keys) <= _SHORT_LIST and "pandas" not in sys.modules:
            builder = pa.lib.StringBuilder()
            builder.append_values(keys)
            return builder.finish()
        column = pa.array(keys, from_pandas=True)
    if column is None:
        return _from_large_integers(keys)
    _refuse_mixed(column.type, keys, kinds)
    return column


def _refuse_mixed(kind: pa.DataType, keys: Any, kinds: set[type]) -> None:
    """Refuse objects of which Arrow makes one type although they are several: it would change some of them.

    It reads NumPy's booleans among integers as 0 and 1, times among dates as dates, and local times as UTC.
    """
    if pa.types.is_floating(kind) and not (isinstance(keys, np.ndarray) and keys.dtype.kind == "f"):
        raise uncountable("float in a list, which declares no type")
    if pa.types.is_integer(kind):
        mixed = any(issubclass(each, bool | np.bool_) for each in kinds)
    elif is_canonical(kind):
        mixed = False
    else:
        values = [key for key in keys if key is not None and key == key]  # neither None, nor NaN or NaT
        zones = {key.tzinfo is None for key in values if isinstance(key, datetime)}
        times = all(isinstance(key, datetime) for key in values)  # pandas' Timestamp is one
        mixed = len(zones) > 1 or (not times and len(set(map(type, values))) > 1)
    if mixed:
        raise InvalidInput(
            "the keys are of mixed types; expected all of one. Convert them, so that equal keys have equal values."
        )


def _from_large_integers(keys: Iterable[Any]) -> Any:
    """Convert a sequence that Arrow refused: integers past 2⁶³ or of several NumPy types are fine, all else is not."""
    integers: list[int | None] = []
    for key in keys:
        if key is None or (isinstance(key, float) and key != key):
            integers.append(None)
        elif isinstance(key, bool | np.bool_) or not isinstance(key, int | np.integer):
            text = isinstance(key, str | bytes)
            break
        elif not -(2**63) <= key < 2**64:
            raise InvalidInput("an integer key lies outside [-2**63, 2**64). Pass such keys as text.")
        else:
            integers.append(int(key))
    else:
        if all(key is None or key < 2**63 for key in integers):
            return pa.array(integers, pa.int64())
        return pa.array([None if key is None else key & (2**64 - 1) for key in integers], pa.uint64())
    if text and all(isinstance(key, str | bytes | None) for key in keys):
        raise InvalidInput("a text key is not valid Unicode (half of a surrogate pair). Pass such keys as bytes.")
    raise InvalidInput(
        "the keys are of mixed or unknown types; expected all integers or all text. Convert them to one type."
    )


def uncountable(kind: pa.DataType | str) -> InvalidInput:
    """Return the refusal of keys of a type that cannot be counted."""
    # What follows the name may describe the data (a decimal's digits, a struct's fields).
    name = str(kind).split("<")[0].split("(")[0].split("[")[0]
    return InvalidInput(
        f"keys of type {name} cannot be counted; expected integers, text, or a date, time, boolean, decimal or UUID. "
        "Convert them first, so that equal keys have equal values."
    )
