"""How the columns of a source become keys and numbers, and these batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.columns import LARGE_NAME, USER_TYPES, UserType, canonical, user_type_of
from dpsketch.compound import join_parts
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.failures import guarded, invalid
from dpsketch.sources.values import Batch, Columns, KeyType, Place

__all__ = ["Shaper", "is_coded"]

_ALIKE = {
    "key": "Say key_type='int' or key_type='text' to read both alike.",
    "user": "One person could count as two. Convert both to one type, or say user_type='int' where both are numbers.",
}
# pa.scalar and fill_null would import pandas.
_ZERO = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])[0]
_NO_TEXT = pa.nulls(1, pa.string())[0]


class Shaper:
    """Turn the columns of each source into :class:`Batch`, and hold all sources to one type of key and of user."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._kinds: dict[str, tuple[UserType, Place]] = {}
        self._types: dict[str, Any] = {}  # text, or bytes where a source declares those
        self._parts: dict[str, UserType] = {}  # of the columns of the key
        self._skipped = 0
        self._returned = False

    def shape(self, raw: Mapping[str, pa.Array], rows: int, place: Place) -> Batch | None:
        """Return the batch, or None if no record of it is left."""
        columns = self._columns
        key = self._key(raw, place)
        user = self._identity(raw, "user", columns.user, columns.user_type, place)
        role = "coordinates" if columns.key is None else "values"
        points = [_number(raw[name], name, role, place) for name in columns.points]
        weight = None if columns.weight is None else _number(raw[columns.weight], columns.weight, "weights", place)
        count = None if columns.count is None else _count(raw[columns.count], columns.count, place)
        needed = [column for column in (user, weight, count, *points) if column is not None]
        if any(column.null_count for column in needed):
            keep = reduce(pc.and_, (column.is_valid() for column in needed))
            key, user, weight, count, *points = [
                None if column is None else column.filter(keep) for column in (key, user, weight, count, *points)
            ]
            left = int(pc.sum(keep).as_py() or 0)
            self._skipped += rows - left
            rows = left
        return self._batch(key, user, weight, points, rows, count) if rows else None

    def last(self) -> Batch | None:
        """Return a batch without rows that reports the records skipped at the end, or None if there is nothing to say.

        It has columns of the types that the sources declare, and comes also if no batch came before: a source without
        records has keys of the same type as one with records.
        """
        if not self._skipped and self._returned:
            return None
        columns = self._columns
        key, user = (
            None if name is None else pa.array([], self._types.get(role))
            for role, name in (("key", columns.key), ("user", columns.user))
        )
        weight = None if columns.weight is None else pa.array([], pa.float64())
        count = None if columns.count is None else pa.array([], pa.int64())
        return self._batch(key, user, weight, [pa.array([], pa.float64()) for _ in columns.points], 0, count)

    def _batch(self, key: Any, user: Any, weight: Any, points: list[Any], rows: int, count: Any) -> Batch:
        user_type = self._kinds["user"][0] if "user" in self._kinds else None
        skipped, self._skipped, self._returned = self._skipped, 0, True
        types = tuple(self._parts[name] for name in self._columns.parts if name in self._parts)
        key_types = types if len(types) == len(self._columns.parts) else ()
        return Batch(key, user, weight, tuple(points), rows, skipped, count, user_type, key_types)

    def _key(self, raw: Mapping[str, pa.Array], place: Place) -> pa.Array | None:
        columns = self._columns
        for name in columns.parts:
            if (kind := user_type_of(raw[name].type)) is not None:
                self._parts[name] = kind
        if not isinstance(columns.key, tuple):
            asked = columns.key_type or ("text" if place.text else None)
            return self._identity(raw, "key", columns.key, asked, place)
        parts = [_string(_identities(raw[name], name, "key", "text", place), name, place) for name in columns.key]
        self._kinds.setdefault("key", ("text", place))
        self._types.setdefault("key", pa.string())
        wide = SourceError(
            f"{place}: the columns of the key hold too much text in one batch. Write smaller row groups."
        )
        return guarded(lambda: join_parts(parts).cast(pa.string()).combine_chunks(), lambda _: wide)

    def _identity(
        self, raw: Mapping[str, pa.Array], role: str, name: str | None, asked: KeyType | None, place: Place
    ) -> pa.Array | None:
        if name is None:
            return None
        if role == "key" and name == self._columns.encodable and place.parquet and is_coded(raw[name].type):
            # The rules are those of the values, each of which is looked at once.
            values = self._identity({name: raw[name].dictionary}, role, name, asked, place)
            return pa.DictionaryArray.from_arrays(raw[name].indices, values)
        column = _identities(raw[name], name, role, asked, place, named=role == "key" and self._columns.named)
        if pa.types.is_null(column.type):
            return column.cast(self._types[role]) if role in self._kinds else column
        kind: UserType = "int" if pa.types.is_integer(column.type) else "text"
        if role == "user" and asked != "int":
            found = user_type_of(raw[name].type)
            if asked == "text" and found in ("int", "uint64"):
                # Only integers are the same digits in every source. A float 5.0 is the text 5 here, and not in a CSV.
                found = "text" if _is_integer(raw[name].type) else "decimal"
            kind = found or kind
        before, where = self._kinds.setdefault(role, (kind, place))
        if before != kind:
            raise SourceError(
                f"{place}: column {name!r} holds {USER_TYPES[kind]} where {where} held {USER_TYPES[before]}. "
                f"{_ALIKE[role]}"
            )
        held = self._types.setdefault(role, column.type)
        return column if held == column.type else _string(column, name, place).cast(held)


