"""State the public spec of a CountSketch, and clip each user's own sketch.

**Clipping.** A user moves the table by the norm of a typical user, not of the worst.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch import threads
from dpsketch._compiled.bounding import clip
from dpsketch.arrays import Integers, Words
from dpsketch.bounding import user_parts
from dpsketch.core.codec import stored
from dpsketch.core.contributions import Cells, added, checked
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.specs import DEFAULT_SEED, Spec, hold_common
from dpsketch.sketches.weights import guessed_counts

if TYPE_CHECKING:
    from dpsketch.sketches.countsketch.decoding import CountPrediction


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
        # Three standard deviations, √(2/(rows·width)) of the mean each: 18 = 3²·2.
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


COUNTERS = "counters"


@stored
@dataclass(frozen=True, slots=True)
class CountSketchSpec(Spec):
    """All that two CountSketches must share to merge. Public.

    Attributes
    ----------
    rows : int
        Independent repetitions, odd.
    width : int
        Cells in a row.
    unit : Unit
        Whose presence a release hides.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it; None if neither does. It is never read off
        values: a published spec does not depend on whether there were records, or on what they held.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    rows: int
    width: int
    unit: Unit
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_whole(self, "rows", low=1, high=1023)
        if self.rows % 2 == 0:
            raise InvalidInput(
                "rows must be odd, so that a median is one of them: "
                f"{self.rows - 1} or {self.rows + 1}, not {self.rows}."
            )
        hold_whole(self, "width", low=2, high=2**31)
        if self.rows * self.width > 2**31:
            raise InvalidInput("rows × width must not pass 2**31 counters.")
        hold_common(self)
        whole_number("max_keys", self.unit.max_keys, low=1, high=2**31)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.rows}×{self.width}"

    @property
    def clip(self) -> Clip | None:
        """The bound on one user's own sketch; None where the unit is a record."""
        return None if self.unit.level == "record" else self.user_clip

    @property
    def user_clip(self) -> Clip:
        """The bound on one user's own sketch, where the unit is a user."""
        return Clip(self.rows, self.width, self.unit.max_keys, self.weight_grid.max_units)

    def tables(self) -> tuple[Table]:
        """Return the counters.

        One record adds at most w to one cell of each of k rows. A user adds at most m keys of w, perhaps all to one
        cell of each row, but the L2 norm of the user's own sketch is clipped to c (see
        :mod:`~dpsketch.sketches.countsketch.spec`; the clip does not bound L1 further).
        """
        weight = self.weight_grid.max_units
        move = Move.each(self.rows, weight, signed=True)
        if self.clip is not None:
            cells = self.rows * self.unit.max_keys
            move = Move(cells * weight, self.clip.squared, cells, self.unit.max_keys * weight, signed=True)
        return (Table(COUNTERS, (self.rows, self.width), move),)

    def daily(self) -> CountSketchSpec:
        """Return the spec of a stream's day, whose key type is stated: one read off keys would tell that some came."""
        if self.key_type is None:
            raise InvalidInput(
                "say key_type='text' or 'int': a day without records must not differ from others by its type."
            )
        return self

    def _errors(self, laws: tuple[Any, ...]) -> tuple[float, float]:
        scale = self.grid * math.sqrt(laws[-1].noise.variance)
        # Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
        return scale, scale / math.sqrt(0.95 * self.rows)

    def expect(self, *, records: float, keys: int, **budget: Any) -> dict[str, float]:
        """Say in a few numbers what a release is worth for so many records and keys, the i-th as frequent as 1/i."""
        found = self.predict(records=records, keys=keys, skew=1.0, **budget)
        return {"error_of_an_estimate": found.error, "half_width_of_its_interval": found.half_width}

    def predict(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        records: float | None = None,
        keys: int | None = None,
        skew: float | None = None,
        counts: Any = None,
    ) -> CountPrediction:
        """Predict the error of a release, collisions included, from a public guess at the data.

        Parameters
        ----------
        epsilon, delta, rho : float
            The budget; nothing is spent.
        records, keys, skew : float, int, float
            The guess: so many records over so many distinct keys, the i-th in proportion to i^-skew.
        counts : numbers
            All keys' counts instead of the three, as from last year's published release.
        """
        from dpsketch.sketches.countsketch.decoding import rehearse

        guess = guessed_counts(records, keys, skew, counts)
        return rehearse(self, guess, Budget(epsilon, delta, rho))
