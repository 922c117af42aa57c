"""Counts as a mass that can be cut anywhere, so that equal values do not stay together.

A value that many records share would send all of them to one side of a cut. So every cell of the public grid is divided
into 2^h places, and its count is spread evenly over them. To stay with whole numbers all masses are 2^h times what they
stand for: a place of a cell with c units has mass c. A unit of weight in a cell adds 1 to each of its places, hence 2^h
in all, and at most 2^h to the mass below any place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

import numpy as np
import numpy.typing as npt

__all__ = ["Mass"]


class Mass:
    """The counts of cells, spread over their places. Sensitive."""

    __slots__ = ("_before", "_cells", "_counts", "_tie_bits")

    def __init__(self, table: npt.NDArray[np.int64], tie_bits: int) -> None:
        occupied = np.flatnonzero(table)
        self._cells: list[int] = occupied.tolist()
        self._counts: list[int] = table[occupied].tolist()
        # What lies in the occupied cells before each one, and in all of them.
        self._before: list[int] = list(accumulate(self._counts, initial=0))
        self._tie_bits = tie_bits

    def below(self, place: int) -> int:
        """Return the mass below a place."""
        cell, inside = place >> self._tie_bits, place & ((1 << self._tie_bits) - 1)
        at = bisect_left(self._cells, cell)
        mass = self._before[at] << self._tie_bits
        if at < len(self._cells) and self._cells[at] == cell:
            mass += inside * self._counts[at]
        return mass

    def first_reaching(self, mass: int) -> int | None:
        """Return the first place below which there is at least so much mass; None where no place has that."""
        if mass <= 0:
            return 0
        at = bisect_right(self._before, (mass - 1) >> self._tie_bits) - 1
        if at == len(self._cells):
            return None
        missing = mass - (self._before[at] << self._tie_bits)
        return (self._cells[at] << self._tie_bits) + -(-missing // self._counts[at])

    def last_within(self, mass: int) -> int | None:
        """Return the last place below which there is at most so much mass, 0 or more; None where every place is."""
        at = bisect_right(self._before, mass >> self._tie_bits) - 1
        if at == len(self._cells):
            return None
        spare = mass - (self._before[at] << self._tie_bits)
        return (self._cells[at] << self._tie_bits) + spare // self._counts[at]
