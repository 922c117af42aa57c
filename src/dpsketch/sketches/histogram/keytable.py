"""Distinct keys by number, and how much was counted of each.

A text that is published must be one that was counted under its number. Keys that only share a fingerprint would break
that: a record whose text collides with a frequent one, and comes first, would be published in its place. So a key is
found by an identity of 128 bits: integers and texts of at most 15 bytes are their own, longer texts have SipHash-2-4
under a secret that is drawn for the table. Whoever chose the texts did not know it, and no answer depends on it unless
two texts collide. That is all that rests on the hash; :func:`collision_chance` bounds it and is paid in δ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import threads
from dpsketch._compiled import grouping
from dpsketch.changes import Changeable
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput
from dpsketch.hashing import KIND_OF_KEY, TEXT_FINGERPRINTS, KeyType, key_type_of, to_arrow
from dpsketch.noise import random_words
from dpsketch.sketches.weights import COUNTER_LIMIT, checked_total, whole_counts

__all__ = ["KeyTable", "collision_chance"]

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

HASH_BITS = 127  # of a long text's identity; one of the 128 says that it is a hash
_BLOCK = 1 << 18  # rows that go through the steps together: their identities stay in the processor's cache
_SMALLEST_PART = 1 << 15  # rows that are worth a thread
_LEAST_SLOTS = 1 << 10
_REGIONED = 1 << 16  # slots from which on a table has regions, that threads may own
_NO_WORDS = np.empty(0, np.uint64)
_NO_EDGES = np.zeros(1, np.int64)


def collision_chance(rows: int) -> float:
    """Return a bound on the chance that any two different keys among so many rows are taken for one.

    It is n²/2¹²⁸: n(n−1)/2 pairs, each of which meets with probability 2⁻¹²⁷ if SipHash-2-4 under a secret key cannot
    be told from a random function (which is what it was designed for, and nobody has found otherwise). A table that
    absorbed others under other secrets adds up their chances and its own.

    Examples
    --------
    >>> collision_chance(10**9)
    2.9387358770557188e-21
    """
    return min(1.0, float(rows) ** 2 * 0.5 ** (HASH_BITS + 1))


class KeyTable(Changeable):
    """Distinct keys by number, and how much was counted of each: exact names, found by a secret hash.

    Numbers count up from 0 in the order in which keys first came (those of an Arrow dictionary: in the dictionary's
    order), whatever the secret and the number of threads. That order is as sensitive as the records.

    Whatever is refused is refused before anything changes. A change that was interrupted after it began leaves a table
    that refuses everything (:class:`~dpsketch.errors.SketchBroken`).

    Parameters
    ----------
    key_type : {"int", "text"}, optional
        What the keys are; by default what the first column is that has rows and a type.
    secret : numpy.ndarray of uint64, optional
        Two words, the key of the hash; by default fresh ones.

    Attributes
    ----------
    key_type : {"int", "text"} or None
        What the keys are. Unless it was declared it is read off the data, and as sensitive.
    exact : bool
        Whether one hash function decided which keys are equal, so that the order and partition of the records made no
        difference. False once another table was absorbed that has long texts and another secret; as sensitive as
        the keys.

    Privacy
    -------
    Two keys become one with a chance below :func:`collision_chance`, and the name of such a key is the text that came
    first. Nothing else here depends on the secret.

    Examples
    --------
    >>> table = KeyTable()
    >>> table.count(["tea", None, "milk", "tea"])
    (3, 1)
    >>> table.names([0, 1]), table.units
    (['tea', 'milk'], array([2, 1]))
    """

    def __init__(self, key_type: KeyType | None = None, secret: Words | None = None) -> None:
        if key_type not in (None, "int", "text"):
            raise InvalidInput("key_type must be 'int', 'text' or None.")
        words = random_words(2) if secret is None else np.array(secret)
        if words.dtype != np.uint64 or words.shape != (2,):
            raise InvalidInput("secret must be two words: an array of two uint64.")
        self.key_type = key_type
        self.exact = True
        self._secret = words
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
    def units(self) -> Integers:
        """How much was counted of each key, by number: a view that cannot be written to, good until the next change."""
        self._refuse_broken()
        view = self._units[: self._size]
        view.flags.writeable = False
        return view

    def count(self, keys: Any, units: Any = None) -> tuple[int, int]:
        """Add a column of keys; return how many of its rows have a key, and how many have none.

        Parameters
        ----------
        keys : sequence
            Whatever :func:`dpsketch.hashing.fingerprint` takes.
        units : array of int64, optional
            How much each row counts, 0 or more; by default 1. A row that counts 0 adds nothing, not even its key.

        Raises
        ------
        InvalidInput
            If the keys are of another type, or cannot be counted, or the units are not so many whole numbers.
        CounterOverflow
            If all units together would pass 2⁶².
        """
        column = self._column(keys)
        kept = _kept(column)
        skipped = 0 if kept is None else len(kept) - int(np.count_nonzero(kept))
        amounts: Integers | int = 1
        if units is not None:
            amounts = whole_counts(units, len(column))
            amounts = amounts if kept is None else np.where(kept, amounts, 0)
        rows = len(column) - skipped
        total = checked_total(self._total, amounts, 1, rows if units is None else len(column))
        self._begin_change()
        self._take_type(column)
        self._enter(column, amounts, adds=True)
        self._total = total
        return rows, skipped

    @property
    def secret(self) -> Words:
        """The key of the hash, as sensitive as the keys."""
        return self._secret.copy()

    def numbers(self, keys: Any, *, verified: bool = False) -> Integers:
        """Return the number of each row's key, −1 where there is none; keys that are new are added with 0 units.

        ``verified`` compares every text with the name of its number. Should two ever have met in the hash, the table
        takes another secret and starts over, so that nothing rests on the hash but speed.
        """
        column = self._column(keys)
        self._begin_change()
        self._take_type(column)
        found = np.empty(len(column), np.int64)
        before = self._size
        self._enter(column, 0, adds=True, found=found)
        while verified and not self._named(column, found):
            self._rehash(before)
            self._enter(column, 0, adds=True, found=found)
        return found

    def order(self) -> Integers:
        """Return the numbers of all keys in the order of the keys: integers by value, texts by their bytes."""
        import pyarrow.compute as pc

        if self.key_type == "int":
            return np.argsort(self._ids[: self._size, 0].view(np.int64), kind="stable")
        order: Integers = pc.sort_indices(self._texts(np.arange(self._size))).to_numpy().astype(np.int64)
        return order

    def find(self, keys: Any) -> Integers:
        """Return the number of each row's key, −1 where it has none or the table does not have it."""
        column = self._column(keys)
        found = np.full(len(column), -1, np.int64)
        if self._size:
            self._enter(column, 0, adds=False, found=found)
        return found

    def names(self, numbers: Any, *, signed: bool = True) -> list[Any]:
        """Return the keys with these numbers.

        Parameters
        ----------
        numbers : sequence of int
            From 0 to ``len(self) - 1``, in any order, repeated or not.
        signed : bool
            How to read integers, which are kept as patterns of 64 bits: −1 and 2⁶⁴ − 1 are one key.

        Returns
        -------
        list of int, or list of str
            Texts that are not valid UTF-8, which only columns of bytes have, are returned as bytes.
        """
        given = np.asarray(numbers)
        asked = np.ascontiguousarray(given, np.int64)
        whole = given.dtype.kind in "iu" or not given.size
        if not whole or asked.ndim != 1 or np.any((asked < 0) | (asked >= self._size)):
            raise InvalidInput("numbers must be a flat sequence of numbers of keys, below len(table).")
        if self.key_type == "int":
            patterns = self._ids[asked, 0]
            integers: list[Any] = (patterns.view(np.int64) if signed else patterns).tolist()
            return integers
        column = self._texts(asked)
        try:
            return list(column.cast(pa.large_string()).to_pylist())
        except pa.ArrowInvalid:
            return [_text(name) for name in column.to_pylist()]

    def absorb(self, other: KeyTable, *, verified: bool = False) -> Integers:
        """Add another table's keys and units; return the number here of each of its keys.

        Long texts are hashed anew, so the other's secret may be another. ``verified`` is that of :meth:`numbers`, for
        tables that count nothing.
        """
        other._refuse_broken()
        if other.key_type is not None and self.key_type not in (None, other.key_type):
            raise _other_type(self.key_type, other.key_type)
        total = checked_total(self._total, other.units, 1, len(other))
        exact = self.exact and other.exact
        exact = exact and (bool(np.array_equal(self._secret, other._secret)) or not other._edges[other._size])
        self._begin_change()
        self.key_type = self.key_type or other.key_type
        self.exact = exact
        before = self._size
        found = self._pass_all(other._rows(), other._units[: len(other)].copy())
        while verified and self.key_type == "text" and not self._named(other._texts(np.arange(len(other))), found):
            self._rehash(before)
            found = self._pass_all(other._rows(), other._units[: len(other)].copy())
        self._total = total
        return found

    def copy(self) -> KeyTable:
        """Return a table with the same keys, numbers, units and secret."""
        twin = KeyTable(self.key_type, self._secret)
        twin.exact, twin._size, twin._total = self.exact, self._size, self._total
        twin._slots, twin._names = self._slots.copy(), self._names[: self._edges[self._size]].copy()
        twin._ids, twin._units = self._ids[: self._size].copy(), self._units[: self._size].copy()
        twin._edges = self._edges[: self._size + 1].copy()
        return twin

    def to_arrays(self, order: Integers | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all there is to keep, for :meth:`from_arrays`: sensitive, with the secret.

        Keys are in the order of their numbers, or in this one: that of :meth:`order` says nothing of how they came.

        Integer keys are ``keys`` (uint64); text keys are ``names``, their bytes one after the other, and ``edges``,
        where each begins and where the last one ends. A table without keys has neither.
        """
        order = np.arange(self._size) if order is None else order
        units = self._units[order]
        arrays: dict[str, npt.NDArray[Any]] = {"secret": self._secret.copy(), "units": units}
        arrays["exact"] = np.array([self.exact], np.uint8)
        if self._size and self.key_type == "int":
            arrays["keys"] = self._ids[order, 0]
        elif self._size and self.key_type == "text":
            arrays["names"], arrays["edges"] = self._spelled(order)
        return arrays

    @classmethod
    def from_arrays(cls, key_type: KeyType | None, arrays: Mapping[str, Any]) -> Self:
        """Return the table that :meth:`to_arrays` took apart.

        Raises
        ------
        FileRefused
            If these are not arrays that it returns.
        """
        secret, units = _stored(arrays, "secret", np.uint64), _stored(arrays, "units", np.int64)
        exact = _stored(arrays, "exact", np.uint8)
        rows = _Rows(0, _NO_WORDS, _NO_BYTES, _NO_EDGES)
        if len(units) and key_type == "int":
            keys = _stored(arrays, "keys", np.uint64)
            rows = _Rows(len(keys), keys, _NO_BYTES, _NO_EDGES)
        elif len(units) and key_type == "text":
            names, edges = _stored(arrays, "names", np.uint8), _stored(arrays, "edges", np.int64)
            if not len(edges) or edges[0] != 0 or edges[-1] != len(names) or np.any(np.diff(edges) < 0):
                raise _not_ours()
            rows = _Rows(len(edges) - 1, _NO_WORDS, _read_only(names), edges)
        sensible = len(secret) == 2 and len(units) == len(rows) and exact.tolist() in ([0], [1])
        if not sensible or np.any((units < 0) | (units > COUNTER_LIMIT)):
            raise _not_ours()
        table = cls(key_type, secret)
        try:
            table._total = checked_total(0, units, 1, len(units))
            table._pass_all(rows, units)
        except (CounterOverflow, InvalidInput):
            raise _not_ours() from None
        if len(table) != len(rows):
            raise _not_ours()
        table.exact = bool(exact[0])
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_arrays, (self.key_type, self.to_arrays())

    # --- columns -----------------------------------------------------------------------------------------------------

    def _column(self, keys: Any) -> pa.ChunkedArray:
        """Return keys as an Arrow column, or refuse what cannot be counted here."""
        column = to_arrow(keys)
        found = key_type_of(column.type)
        if found is not None and self.key_type not in (None, found):
            raise _other_type(self.key_type, found)
        if TEXT_FINGERPRINTS in (column.type, getattr(column.type, "value_type", None)):
            raise InvalidInput("these keys are fingerprints, and their names are needed. Pass the keys themselves.")
        return column

    def _take_type(self, column: pa.ChunkedArray) -> None:
        if len(column):
            self.key_type = self.key_type or key_type_of(column.type)

    def _enter(
        self, column: pa.ChunkedArray, units: Integers | int, *, adds: bool, found: Integers | None = None
    ) -> None:
        """Pass a column through the table; where ``units`` are given by row, those with 0 are left out."""
        scratch = _Scratch(len(column))
        start = 0
        for chunk in column.chunks:
            stop = start + len(chunk)
            part_units = units if isinstance(units, int) else units[start:stop]
            numbers = None if found is None else found[start:stop]
            self._enter_array(chunk, part_units, None, adds, scratch, numbers)
            start = stop

    def _enter_array(
        self,
        array: pa.Array,
        units: Integers | int,
        live: Mask | None,
        adds: bool,
        scratch: _Scratch,
        found: Integers | None,
    ) -> None:
        if pa.types.is_null(array.type):
            if found is not None:
                found[:] = -1
            return
        if pa.types.is_dictionary(array.type):
            if len(array.dictionary) <= len(array):
                self._enter_dictionary(array, units, adds, scratch, found)
                return
            array = array.dictionary_decode()
        for part in _blocks(len(array)):
            block = array.slice(part.start, part.stop - part.start)
            counted = scratch.live[: len(block)]
            counted[:] = True if live is None else live[part]
            row_units = scratch.units[: len(block)]
            row_units[:] = units if isinstance(units, int) else units[part]
            valid = _kept_of(block)
            if valid is not None:
                counted &= valid
            if not isinstance(units, int):
                counted &= row_units > 0
            numbers = self._group(_rows_of(block), row_units, counted, adds, scratch)
            if found is not None:
                found[part] = numbers

    def _enter_dictionary(
        self,
        array: pa.DictionaryArray,
        units: Integers | int,
        adds: bool,
        scratch: _Scratch,
        found: Integers | None,
    ) -> None:
        """Pass a dictionary's values through the table once, each with the units of all its rows."""
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        valid = _kept_of(array.indices)
        present = codes if valid is None else codes[valid]
        values = len(array.dictionary)
        used = np.zeros(values, np.bool_)
        used[present] = True
        sums: Integers | int = 0
        if not isinstance(units, int):
            sums = np.zeros(values, np.int64)
            np.add.at(sums, present, units if valid is None else units[valid])
        elif units:
            sums = units * np.bincount(present, minlength=values).astype(np.int64)
        numbers = np.full(values, -1, np.int64)
        self._enter_array(array.dictionary, sums, used, adds, scratch, numbers)
        if found is not None and values:
            found[:] = numbers[codes]
        if found is not None and valid is not None:
            found[~valid] = -1

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _pass_all(self, rows: _Rows, units: Integers) -> Integers:
        """Enter all rows, whatever their units, and return the numbers of their keys."""
        found = np.empty(len(rows), np.int64)
        scratch = _Scratch(len(rows))
        for part in _blocks(len(rows)):
            block = rows.part(part)
            live = np.ones(len(block), np.bool_)
            found[part] = self._group(block, np.ascontiguousarray(units[part]), live, True, scratch)
        return found

    def _group(self, rows: _Rows, units: Integers, live: Mask, adds: bool, scratch: _Scratch) -> Integers:
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
                grouping.identify_integers(rows.words[part], self._secret, ids[part], places[part])
            else:
                edges = rows.edges[part.start : part.stop + 1]
                grouping.identify_texts(rows.data, edges, self._secret, ids[part], places[part])
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

    # --- names -------------------------------------------------------------------------------------------------------

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

    def _named(self, column: pa.ChunkedArray | pa.Array, numbers: Integers) -> bool:
        """Say whether the text of every row is the name of its number."""
        import pyarrow.compute as pc

        if self.key_type != "text":
            return True
        there = np.flatnonzero(numbers >= 0)
        names = self._texts(numbers[there])
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(whole.type):
            whole = whole.dictionary_decode()
        same = pc.all(pc.equal(whole.cast(pa.large_binary()).take(there), names), min_count=0)
        return bool(same.as_py())

    def _rehash(self, size: int) -> None:
        """Start over with the first ``size`` keys under another secret."""
        rows = self._rows()
        kept = rows.part(slice(0, size))
        units = self._units[:size].copy()
        fresh = KeyTable(self.key_type)
        while len(fresh) < size:
            fresh = KeyTable(self.key_type)
            fresh._pass_all(kept, units)
        for name in ("_secret", "_size", "_slots", "_ids", "_units", "_edges", "_names"):
            setattr(self, name, getattr(fresh, name))

    def _rows(self) -> _Rows:
        """Return all keys as rows, to enter into another table."""
        if self.key_type == "int":
            return _Rows(self._size, self._ids[: self._size, 0].copy(), _NO_BYTES, _NO_EDGES)
        texts, edges = self._spelled(np.arange(self._size))
        return _Rows(self._size, _NO_WORDS, _read_only(texts), edges)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Keys as kernels take them: ``words`` if they are integers, else ``data[edges[i]:edges[i + 1]]``."""

    length: int
    words: Words
    data: Bytes
    edges: Integers

    def __len__(self) -> int:
        return self.length

    def part(self, part: slice) -> _Rows:
        return _Rows(part.stop - part.start, self.words[part], self.data, self.edges[part.start : part.stop + 1])


class _Scratch:
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


def _blocks(rows: int) -> list[slice]:
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


def _kept(column: pa.ChunkedArray) -> Mask | None:
    """Return which rows of a column have a key; None if all have."""
    masks = [_kept_of(chunk) for chunk in column.chunks]
    if all(mask is None for mask in masks):
        return None
    pairs = zip(masks, column.chunks, strict=True)
    return np.concatenate([np.ones(len(chunk), np.bool_) if mask is None else mask for mask, chunk in pairs])


def _kept_of(array: pa.Array) -> Mask | None:
    valid: Mask | None = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        values = array.dictionary.is_valid().to_numpy(zero_copy_only=False)
        named: Mask = values[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        valid = named if valid is None else named & valid
    return valid


def _rows_of(array: pa.Array) -> _Rows:
    """Return the rows of an Arrow array of integers or texts, without a copy of the texts where that is possible."""
    kind, n = array.type, len(array)
    if pa.types.is_integer(kind):
        native = np.dtype(kind.to_pandas_dtype())
        patterns = np.frombuffer(array.buffers()[1], native, n, array.offset * native.itemsize)
        return _Rows(n, patterns.astype(np.int64).view(np.uint64), _NO_BYTES, _NO_EDGES)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    buffers = array.buffers()
    edges: npt.NDArray[Any]
    if pa.types.is_fixed_size_binary(kind):
        edges = np.arange(array.offset, array.offset + n + 1) * kind.byte_width
    else:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        width = np.dtype(np.int64 if wide else np.int32)
        edges = np.frombuffer(buffers[1], width, n + 1, array.offset * width.itemsize)
    data = np.frombuffer(buffers[-1] if buffers[-1] else b"", np.uint8)
    return _Rows(n, _NO_WORDS, _read_only(data), edges.astype(np.int64))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that cannot be written to: numba compiles anew for each mixture of the two kinds of array."""
    view = array.view()
    view.flags.writeable = False
    return view


_NO_BYTES = _read_only(np.empty(0, np.uint8))


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _stored(arrays: Mapping[str, Any], name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
    """Return a flat stored array as our own, or refuse it."""
    array = arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != kind or array.ndim != 1:
        raise _not_ours()
    return np.array(array)


def _not_ours() -> FileRefused:
    return FileRefused("the file's table of keys is not one that dpsketch writes.")


def _other_type(mine: KeyType | None, given: KeyType) -> InvalidInput:
    counted = KIND_OF_KEY[mine] if mine else "no"
    return InvalidInput(
        f"this table counts {counted} keys; {KIND_OF_KEY[given]} keys were given. Convert them, or count them apart."
    )
