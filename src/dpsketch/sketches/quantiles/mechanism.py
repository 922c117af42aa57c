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

**Accuracy.** With D places, P(a draw is off by τ units of weight or more) ≤ D·e^(−cτ), c = γb, since the best place
alone weighs 1. A target inside a part is q times its right cut's rank plus 1 − q times its left one's; so errors e of
the cuts move it by (1 − q)·e_left + q·e_right, and ends of the domain have none.

References
----------
Kaplan, Schnapp and Stemmer, *Differentially private approximate quantiles* (2022). Changed here: the sensitivity is
that of the quantile asked (theirs is 1), equal values can be cut apart, targets may be shifted, and draws are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Cost, Neighbours, PureCost, ZcdpCost
from dpsketch.sketches.quantiles.mass import Mass
from dpsketch.sketches.quantiles.sampler import draw_coin, draw_level, uniform_below

__all__ = ["TIE_BITS", "Accounting", "Recursion", "levels_for"]

# A cell is divided into 2^TIE_BITS places.
TIE_BITS = 24

Accounting = Literal["pure", "rho"]


class Target(NamedTuple):
    """The rank ``share``·(mass of the part) + ``shift``, in units of weight."""

    share: Fraction
    shift: Fraction


class Range(NamedTuple):
    """Places from ``first`` to ``last``, and the mass from ``first`` to before ``end``: ``last`` or the next place."""

    first: int
    last: int
    end: int


def levels_for(quantiles: int) -> int:
    """Return how many levels answer so many quantiles."""
    return quantiles.bit_length()


@dataclass(frozen=True, slots=True)
class Recursion:
    """The law of one recursion, its public parameters all.

    Attributes
    ----------
    quantiles : tuple of Fraction
        What is asked, in increasing order.
    cells : int
        Cells of the public grid.
    epsilon : float
        The privacy loss of one level, taken as the exact value of the double.
    weight : int
        Most weight of one unit of privacy, in grid units.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    accounting : {"pure", "rho"}
        Whether the levels' losses are added up, or their ρ.
    shift : int
        How many units of weight every target is moved by.
    """

    quantiles: tuple[Fraction, ...]
    cells: int
    epsilon: float
    weight: int
    neighbours: Neighbours
    accounting: Accounting
    shift: int = 0

    def __post_init__(self) -> None:
        for name in ("cells", "weight"):
            hold_whole(self, name, low=1)
        hold_whole(self, "shift")
        hold_real(self, "epsilon")

    @property
    def levels(self) -> int:
        """How many levels it has."""
        return levels_for(len(self.quantiles))

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        number = "1 level" if self.levels == 1 else f"{self.levels} levels"
        return f"the recursive exponential mechanism on ranks, {number} of ε = {self.epsilon:.4g}"

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing it costs."""
        if self.accounting == "pure":
            return (PureCost(self.levels * self.epsilon),)
        return (ZcdpCost(self.levels * self.epsilon**2 / 8),)

    def span(self, share: Fraction, *, whole: bool) -> Fraction:
        """Return R/b: how far apart N may move at two places, for a unit of weight; ``whole`` is all the data."""
        if self.neighbours == "add_remove":
            return 2 * max(share, 1 - share)
        return Fraction(2) if whole else 4 * max(share, 1 - share)

    def draw(self, table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Draw the cell of every quantile, from the counts of all cells. The result may be published."""
        places = self.cells << TIE_BITS
        mass = Mass(table, TIE_BITS)
        targets = [Target(share, Fraction(self.shift)) for share in self.quantiles]
        drawn = self._draw_in(mass, Range(0, places - 1, places), targets, whole=True)
        return np.array([place >> TIE_BITS for place in drawn], dtype=np.int64)

    def _draw_in(self, mass: Mass, part: Range, targets: list[Target], *, whole: bool) -> list[int]:
        """Draw the places of targets in a part, the middle one first."""
        if not targets:
            return []
        middle = len(targets) // 2
        cut = targets[middle]
        rate = Fraction(self.epsilon) / (self.span(cut.share, whole=whole) * (self.weight << TIE_BITS))
        place = _draw_place(mass, part, cut, rate)
        left = [_left_of(cut, target) for target in targets[:middle]]
        right = [_right_of(cut, target) for target in targets[middle + 1 :]]
        return [
            *self._draw_in(mass, Range(part.first, place, place), left, whole=False),
            place,
            *self._draw_in(mass, Range(place, part.last, part.end), right, whole=False),
        ]

    def rank_errors(self, failure: float) -> list[float]:
        """Return, for each quantile, how far its rank is from its target at most, but for this probability.

        In grid units. A cut may also lie one place off, which is at most one unit where no cell holds more than 2^24.
        """
        chance = math.log(self.cells) + TIE_BITS * math.log(2) + math.log(self.levels / failure)
        found: dict[Fraction, float] = {}

        def look(asked: tuple[Fraction, ...], low: Fraction, high: Fraction, left: float, right: float) -> None:
            if not asked:
                return
            middle = len(asked) // 2
            cut = asked[middle]
            share = (cut - low) / (high - low)
            rate = Fraction(self.epsilon) / (self.span(share, whole=high - low == 1) * self.weight)
            error = chance / float(rate) + 1 + float(1 - share) * left + float(share) * right
            found[cut] = error
            look(asked[:middle], low, cut, left, error)
            look(asked[middle + 1 :], cut, high, error, right)

        look(self.quantiles, Fraction(0), Fraction(1), 0.0, 0.0)
        return [found[quantile] for quantile in self.quantiles]


def _left_of(cut: Target, target: Target) -> Target:
    """Restate a target for what lies below a cut."""
    share = target.share / cut.share
    return Target(share, target.shift - share * cut.shift)


def _right_of(cut: Target, target: Target) -> Target:
    """Restate a target for what lies above a cut."""
    share = (target.share - cut.share) / (1 - cut.share)
    return Target(share, target.shift - (1 - share) * cut.shift)


def _draw_place(mass: Mass, part: Range, target: Target, rate: Fraction) -> int:
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
