"""Columns of keys: from whatever holds keys to a column of Arrow's, and from any type to whole numbers or text.

A key is counted as a whole number of 64 bits or as text. Columns of other types are turned into one of the two by these
rules, whatever library or file they come from, so that one key has one fingerprint by every way in:

==================  ===========================================================================================
a column of         is counted as
==================  ===========================================================================================
whole numbers       whole numbers
floats              whole numbers; a NaN is a missing key. A column is refused that holds a fraction, an infinity or a
                    number of 2¹¹ (half), 2²⁴ (single) or 2⁵³ (double) and more, where the type skips whole numbers
decimals            with no digits after the point whole numbers; else text without zeros at the end: ``2.5``, ``3``
booleans            ``true`` and ``false``
dates               ``2026-11-15``
times of day        ``09:30:00``, with a fraction of a second only where there is one: ``09:30:00.25``
timestamps          ``2026-11-15 09:30:00``, fractions as above; with a time zone the time in UTC and a Z:
                    ``2026-11-15 09:30:00Z``. The column's unit does not matter
UUIDs               ``6f1c2d3e-0000-4000-8000-0123456789ab``, in small letters
text, bytes         as they are; bytes are the text key with those bytes
dictionaries        what their values are: pandas' and polars' categories, enums
==================  ===========================================================================================

Decimals are whole numbers where those are asked for (a kind that takes no others, or a stated key type); a column with
a fraction is then refused. They are text where text is asked for, or where they are Python's own in a list, which has
no type. Durations, intervals, lists and structs are no keys.

Users are read in the same way. Columns of different types could give one person two of these forms: the decimal 5.00
is ``5``, the text ``5.00`` is not. So a sketch takes users of one *user type* only (:func:`user_type_of`).

*Privacy.* A column's type decides, never its values: the two types that a release may state follow from the schema.
Values decide only whether a column is refused, which the data holder sees before anything is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.errors import InvalidInput

__all__ = [
    "LARGE_NAME", "USER_TYPES", "UserType", "as_column", "canonical", "has_schema", "is_canonical", "is_of",
    "uncountable", "user_type_of", "valid_rows",
]  # fmt: skip

# Integers of at most 64 signed bits, floats and decimals without a fraction are "int". Values of "uint64" are apart,
# since −1 and 2⁶⁴ − 1 have one 64-bit pattern.
UserType = Literal[
    "int", "uint64", "text", "bytes", "decimal", "boolean", "date", "time", "timestamp", "zoned_timestamp", "uuid"
]
USER_TYPES: dict[UserType, str] = {
    "int": "whole numbers", "uint64": "unsigned 64-bit numbers", "text": "text", "bytes": "bytes",
    "decimal": "decimals", "boolean": "booleans", "date": "dates", "time": "times of day", "timestamp": "timestamps",
    "zoned_timestamp": "timestamps with a time zone", "uuid": "UUIDs",
}  # fmt: skip

# A float below this magnitude, by the bits of its type, is a whole number that no other one was rounded to.
_EXACT = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}
# Releases that name keys write integers as 64 signed bits, of which a larger one would be a negative number.
LARGE_NAME = "integer keys and groups are below 2**63, and one is not. Pass them as text."
_FRACTION_ZEROS = r"(\.\d*?)0+$"
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
# Where the 32 digits of a UUID stand among its 36 characters.
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
# Arrow's conversion of a list imports pandas where it is installed, which takes as long as a million keys.
_SHORT_LIST = 10_000


def is_of(value: Any, module: str, *names: str) -> bool:
    """Say whether a value is of one of some classes of a library, without importing the library.

    While another thread imports it, the library stands in ``sys.modules`` and does not have its classes yet. A value of
    a class that is not there yet cannot exist.
    """
    loaded = sys.modules.get(module)
    found = (getattr(loaded, name, None) for name in names)
    return isinstance(value, tuple(each for each in found if isinstance(each, type)))


def as_column(keys: Any) -> pa.ChunkedArray:
    """View or convert any accepted container as a chunked Arrow array, of whatever type it has."""
    column: Any = None
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        column = keys
    elif isinstance(keys, np.ndarray):
        column = _from_numpy(keys)
    elif isinstance(keys, str | bytes | bytearray | memoryview):
        raise InvalidInput("keys is a single text; expected a sequence of keys. Put it into a list.")
    elif is_of(keys, "pandas", "Series", "Index"):
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
    if is_of(keys, "pandas", "Series", "Index"):
        kind = keys.dtype.categories.dtype if is_of(keys.dtype, "pandas", "CategoricalDtype") else keys.dtype
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
    return is_of(keys, "polars", "Series") and str(keys.dtype) == "Object"


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


def is_canonical(kind: pa.DataType) -> bool:
    """Say whether keys of an Arrow type are counted as they are: whole numbers, text, bytes, and nothing at all."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_canonical(kind.value_type)
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    )


