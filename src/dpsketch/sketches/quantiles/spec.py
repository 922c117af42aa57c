"""The public spec of named quantiles: which they are, the grid, the unit, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, assert_never

from dpsketch.accounting.renyi import renyi_epsilon
from dpsketch.accounting.tally import Tally
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.recursion import TIE_BITS, Accounting, Recursion
from dpsketch.numbers import hold_real, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED
from dpsketch.sketches.quantiles.cells import ValueGrid
from dpsketch.sketches.ranges.domain import DomainSpec, Outside
from dpsketch.sketches.specs import ReleasePreview, hold_common

__all__ = ["ANSWERS", "CONFIDENCE", "COUNTS", "HIGH_ENDS", "LOW_ENDS", "QuantileSpec", "as_fraction", "rank_errors"]

COUNTS = "counts"
# The quantiles, and the ends of their intervals.
ANSWERS, LOW_ENDS, HIGH_ENDS = "answers", "low", "high"
# What intervals hold with whose ends are drawn.
CONFIDENCE = 0.95
# A locally smooth quantile errs by about 1/ε ranks at the median's rate, with its ancestors by about half as much more.
_TYPICAL = 1.5
_MOST_QUANTILES = 4096
# A file holds fractions of 64 characters.
_LARGEST_DENOMINATOR = 10**31


@stored
@dataclass(frozen=True, slots=True)
class QuantileSpec(DomainSpec):
    """All that two sketches of named quantiles must share to merge. Public.

    Attributes
    ----------
    bits : int
        Values are the 2^bits whole numbers from ``start`` on.
    unit : Unit
        Whose presence a release hides.
    quantiles : tuple of Fraction
        The quantiles that a release answers, strictly between 0 and 1, in increasing order.
    start : int
        The smallest value.
    outside : {"refuse", "clamp"}
        What happens to a value outside the domain.
    interval_share : float
        The part of the budget that the ends of intervals get.
    seed : int
        Chooses which of a user's values count; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    """

    bits: int
    unit: Unit
    quantiles: tuple[Fraction, ...]
    start: int = 0
    outside: Outside = "refuse"
    interval_share: float = 0.0
    seed: int = DEFAULT_SEED
    grid: float = 1

    def __post_init__(self) -> None:
        hold_common(self)
        for name in ("bits", "start"):
            object.__setattr__(self, name, getattr(self.domain, name))
        hold_real(self, "interval_share")
        if not 0 <= self.interval_share < 1:
            raise InvalidInput(f"interval_share is part of the budget, from 0 to below 1, not {self.interval_share!r}.")
        object.__setattr__(self, "quantiles", _in_order(self.quantiles))

    @property
    def cells(self) -> ValueGrid:
        """The public grid."""
        return ValueGrid(self.domain)

    def tables(self) -> tuple[Table, ...]:
        """Return the counts. A unit adds at most its weight to each of ``max_keys`` values, perhaps all in one cell."""
        keys = self.unit.max_keys
        return (Table(COUNTS, (self.cells.count,), Move.heaped(keys, keys * self.weight_grid.max_units)),)

    def laws(self, budget: Budget) -> tuple[Recursion, ...]:
        """Share a budget among the levels of the recursion, and those of two more for the ends of intervals.

        Privacy
        -------
        Pure: the levels' ε add up. ρ: each level costs ε²/8, because its loss has a range of at most ε. For (ε, δ) it
        is whichever of the two leaves the answers more; up to seven quantiles that is the pure form, without a δ.
        """
        match budget.cost:
            case PureCost(epsilon):
                return self._pure(epsilon)
            case ZcdpCost(rho):
                return self._concentrated(rho)
            case ApproximateCost(epsilon, delta):
                pure = self._pure(epsilon)
                rho = _largest_rho(epsilon, delta)
                shared = self._concentrated(rho) if rho > 0 else pure
                return pure if pure[0].epsilon >= shared[0].epsilon else shared
            case never:
                assert_never(never)

    def _pure(self, epsilon: float) -> tuple[Recursion, ...]:
        return self._parts("pure", lambda share, levels: _rounded_down(Fraction(epsilon) * share / levels))

    def _concentrated(self, rho: float) -> tuple[Recursion, ...]:
        return self._parts("rho", lambda share, levels: _root_down(8 * Fraction(rho) * share / levels))

    def _parts(self, form: Accounting, level: Callable[[Fraction, int], float]) -> tuple[Recursion, ...]:
        """Return the answers and, where they get a share, the ends: targets shifted by what may be wrong with them.

        ``level`` is the loss of a level of so many that get a share of the budget.
        """
        (table,) = self.tables()

        def law(name: str, share: Fraction, shift: int = 0) -> Recursion:
            epsilon = level(share, len(self.quantiles).bit_length())
            return Recursion(name, table, self.unit.neighbours, self.quantiles, epsilon, form, shift)

        ends = Fraction(repr(float(self.interval_share)))
        answers = law(ANSWERS, 1 - ends)
        if not ends:
            return (answers,)
        shift = math.ceil(max(rank_errors(law(LOW_ENDS, ends / 2), (1 - CONFIDENCE) / 2)))
        return answers, law(LOW_ENDS, ends / 2, -shift), law(HIGH_ENDS, ends / 2, shift)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        named = "quantiles by " + laws[0].words
        return named if len(laws) == 1 else f"{named}; the ends of their intervals by two more"

    def least_records(self, shift: int) -> float:
        """Return from how many records on intervals hold whose ends were drawn: the targets are then among the data.

        Several quantiles need twice as many, because a part's mass may be off by as much as a target is shifted.
        """
        shift = whole_number("shift", shift, low=0)
        nearest = min(self.quantiles[0], 1 - self.quantiles[-1])
        return self.grid * shift * (1 if len(self.quantiles) == 1 else 2) / float(nearest)

    def typical_error(self, law: Recursion) -> float:
        """Return about how many ranks an answer is off where there are enough records (see :meth:`preview`)."""
        return _TYPICAL * self.grid / float(law.rate(Fraction(1, 2), whole=False))

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and about how many ranks its answers will be off.

        Accuracy
        --------
        That is 1.5·W/ε for a loss of ε a level, twice as much under ``replace``: less for a single quantile and where
        values are shared by many, more where a quantile has fewer records around it than ln(values)/ε.
        """
        budget = Budget(epsilon, delta, rho)
        laws = self.laws(budget)
        error = self.typical_error(laws[0])
        return ReleasePreview(promise(self, Receipt(budget, laws)), error / _TYPICAL, error)


def as_fraction(share: Any) -> Fraction:
    """Return a share as the fraction that it is written as: 0.1 is 1/10, which the double is not."""
    if isinstance(share, Fraction):
        return share
    number = real_number("a quantile", share)
    if not math.isfinite(number):
        raise InvalidInput("a quantile is a share between 0 and 1, as 0.5 for the median.")
    return Fraction(repr(number))


def _in_order(quantiles: Iterable[Any]) -> tuple[Fraction, ...]:
    found = sorted({as_fraction(share) for share in quantiles})
    if not 0 < len(found) <= _MOST_QUANTILES:
        raise InvalidInput(f"name between 1 and {_MOST_QUANTILES} quantiles; for all of them leave quantiles= out.")
    if not (found[0] > 0 and found[-1] < 1):
        raise InvalidInput(
            "a named quantile lies strictly between 0 and 1, as 0.5 for the median: the least and the largest value "
            "belong to one record each, and cannot be told privately."
        )
    if any(share.denominator > _LARGEST_DENOMINATOR for share in found):
        raise InvalidInput("the denominator of a quantile has at most 31 digits.")
    return tuple(found)


def _rounded_down(number: Fraction) -> float:
    """Return the largest double that is at most a positive number."""
    found = float(number)
    return math.nextafter(found, 0.0) if Fraction(found) > number else found


def _root_down(number: Fraction) -> float:
    """Return a double that is at most a number's square root."""
    found = math.sqrt(number)
    while Fraction(found) ** 2 > number:
        found = math.nextafter(found, 0.0)
    return found


