"""From keys to 64-bit fingerprints, and from a seed to the keys of a sketch's rows.

A *fingerprint* is XXH64 with seed 42 over the UTF-8 bytes of a text key, or over the eight little-endian bytes of an
integer key. It is the same on every machine and in every engine, and does not depend on a sketch's seed: that comes in
afterwards, one row at a time, through :func:`row_keys`.

An integer key is a 64-bit pattern. A signed integer is taken in two's complement and an unsigned one as it is, so −1
and 2⁶⁴ − 1 are one key; integers outside [−2⁶³, 2⁶⁴) are refused. Bytes are a text key with those bytes. Keys of other
types (dates, booleans, decimals and so on) are one of the two by :mod:`dpsketch.columns`. A missing key (an Arrow
null, a masked element, None, a NaN) is dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from dpsketch import threads
from dpsketch._compiled.hashing import hash_integers, hash_slices, mix
from dpsketch.arrays import read_only
from dpsketch.columns import as_column, canonical, has_schema, is_canonical, uncountable, valid_rows
from dpsketch.errors import InvalidInput, SpecMismatch

__all__ = [
    "TEXT_FINGERPRINTS", "KeyBatch", "KeyType", "dictionary_codes", "fingerprint", "hash_array", "key_type_of",
    "row_keys", "text_buffers", "text_fingerprints", "to_arrow", "typed_column",
]  # fmt: skip

KeyType = Literal["int", "text"]

FINGERPRINT_SEED = np.uint64(42)
KIND_OF_KEY: dict[KeyType, str] = {"int": "integer", "text": "text"}
_SMALLEST_PART = 1 << 18  # keys that are worth a thread
_FEW = 32  # keys that a library hashes one by one: a short question is not to wait for the compiler
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
# Text keys of which another engine has computed the fingerprints, so that nothing is left to hash.
TEXT_FINGERPRINTS = pa.opaque(pa.uint64(), "fingerprint of text", "dpsketch")


@dataclass(frozen=True, slots=True, eq=False)
class KeyBatch:
    """The fingerprints of a batch of keys, nulls dropped.

    Attributes
    ----------
    fingerprints : numpy.ndarray of uint64
        One for each kept key, in the order of the batch.
    key_type : {"int", "text"} or None
        What the keys are; None if the batch has no type (an empty list, nothing but nulls) and none was asked for.
        Of a list it is read off the values, and so as sensitive as they are.
    declared : {"int", "text"} or None
        What the column's own type says, whatever its values: all that may be published. None for lists, object arrays
        and whatever else has no type but that of its values.
    kept : numpy.ndarray of bool, or None
        Which keys of the batch were kept, to drop their weights and users alongside; None if all were.
    skipped : int
        How many keys were null.
    """

    fingerprints: npt.NDArray[np.uint64] = field(repr=False)
    key_type: KeyType | None
    kept: npt.NDArray[np.bool_] | None = field(repr=False)
    skipped: int = field(repr=False)
    declared: KeyType | None = field(default=None, repr=False)


def fingerprint(keys: Any, key_type: KeyType | None = None) -> KeyBatch:
    """Return the fingerprints of a batch of keys.

    Parameters
    ----------
    keys : sequence
        A list, tuple or other sequence; a NumPy array; an Arrow array, chunked or not, sliced or not, with or without a
        dictionary; a pandas Series or Index; a polars Series. Integers, text or bytes, all of one kind, or what
        :mod:`dpsketch.columns` makes one of them.
    key_type : {"int", "text"}, optional
        What the keys must be. A batch without a type (an empty list, nothing but nulls) fits either.

    Raises
    ------
    InvalidInput
        If the keys are nested, durations, of mixed types, floats in a list, or integers that 64 bits do not hold.
    SpecMismatch
        If the keys are not of the ``key_type`` asked for.

    Examples
    --------
    >>> batch = fingerprint(["red", None, "green"])
    >>> batch.fingerprints
    array([  940866417767235679, 14545100765184506888], dtype=uint64)
    >>> batch.key_type, batch.kept.tolist(), batch.skipped
    ('text', [True, False, True], 1)
    """
    column, found, declared = typed_column(keys, key_type)
    fingerprints = np.empty(len(column), np.uint64)
    kept: npt.NDArray[np.bool_] | None = None
    start = 0
    for chunk in column.chunks:
        stop = start + len(chunk)
        valid = hash_array(chunk, fingerprints[start:stop])
        if valid is not None:
            kept = np.ones(len(column), np.bool_) if kept is None else kept
            kept[start:stop] = valid
        start = stop
    if kept is None or kept.all():
        return KeyBatch(fingerprints, found or key_type, None, 0, declared)
    fingerprints = fingerprints[kept]
    return KeyBatch(fingerprints, found or key_type, kept, len(kept) - len(fingerprints), declared)


def typed_column(keys: Any, key_type: KeyType | None = None) -> tuple[pa.ChunkedArray, KeyType | None, KeyType | None]:
    """Return any accepted container as an Arrow column, with what its keys are and what its own type declares.

    Both are as in :class:`KeyBatch`; keys that are not of the ``key_type`` asked for are refused.
    """
    column = to_arrow(keys, key_type)
    found = key_type_of(column.type)
    if key_type is not None and found is not None and found != key_type:
        raise SpecMismatch(
            f"this sketch counts {KIND_OF_KEY[key_type]} keys; the batch has {KIND_OF_KEY[found]} keys. "
            f"Convert them, or count them in a sketch of their own, with key_type={found!r}."
        )
    return column, found, found if has_schema(keys) else None


def text_fingerprints(column: pa.Array) -> pa.Array:
    """Return a column of keys that stands for the text keys with these fingerprints.

    Parameters
    ----------
    column : pyarrow.Array
        64-bit integers, signed or not, as Spark's ``xxhash64`` computes them for strings; null for a missing key.

    Examples
    --------
    >>> hashed = text_fingerprints(pa.array([940866417767235679, None]))
    >>> bool(fingerprint(hashed, "text").fingerprints[0] == fingerprint(["red"]).fingerprints[0])
    True
    """
    return pa.ExtensionArray.from_storage(TEXT_FINGERPRINTS, column.view(pa.uint64()))


def row_keys(seed: int, rows: int, purpose: str = "countsketch") -> npt.NDArray[np.uint64]:
    """Return one 64-bit key for each row of a sketch, derived from its seed.

    Row i gets the i-th output of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), started at XXH64 with seed 42 over
    the purpose's UTF-8 bytes followed by the eight little-endian bytes of the seed. A sketch with more rows begins with
    the same keys.

    Parameters
    ----------
    seed : int
        The seed of the spec, in [0, 2⁶⁴).
    rows : int
        How many keys.
    purpose : str
        Sets apart the streams that one seed feeds.

    Examples
    --------
    >>> row_keys(seed=7, rows=2)
    array([17607130478936877186,  3508189511784936360], dtype=uint64)
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InvalidInput("seed must be an integer in [0, 2**64).")
    origin = np.uint64(xxh64_intdigest(purpose.encode() + int(seed).to_bytes(8, "little"), 42))
    return mix(origin + GOLDEN_GAMMA * np.arange(1, rows + 1, dtype=np.uint64))


