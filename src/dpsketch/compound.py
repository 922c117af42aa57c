"""Keys of several columns: a tuple in Python, one CSV row wherever it is text.

A compound key is its parts' texts, in the order of the columns; a whole number is its decimal digits, and what is
neither number nor text its canonical text (:mod:`dpsketch.columns`). Counted, stored
and written, it is one text: the row of a CSV file with those fields (RFC 4180), separated by commas, a field in quotes
if, and only if, it holds a comma, a quote or an end of line, quotes doubled inside. No two tuples of one length share
a row: ``("a,b", "c")`` is ``"a,b",c`` and ``("a", "b,c")`` is ``a,"b,c"``. A key of which any part is missing is a
missing key; an empty text is a text.

Which columns a key has is part of the spec. It is named by whoever counts, never read off records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.errors import InvalidInput
from dpsketch.hashing import key_type_of, to_arrow

__all__ = ["CompoundKey", "compound_column", "compound_keys", "join_parts", "parsed_keys", "text_scalar"]

_TEXT = pa.large_string()
_SPECIAL = re.compile(r'[",\r\n]')
_MARKS = re.compile(r'["\r\n]')
_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"|([^",\r\n]*)')


class CompoundKey(tuple[str, ...]):
    """A key of several parts: the tuple of their texts, which prints as its CSV row.

    Examples
    --------
    >>> key = CompoundKey(("a,b", "c"))
    >>> key == ("a,b", "c"), str(key), CompoundKey.parsed('"a,b",c', 2)
    (True, '"a,b",c', ('a,b', 'c'))
    """

    __slots__ = ()

    def __str__(self) -> str:
        row = ",".join(self)
        if row.count(",") == len(self) - 1 and _MARKS.search(row) is None:
            return row
        return ",".join('"' + part.replace('"', '""') + '"' if _SPECIAL.search(part) else part for part in self)

    @classmethod
    def parsed(cls, row: str, parts: int) -> Self | None:
        """Return the key that a CSV row is, None if it is not one row of so many fields."""
        if _MARKS.search(row) is None:
            plain = cls(row.split(","))
            return plain if len(plain) == parts else None
        fields: list[str] = []
        place = 0
        while field := _FIELD.match(row, place):  # Python's own reader has a longest field
            fields.append(field[2] if field[1] is None else field[1].replace('""', '"'))
            place = field.end() + 1
            if row[place - 1 : place] != ",":
                break
        return cls(fields) if place > len(row) and len(fields) == parts else None

    @classmethod
    def stored(cls, row: object, parts: int) -> Self | None:
        """Return the key of a row as it is written, None if dpsketch would not write it so."""
        key = cls.parsed(row, parts) if isinstance(row, str) else None
        return key if key is not None and str(key) == row else None


def compound_keys(keys: Any, columns: Sequence[str]) -> list[CompoundKey]:
    """Return tuples of text and whole numbers, which someone asks about, as keys of these columns."""
    found = [None if key is None else _key(key, columns) for key in _listed(keys, columns)]
    if None in found:
        raise InvalidInput("a null is not a key that can be looked up or listed.")
    return [key for key in found if key is not None]


def parsed_keys(texts: Sequence[Any], columns: Sequence[str]) -> list[CompoundKey]:
    """Return keys of these columns from CSV rows; what is a list of parts already is taken as it is."""
    found = []
    for text in texts:
        key = CompoundKey.parsed(text, len(columns)) if isinstance(text, str) else _key(text, columns)
        if key is None:
            raise InvalidInput(
                f"a key here is one CSV row of {_words(columns)}, and one of those asked is not. Put a part that holds "
                'a comma in double quotes, as in "a,b",c.'
            )
        found.append(key)
    return found


def compound_column(keys: Any, columns: Sequence[str]) -> pa.Array:
    """Return tuples as the column that is counted: a row each, null where the key or a part of it is None."""
    rows = [None if key is None else _key(key, columns) for key in _listed(keys, columns)]
    return pa.array([None if row is None else str(row) for row in rows], _TEXT)


def join_parts(parts: Sequence[Any]) -> pa.ChunkedArray:
    """Return columns of one length as rows of their texts, null where any part is.

    Examples
    --------
    >>> join_parts([["a,b", "x", None], [1, 2, 3]]).to_pylist()
    ['"a,b",1', 'x,2', None]
    """
    texts = [_quoted(_text(to_arrow(part, "text"))) for part in parts]
    if len({len(text) for text in texts}) > 1:
        raise InvalidInput("the columns of a compound key have different lengths; each needs one entry a record.")
    joined = pc.binary_join_element_wise(*texts, text_scalar(",", _TEXT), null_handling="emit_null")
    return joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    key_type_of(column.type)  # refuses what is neither a whole number nor text
    text: pa.ChunkedArray | None = None
    with suppress(pa.ArrowInvalid):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = column.cast(_TEXT)
    if text is None:
        raise InvalidInput("a part of a compound key is bytes that are no UTF-8. Convert the column to text.")
    return text


def _quoted(text: pa.ChunkedArray) -> pa.ChunkedArray:
    if not any(map(_holds_special, text.chunks)):
        return text
    special = pc.match_substring_regex(text, '[",\r\n]')
    doubled = pc.replace_substring(text, '"', '""')
    quote = text_scalar('"', _TEXT)
    return pc.if_else(special, pc.binary_join_element_wise(quote, doubled, quote, text_scalar("", _TEXT)), text)


def _holds_special(array: pa.Array) -> bool:
    """Say whether some text may need quotes: a look at all their bytes is faster than a pattern on each text."""
    _, offsets, data = array.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, np.int64)[[array.offset, array.offset + len(array)]]
    held = data.slice(int(ends[0]), int(ends[1] - ends[0])).to_pybytes()
    return any(mark in held for mark in (b'"', b",", b"\r", b"\n"))


def text_scalar(text: str, kind: pa.DataType) -> Any:
    """Return a text as a scalar of one of Arrow's types of text; ``pa.scalar`` would import pandas."""
    builder = pa.lib.StringBuilder()
    builder.append(text)
    return builder.finish().cast(kind)[0]