def rank_errors(law: Recursion, failure: float) -> list[float]:
    """Return, for each quantile, how far its rank is from its target at most, but for this probability.

    In grid units. With D places, P(a draw is off by τ units of weight or more) ≤ D·e^(−cτ), c = γb, since the best
    place alone weighs 1. A target inside a part is q times its right cut's rank plus 1 − q times its left one's; so
    errors e of the cuts move it by (1 − q)·e_left + q·e_right, and ends of the domain have none. A cut may also lie one
    place off, which is at most one unit where no cell holds more than 2^24.
    """
    chance = math.log(law.cells) + TIE_BITS * math.log(2) + math.log(law.levels / failure)
    found: dict[Fraction, float] = {}

    def look(asked: tuple[Fraction, ...], low: Fraction, high: Fraction, left: float, right: float) -> None:
        if not asked:
            return
        middle = len(asked) // 2
        cut = asked[middle]
        share = (cut - low) / (high - low)
        own = chance / float(law.rate(share, whole=high - low == 1)) + 1
        error = own + float(1 - share) * left + float(share) * right
        found[cut] = error
        look(asked[:middle], low, cut, left, error)
        look(asked[middle + 1 :], cut, high, error, right)

    look(law.quantiles, Fraction(0), Fraction(1), 0.0, 0.0)
    return [found[quantile] for quantile in law.quantiles]


@lru_cache(maxsize=256)
def _largest_rho(epsilon: float, delta: float) -> float:
    """Return nearly the largest ρ that implies (ε, δ): below it, by less than a part in 10⁹."""
    low, high = 0.0, min(epsilon, 1e9)  # a ρ above ε implies it for a large δ only; one above 10⁹ is no budget
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if renyi_epsilon(Tally.of([ZcdpCost(middle)]), delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low
