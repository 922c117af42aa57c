r"""Keys as paths in a tree: their prefixes, what follows a prefix, and the numbers of the shortest ones.

A key is a sequence of bytes. An integer of ``key_bits`` bits is its big-endian bytes, always equally many. A text is
its own bytes, at most ``key_bytes`` of them, and may end anywhere: at depth d it is cut to its first d bytes, so one
that has ended before is told from one that goes on by its length. "a" and "a\0" are therefore different keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled.heavy import hash_following, text_cells
from dpsketch._compiled.xxh64 import hash_integers, hash_ranges
from dpsketch.errors import InvalidInput
from dpsketch.hashing import FINGERPRINT_SEED, KeyType

__all__ = ["IntegerKeys", "KeySpace", "Keys", "TextKeys"]

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Prints = npt.NDArray[np.uint64]

# The first level that is kept cell by cell has so many bytes, if a level is left below it.
_DENSE_BYTES = 2


class Keys(Protocol):
    """Keys, or prefixes of keys, of one kind."""

    def __len__(self) -> int:
        """How many."""

    def take(self, places: Places) -> Self:
        """Return those at some places."""

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""

    def fitting(self) -> Marks | None:
        """Mark those that are not too long for the tree; None if all fit."""

    def reaching(self, depth: int) -> Marks | None:
        """Mark those that have ``depth`` bytes; None if all have."""

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of every prefix that goes on from one of these, all of ``depth`` bytes."""

    def children(self, depth: int, places: Places) -> Self:
        """Return those prefixes, or texts that end there, at some places among them all."""

    def cells(self, depth: int) -> Places:
        """Return the numbers of prefixes of at most ``depth`` bytes, for a level kept cell by cell."""

    def prints(self) -> Prints:
        """Return their fingerprints."""

    def plain(self) -> list[Any]:
        """Return them as Python values."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntegerKeys:
    """Integers of ``size`` bytes, or their leading bytes."""

    values: npt.NDArray[np.uint64]
    size: int

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: Places) -> Self:
        """Return those at some places."""
        return type(self)(self.values[places], self.size)

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""
        if depth == 0:
            return type(self)(np.zeros_like(self.values), 0)
        return type(self)(self.values >> np.uint64(8 * (self.size - depth)), depth)

    def fitting(self) -> None:
        """All fit."""

    def reaching(self, depth: int) -> None:
        """All have every byte."""

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of the 256 integers that go on from each of these."""
        return self.children(depth, np.arange(256 * len(self))).prints()

    def children(self, depth: int, places: Places) -> Self:
        """Return the integers at some places among the 256 that go on from each of these."""
        last = (places & 255).astype(np.uint64)
        return type(self)((self.values[places >> 8] << np.uint64(8)) | last, depth + 1)

    def cells(self, depth: int) -> Places:
        """Return the leading bytes as a number."""
        return self.cut(depth).values.astype(np.int64)

    def prints(self) -> Prints:
        """Return fingerprints as :mod:`dpsketch.hashing` defines them for integers."""
        hashes = np.empty(len(self.values), np.uint64)
        hash_integers(_frozen(self.values), FINGERPRINT_SEED, hashes)
        return hashes

    def plain(self) -> list[int]:
        """Return them as Python integers."""
        numbers: list[int] = self.values.tolist()
        return numbers


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TextKeys:
    """Texts: text i has ``lengths[i]`` bytes of ``data`` from ``starts[i]`` on; at most ``size`` bytes fit the tree."""

    data: npt.NDArray[np.uint8]
    starts: Places
    lengths: Places
    size: int

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, places: Places) -> Self:
        """Return those at some places."""
        return type(self)(self.data, self.starts[places], self.lengths[places], self.size)

    def cut(self, depth: int) -> Self:
        """Cut each to its first ``depth`` bytes."""
        return type(self)(self.data, self.starts, np.minimum(self.lengths, depth), self.size)

    def fitting(self) -> Marks | None:
        """Mark those of at most ``size`` bytes."""
        marks: Marks = self.lengths <= self.size
        return None if marks.all() else marks

    def reaching(self, depth: int) -> Marks | None:
        """Mark those of at least ``depth`` bytes."""
        marks: Marks = self.lengths >= depth
        return None if marks.all() else marks

    def children_prints(self, depth: int) -> Prints:
        """Return the fingerprints of each of these, which ends here, and of it with each byte that may follow."""
        hashes = np.empty((len(self), 257), np.uint64)
        hash_following(self._letters(depth), FINGERPRINT_SEED, hashes)
        return hashes.ravel()

    def children(self, depth: int, places: Places) -> Self:
        """Return those at some places among all texts that end here or go on by a byte, 257 for each of these."""
        parents, last = np.divmod(places, 257)
        letters = np.zeros((len(places), self.size), np.uint8)
        letters[:, :depth] = self._letters(depth)[parents]
        letters[:, depth] = np.maximum(last - 1, 0)
        return type(self)(letters.ravel(), _steps(letters.size, self.size), depth + (last > 0), self.size)

    def cells(self, depth: int) -> Places:
        """Return their numbers among the texts of at most ``depth`` bytes."""
        numbers = np.empty(len(self), np.int64)
        text_cells(_frozen(self.data), self.starts, self.lengths, depth, numbers)
        return numbers

    def prints(self) -> Prints:
        """Return fingerprints as :mod:`dpsketch.hashing` defines them for text."""
        hashes = np.empty(len(self), np.uint64)
        hash_ranges(_frozen(self.data), self.starts, self.starts + self.lengths, FINGERPRINT_SEED, hashes)
        return hashes

    def plain(self) -> list[str | bytes]:
        """Return them as text where they are valid UTF-8, else as bytes."""
        spans = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [_text(self.data[start:stop].tobytes()) for start, stop in spans]

    def packed(self) -> Self:
        """Return them with a copy of their own bytes and no others."""
        letters = self._letters(self.size)
        return type(self)(letters.ravel(), _steps(letters.size, self.size), self.lengths, self.size)

    def _letters(self, depth: int) -> npt.NDArray[np.uint8]:
        """Return the first ``depth`` bytes of each as a matrix; what lies beyond a text's end is 0."""
        places = self.starts[:, np.newaxis] + np.arange(depth)
        inside = np.arange(depth) < self.lengths[:, np.newaxis]
        letters = np.zeros((len(self), depth), np.uint8)
        letters[inside] = self.data[places[inside]]
        return letters


