"""One text, or one whole number, for a key of every type that a column may have.

A key is counted as a whole number of 64 bits or as text. Columns of other types are turned into one of the two by these
rules, whatever library or file they come from, so that one key has one fingerprint by every way in:

==================  ===========================================================================================
a column of         is counted as
==================  ===========================================================================================
whole numbers       whole numbers
floats              whole numbers. What has a fraction, is not finite, or lies beyond ±2⁵³, where floats skip whole
                    numbers, is a missing key
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

Decimals are read as floats are where whole numbers are asked for (a kind that takes no others, or a stated key type),
and as text where text is, or where they are Python's own in a list, which has no type. Durations, intervals, lists and
structs are no keys.

*Privacy.* A column's type decides, never its values: the two types that a release may state follow from the schema.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpsketch.lazy import arrow_compute as pc

__all__ = ["canonical", "is_canonical"]

_EXACT = 2.0**53
_FRACTION_ZEROS = r"(\.\d*?)0+$"
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
# Where the 32 digits of a UUID stand among its 36 characters.
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])


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
    >>> canonical(pa.array([2.0, 2.5, None])).to_pylist()
    [2, None, None]
    """
    types, kind = pa.types, array.type
    if is_canonical(kind):
        return array
    if types.is_dictionary(kind):
        values = canonical(array.dictionary, wanted)
        return None if values is None else values.take(array.indices)
    if types.is_floating(kind):
        return _whole(array)
    if types.is_decimal(kind):
        return _decimal(array, wanted or ("int" if kind.scale <= 0 else "text"))
    if types.is_boolean(kind) or types.is_date32(kind):
        return array.cast(pa.string())
    if types.is_date64(kind):
        return array.cast(pa.date32()).cast(pa.string())
    if types.is_time(kind):
        return _without_zeros(array.cast(pa.string()))
    if types.is_timestamp(kind):
        text = _without_zeros(array.cast(pa.timestamp(kind.unit)).cast(pa.string()))
        return text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")
    if isinstance(kind, pa.UuidType):
        return _uuid(array.storage)
    return None


def _whole(array: pa.Array) -> pa.Array:
    """Return the numbers that are whole and that floats tell apart, null for all others."""
    values = array.cast(pa.float64(), safe=False)
    known = pc.and_(pc.equal(pc.floor(values), values), pc.less_equal(pc.abs(values), _EXACT))
    return pc.if_else(known, values, pa.nulls(1, pa.float64())[0]).cast(pa.int64())


def _decimal(array: pa.Array, wanted: str) -> pa.Array:
    if wanted == "int":
        return array.cast(pa.int64()) if array.type.scale <= 0 else _whole(array)
    text = array.cast(pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():  # Arrow writes the smallest ones with an exponent
        exact = [None if value is None else format(value, "f") for value in array.to_pylist()]
        text = pa.array(exact, pa.string())
    return _without_zeros(text)


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
