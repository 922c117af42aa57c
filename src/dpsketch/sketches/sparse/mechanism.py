"""One release's mechanism: how the budget is split, what each part does with it, and what they promise together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, assert_never

from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Budget, Cost, PureCost, ZcdpCost
from dpsketch.sketches.permit import Calibration, Part
from dpsketch.sketches.sparse.alp import Projection
from dpsketch.sketches.sparse.threshold import Threshold

__all__ = ["SURVIVORS", "TABLE", "Mechanism", "Reach"]

# How far past the cutoff the columns reach, in scales of the threshold's noise: a value there is dropped with
# probability e⁻³/2, and those that are dropped read a little low.
_MARGIN = 3
# One scale of the threshold's noise takes at most so many columns, whatever the budget and the threshold's share.
_MOST_BEYOND = 1000

TABLE, SURVIVORS = "the table", "the survivors"


@dataclass(frozen=True, slots=True)
class Reach:
    """What one unit of privacy can change: so many entries, by so many units each.

    Attributes
    ----------
    keys : int
        How many entries may move in all.
    alone : int
        On how many keys it may be alone, in either of two neighbouring datasets.
    units : int
        By how much an entry may move.
    """

    keys: int
    alone: int
    units: int

    def __post_init__(self) -> None:
        for name in ("keys", "alone", "units"):
            hold_whole(self, name, low=1)

    @property
    def l1(self) -> int:
        """How far the histogram may move in the L1 norm."""
        return self.keys * self.units


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The public parameters of one release.

    Attributes
    ----------
    projection : Projection
        The ALP part.
    threshold : Threshold or None
        The threshold part; None where all values are known to be small.
    top : int
        The largest value that the ALP part holds, in units.
    epsilon, delta : float
        What the parts promise together.
    """

    projection: Projection
    threshold: Threshold | None
    top: int
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        # What the values considered when reading rest on; a file may have been written by anyone.
        hold_whole(self, "top", low=1, high=2**62)
        hold_real(self, "epsilon", "delta")
        Budget(self.epsilon, self.delta)
        fits = self.projection.columns == self.projection.columns_for(self.top)
        if self.threshold is not None:
            beyond = self.projection.columns_a_unit / self.threshold.rate
            fits = fits and self.threshold.cutoff <= self.top and beyond <= _MOST_BEYOND
        if not fits:
            raise InvalidInput("this is no mechanism of a sparse histogram: its parts do not fit each other.")

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        reach: Reach,
        domain: int,
        top: int | None,
        rows: int,
        alpha: int,
        threshold_share: float,
        seed: int,
    ) -> Self:
        """Split a budget between the parts.

        Privacy
        -------
        With ``top`` given the ALP part gets all of ε, and no δ is needed. Otherwise the threshold part gets
        ``threshold_share`` of ε and all of δ, the ALP part the rest; the costs are charged one by one and add up to at
        most (ε, δ).
        """
        match budget.cost:
            case PureCost(asked):
                asked_delta = 0.0
            case ApproximateCost(asked, asked_delta):
                pass
            case ZcdpCost(asked_rho):
                raise InvalidInput(
                    "a sparse histogram flips bits and adds Laplace noise, which pure ε describes best: give epsilon= "
                    f"with delta= instead of rho=. epsilon={_floor(math.sqrt(2 * asked_rho))} with delta=0 stays "
                    "within the rho asked for."
                )
            case never:
                assert_never(never)
        if top is not None:
            projection = Projection.for_budget(
                asked, keys=reach.keys, units=reach.units, top=top, rows=rows, alpha=alpha, seed=seed
            )
            return cls(projection, None, top, asked, 0.0)
        share = threshold_share * asked
        if asked_delta:
            threshold = Threshold.stability(
                share, asked_delta, sensitivity=reach.l1, keys=reach.keys, alone=reach.alone, units=reach.units
            )
        else:
            threshold = Threshold.pure(share, sensitivity=reach.l1, domain=domain)
        top = threshold.cutoff + math.ceil(_MARGIN / threshold.rate)
        projection = Projection.for_budget(
            _rest(asked, share), keys=reach.keys, units=reach.units, top=top, rows=rows, alpha=alpha, seed=seed
        )
        return cls(projection, threshold, top, asked, asked_delta)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What a ledger composes."""
        return self.projection.costs + (() if self.threshold is None else self.threshold.costs)

    @property
    def calibration(self) -> Calibration:
        """The parts of a release by this mechanism."""
        parts = [Part(TABLE, self.projection)]
        if self.threshold is not None:
            parts.append(Part(SURVIVORS, self.threshold))
        words = "; ".join(part.law.words for part in parts)
        return Calibration(tuple(parts), self.costs, self.epsilon, self.delta, None, words)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as JSON-ready values."""
        return {
            "projection": self.projection.to_json(),
            "threshold": None if self.threshold is None else self.threshold.to_json(),
            "top": self.top,
            "epsilon": self.epsilon,
            "delta": self.delta,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild from :meth:`to_json`."""
        threshold = value["threshold"]
        return cls(
            Projection.from_json(value["projection"]),
            None if threshold is None else Threshold.from_json(threshold),
            value["top"],
            value["epsilon"],
            value["delta"],
        )


def _rest(total: float, part: float) -> float:
    """Return the largest double that with ``part`` does not pass ``total``, without rounding."""
    rest = total - part
    while Fraction(rest) + Fraction(part) > Fraction(total):
        rest = math.nextafter(rest, 0.0)
    return rest


def _floor(value: float) -> str:
    """Return a number in four digits, rounded down."""
    digits = 10 ** (3 - math.floor(math.log10(value)))
    return f"{math.floor(value * digits) / digits:.4g}"