@dataclass(frozen=True, slots=True)
class KeySpace:
    """All keys that a sketch can find.

    Attributes
    ----------
    key_type : {"int", "text"}
        What the keys are.
    size : int
        Bytes of an integer, or of the longest text.
    bits : int
        Bits of an integer; 0 for text.
    """

    key_type: KeyType
    size: int
    bits: int

    @property
    def dense_depth(self) -> int:
        """How many bytes the level has that is kept cell by cell."""
        return min(_DENSE_BYTES, self.size - 1)

    @property
    def dense_cells(self) -> int:
        """Cells of that level; for text the last one counts the records whose key is too long."""
        if self.key_type == "int":
            return 1 << (self.bits - 8 * (self.size - self.dense_depth))
        return _texts(self.dense_depth) + 1

    @property
    def branches(self) -> int:
        """How many children a prefix has: one for each byte, and the text that ends with it."""
        return 256 if self.key_type == "int" else 257

    def parse(self, column: pa.ChunkedArray) -> Keys:
        """Read a column of keys of this kind; a null becomes some key, to be left out by its place."""
        if self.key_type == "int":
            return IntegerKeys(self._integers(column), self.size)
        if pa.types.is_dictionary(column.type):
            # Arrow cannot look up views: give each dictionary plain values first.
            pairs = ((chunk.indices, chunk.dictionary.cast(pa.large_binary())) for chunk in column.chunks)
            column = pa.chunked_array([words.take(codes) for codes, words in pairs], pa.large_binary())
        array = column.cast(pa.large_binary()).combine_chunks()
        if len(array) == 0:
            return TextKeys(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), self.size)
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
        return TextKeys(np.frombuffer(data or b"", np.uint8), bounds[:-1], np.diff(bounds), self.size)

    def _integers(self, column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = np.zeros(len(column), np.uint64)
        start = 0
        for chunk in () if pa.types.is_null(column.type) else column.chunks:
            numbers = chunk.fill_null(0).to_numpy(zero_copy_only=False)
            if numbers.dtype.kind == "i" and np.any(numbers < 0):
                raise InvalidInput(
                    "an integer key is negative; HeavyHitters finds integers from 0 on. Add an offset, or pass text."
                )
            values[start : start + len(chunk)] = numbers
            start += len(chunk)
        if self.bits < 64 and np.any(values >> np.uint64(self.bits)):
            raise InvalidInput(
                f"an integer key has more than {self.bits} bits. Build the sketch with a larger key_bits."
            )
        return values

    def from_cells(self, cells: Places) -> Keys:
        """Return the prefixes with these numbers; the inverse of ``cells`` at the dense depth."""
        if self.key_type == "int":
            return IntegerKeys(cells.astype(np.uint64), self.dense_depth)
        letters = np.zeros((len(cells), self.size), np.uint8)
        lengths = np.zeros(len(cells), np.int64)
        rest = cells.copy()
        for depth in range(self.dense_depth):
            below = _texts(self.dense_depth - depth - 1)
            going_on = rest > 0
            rest[going_on] -= 1
            letters[going_on, depth] = rest[going_on] // below
            rest[going_on] %= below
            lengths[going_on] += 1
        return TextKeys(letters.ravel(), _steps(letters.size, self.size), lengths, self.size)

    def join(self, parts: Sequence[Keys]) -> Keys:
        """Put several batches of prefixes into one."""
        if self.key_type == "int":
            integers = [part for part in parts if isinstance(part, IntegerKeys)]
            values = np.concatenate([np.empty(0, np.uint64), *(part.values for part in integers)])
            return IntegerKeys(values, integers[0].size if integers else self.size)
        packed = [part.packed() for part in parts if isinstance(part, TextKeys)]
        data = np.concatenate([np.empty(0, np.uint8), *(part.data for part in packed)])
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in packed)])
        return TextKeys(data, _steps(len(data), self.size), lengths, self.size)


def _texts(depth: int) -> int:
    """Return how many texts of at most ``depth`` bytes there are."""
    return sum(int(256**length) for length in range(depth + 1))


def _steps(stop: int, step: int) -> Places:
    return np.arange(0, stop, step, dtype=np.int64)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, contiguous: numba compiles anew for each mixture of kinds of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
