"""The public spec of named quantiles: which they are, the grid, the unit, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, assert_never

from dpsketch import accounting
from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Budget, PureCost, Unit, ZcdpCost
from dpsketch.sketches.countsketch.spec import DEFAULT_SEED
from dpsketch.sketches.permit import DELTA_FOR_RHO, Calibration, Part, ReleasePreview
from dpsketch.sketches.quantiles.cells import Cells
from dpsketch.sketches.quantiles.mechanism import Accounting, Recursion
from dpsketch.sketches.ranges.domain import Domain, DomainSpec, Outside
from dpsketch.sketches.specs import StoredSpec
from dpsketch.sketches.weights import WeightGrid

__all__ = ["ANSWERS", "CONFIDENCE", "HIGH_ENDS", "LOW_ENDS", "QuantileSpec", "as_fraction", "drawn_by"]

ANSWERS = "the quantiles"
LOW_ENDS = "the lower ends of their intervals"
HIGH_ENDS = "the upper ends of their intervals"
# What intervals hold with whose ends are drawn.
CONFIDENCE = 0.95
# A locally smooth quantile errs by about 1/ε ranks at the median's rate, with its ancestors by about half as much more.
_TYPICAL = 1.5
_MOST_QUANTILES = 4096


@stored
@dataclass(frozen=True, slots=True)
class QuantileSpec(DomainSpec, StoredSpec):
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
        domain, weights = Domain(self.bits, self.start, self.outside), WeightGrid(self.grid, self.unit.max_weight)
        for name, value in (("bits", domain.bits), ("start", domain.start), ("grid", weights.step)):
            object.__setattr__(self, name, value)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        hold_real(self, "interval_share")
        if not 0 <= self.interval_share < 1:
            raise InvalidInput(f"interval_share is part of the budget, from 0 to below 1, not {self.interval_share!r}.")
        object.__setattr__(self, "quantiles", _in_order(self.quantiles))

    @property
    def cells(self) -> Cells:
        """The public grid."""
        return Cells(self.domain)

    @property
    def weight(self) -> int:
        """The most weight of one unit of privacy, in grid units."""
        return self.weight_grid.max_units * self.unit.max_keys

    @property
    def memory(self) -> int:
        """Bytes of the counts. Where the unit is a user, eight more for each user counted."""
        return 8 * self.cells.count

    def law(self, epsilon: float, accounting: Accounting, shift: int = 0) -> Recursion:
        """Return the recursion at so much loss a level."""
        weight, neighbours = self.weight, self.unit.neighbours
        return Recursion(self.quantiles, self.cells.count, epsilon, weight, neighbours, accounting, shift)

    def calibrate(self, budget: Budget) -> Calibration:
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
                return self._concentrated(rho, budget)
            case ApproximateCost(epsilon, delta):
                pure = self._pure(epsilon)
                rho = accounting.largest_rho(epsilon, delta)
                shared = self._concentrated(rho, budget) if rho > 0 else pure
                return pure if drawn_by(pure, ANSWERS).epsilon >= drawn_by(shared, ANSWERS).epsilon else shared
            case never:
                assert_never(never)

    def _pure(self, epsilon: float) -> Calibration:
        def law(share: Fraction, shift: int = 0) -> Recursion:
            levels = self.law(1.0, "pure").levels
            return self.law(_rounded_down(Fraction(epsilon) * share / levels), "pure", shift)

        parts = self._parts(law)
        return Calibration(parts, (PureCost(epsilon),), epsilon, 0.0, None, _words(parts))

    def _concentrated(self, rho: float, budget: Budget) -> Calibration:
        def law(share: Fraction, shift: int = 0) -> Recursion:
            levels = self.law(1.0, "rho").levels
            return self.law(_root_down(8 * Fraction(rho) * share / levels), "rho", shift)

        parts = self._parts(law)
        costs = tuple(cost for part in parts for cost in part.costs)
        if budget.rho is None:
            epsilon, delta = float(budget.epsilon or 0), float(budget.delta or 0)
        else:
            epsilon, delta = accounting.compose(costs, delta=DELTA_FOR_RHO), DELTA_FOR_RHO
        return Calibration(parts, costs, epsilon, delta, budget.rho, _words(parts))

    def _parts(self, law: Any) -> tuple[Part, ...]:
        """Return the answers, and where they get a share the ends: targets shifted by what may be wrong with them."""
        ends = Fraction(repr(float(self.interval_share)))
        answers = Part(ANSWERS, law(1 - ends))
        if not ends:
            return (answers,)
        shift = math.ceil(max(law(ends / 2).rank_errors((1 - CONFIDENCE) / 2)))
        return answers, Part(LOW_ENDS, law(ends / 2, -shift)), Part(HIGH_ENDS, law(ends / 2, shift))

    def least_records(self, shift: int) -> float:
        """Return from how many records on intervals hold whose ends were drawn: the targets are then among the data.

        Several quantiles need twice as many, because a part's mass may be off by as much as a target is shifted.
        """
        shift = whole_number("shift", shift, low=0)
        nearest = min(self.quantiles[0], 1 - self.quantiles[-1])
        return self.grid * shift * (1 if len(self.quantiles) == 1 else 2) / float(nearest)

    def typical_error(self, calibrated: Calibration) -> float:
        """Return about how many ranks an answer is off where there are enough records (see :meth:`preview`)."""
        rate = self.law(1.0, "pure").span(Fraction(1, 2), whole=False)
        return _TYPICAL * float(rate) * self.weight * self.grid / drawn_by(calibrated, ANSWERS).epsilon

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and about how many ranks its answers will be off.

        Accuracy
        --------
        That is 1.5·W/ε for a loss of ε a level, twice as much under ``replace``: less for a single quantile and where
        values are shared by many, more where a quantile has fewer records around it than ln(values)/ε.
        """
        calibrated = self.calibrate(Budget(epsilon, delta, rho))
        error = self.typical_error(calibrated)
        return ReleasePreview(calibrated.guarantee(self.unit), error / _TYPICAL, error)

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values."""
        return {**StoredSpec.to_json(self), "quantiles": [str(quantile) for quantile in self.quantiles]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild a spec from :meth:`to_json`."""
        quantiles = tuple(Fraction(text) for text in value["quantiles"])
        return cls(**{**value, "unit": Unit.from_json(value["unit"]), "quantiles": quantiles})


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
    return tuple(found)


def drawn_by(calibrated: Calibration, part: str) -> Recursion:
    """Return the law of a part."""
    law = calibrated.part(part).law
    if not isinstance(law, Recursion):
        raise InvalidInput(f"{part} is no part that is drawn by a recursion.")
    return law


def _words(parts: tuple[Part, ...]) -> str:
    named = "quantiles by " + parts[0].law.words
    return named if len(parts) == 1 else f"{named}; the ends of their intervals by two more"


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
