"""Keys as compiled loops take them: the rows of Arrow columns, without a copy of their texts where that is possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.arrays import Integers, Words, read_only
from dpsketch.columns import valid_rows
from dpsketch.hashing import dictionary_codes, text_buffers

__all__ = [
    "NO_BYTES",
    "NO_EDGES",
    "NO_WORDS",
    "Rows",
    "decoded",
    "kept_of",
    "kept_rows",
    "rows_of",
    "spelled",
    "taken",
    "text_or_bytes",
]

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

NO_WORDS = np.empty(0, np.uint64)
NO_EDGES = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Keys as kernels take them: ``words`` if they are integers, else ``data[edges[i]:edges[i + 1]]``."""

    length: int
    words: Words
    data: Bytes
    edges: Integers

    def __len__(self) -> int:
        return self.length

    def part(self, part: slice) -> Rows:
        """Return some of the rows."""
        return Rows(part.stop - part.start, self.words[part], self.data, self.edges[part.start : part.stop + 1])


def kept_rows(column: pa.ChunkedArray) -> Mask | None:
    """Return which rows of a column have a key; None if all have."""
    masks = [kept_of(chunk) for chunk in column.chunks]
    if all(mask is None for mask in masks):
        return None
    pairs = zip(masks, column.chunks, strict=True)
    return np.concatenate([np.ones(len(chunk), np.bool_) if mask is None else mask for mask, chunk in pairs])


def kept_of(array: pa.Array) -> Mask | None:
    """Return which rows of an array have a key; None if all have."""
    valid: Mask | None = None
    coded = pa.types.is_dictionary(array.type)
    rows = array.indices if coded else array  # Arrow itself cannot say which rows of a dictionary of nulls are valid
    if rows.null_count:
        valid = valid_rows(rows)
    if coded and array.dictionary.null_count:
        values = valid_rows(array.dictionary)
        named: Mask = values[dictionary_codes(array)]
        valid = named if valid is None else named & valid
    return valid


def rows_of(array: pa.Array) -> Rows:
    """Return the rows of an Arrow array of integers or texts, without a copy of the texts where that is possible."""
    kind, n = array.type, len(array)
    if pa.types.is_integer(kind):
        native = np.dtype(kind.to_pandas_dtype())
        patterns = np.frombuffer(array.buffers()[1], native, n, array.offset * native.itemsize)
        return Rows(n, patterns.astype(np.int64).view(np.uint64), NO_BYTES, NO_EDGES)
    data, edges = text_buffers(array)
    return Rows(n, NO_WORDS, data, edges.astype(np.int64))


def taken(column: pa.ChunkedArray, rows: Integers) -> pa.ChunkedArray:
    """Return some rows; Arrow takes none of views, and of texts with short offsets no more than 2 GiB."""
    large = pa.large_string() if column.type in (pa.string(), pa.string_view()) else pa.large_binary()
    short = (pa.string(), pa.binary(), pa.string_view(), pa.binary_view())
    return (column.cast(large) if column.type in short else column).take(rows)


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return an array without its dictionary; Arrow takes no rows of views itself."""
    values = array.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.take(array.indices)


def spelled(texts: pa.Array) -> list[str | bytes]:
    """Return the texts that these bytes are; what is not valid UTF-8, which only columns of bytes have, stays bytes."""
    names = texts.to_pylist()
    try:
        return list(map(bytes.decode, names))
    except UnicodeDecodeError:
        return [text_or_bytes(each) for each in names]


def text_or_bytes(name: bytes) -> str | bytes:
    """Return bytes as the text that they are, if they are one."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


NO_BYTES = read_only(np.empty(0, np.uint8))
