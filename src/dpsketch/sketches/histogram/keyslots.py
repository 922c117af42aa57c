"""The slots of a key table: identities of 128 bits by number, found by open addressing, on several threads."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import threads
from dpsketch._compiled import grouping, identity
from dpsketch.arrays import Integers, Words, read_only
from dpsketch.changes import Changeable
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.processes import OneProcess
from dpsketch.sketches.histogram.rows import NO_BYTES, NO_EDGES, NO_WORDS, Rows

__all__ = ["KeySlots", "Scratch", "blocks"]

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_BLOCK = 1 << 18  # rows that go through the steps together: their identities stay in the processor's cache
_SMALLEST_PART = 1 << 15  # rows that are worth a thread
_LEAST_SLOTS = 1 << 10
_REGIONED = 1 << 16  # slots from which on a table has regions, that threads may own


class KeySlots(OneProcess, Changeable):
    """Distinct keys by number: their identities, their units, and the names of long texts."""

    key_type: KeyType | None

    def __init__(self, secret: Words) -> None:
        self._secret = secret
        self._size = 0
        self._total = 0
        self._slots = np.zeros(_LEAST_SLOTS, np.uint64)
        # By number: identities, units, and from where to where the long texts lie in the names.
        self._ids = np.empty((0, 2), np.uint64)
        self._units = np.empty(0, np.int64)
        self._edges = np.zeros(1, np.int64)
        self._names = np.empty(0, np.uint8)

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """How much memory the table takes."""
        return sum(each.nbytes for each in (self._slots, self._ids, self._units, self._edges, self._names))

    def _pass_all(self, rows: Rows, units: Integers) -> Integers:
        """Enter all rows, whatever their units, and return the numbers of their keys."""
        found = np.empty(len(rows), np.int64)
        scratch = Scratch(len(rows))
        for part in blocks(len(rows)):
            block = rows.part(part)
            live = np.ones(len(block), np.bool_)
            found[part] = self._group(block, np.ascontiguousarray(units[part]), live, True, scratch)
        return found

    def _group(self, rows: Rows, units: Integers, live: Mask, adds: bool, scratch: Scratch) -> Integers:
        """Pass a block through the table; return the numbers of its rows' keys, in scratch."""
        n, size = len(rows), self._size
        if adds:
            self._make_room(size + n)
        slots = self._slots
        parts = threads.parts(n, _SMALLEST_PART) if len(slots) >= _REGIONED else [slice(0, n)]
        ids, places = scratch.ids[:n], scratch.places[:n]
        found, spots, ranks = scratch.found[:n], scratch.spots[:n], scratch.ranks[:n]
        order, fill = scratch.lists(len(parts), n)

        def prepare(source: int, part: slice) -> None:
            if self.key_type == "int":
                identity.identify_integers(rows.words[part], self._secret, ids[part], places[part])
            else:
                edges = rows.edges[part.start : part.stop + 1]
                identity.identify_texts(rows.data, edges, self._secret, ids[part], places[part])
            grouping.deal(places, live, part.start, part.stop, order, fill, source)

        def look(owner: int) -> None:
            fits = grouping.group(
                slots, _wrap(slots), self._ids, self._units, size, ids, places, units, order[owner], fill[owner], adds,
                found, spots,
            )  # fmt: skip
            _refuse_crowd(fits)

        threads.run([partial(prepare, source, part) for source, part in enumerate(parts)])
        threads.run([partial(look, owner) for owner in range(len(parts))])
        if not adds:
            found[~live] = -1
            return found
        known = grouping.rank_fresh(live, spots, size, self._ids, self._units, self._edges, rows.edges, ranks)
        self._names = _larger(self._names, int(self._edges[size]), int(self._edges[known]))

        def settle(part: slice) -> None:
            grouping.settle(
                part.start, part.stop, live, spots, size, ranks, slots, found, rows.data, rows.edges, self._edges,
                self._names,
            )  # fmt: skip

        threads.run([partial(settle, part) for part in parts])
        self._size = known
        return found

    def _make_room(self, needed: int) -> None:
        """Make room for so many keys."""
        self._ids = _larger(self._ids, self._size, needed)
        self._units = _larger(self._units, self._size, needed)
        self._edges = _larger(self._edges, self._size + 1, needed + 1)
        # At most five eighths of the slots are taken. Regions of 1024 slots or more then never fill up: the keys in
        # one are binomial, and 1024 is more than fifteen standard deviations above their mean.
        size = len(self._slots)
        while 8 * needed > 5 * size:
            size *= 2
        if size == len(self._slots):
            return
        slots, larger = self._slots, np.zeros(size, np.uint64)
        regions = grouping.REGIONS if len(slots) >= _REGIONED else 1
        length = len(slots) // regions

        def move(part: slice) -> None:
            first, stop = part.start * length, part.stop * length
            _refuse_crowd(grouping.move(slots, first, stop, larger, _wrap(larger), self._ids, self._secret))

        threads.run([partial(move, part) for part in threads.parts(regions, 1)])
        self._slots = larger

    def _spelled(self, numbers: Integers) -> tuple[Bytes, Integers]:
        """Return texts one after the other, and where each begins and the last one ends."""
        edges = np.empty(len(numbers) + 1, np.int64)
        grouping.spelled_edges(self._ids, self._edges, numbers, edges)
        texts = np.empty(int(edges[-1]), np.uint8)
        grouping.spell(self._ids, self._edges, self._names, numbers, edges, texts)
        return texts, edges

    def _texts(self, numbers: Integers) -> pa.LargeBinaryArray:
        """Return texts as an Arrow array of bytes."""
        texts, edges = self._spelled(numbers)
        return pa.Array.from_buffers(pa.large_binary(), len(numbers), [None, pa.py_buffer(edges), pa.py_buffer(texts)])

    def _rows(self) -> Rows:
        """Return all keys as rows, to enter into another table."""
        if self.key_type == "int":
            return Rows(self._size, self._ids[: self._size, 0].copy(), NO_BYTES, NO_EDGES)
        texts, edges = self._spelled(np.arange(self._size))
        return Rows(self._size, NO_WORDS, read_only(texts), edges)


