"""Named quantiles by the recursive exponential mechanism.

**One quantile.** Of a part of the data with mass m, wanted is the place below which there is T = q·m + s, where q = a/b
is a fraction and s a constant. With L the mass below a place z and E the mass at z, the whole number

    N(z) = max(0, bL − bT, bT − b(L + E))

is b times how far z's ranks are from T. A place is drawn with probability proportional to e^(−γN(z)).

**Several** (Kaplan, Schnapp and Stemmer 2022). The middle one is drawn first; what lies below it goes to the left, the
rest to the right, and each part is asked for the other quantiles in turn. Let the cut be the target q·n + s of the
whole. A cut without error leaves n_l = qn + s at its left, so that there the target tn + u is (t/q)·n_l + u − (t/q)·s;
and n_r = n − n_l at its right, where it is p·n_r + u − (1 − p)·s with p = (t − q)/(1 − q). So ⌊log₂k⌋ + 1 levels
answer k quantiles.

**Privacy.** One unit of weight, added at one place, moves L by at most 1 and at least 0, and m by 1: hence bL − bT by
b − a or by −a or by something between, and so does b(L+E) − bT. So N moves by at most max(a, b − a), up or down. If
ln p(z) moves by −γ·ΔN(z) − ln(Z′/Z), and ΔN spans at most R = 2·max(a, b − a) over all z, the loss is at most γR, and
its range is at most γR too. γ = ε/(R·W), with W the weight of a unit of privacy, makes this ε. Of the customary
sensitivity 1 that is the half for the median. The mass that a unit has in the parts of one level adds up to at most W,
and each part sees its own mass only: so their losses add up to at most ε. A level is ε-private with ε-bounded range,
and costs ε, or ρ = ε²/8 (Cesar and Rogers 2021); levels add.

*Replacing* a unit may take it out of one part and put it into another, which costs each of the two as much as adding or
removing: R is doubled there. In the whole data it cannot leave: a unit of weight that moves from below z to above it
moves N by at most b, and less if one of the two is nothing; so R = 2b, which is never more.

**Equal values.** A value that many records share would send all of them to one side of a cut. So every cell of the
public grid is divided into 2^h places, and its count is spread evenly over them. To stay with whole numbers all masses
are 2^h times what they stand for: a place of a cell with c units has mass c. A unit of weight in a cell adds 1 to each
of its places, hence 2^h in all, and at most 2^h to the mass below any place.

References
----------
Kaplan, Schnapp and Stemmer, *Differentially private approximate quantiles* (2022). Changed here: the sensitivity is
that of the quantile asked (theirs is 1), equal values can be cut apart, targets may be shifted, and draws are exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, Law, are_integers
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.laws.sampler import draw_coin, draw_level, uniform_below
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Cost, Neighbours, PureCost, ZcdpCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["TIE_BITS", "Accounting", "Recursion"]

# A cell is divided into 2^TIE_BITS places.
TIE_BITS = 24

Accounting = Literal["pure", "rho"]


class Rank(NamedTuple):
    """The rank ``share``·(mass of the part) + ``shift``, in units of weight."""

    share: Fraction
    shift: Fraction


class Range(NamedTuple):
    """Places from ``first`` to ``last``, and the mass from ``first`` to before ``end``: ``last`` or the next place."""

    first: int
    last: int
    end: int


@stored
@dataclass(frozen=True, slots=True)
class Recursion(Law):
    """The cells of several quantiles, or of targets that are shifted by a constant.

    Attributes
    ----------
    name : str
        The part of the release.
    table : Table
        The counts of all cells of the public grid; one unit moves them by at most ``table.move.l1`` in all.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    quantiles : tuple of Fraction
        What is asked, in increasing order.
    epsilon : float
        The privacy loss of one level, taken as the exact value of the double.
    accounting : {"pure", "rho"}
        Whether the levels' losses are added up, or their ρ.
    shift : int
        How many units of weight every target is moved by.
    """

    name: str
    table: Table
    neighbours: Neighbours
    quantiles: tuple[Fraction, ...]
    epsilon: float
    accounting: Accounting
    shift: int = 0

    def __post_init__(self) -> None:
        hold_whole(self, "shift")
        hold_real(self, "epsilon")
        if not 0 < self.epsilon < math.inf or self.accounting not in ("pure", "rho"):
            raise InvalidInput("a level of a recursion costs a positive, finite epsilon, added up as it is or as rho.")
        if self.table.move.signed or self.table.shape is None or len(self.table.shape) != 1:
            raise InvalidInput("quantiles are drawn from one row of counts, which never decrease.")
        ends = (Fraction(0), *self.quantiles, Fraction(1))
        if not self.quantiles or any(low >= high for low, high in pairwise(ends)):
            raise InvalidInput("quantiles lie strictly between 0 and 1, in increasing order.")

    @property
    def levels(self) -> int:
        """How many levels it has."""
        return len(self.quantiles).bit_length()

    @property
    def cells(self) -> int:
        """The number of cells of the public grid."""
        return int(self.table.size or 0)

    @property
    def weight(self) -> int:
        """The most weight of one unit of privacy, in grid units."""
        return self.table.move.l1

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        number = "1 level" if self.levels == 1 else f"{self.levels} levels"
        return f"the recursive exponential mechanism on ranks, {number} of ε = {self.epsilon:.4g}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counts."""
        return (self.table,)

    def costs(self) -> tuple[Cost, ...]:
        """Return what the levels cost together."""
        if self.accounting == "pure":
            return (PureCost(self.levels * self.epsilon),)
        return (ZcdpCost(self.levels * self.epsilon**2 / 8),)

    def span(self, share: Fraction, *, whole: bool) -> Fraction:
        """Return R/b: how far apart N may move at two places, for a unit of weight; ``whole`` is all the data."""
        if self.neighbours == "add_remove":
            return 2 * max(share, 1 - share)
        return Fraction(2) if whole else 4 * max(share, 1 - share)

    def rate(self, share: Fraction, *, whole: bool) -> Fraction:
        """Return γb: how fast log-probabilities fall with a unit of weight between a place's ranks and the target."""
        return Fraction(self.epsilon) / (self.span(share, whole=whole) * self.weight)

    def slots(self) -> Mapping[str, Any]:
        """Return the recursive draws."""
        return {"places": Places(self)}

    def draw(self, state: Mapping[str, Integers], handle: Handle) -> Arrays:
        """Return the cell of every quantile."""
        exact = state[self.table.name]
        if exact.shape != self.table.shape:
            raise ReleaseRefused(f"{self.name}: the state has another shape than the table that was paid for.")
        return {"cells": handle.draw("places", exact)}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a cell of the grid for each quantile, in increasing order."""
        if set(arrays) != {"cells"} or not are_integers(arrays, "cells", (len(self.quantiles),)):
            return False
        found = [0, *np.asarray(arrays["cells"]).tolist(), self.cells - 1]
        return found == sorted(found)


@dataclass(frozen=True, slots=True)
class Places:
    """Draws the places of quantiles, the middle one first."""

    law: Recursion

    def draw(self, table: Integers) -> Integers:
        """Return the cell of every quantile, from the counts of all cells."""
        places = self.law.cells << TIE_BITS
        targets = [Rank(share, Fraction(self.law.shift)) for share in self.law.quantiles]
        drawn = self._within(Mass(table, TIE_BITS), Range(0, places - 1, places), targets, whole=True)
        return np.array([place >> TIE_BITS for place in drawn], dtype=np.int64)

    def _within(self, mass: Mass, part: Range, targets: list[Rank], *, whole: bool) -> list[int]:
        """Draw the places of targets in a part."""
        if not targets:
            return []
        middle = len(targets) // 2
        cut = targets[middle]
        place = _draw_place(mass, part, cut, self.law.rate(cut.share, whole=whole) / (1 << TIE_BITS))
        left = [_left_of(cut, target) for target in targets[:middle]]
        right = [_right_of(cut, target) for target in targets[middle + 1 :]]
        return [
            *self._within(mass, Range(part.first, place, place), left, whole=False),
            place,
            *self._within(mass, Range(place, part.last, part.end), right, whole=False),
        ]


class Mass:
    """The counts of cells, spread over their places. Sensitive."""

    __slots__ = ("_before", "_cells", "_counts", "_tie_bits")

    def __init__(self, table: Integers, tie_bits: int) -> None:
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


def _left_of(cut: Rank, target: Rank) -> Rank:
    """Restate a target for what lies below a cut."""
    share = target.share / cut.share
    return Rank(share, target.shift - share * cut.shift)


def _right_of(cut: Rank, target: Rank) -> Rank:
    """Restate a target for what lies above a cut."""
    share = (target.share - cut.share) / (1 - cut.share)
    return Rank(share, target.shift - (1 - share) * cut.shift)


def _draw_place(mass: Mass, part: Range, target: Rank, rate: Fraction) -> int:
    """Draw a place of a part in proportion to e^(−γN), where γN is ``rate`` times the rank's distance in mass."""
    base = mass.below(part.first)
    total = mass.below(part.end) - base
    # N and γ for the common denominator b of share and shift.
    scale = math.lcm(target.share.denominator, target.shift.denominator)
    wanted = int(target.share * scale) * total + (int(target.shift * scale) << TIE_BITS)
    gamma = rate / scale
    size = part.last - part.first + 1

    def score(place: int) -> int:
        below, through = mass.below(place), mass.below(min(place + 1, part.end))
        return max(0, scale * (below - base) - wanted, wanted - scale * (through - base))

    def beyond(level: int) -> tuple[int, int]:
        """Return how many places, at the left and at the right end, have γN of at least half the level."""
        least = -(-level * gamma.denominator // (2 * gamma.numerator))
        highest = (wanted - least) // scale  # of the mass below the next place
        lowest = -(-(wanted + least) // scale)  # of the mass below the place
        left = 0
        if highest >= 0:
            place = mass.last_within(base + highest)
            left = size if place is None or place >= part.end else place - part.first
        place = mass.first_reaching(base + lowest)
        right = 0 if place is None else min(size, max(0, part.last + 1 - place))
        return left, right

    # A target outside the part has no place with N = 0: levels are counted from the least that there is.
    nearest = max(0, -wanted, wanted - scale * total)
    first = int(2 * gamma * nearest)
    while True:
        level = draw_level(lambda above: size if above == 0 else sum(beyond(first + above)))
        left, right = beyond(first + level + 1)
        if level == 0:
            place = part.first + left + uniform_below(size - left - right)
        else:
            outer_left, outer_right = beyond(first + level)
            chosen = uniform_below(outer_left - left + outer_right - right)
            # Those at the left end where the next level ends; behind them those at the right end.
            place = part.first + left + chosen
            if place >= part.first + outer_left:
                place += part.last + 1 - outer_right - (part.first + outer_left)
        if draw_coin(gamma * score(place) - Fraction(first + level, 2)):
            return place
