"""What a collector keeps of the reports: counters where counters suffice, else the reports themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpsketch.errors import FileRefused
from dpsketch.local.growing import Growing
from dpsketch.local.wire import Columns, Field

__all__ = ["CountTables", "KeptReports", "ReportTally", "Tables"]

Tables = dict[str, npt.NDArray[np.int64]]
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

    def __init__(self, shapes: dict[str, tuple[int, ...]], count: Callable[[Tables, Columns], None]) -> None:
        self.tables: Tables = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
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