def canonical(array: pa.Array, wanted: Literal["int", "text"] | None = None) -> pa.Array | None:
    """Return a column as whole numbers or text, None if keys cannot be of its type.

    Parameters
    ----------
    array : pyarrow.Array
        The keys.
    wanted : {"int", "text"} or None
        What decimals are read as; None lets their type say.

    Raises
    ------
    InvalidInput
        If a float, or a decimal that is read as a whole number, is not a whole number or not known exactly, or if
        Arrow cannot write a decimal or a time.
    pyarrow.ArrowInvalid
        If a decimal without digits after the point does not fit 64 bits. Its message quotes the value.

    Examples
    --------
    >>> from datetime import datetime
    >>> from decimal import Decimal
    >>> canonical(pa.array([datetime(2026, 11, 15, 9, 30)])).to_pylist()
    ['2026-11-15 09:30:00']
    >>> canonical(pa.array([Decimal("2.50"), Decimal("3")])).to_pylist()
    ['2.5', '3']
    >>> canonical(pa.array([2.0, float("nan"), None])).to_pylist()
    [2, None, None]
    """
    types, kind = pa.types, array.type
    if is_canonical(kind):
        return array
    if types.is_dictionary(kind):
        if types.is_floating(kind.value_type) or types.is_decimal(kind.value_type):
            return canonical(array.dictionary_decode(), wanted)  # a value that no row has is not refused
        values = canonical(array.dictionary, wanted)
        return None if values is None else values.take(array.indices)
    if types.is_floating(kind):
        return _whole(array)
    if types.is_decimal(kind):
        return _decimal(array, wanted or ("int" if kind.scale <= 0 else "text"))
    if types.is_boolean(kind) or types.is_date32(kind):
        return _written(array)
    if types.is_date64(kind):
        return _written(array.cast(pa.date32()))
    if types.is_time(kind):
        return _without_zeros(_written(array))
    if types.is_timestamp(kind):
        text = _without_zeros(_written(array.cast(pa.timestamp(kind.unit))))
        return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")
    if isinstance(kind, pa.UuidType):
        return _uuid(array.storage)
    return None


def user_type_of(kind: pa.DataType, *, declared: bool = True) -> UserType | None:
    """Return the user type of a column's Arrow type; None for nulls alone, and for types that are no keys.

    Parameters
    ----------
    kind : pyarrow.DataType
        The type, before :func:`canonical`.
    declared : bool
        Whether the column has a schema. Decimals without one are text, however many digits they have.

    Examples
    --------
    >>> user_type_of(pa.float32()), user_type_of(pa.decimal128(9, 2)), user_type_of(pa.date64())
    ('int', 'decimal', 'date')
    """
    types = pa.types
    if types.is_dictionary(kind):
        return user_type_of(kind.value_type, declared=declared)
    if types.is_uint64(kind):
        return "uint64"
    if types.is_integer(kind) or types.is_floating(kind):
        return "int"
    if types.is_decimal(kind):
        return "int" if declared and kind.scale <= 0 else "decimal"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if is_canonical(kind):
        return None if types.is_null(kind) else "bytes"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind):
        return "date"
    if types.is_time(kind):
        return "time"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "zoned_timestamp"
    return "uuid" if isinstance(kind, pa.UuidType) else None


def _whole(array: pa.Array) -> pa.Array:
    """Return floats as whole numbers, NaN as null; refuse what is not a whole number that the type holds exactly."""
    values = array.cast(pa.float64(), safe=False)
    values = pc.if_else(pc.is_nan(values), pa.nulls(1, pa.float64())[0], values)
    exact = pc.less(pc.abs(values), _EXACT[array.type.bit_width])
    return _all_whole(values, pc.and_(pc.equal(pc.floor(values), values), exact))


def _decimal(array: pa.Array, wanted: str) -> pa.Array:
    if wanted == "int":
        if array.type.scale <= 0:
            return array.cast(pa.int64())
        return _all_whole(array, pc.equal(pc.floor(array), array))  # before the cast, which would round
    text = _written(array)
    if pc.any(pc.match_substring(text, "E")).as_py():  # Arrow writes the smallest ones with an exponent
        exact = [None if value is None else format(value, "f") for value in array.to_pylist()]
        text = pa.array(exact, pa.string())
    return _without_zeros(text)


def _written(array: pa.Array) -> pa.Array:
    """Return values as text; refuse those for which Arrow writes a placeholder, one text for many values."""
    text = array.cast(pa.string())
    if pc.any(pc.starts_with(text, "<")).as_py():
        raise InvalidInput("a value lies outside what its type can be written as. Convert the column to text.")
    return text


def _all_whole(values: pa.Array, whole: pa.Array) -> pa.Array:
    if not pc.all(whole, min_count=0).as_py():
        raise InvalidInput(
            "the keys are not all whole numbers, or some are too large for their type to hold exactly. Round them to a "
            "step of your choice, as in (100 * column).round(), or convert them to integers or text."
        )
    return values.cast(pa.int64())


def _without_zeros(text: pa.Array) -> pa.Array:
    """Drop zeros at the end of a fraction, and the point if nothing is left behind it."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, _FRACTION_ZEROS, r"\1"), r"\.$", "")


def _uuid(storage: pa.Array) -> pa.Array:
    bytes_ = np.frombuffer(storage.buffers()[1], np.uint8, 16 * len(storage), 16 * storage.offset).reshape(-1, 16)
    text = np.full((len(storage), 36), ord("-"), np.uint8)
    text[:, _UUID_DIGITS[0::2]] = _HEX[bytes_ >> 4]
    text[:, _UUID_DIGITS[1::2]] = _HEX[bytes_ & 15]
    edges = 36 * np.arange(len(storage) + 1, dtype=np.int64)
    found: Any = pa.Array.from_buffers(pa.large_string(), len(storage), [None, pa.py_buffer(edges), pa.py_buffer(text)])
    if not storage.null_count:
        return found
    return pc.if_else(storage.is_valid(), found, pa.nulls(1, pa.large_string())[0])
