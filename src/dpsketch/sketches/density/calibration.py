"""How a density's budget is split between its table and its number of records, and the noise that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, Noise
from dpsketch.privacy import Guarantee, PureCost, Unit, requested
from dpsketch.sketches import releasing
from dpsketch.sketches.specs import Sensitivity

__all__ = ["COUNT_SHARE", "DensityNoise", "calibrate"]

# A normalised density divides by the number of records. At this share its error stays below that of the kernel sum,
# whose own noise grows by 2.6% (δ > 0) or 5% (δ = 0).
COUNT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class DensityNoise:
    """The noise of one release: on each counter, and on the number of records (None where no share is spent on it)."""

    calibrated: releasing.AdditiveNoise
    table: Noise
    count: Noise | None

    def guarantee(self, unit: Unit, caveat: str | None = None) -> Guarantee:
        """State what a release with this noise promises."""
        stated = releasing.guarantee(self.calibrated, unit, caveat=caveat)
        words = f"{self.table.words}, on every counter"
        if self.count is not None:
            words += f"; {self.count.words}, on the number of records"
        return replace(stated, mechanism=words)


def calibrate(
    sensitivity: Sensitivity,
    unit: Unit,
    placement: str,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    count_share: float,
) -> DensityNoise:
    """Calibrate the noise of table and count to one budget.

    Privacy
    -------
    A unit moves the table by ``sensitivity`` and the number of records by at most its own number of points. Gaussian:
    (Δ_table/σ_table)² + (Δ_count/σ_count)² = μ², of which the count has the share asked for, so the two together are
    one Gaussian mechanism of the whole budget's μ. Pure: the two parts' ε add up to at most ε.
    """
    if isinstance(count_share, bool) or not isinstance(count_share, int | float) or not 0 <= count_share < 1:
        raise InvalidInput("count_share must be at least 0 and below 1.")
    budget = requested(epsilon, delta, rho)
    if placement == "one_row" and not isinstance(budget, PureCost):
        raise InvalidInput("a sketch with placement='one_row' is released with pure ε: say delta=0.")
    points = unit.max_keys
    if isinstance(budget, PureCost):
        spent = budget.epsilon * count_share
        # Rounded down, so that the exact sum of the two parts does not pass ε.
        left = math.nextafter(budget.epsilon - spent, 0) if spent else budget.epsilon
        table: Noise = DiscreteLaplace(left, sensitivity.l1)
        count: Noise | None = DiscreteLaplace(spent, points) if spent else None
        return DensityNoise(releasing.AdditiveNoise(table, budget, budget.epsilon, 0.0, None), table, count)
    calibrated = _gaussian(epsilon, delta, rho, sensitivity.l2, 1 - count_share)
    on_count = _gaussian(epsilon, delta, rho, float(points), count_share).noise if count_share else None
    return DensityNoise(calibrated, calibrated.noise, on_count)


def _gaussian(
    epsilon: float | None, delta: float | None, rho: float | None, l2: float, share: float
) -> releasing.AdditiveNoise:
    # Rounded up twice: for the root and for the quotient.
    stretched = math.nextafter(math.nextafter(l2 / math.sqrt(share), math.inf), math.inf) if share < 1 else l2
    return releasing.additive_noise(epsilon, delta, rho, l1=1, l2=stretched)