def is_coded(kind: Any) -> bool:
    """Say whether a type is a dictionary of text or bytes."""
    return bool(pa.types.is_dictionary(kind) and (_is_text(kind.value_type) or _is_bytes(kind.value_type)))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    tests = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary
    return any(test(kind) for test in tests)


def _identities(column: Any, name: str, role: str, asked: KeyType | None, place: Place, *, named: bool = False) -> Any:
    """Return a column of keys or users by :mod:`dpsketch.columns`, or as ``null`` if it holds nothing else.

    Whole numbers of ``named`` keys are those that 64 signed bits hold.
    """
    plain = _plain(column, name, place)
    if pa.types.is_null(plain.type):
        return plain if asked is None else plain.cast({"int": pa.int64(), "text": pa.string()}[asked])
    not_whole = _not_whole(name, role, place)
    too_large = f"{place}: column {name!r}: {LARGE_NAME}"

    def unfit(error: Exception) -> SourceError:
        if isinstance(error, InvalidInput):
            fraction = "whole numbers" in str(error)  # or a float that is not exact
            return SourceError(not_whole if fraction else f"{place}: column {name!r}: {error}")
        return SourceError(f"{place}: column {name!r} holds a number that 64 bits do not hold.")

    keys = guarded(lambda: canonical(plain, asked), unfit)
    if keys is None:
        raise SourceError(
            f"{place}: column {name!r} has the type {plain.type}. A {role} is a whole number, text, a date, a time, a "
            "boolean, a decimal or a UUID; convert the column, or choose another."
        )
    if pa.types.is_integer(keys.type):
        if asked == "text":
            return keys.cast(pa.string())
        if pa.types.is_uint64(keys.type) and (role, asked) != ("user", "int"):
            if named:
                return _cast(keys, pa.int64(), too_large)
            return keys.view(pa.int64())  # an integer key is a pattern of 64 bits, see dpsketch.hashing
        return _cast(keys, pa.int64(), not_whole)
    if asked == "int":
        text = _string(keys, name, place)
        if not named:
            return _parse(text, _signed if role == "user" else _whole, not_whole)
        with suppress(SourceError):
            return _parse(text, _signed, too_large)
        _parse(text, _whole, not_whole)
        raise SourceError(too_large)
    return keys if pa.types.is_binary(keys.type) else _string(keys, name, place)


def _not_whole(name: str, role: str, place: Place) -> str:
    """Say that a column is not whole numbers, and what helps."""
    remedy = "Store users as whole numbers or as text."
    if role == "key":
        column = name if name.isidentifier() else "x"
        text = "read it as text" if place.text else f"text, as in 'cast({column} as varchar)'"
        remedy = f"Compute a whole number of it, as in 'round(100 * {column})', or {text}."
    return f"{place}: column {name!r} holds something that is not a whole 64-bit number, or not exactly one. {remedy}"


def _number(column: Any, name: str, role: str, place: Place) -> Any:
    """Return a column of weights or coordinates as ``float64``."""
    plain = _plain(column, name, place)
    wrong = f"{place}: column {name!r} holds something that is not a number, and {role} are numbers. Correct it."
    if pa.types.is_string(plain.type) and place.text:
        return _parse(plain, lambda text: text.cast(pa.float64()), wrong)
    _check_number(plain.type, name, role, place)
    return _cast(plain, pa.float64(), wrong, safe=False)


