"""What a collector keeps: the identifiers of the reports, and counters where counters suffice, else the reports.

Rows are only ever added (:class:`Growing`): what was there at a moment is a view, however many come after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.arrays import Words
from dpsketch.errors import FileRefused
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_words

__all__ = ["CountTables", "Growing", "Identifiers", "KeptReports", "ReportTally", "TallyTables", "in_order"]

_FEWEST = 1 << 10


class Growing:
    """An array to which rows are added at its end; rows that are there are never written to again.

    So :meth:`rows` costs nothing, and stays what it is. Room is made for a quarter more at a time.
    """

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        self._room = rows
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    @property
    def memory(self) -> int:
        """Bytes of the rows; room that was never written to takes none."""
        return self._count * self._room.itemsize * int(np.prod(self._room.shape[1:]))

    def rows(self) -> npt.NDArray[Any]:
        """Return all rows that are there now."""
        return self._room[: self._count]

    def copy(self) -> Growing:
        """Return one that goes its own way: it shares what is there, and has no room, so that it makes its own."""
        return Growing(self.rows())

    def add(self, rows: npt.NDArray[Any]) -> None:
        """Add rows."""
        if not len(rows):
            return  # what is there may be a file's, and not to be written to
        self.with_room(len(rows))[self._count : self._count + len(rows)] = rows
        self.keep(self._count + len(rows))

    def with_room(self, more: int) -> npt.NDArray[Any]:
        """Return the rows with room for more behind them, for :meth:`keep`."""
        if self._count + more > len(self._room):
            larger = max(self._count + more, self._count + self._count // 4, _FEWEST)
            room = np.empty((larger, *self._room.shape[1:]), self._room.dtype)
            room[: self._count] = self.rows()
            self._room = room
        return self._room

    def keep(self, count: int) -> None:
        """Say how many rows there are, once those behind the last were written."""
        self._count = count


_FEWEST_SLOTS = 1 << 10


class Identifiers:
    """A set of 128-bit identifiers: 16 bytes each, and 16 to 32 in a table that finds them."""

    def __init__(self) -> None:
        self._held = Growing(np.empty((0, 2), np.uint64))
        self._table = np.empty(0, np.uint64)  # made, of all that is held, when something is inserted
        self._secret = random_words(1)[0]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def memory(self) -> int:
        """Bytes in use."""
        return self._table.nbytes + self._held.memory

    def rows(self) -> Words:
        """Return all identifiers that are there now, in the order in which they came; later ones do not change it."""
        return self._held.rows()

    def insert(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Insert identifiers and say which were new; of equal ones in a batch the first is new."""
        return self._insert(ids, lambda fresh: True)[0]

    def insert_all(self, ids: Words) -> bool:
        """Insert identifiers if all of them are new, and say so; else leave the set as it was."""
        return self._insert(ids, lambda fresh: bool(fresh.all()))[1]

    def unseen(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Say which identifiers :meth:`insert` would find new, and leave the set as it was."""
        return self._insert(ids, lambda fresh: False)[0]

    def _insert(self, ids: Words, stay: Callable[[npt.NDArray[np.bool_]], bool]) -> tuple[npt.NDArray[np.bool_], bool]:
        """Insert identifiers, and take them out again unless they are to stay; say which were new, and if they stay."""
        held = self._held.with_room(len(ids))
        self._make_room(len(ids))
        fresh = np.empty(len(ids), np.bool_)
        count = kernels.insert_ids(self._table, held, len(self), ids, self._secret, fresh)
        stays = stay(fresh)
        if not stays:
            count = kernels.forget_ids(self._table, count, ids, self._secret, fresh)
        self._held.keep(count)
        return fresh, stays

    def copy(self) -> Identifiers:
        """Return a set that later identifiers do not change."""
        same = Identifiers()
        same._held = self._held.copy()
        return same

    def _make_room(self, more: int) -> None:
        slots = max(len(self._table), _FEWEST_SLOTS)
        while slots < 2 * (len(self) + more):
            slots *= 2
        if slots > len(self._table):
            self._table = np.zeros(slots, np.uint64)
            kernels.index_ids(self._held.rows(), len(self), self._table, self._secret)


def in_order(ids: Words) -> Words:
    """Return identifiers in an order that says nothing about when they came: by their second word, then the first."""
    order = np.argsort(ids[:, 1])
    ordered: Words = ids[order]
    if bool(np.any(ordered[1:, 1] == ordered[:-1, 1])):
        ordered = ids[np.lexsort((ids[:, 0], ids[:, 1]))]
    return ordered


TallyTables = dict[str, npt.NDArray[np.int64]]
"""Counters by name."""


class ReportTally(Protocol):
    """What every tally can do."""

    @property
    def memory(self) -> int:
        """Bytes in use."""

    def add(self, columns: Columns) -> None:
        """Add checked reports."""

    def merge(self, other: Self) -> None:
        """Add another tally of the same spec."""

    def copy(self) -> Self:
        """Return a tally that later reports do not change."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the content for a file."""

    def load(self, arrays: dict[str, Any], users: int) -> None:
        """Take the content of a file; refuse what does not fit the spec."""


class KeptReports:
    """Keeps the fields of every report, without the identifiers."""

    def __init__(self, fields: tuple[Field, ...], plausible: Callable[[Columns], npt.NDArray[np.bool_]]) -> None:
        self._fields = fields
        self._plausible = plausible
        self._columns = {
            field.name: Growing(np.empty((0, field.size) if field.raw else 0, field.dtype)) for field in fields
        }

    @property
    def memory(self) -> int:
        """Bytes in use."""
        return sum(column.memory for column in self._columns.values())

    def add(self, columns: Columns) -> None:
        """Add checked reports."""
        for name, column in self._columns.items():
            column.add(columns[name])

    def merge(self, other: Self) -> None:
        """Add another tally of the same spec."""
        self.add(other.columns())

    def copy(self) -> Self:
        """Return a tally that later reports do not change, at no cost: what is there is never written to again."""
        same = type(self)(self._fields, self._plausible)
        same._columns = {name: column.copy() for name, column in self._columns.items()}
        return same

    def columns(self) -> Columns:
        """Return all fields as whole columns."""
        return {name: column.rows() for name, column in self._columns.items()}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the content for a file, in an order that says nothing about when the reports came."""
        columns = self.columns()
        flat = [
            values.view(f"S{values.shape[1]}").ravel() if values.ndim == 2 else values for values in columns.values()
        ]
        order = np.lexsort(flat)
        return {name: values[order] for name, values in columns.items()}

    def load(self, arrays: dict[str, Any], users: int) -> None:
        """Take the content of a file; refuse what does not fit the spec."""
        columns: Columns = {}
        for field in self._fields:
            array = arrays.get(field.name)
            shape = (users, field.size) if field.raw else (users,)
            if not isinstance(array, np.ndarray) or array.dtype != field.dtype or array.shape != shape:
                raise FileRefused(f"the file's array {field.name!r} is not that of a report of its spec.")
            columns[field.name] = array
        if not bool(np.all(self._plausible(columns))):
            raise FileRefused("the file holds a report that its spec does not allow.")
        self._columns = {name: Growing(values) for name, values in columns.items()}


class CountTables:
    """Keeps counters: named integer tables to which a function adds reports."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], count: Callable[[TallyTables, Columns], None]) -> None:
        self.tables: TallyTables = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        self._count = count

    @property
    def memory(self) -> int:
        """Bytes in use."""
        return sum(table.nbytes for table in self.tables.values())

    def add(self, columns: Columns) -> None:
        """Add checked reports."""
        self._count(self.tables, columns)

    def merge(self, other: Self) -> None:
        """Add another tally of the same spec."""
        for name, table in self.tables.items():
            table += other.tables[name]

    def copy(self) -> Self:
        """Return a tally that later reports do not change."""
        same = type(self)({}, self._count)
        same.tables = {name: table.copy() for name, table in self.tables.items()}
        return same

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the content for a file."""
        return dict(self.tables)

    def load(self, arrays: dict[str, Any], users: int) -> None:
        """Take the content of a file; refuse what does not fit the spec."""
        for name, table in self.tables.items():
            array = arrays.get(name)
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.shape != table.shape:
                raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
            if array.size and max(-int(array.min()), int(array.max())) > users:
                raise FileRefused(f"the file's array {name!r} counts more reports than there were.")
            table[:] = array
