"""How the budget of a release is split between its tables and one more statistic, and the noise that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, Noise
from dpsketch.numbers import real_number
from dpsketch.privacy import Guarantee, PureCost, Unit, requested
from dpsketch.sketches import releasing
from dpsketch.sketches.specs import Sensitivity

__all__ = ["COUNT_SHARE", "DensityNoise", "Part", "calibrate", "count_part"]

# A normalised density divides by the number of records. At this share its error stays below that of the kernel sum,
# whose own noise grows by 2.6% (δ > 0) or 5% (δ = 0).
COUNT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """A statistic that is released beside the tables: what it is, how far a unit moves it, its share of the budget."""

    words: str
    sensitivity: Sensitivity
    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", real_number(f"the share of the budget for {self.words}", self.share))
        if not 0 <= self.share < 1:
            raise InvalidInput(f"the share of the budget for {self.words} must be at least 0 and below 1.")


def count_part(unit: Unit, share: float) -> Part:
    """Return the number of records as a part of a release; a unit has at most ``max_keys`` of them."""
    return Part("the number of records", Sensitivity(unit.max_keys, float(unit.max_keys)), share)


@dataclass(frozen=True, slots=True)
class DensityNoise:
    """The noise of one release: on each counter, and on the part beside them (None where no share is spent on it)."""

    calibrated: releasing.AdditiveNoise
    table: Noise
    beside: Noise | None
    part: Part

    def guarantee(self, unit: Unit, caveat: str | None = None) -> Guarantee:
        """State what a release with this noise promises."""
        stated = releasing.guarantee(self.calibrated, unit, caveat=caveat)
        words = f"{self.table.words}, on every counter"
        if self.beside is not None:
            words += f"; {self.beside.words}, on {self.part.words}"
        return replace(stated, mechanism=words)


def calibrate(
    tables: Sensitivity, part: Part, epsilon: float | None, delta: float | None, rho: float | None
) -> DensityNoise:
    """Calibrate the noise of the tables and of the part beside them to one budget.

    Privacy
    -------
    Gaussian: (Δ_tables/σ_tables)² + (Δ_part/σ_part)² = μ², of which the part has its share, so the two together are one
    Gaussian mechanism of the whole budget's μ, also where the tables depend on the part's release (Dong, Roth and Su,
    2022). Pure: the two parts' ε add up to at most ε.
    """
    budget = requested(epsilon, delta, rho)
    if isinstance(budget, PureCost):
        spent = budget.epsilon * part.share
        # Rounded down, so that the exact sum of the two parts does not pass ε.
        left = math.nextafter(budget.epsilon - spent, 0) if spent else budget.epsilon
        table: Noise = DiscreteLaplace(left, tables.l1)
        beside: Noise | None = DiscreteLaplace(spent, part.sensitivity.l1) if spent else None
        return DensityNoise(releasing.AdditiveNoise(table, budget, budget.epsilon, 0.0, None), table, beside, part)
    calibrated = _gaussian(epsilon, delta, rho, tables.l2, 1 - part.share)
    beside = _gaussian(epsilon, delta, rho, part.sensitivity.l2, part.share).noise if part.share else None
    return DensityNoise(calibrated, calibrated.noise, beside, part)


def _gaussian(
    epsilon: float | None, delta: float | None, rho: float | None, l2: float, share: float
) -> releasing.AdditiveNoise:
    # Rounded up twice: for the root and for the quotient.
    stretched = math.nextafter(math.nextafter(l2 / math.sqrt(share), math.inf), math.inf) if share < 1 else l2
    return releasing.additive_noise(epsilon, delta, rho, l1=1, l2=stretched)
