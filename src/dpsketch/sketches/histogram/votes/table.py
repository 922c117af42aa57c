"""The buckets of a vote: one key each by its exact bytes, its majority count c and its load n.

*What a record changes.* Take a bucket's state as c times its key; c = 0 has no key. Two states that differ by one
record are c and c ± 1 times one key. That holds where the record is counted, and it stays so: a further record of that
key adds one to both, another takes one off both, or, where one of the two is at 0, makes the states 0 and 1 times a
key. Votes of another table for a bucket are further records. So all that one record changes is one bucket: its n by 1,
its c by 1, and its key through c = 0 only. Of u = (n + c)/2 and l = (n − c)/2 exactly one moves, by 1.

*What it says.* Records of different keys are paired off, and c are left, all of the bucket's key. So l is the number of
pairs: the bucket's key has f records with c ≤ f ≤ u, and any other key of the bucket has at most l.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled import votes as kernels
from dpsketch.arrays import Integers, Words, read_only
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType, fingerprint
from dpsketch.sketches.weights import COUNTER_LIMIT

__all__ = ["KeyBytes", "VoteTable", "buckets_of"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyBytes:
    """Keys by their bytes: row r has ``data[edges[r]:edges[r + 1]]``. Sensitive."""

    data: Bytes
    edges: Integers

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Self:
        """Return the bytes of a column of keys: those of texts, and the eight of integers; what nulls have is open."""
        if pa.types.is_dictionary(column.type):
            kind = column.type.value_type
            if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
                kind = pa.large_binary()  # Arrow takes no rows of views, and of texts with short offsets only 2 GiB
            chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
            column = pa.chunked_array(chunks, kind)
        if pa.types.is_null(column.type):
            return cls(read_only(np.empty(0, np.uint8)), np.zeros(len(column) + 1, np.int64))
        if pa.types.is_integer(column.type):
            patterns = column.fill_null(0).to_numpy()
            words = np.ascontiguousarray(patterns if patterns.dtype == np.uint64 else patterns.astype(np.int64))
            return cls(read_only(words.view(np.uint8)), 8 * np.arange(len(words) + 1))
        array = column.cast(pa.large_binary()).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], pa.large_binary())
        _, ends, data = array.buffers()
        found = np.frombuffer(data if data else b"", np.uint8)
        edges = np.frombuffer(ends, np.int64, len(array) + 1, 8 * array.offset) if len(array) else np.zeros(1, np.int64)
        return cls(read_only(found), np.array(edges))


class VoteTable:
    """The state of all buckets. Sensitive.

    Parameters
    ----------
    buckets : int
        How many.

    Attributes
    ----------
    votes, loads : numpy.ndarray of int64
        The majority count c and the load n of each bucket.
    """

    def __init__(self, buckets: int) -> None:
        self.votes: Integers = np.zeros(buckets, np.int64)
        self.loads: Integers = np.zeros(buckets, np.int64)
        self._prints: Words = np.zeros(buckets, np.uint64)
        self._names: Bytes = np.empty(0, np.uint8)
        self._edges: Integers = np.zeros(buckets + 1, np.int64)

    def cast(self, buckets: Integers, prints: Words, times: Integers, rows: Integers, keys: KeyBytes) -> None:
        """Count records in turn: each is so many ``times`` one of the rows of ``keys``, in its bucket."""
        holders = np.full(len(self.votes), kernels.STORED, np.int64)
        names = read_only(self._names)
        kernels.cast_votes(
            buckets, prints, times, rows, keys.data, keys.edges, self.votes, self.loads, self._prints, names,
            self._edges, holders,
        )  # fmt: skip
        stored = holders == kernels.STORED
        lengths = np.where(stored, np.diff(self._edges), 0)
        lengths[~stored] = np.diff(keys.edges)[holders[~stored]]
        lengths[self.votes == 0] = 0
        self._prints[self.votes == 0] = 0
        edges = np.concatenate([[0], np.cumsum(lengths)])
        found = np.empty(int(edges[-1]), np.uint8)
        kernels.copy_names(holders, keys.data, keys.edges, names, self._edges, found, edges)
        self._names, self._edges = found, edges

    def absorb(self, other: VoteTable) -> None:
        """Add another table: its majority counts are votes for its keys, and its pairs are load."""
        held = np.flatnonzero(other.votes)
        keys = KeyBytes(read_only(other._names), other._edges)
        self.cast(held, other._prints[held], other.votes[held], held, keys)
        self.loads += other.loads - other.votes

    def names(self, buckets: Integers, key_type: KeyType | None) -> list[Any]:
        """Return the keys of buckets that have one: integers with their sign, or the bytes of texts."""
        data = self._names.tobytes()
        found = [data[self._edges[b] : self._edges[b + 1]] for b in buckets.tolist()]
        return [int.from_bytes(each, "little", signed=True) for each in found] if key_type == "int" else list(found)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all there is to keep; what a bucket without a key held before is not in it."""
        return {"votes": self.votes, "loads": self.loads, "names": self._names, "edges": self._edges}

    @classmethod
    def from_arrays(cls, buckets: int, row_key: np.uint64, key_type: KeyType | None, arrays: Mapping[str, Any]) -> Self:
        """Return the table that :meth:`to_arrays` took apart; a file may have been written by anyone."""
        table = cls(buckets)
        kinds = {"votes": np.int64, "loads": np.int64, "names": np.uint8, "edges": np.int64}
        sizes = {"votes": buckets, "loads": buckets, "edges": buckets + 1}
        given = {name: arrays.get(name) for name in kinds}
        for name, array in given.items():
            if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != kinds[name]:
                raise _not_ours()
            if len(array) != sizes.get(name, len(array)):
                raise _not_ours()
        table.votes, table.loads, table._names, table._edges = (np.array(array) for array in given.values())
        votes, loads, lengths = table.votes, table.loads, np.diff(table._edges)
        good = bool(np.all((votes >= 0) & (votes <= loads) & (loads <= COUNTER_LIMIT) & ((loads - votes) % 2 == 0)))
        good = good and bool(np.all(np.where(votes > 0, lengths >= 0, lengths == 0)))
        good = good and table._edges[0] == 0 and table._edges[-1] == len(table._names)
        held = np.flatnonzero(votes)
        if key_type == "int":
            good = good and bool(np.all(lengths[held] == 8))
        if not good or (len(held) and key_type is None):
            raise _not_ours()
        if len(held):
            names = table.names(held, key_type)
            prints = fingerprint(pa.array(names, pa.int64() if key_type == "int" else pa.large_binary())).fingerprints
            if not np.array_equal(buckets_of(prints, row_key, buckets), held):
                raise _not_ours()
            table._prints[held] = prints
        return table


def buckets_of(prints: Words, row_key: np.uint64, buckets: int) -> Integers:
    """Return the bucket of each key, by its fingerprint."""
    found = np.empty(len(prints), np.int64)
    kernels.find_buckets(prints, row_key, buckets, found)
    return found


def _not_ours() -> FileRefused:
    return FileRefused("the file's buckets are not ones that dpsketch writes.")
