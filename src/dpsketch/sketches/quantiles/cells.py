"""The public grid: from a value to the cell that counts it, and back.

Up to 2²⁰ values each has a cell of its own. A wider domain has cells whose width grows with the distance d from its
anchor, which is 0, or the end of the domain that is nearest to 0: cell (d >> e) + (e << 7) with
e = max(bit_length(d) − 8, 0), mirrored below the anchor. Distances below 256 are exact, and beyond them a cell is at
most 1/128 of its distance wide. 7,296 cells reach up to 2⁶³. The grid follows from the domain alone, never from data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Words
from dpsketch.sketches.ranges.domain import Domain

__all__ = ["EXACT_BITS", "ValueGrid"]

# Domains of at most so many bits have a cell for each value: 8 MB.
EXACT_BITS = 20
# Significant bits of a distance that a wide domain's cells keep beside the leading one.
_FINE = 7


@dataclass(frozen=True, slots=True)
class ValueGrid:
    """The cells of a domain, in the order of their values."""

    domain: Domain

    @property
    def exact(self) -> bool:
        """Whether each value has a cell of its own."""
        return self.domain.bits <= EXACT_BITS

    @property
    def count(self) -> int:
        """How many there are."""
        if self.exact:
            return 1 << self.domain.bits
        return self._below + _cell((1 << self.domain.bits) - 1 - self._anchor) + 1

    @property
    def _anchor(self) -> int:
        """How far from the domain's start the cells are finest."""
        return min(max(0, -self.domain.start), (1 << self.domain.bits) - 1)

    @property
    def _below(self) -> int:
        """How many cells lie below the anchor's."""
        return _cell(self._anchor)

    def of(self, offsets: Words) -> npt.NDArray[np.int64]:
        """Return the cells of values, given as their distances from the domain's start."""
        if self.exact:
            return offsets.astype(np.int64)
        anchor = np.uint64(self._anchor)
        above = offsets >= anchor
        distances = np.where(above, offsets - anchor, anchor - offsets)
        shift = np.maximum(_bit_lengths(distances), _FINE + 1) - (_FINE + 1)
        cells = (distances >> shift.astype(np.uint64)).astype(np.int64) + (shift << _FINE)
        return self._below + np.where(above, cells, -cells)

    def ends(self, cell: int) -> tuple[int, int]:
        """Return the least and the largest value that a cell counts."""
        start = self.domain.start
        if self.exact:
            return start + cell, start + cell
        near, far = _distances(abs(cell - self._below))
        anchor = start + self._anchor
        low, high = (anchor + near, anchor + far) if cell >= self._below else (anchor - far, anchor - near)
        return max(low, start), min(high, self.domain.end)


def _cell(distance: int) -> int:
    """Return the cell of a distance from the anchor, counted from the anchor's own."""
    shift = max(distance.bit_length() - (_FINE + 1), 0)
    return (distance >> shift) + (shift << _FINE)


def _distances(cell: int) -> tuple[int, int]:
    """Return the least and the largest distance in a cell that is counted from the anchor's own."""
    shift = max((cell >> _FINE) - 1, 0)
    leading = cell - (shift << _FINE)
    return leading << shift, ((leading + 1) << shift) - 1


def _bit_lengths(numbers: Words) -> npt.NDArray[np.int64]:
    """Return how many bits each number has, by halving: doubles would round 2⁵³ and beyond."""
    left, lengths = numbers.copy(), np.zeros(len(numbers), np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        long = left >= np.uint64(1 << step)
        lengths += step * long
        left = np.where(long, left >> np.uint64(step), left)
    return lengths + (left > 0)
