"""Rows that are only ever added: what was there at a moment is a view, however many come after."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Growing"]

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