class Scratch:
    """What a block of at most so many rows, or :data:`_BLOCK`, needs on its way through; used again by the next."""

    def __init__(self, rows: int) -> None:
        n = min(rows, _BLOCK)
        self.live = np.empty(n, np.bool_)
        self.units, self.found, self.spots, self.ranks = (np.empty(n, np.int64) for _ in range(4))
        self.ids, self.places = np.empty((n, 2), np.uint64), np.empty(n, np.uint64)
        self._lists = np.empty(0, np.int32)

    def lists(self, owners: int, rows: int) -> tuple[npt.NDArray[np.int32], Integers]:
        """Return room for the lists of rows by owner and source, and for their lengths."""
        width = -(-rows // owners)
        if len(self._lists) < owners * owners * width:
            self._lists = np.empty(owners * owners * width, np.int32)
        shape = (owners, owners, width)
        return self._lists[: owners * owners * width].reshape(shape), np.empty((owners, owners), np.int64)


def blocks(rows: int) -> list[slice]:
    """Return so many rows in pieces that stay in the processor's cache."""
    return [slice(start, min(start + _BLOCK, rows)) for start in range(0, rows, _BLOCK)]


def _wrap(slots: Words) -> np.uint64:
    """Return the bits of a slot's number within which a search stays."""
    return np.uint64(len(slots) // (grouping.REGIONS if len(slots) >= _REGIONED else 1) - 1)


def _refuse_crowd(fits: bool) -> None:
    if not fits:
        raise InvalidInput(
            "the keys crowd one part of the table, as chosen keys do if somebody knows the table's secret. "
            "Start anew with a fresh one."
        )


def _larger(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """Return an array of at least ``needed`` rows with the first ``used`` ones of this; twice as long if it is new."""
    if len(array) >= needed:
        return array
    larger = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger
