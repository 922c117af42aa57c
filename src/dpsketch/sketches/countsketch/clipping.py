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
from itertools import pairwise

import numpy as np

from dpsketch import threads
from dpsketch._compiled.bounding import clip
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import user_parts
from dpsketch.core.contributions import Cells, added, checked
from dpsketch.core.move import Table
from dpsketch.numbers import hold_whole

__all__ = ["Clip"]

# Norms are counted in steps of a power of two that keeps them below this many bits, and squares below 64.
_NORM_BITS = 30
_BLOCK = 1 << 16  # entries of users who are clipped, checked and added together: they stay in a cache
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

    def add(
        self, array: Integers, table: Table, starts: Integers, prints: Words, units: Integers, row_keys: Words
    ) -> int:
        """Add bounded users to the counters of a table in place; return how many users had a key left out.

        User u has the keys from ``starts[u]`` to ``starts[u + 1]``, each with a fingerprint and units.

        Privacy
        -------
        A user's part of the table depends on that user alone. It is held to the table's move before it is added.
        """
        reach = math.isqrt(self.squared) + self.max_units * (math.isqrt(self.rows) + 1)
        shift = max(0, reach.bit_length() - _NORM_BITS)
        limit = self.squared >> (2 * shift)
        if self.squared == self.worst_squared:
            # No user passes that, so that counting norms in coarse steps must not clip anybody either.
            limit = 2**63 - 1
        parts = user_parts(starts, max(_SMALLEST_PART, array.size))
        tables = [array, *(np.zeros_like(array) for _ in parts[1:])]

        def add(own: Integers, part: slice) -> int:
            blocks = [part.start]
            while blocks[-1] < part.stop:
                end = np.searchsorted(starts, starts[blocks[-1]] + _BLOCK // self.rows, "right") - 1
                blocks.append(min(max(int(end), blocks[-1] + 1), part.stop))
            most = self.rows * int(np.diff(starts[blocks]).max(initial=0))
            cells, amounts, clipped = np.empty(most, np.int64), np.empty(most, np.int64), 0
            for first, last in pairwise(blocks):
                begins = starts[first : last + 1]
                keys, edges = slice(begins[0], begins[-1]), np.empty(len(begins), np.int64)
                given = (begins - begins[0], prints[keys], units[keys], row_keys)
                clipped += clip(*given, self.width, limit, shift, edges, cells, amounts)
                added(own, checked(table, Cells(edges, cells[: edges[-1]], amounts[: edges[-1]])))
            return clipped

        clipped = threads.run([partial(add, own, part) for own, part in zip(tables, parts, strict=True)])
        for own in tables[1:]:
            array += own
        return sum(clipped)