def _listed(keys: Any, columns: Sequence[str]) -> list[Any]:
    for name in ("tolist", "to_pylist", "to_list"):
        if hasattr(keys, name):
            keys = getattr(keys, name)()
    if not isinstance(keys, Sequence) or isinstance(keys, str | bytes | CompoundKey):
        raise _not_tuples(columns)
    return list(keys)


def _key(parts: Any, columns: Sequence[str]) -> CompoundKey | None:
    """Return one key, None if a part is missing."""
    if not isinstance(parts, tuple | list) or len(parts) != len(columns):
        raise _not_tuples(columns)
    if any(part is None for part in parts):
        return None
    texts = [_part(part) for part in parts]
    if None in texts:
        raise InvalidInput("a part of a compound key is text, a whole number, or what has a canonical text.")
    key = CompoundKey(text for text in texts if text is not None)
    with suppress(UnicodeError):
        str(key).encode()
        return key
    raise InvalidInput("a part of a compound key is not valid Unicode (half of a surrogate pair).")


def _part(part: Any) -> str | None:
    """Return the text of one part, None if it has none."""
    if isinstance(part, str):
        return str(part)
    if isinstance(part, int | np.integer) and not isinstance(part, bool | np.bool_):
        return str(int(part))
    with suppress(InvalidInput):
        found: str | None = _text(to_arrow([part], "text"))[0].as_py()
        return found
    return None


def _not_tuples(columns: Sequence[str]) -> InvalidInput:
    return InvalidInput(f"keys here have {len(columns)} parts, {_words(columns)}: give a list of tuples of them.")


def _words(columns: Sequence[str]) -> str:
    return ", ".join(columns)
