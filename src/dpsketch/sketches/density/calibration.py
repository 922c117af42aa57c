"""How the budget of a release is split between its tables and one more statistic."""

from __future__ import annotations

from dataclasses import replace

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.permit import Calibration, Share, additive
from dpsketch.sketches.specs import Sensitivity

__all__ = ["COUNT", "COUNT_SHARE", "TABLE", "calibrate", "count_share_of"]

# A normalised density divides by the number of records. At this share its error stays below that of the kernel sum,
# whose own noise grows by 2.6% (δ > 0) or 5% (δ = 0).
COUNT_SHARE = 0.05
TABLE, COUNT = "the counters", "the number of records"


def count_share_of(unit: Unit, part: float) -> Share:
    """Return the number of records as a part of a release; a unit has at most ``max_keys`` of them."""
    return Share(COUNT, Sensitivity(unit.max_keys, float(unit.max_keys)), part)


def calibrate(tables: Sensitivity, beside: Share, budget: Budget, *, pieces: int = 1) -> Calibration:
    """Calibrate the noise of the tables, in so many pieces, and of the part beside them, if it gets any of the budget.

    Privacy
    -------
    The two together are one mechanism of the whole budget, also where the tables depend on the part that is released
    beside them. One record lies in one piece of the tables only, so that a unit moves all of them together as far as it
    would move a single one.
    """
    part = real_number(f"the share of the budget for {beside.name}", beside.part)
    if not 0 <= part < 1:
        raise InvalidInput(f"the share of the budget for {beside.name} must be at least 0 and below 1.")
    shares = [Share(TABLE, tables, 1 - part, pieces=pieces), *([beside._replace(part=part)] if part else [])]
    calibrated = additive(budget, *shares)
    words = [f"{calibrated.law(TABLE).words}, on every counter"]
    if part:
        words.append(f"{calibrated.law(beside.name).words}, on {beside.name}")
    return replace(calibrated, words="; ".join(words))