def to_arrow(keys: Any, key_type: KeyType | None = None) -> pa.ChunkedArray:
    """View or convert any accepted container as a chunked Arrow array of whole numbers or text.

    ``key_type`` says what is asked for: decimals may be either. See :mod:`dpsketch.columns`.
    """
    column = as_column(keys)
    return column if is_canonical(column.type) else _canonical(column, key_type, has_schema(keys))


def _canonical(column: pa.ChunkedArray, key_type: KeyType | None, declared: bool) -> pa.ChunkedArray:
    kind, found = column.type, None
    if kind == TEXT_FINGERPRINTS:
        return column
    # How many digits a list's decimals have after the point is no schema.
    wanted = key_type or (None if declared else "text")
    fits = True
    try:
        chunks = [canonical(chunk, wanted) for chunk in column.chunks or [pa.array([], column.type)]]
        found = None if None in chunks else chunks
    except pa.ArrowInvalid:
        fits = False
    if not fits:
        raise InvalidInput("an integer key lies outside [-2**63, 2**64). Pass such keys as text.")
    if found is None:
        raise uncountable(kind)
    return pa.chunked_array(found)


def key_type_of(kind: pa.DataType) -> KeyType | None:
    """Return what keys of an Arrow type are, None if the type has no values; refuse all other types."""
    types = pa.types
    if types.is_dictionary(kind):
        return key_type_of(kind.value_type)
    if types.is_null(kind):
        return None
    if types.is_integer(kind):
        return "int"
    if kind == TEXT_FINGERPRINTS:
        return "text"
    if _is_text(kind) or types.is_string_view(kind) or types.is_binary_view(kind):
        return "text"
    raise uncountable(kind)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def hash_array(array: pa.Array, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_] | None:
    """Fill in the fingerprints of one Arrow array; return which of its keys are there, or None if all are."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.bool_)
    if len(array) == 0:
        return None
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(array, hashes)
    if kind == TEXT_FINGERPRINTS:
        hashes[:] = array.storage.fill_null(0).to_numpy()
    elif pa.types.is_integer(kind):
        _hash_integer_array(array, hashes)
    else:
        _hash_text_array(array, hashes)
    return _validity(array)


def _hash_integer_array(array: pa.Array, hashes: npt.NDArray[np.uint64]) -> None:
    kind = np.dtype(array.type.to_pandas_dtype())
    patterns = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    if kind.itemsize < 8:
        patterns = patterns.astype(np.int64)
    words = read_only(patterns.view(np.uint64))
    if len(words) <= _FEW:
        hashes[:] = [xxh64_intdigest(word.tobytes(), 42) for word in words]
        return
    threads.run(
        [
            partial(hash_integers, words[part], FINGERPRINT_SEED, hashes[part])
            for part in threads.parts(len(words), _SMALLEST_PART)
        ]
    )


def text_buffers(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return the bytes of an array of texts and the edges between them, without a copy where that is possible."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    buffers = array.buffers()
    edges: npt.NDArray[Any]
    if pa.types.is_fixed_size_binary(kind):
        edges = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64) * kind.byte_width
    else:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        width = np.dtype(np.int64 if wide else np.int32)
        edges = np.frombuffer(buffers[1], width, len(array) + 1, array.offset * width.itemsize)
    data = np.frombuffer(buffers[-1] if buffers[-1] else b"", np.uint8)
    return read_only(data), read_only(edges)


def _hash_text_array(array: pa.Array, hashes: npt.NDArray[np.uint64]) -> None:
    texts, edges = text_buffers(array)
    if len(hashes) <= _FEW:
        hashes[:] = [xxh64_intdigest(texts[start:stop].data, 42) for start, stop in pairwise(edges.tolist())]
        return
    threads.run(
        [
            partial(hash_slices, texts, edges[part.start : part.stop + 1], FINGERPRINT_SEED, hashes[part])
            for part in threads.parts(len(hashes), _SMALLEST_PART)
        ]
    )


def _hash_dictionary(array: pa.DictionaryArray, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_] | None:
    values = np.empty(len(array.dictionary), np.uint64)
    value_valid = hash_array(array.dictionary, values)
    code_valid = _validity(array.indices)
    if len(values) == 0:
        return np.zeros(len(array), np.bool_)
    codes = dictionary_codes(array)
    hashes[:] = values.take(codes)  # faster than to index
    if value_valid is None:
        return code_valid
    valid: npt.NDArray[np.bool_] = value_valid[codes]
    return valid if code_valid is None else valid & code_valid


def dictionary_codes(array: pa.DictionaryArray) -> npt.NDArray[Any]:
    """Return the place of each row's value in the dictionary, 0 for a null."""
    indices = array.indices
    if indices.null_count:  # fill_null would import pandas
        zero = pa.Array.from_buffers(indices.type, 1, [None, pa.py_buffer(bytes(8))])[0]
        indices = pc.coalesce(indices, zero)
    kind = np.dtype(indices.type.to_pandas_dtype())
    return np.frombuffer(indices.buffers()[1] or b"", kind, len(indices), indices.offset * kind.itemsize)


def _validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    return valid_rows(array) if array.null_count else None