def _count(column: Any, name: str, place: Place) -> Any:
    """Return a column of counts as ``int64``; a missing one is null, and its row stands for no record."""
    plain = _plain(column, name, place)
    wrong = f"{place}: column {name!r} holds a count that is not a whole number from 0 on. Correct it."
    if pa.types.is_string(plain.type) and place.text:
        whole = _parse(plain, _signed, wrong)
    else:
        _check_number(plain.type, name, "counts", place)
        whole = _cast(plain, pa.int64(), wrong)
    if pc.any(pc.less(whole, _ZERO)).as_py():
        raise SourceError(wrong)
    return whole


def _check_number(kind: Any, name: str, role: str, place: Place) -> None:
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise SourceError(f"{place}: column {name!r} has the type {kind}, and {role} are numbers. Convert the column.")


def _is_integer(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _plain(column: Any, name: str, place: Place) -> Any:
    """Return the column checked and unpacked: one array, no dictionary, one kind of string."""

    def unpack() -> Any:
        if not (place.text or (place.parquet and _is_ascii(column))):
            column.validate(full=True)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if _is_bytes(array.type):
            return array.cast(pa.binary())  # bytes are the text key with those bytes, as in dpsketch.hashing
        return _as(array, pa.string()) if _is_text(array.type) else array

    return guarded(unpack, lambda error: invalid(f"{place}: column {name!r}", error))


def _is_ascii(column: Any) -> bool:
    """Say whether a column is text of which all bytes are ASCII, and therefore UTF-8; a look at values takes longer."""
    if not (isinstance(column, pa.Array) and pa.types.is_string(column.type)):
        return False
    return bool(_bytes_of(column).max(initial=0) < 128)


def _bytes_of(column: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a column of text, one value behind the other."""
    _, edges, text = column.buffers()
    if text is None or not len(column):
        return np.zeros(0, np.uint8)
    first, last = np.frombuffer(edges, np.int32, len(column) + 1, 4 * column.offset)[[0, -1]]
    return np.frombuffer(text, np.uint8)[first:last]


def _string(column: Any, name: str, place: Place) -> Any:
    wrong = f"{place}: column {name!r} holds bytes that are not UTF-8, where text is needed. Convert it, as by hex()."
    return _cast(column, pa.string(), wrong)


def _cast(column: Any, kind: Any, wrong: str, *, safe: bool = True) -> Any:
    return guarded(lambda: _as(column, kind, safe=safe), lambda _: SourceError(wrong))


def _as(column: Any, kind: Any, *, safe: bool = True) -> Any:
    """Return a column as one of a type; of one that is, Arrow would load all its functions to leave it as it is."""
    return column if column.type == kind else column.cast(kind, safe=safe)


def _parse(column: Any, read: Callable[[Any], Any], wrong: str) -> Any:
    """Read text as numbers; an empty field is missing, spaces around a number are ignored."""

    def trimmed() -> Any:
        bare = pc.utf8_trim_whitespace(column)
        return read(pc.if_else(pc.equal(bare, ""), _NO_TEXT, bare))

    try:
        return read(column)
    except pa.ArrowInvalid:
        pass  # trimming costs as much again, and few columns need it
    return guarded(trimmed, lambda _: SourceError(wrong))


def _whole(column: Any) -> Any:
    """Read text as 64-bit patterns: signed below zero, else unsigned."""
    try:
        return _signed(column)
    except pa.ArrowInvalid:
        pass
    column = _without_point(column)
    negative = pc.starts_with(column, "-")
    below = pc.if_else(negative, column, _NO_TEXT).cast(pa.int64())
    above = _digits(pc.if_else(negative, _NO_TEXT, column), pa.uint64()).view(pa.int64())
    return pc.coalesce(below, above)


def _signed(column: Any) -> Any:
    """Read text as whole numbers of 64 signed bits: users of one bit pattern are two people."""
    try:
        return _digits(column, pa.int64())
    except pa.ArrowInvalid:
        pass
    return _digits(_without_point(column), pa.int64())


def _digits(column: Any, kind: Any) -> Any:
    """Read text as whole numbers in decimal digits; Arrow alone reads the text 0x5 as 5."""
    if np.any(_bytes_of(column) | 32 == ord("x")):
        raise pa.ArrowInvalid("hexadecimal digits")
    return column.cast(kind)


def _without_point(column: Any) -> Any:
    """Let whole numbers be written as floats, ``2.0``: so pandas writes a column in which one is missing."""
    return pc.replace_substring_regex(column, r"^(-?[0-9]+)\.0*$", r"\1")
