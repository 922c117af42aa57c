"""Clip each user's own sketch, so that a user moves the table by the norm of a typical user, not of the worst.

A user with m keys of weight w moves a table of k rows by w√(km) in the root mean square over hash functions, but by
wm√k if the keys share their cells, and the seed is public. The bound here is just above the first:

    c = w·√(km·(1 + 3·√(2/(kb)))), and never above wm√k

where b is the width. A user's keys go into the table one after the other, in the order of :mod:`dpsketch.bounding`, and
one that would carry the L2 norm of the user's own counters past c is left out. A norm above c is about three standard
deviations from the mean for m keys of weight w, so that few users lose a key, while whoever was chosen to collide loses
many.

All of it is done on squared norms in integers, hence the same on every machine; c² is rounded down for the clip, and
its root up for the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from dpsketch import threads
from dpsketch._compiled.bounding import add_clipped
from dpsketch.bounding import Bounded, user_parts
from dpsketch.numbers import hold_whole

__all__ = ["Clip"]

# Norms are counted in steps of a power of two that keeps them below this many bits, and squares below 64.
_NORM_BITS = 30
_SMALLEST_PART = 1 << 18  # keys that are worth a thread and, beside a large table, one of its own


@dataclass(frozen=True, slots=True)
class Clip:
    """The bound on one user's own sketch.

    Attributes
    ----------
    rows, width : int
        Size of the table.
    max_keys, max_units : int
        What bounding leaves of a user: so many keys, of so many units each.
    """

    rows: int
    width: int
    max_keys: int
    max_units: int

    def __post_init__(self) -> None:
        for name in ("rows", "width", "max_keys", "max_units"):
            hold_whole(self, name, low=1)

    @property
    def squared(self) -> int:
        """The largest squared L2 norm of a user's own sketch, c² rounded down."""
        mean = self.max_units**2 * self.rows * self.max_keys
        spread = math.isqrt(18 * mean**2 // (self.rows * self.width))
        return min(mean + spread, self.worst_squared)

    @property
    def worst_squared(self) -> int:
        """The squared norm of a user all of whose keys share their cells: w²m²k. Nobody has more."""
        return self.max_units**2 * self.rows * self.max_keys**2

    def add(self, table: npt.NDArray[np.int64], batch: Bounded, row_keys: npt.NDArray[np.uint64]) -> int:
        """Add bounded users to a table in place; return how many had a key left out.

        Privacy
        -------
        A user's part of the table depends on that user alone, and its L2 norm is at most the root of :attr:`squared`.
        """
        reach = math.isqrt(self.squared) + self.max_units * (math.isqrt(self.rows) + 1)
        shift = max(0, reach.bit_length() - _NORM_BITS)
        limit = self.squared >> (2 * shift)
        if self.squared == self.worst_squared:
            # No user passes that, so that counting norms in coarse steps must not clip anybody either.
            limit = 2**63 - 1
        parts = user_parts(batch.starts, max(_SMALLEST_PART, table.size))
        tables = [table, *(np.zeros_like(table) for _ in parts[1:])]

        def add(own: npt.NDArray[np.int64], part: slice) -> int:
            starts = batch.starts[part.start : part.stop + 1]
            keys = slice(starts[0], starts[-1])
            prints, units = batch.fingerprints[keys], batch.units[keys]
            return add_clipped(own, starts - starts[0], prints, units, row_keys, limit, shift)

        clipped = threads.run([partial(add, own, part) for own, part in zip(tables, parts, strict=True)])
        for own in tables[1:]:
            table += own
        return sum(clipped)
