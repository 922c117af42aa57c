"""Distinct keys by number, and how much was counted of each.

A text that is published must be one that was counted under its number. Keys that only share a fingerprint would break
that: a record whose text collides with a frequent one, and comes first, would be published in its place. So a key is
found by an identity of 128 bits: integers and texts of at most 15 bytes are their own, longer texts have SipHash-2-4
under a secret that is drawn for the table. Whoever chose the texts did not know it, and no answer depends on it unless
two texts collide. That is all that rests on the hash; :func:`collision_chance` bounds it and is paid in δ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled.identity import HASHED
from dpsketch.arrays import Integers, Words, read_only
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput
from dpsketch.hashing import KIND_OF_KEY, TEXT_FINGERPRINTS, KeyType, dictionary_codes, key_type_of, to_arrow
from dpsketch.noise import random_words
from dpsketch.sketches.histogram.keyslots import KeySlots, Scratch, blocks
from dpsketch.sketches.histogram.rows import (
    NO_BYTES,
    NO_EDGES,
    NO_WORDS,
    Rows,
    decoded,
    kept_of,
    kept_rows,
    rows_of,
    spelled,
)  # fmt: skip
from dpsketch.sketches.weights import COUNTER_LIMIT, checked_total, whole_counts

__all__ = ["KeyTable"]

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class KeyTable(KeySlots):
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
        super().__init__(words)

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
        kept = kept_rows(column)
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
        low, high = self._ids[: self._size].T
        if self.key_type == "int":
            return np.argsort(low.view(np.int64), kind="stable")
        if not (high & HASHED).any():
            # Short texts are their identities: bytes, then zeros, and the length last, by which "a" is before "a\0".
            return np.lexsort((high.byteswap(), low.byteswap()))
        import pyarrow.compute as pc

        order = pc.sort_indices(self._texts(np.arange(self._size)))
        return np.frombuffer(order.buffers()[1], np.uint64, len(order)).astype(np.int64)  # to_numpy imports pandas

    def find(self, keys: Any) -> Integers:
        """Return the number of each row's key, −1 where it has none or the table does not have it."""
        column = self._column(keys)
        found = np.full(len(column), -1, np.int64)
        if self._size:
            self._enter(column, 0, adds=False, found=found)
        return found

    def names(self, numbers: Any) -> list[Any]:
        """Return the keys with these numbers: integers, or texts; what is not valid UTF-8 is returned as bytes."""
        column = self.column(numbers)
        return spelled(column) if self.key_type == "text" else list(column.to_pylist())

    def column(self, numbers: Any) -> pa.Array:
        """Return the keys with these numbers as Arrow has them: integers of 64 bits, or the bytes of texts.

        Parameters
        ----------
        numbers : sequence of int
            From 0 to ``len(self) - 1``, in any order, repeated or not.
        """
        given = np.asarray(numbers)
        asked = np.ascontiguousarray(given, np.int64)
        whole = given.dtype.kind in "iu" or not given.size
        if not whole or asked.ndim != 1 or np.any((asked < 0) | (asked >= self._size)):
            raise InvalidInput("numbers must be a flat sequence of numbers of keys, below len(table).")
        return self._texts(asked) if self.key_type == "text" else pa.array(self._ids[asked, 0].view(np.int64))

    def absorb(self, other: KeyTable, *, verified: bool = False) -> Integers:
        """Add another table's keys and units; return the number here of each of its keys.

        Long texts are hashed anew, so the other's secret may be another. ``verified`` is that of :meth:`numbers`, for
        tables that count nothing.
        """
        other._refuse_broken()
        if other.key_type is not None and self.key_type not in (None, other.key_type):
            raise _other_type(self.key_type, other.key_type)
        total = checked_total(self._total, other.units, 1, len(other))
        self._begin_change()
        self.key_type = self.key_type or other.key_type
        before = self._size
        found = self._pass_all(other._rows(), other._units[: len(other)].copy())
        while verified and self.key_type == "text" and not self._named(other._texts(np.arange(len(other))), found):
            self._rehash(before)
            found = self._pass_all(other._rows(), other._units[: len(other)].copy())
        self._total = total
        return found

    def to_arrays(self, order: Integers | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all there is to keep, for :meth:`from_arrays`: sensitive, with the secret.

        Keys are in the order of their numbers, or in this one: that of :meth:`order` says nothing of how they came.

        Integer keys are ``keys`` (uint64); text keys are ``names``, their bytes one after the other, and ``edges``,
        where each begins and where the last one ends. A table without keys has neither.
        """
        order = np.arange(self._size) if order is None else order
        units = self._units[order]
        arrays: dict[str, npt.NDArray[Any]] = {"secret": self._secret.copy(), "units": units}
        arrays["exact"] = np.ones(1, np.uint8)  # earlier versions look for it
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
        rows = Rows(0, NO_WORDS, NO_BYTES, NO_EDGES)
        if len(units) and key_type == "int":
            keys = _stored(arrays, "keys", np.uint64)
            rows = Rows(len(keys), keys, NO_BYTES, NO_EDGES)
        elif len(units) and key_type == "text":
            names, edges = _stored(arrays, "names", np.uint8), _stored(arrays, "edges", np.int64)
            if not len(edges) or edges[0] != 0 or edges[-1] != len(names) or np.any(np.diff(edges) < 0):
                raise _not_ours()
            rows = Rows(len(edges) - 1, NO_WORDS, read_only(names), edges)
        sensible = len(secret) == 2 and len(units) == len(rows)
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
        return table

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
        scratch = Scratch(len(column))
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
        scratch: Scratch,
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
            array = decoded(array)
        for part in blocks(len(array)):
            block = array.slice(part.start, part.stop - part.start)
            counted = scratch.live[: len(block)]
            counted[:] = True if live is None else live[part]
            row_units = scratch.units[: len(block)]
            row_units[:] = units if isinstance(units, int) else units[part]
            valid = kept_of(block)
            if valid is not None:
                counted &= valid
            if not isinstance(units, int):
                counted &= row_units > 0
            numbers = self._group(rows_of(block), row_units, counted, adds, scratch)
            if found is not None:
                found[part] = numbers

    def _enter_dictionary(
        self,
        array: pa.DictionaryArray,
        units: Integers | int,
        adds: bool,
        scratch: Scratch,
        found: Integers | None,
    ) -> None:
        """Pass a dictionary's values through the table once, each with the units of all its rows."""
        codes = dictionary_codes(array)
        valid = kept_of(array.indices)
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

    # --- names -------------------------------------------------------------------------------------------------------

    def _named(self, column: pa.ChunkedArray | pa.Array, numbers: Integers) -> bool:
        """Say whether the text of every row is the name of its number."""
        import pyarrow.compute as pc

        if self.key_type != "text":
            return True
        start = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            found = numbers[start : start + len(chunk)]
            start += len(chunk)
            there = np.flatnonzero(found >= 0)
            if not len(there):
                continue
            texts = decoded(chunk) if pa.types.is_dictionary(chunk.type) else chunk
            same = pc.all(pc.equal(texts.cast(pa.large_binary()).take(there), self._texts(found[there])))
            if not same.as_py():
                return False
        return True

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
