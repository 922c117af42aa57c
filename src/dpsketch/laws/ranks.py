"""Quantiles of every row of a table by the exponential mechanism on ranks, drawn exactly.

A public domain of D slots covers the values of a column: a cell of values has one slot or more, about in proportion to
the part of all values that it holds (:meth:`dpsketch.laws.bounds.Shape.quantile_cells`). A record lies in a slot of its
cell, at random. Of a row with mass n in all, wanted is the slot below which there is T = q·n + s, where q = a/b. With L
the mass below a slot z and E the mass in it,

    N(z) = max(0, bL − bT, bT − b(L + E))

is b times how far z's ranks are from T. A slot is drawn with probability proportional to e^(−γN(z)), exactly
(:mod:`dpsketch.laws.sampler`).

Privacy
-------
One unit of mass added in a slot moves N by at most max(a, b − a), up or down: the loss is at most γ·2·max(a, b − a). A
unit of privacy has at most W of mass in a row, and m rows. A unit that is replaced may leave one row and enter another,
which costs each as much as adding or removing; within one row N moves by at most b, which costs less. So all draws cost
Σγ·2·max(a, b − a)·W·m, and twice that under replace.

Accuracy
--------
With 0 ≤ T ≤ n some slot has N = 0, so that the drawn one has N ≥ bτ with probability at most D·e^(−γbτ). The ends of an
interval are drawn for targets shifted by a τ for which that is half of what an interval may miss. So they hold the
quantile with the confidence that τ is for, however the values of a row lie. A target outside of 0 to n tells nothing.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.laws.sampler import draw_coin, draw_level, uniform_below

__all__ = ["RankDraws", "shift_for"]

# A reader of a file makes arrays of them.
_MOST_SLOTS = 1 << 16


@stored
@dataclass(frozen=True, slots=True)
class RankDraws:
    """Mechanism that draws the quantiles of one column in every row.

    Attributes
    ----------
    shares : tuple of Fraction
        The quantiles, in increasing order.
    rates : tuple of Fraction
        γ of each quantile.
    end_rates : tuple of Fraction
        γ of each end of an interval.
    shifts : tuple of int
        How far the ends' targets are shifted, in units of mass.
    slots : int
        The number of slots.
    mass : int
        The most mass of one unit in one row.
    """

    shares: tuple[Fraction, ...]
    rates: tuple[Fraction, ...]
    end_rates: tuple[Fraction, ...]
    shifts: tuple[int, ...]
    slots: int
    mass: int

    def __post_init__(self) -> None:
        good = len(self.shares) == len(self.rates) == len(self.end_rates) == len(self.shifts) > 0
        good = good and all(0 < share < 1 for share in self.shares) and self.mass >= 1
        good = good and 1 <= self.slots <= _MOST_SLOTS
        if not good or not all(rate > 0 for rate in (*self.rates, *self.end_rates)):
            raise InvalidInput("each quantile between 0 and 1 is drawn with a positive rate, and so are its two ends.")

    @property
    def loss(self) -> Fraction:
        """Privacy loss of all draws in one row, for a unit added or removed."""
        return sum(
            (self._span(i) * (self.rates[i] + 2 * self.end_rates[i]) for i in range(len(self.shares))), Fraction(0)
        )

    def _span(self, place: int) -> Fraction:
        share = self.shares[place]
        return 2 * max(share.numerator, share.denominator - share.numerator) * Fraction(self.mass)

    def draw(self, tables: Integers) -> Integers:
        """Return the drawn slots by row: those of the quantiles, of the lower ends and of the upper ends."""
        found = np.zeros((len(tables), 3, len(self.shares)), np.int64)
        for row, counts in enumerate(tables):
            below = [0, *np.cumsum(counts).tolist()]
            for place, share in enumerate(self.shares):
                rates = (self.rates[place], self.end_rates[place], self.end_rates[place])
                shifts = (0, -self.shifts[place], self.shifts[place])
                for kind, (rate, shift) in enumerate(zip(rates, shifts, strict=True)):
                    found[row, kind, place] = _draw(below, share, shift, rate)
        return found


def shift_for(slots: int, share: Fraction, rate: Fraction, failure: float) -> int:
    """Bound the distance of a drawn slot's ranks from its target, in units of mass, but for this probability."""
    return math.ceil((math.log(slots) - math.log(failure)) / float(rate * share.denominator))


def _draw(below: list[int], share: Fraction, shift: int, rate: Fraction) -> int:
    """Draw a slot, from the mass below each slot and the mass in all."""
    a, b = share.numerator, share.denominator
    wanted = a * below[-1] + b * shift
    scores = [max(0, b * low - wanted, wanted - b * high) for low, high in itertools.pairwise(below)]
    least = min(scores)  # a target outside the data has no slot with N = 0
    up, down = 2 * rate.numerator, rate.denominator
    levels = [(score - least) * up // down for score in scores]
    ordered = np.sort(np.minimum(np.array(levels, object), 1 << 40).astype(np.int64))

    def reached(level: int) -> int:
        return len(ordered) - int(np.searchsorted(ordered, level))

    while True:
        level = draw_level(reached)
        places = [place for place, each in enumerate(levels) if each == level]
        place = places[uniform_below(len(places))]
        if draw_coin(rate * (scores[place] - least) - Fraction(level, 2)):
            return place
