"""Which design serves which question, horizon and budget.

The recurrences were found by minimising, over rates and gains, the mean squared error of totals (``"totals"``), or
4·ln(totals) + ln(windows of 7 days) + ln(single days) of the mean squared errors (``"balanced"``), the norm of c
included; the bands by minimising that of windows of 7 days. Any falling c is private; better ones are more accurate.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from dpsketch.errors import InvalidInput
from dpsketch.laws.blocks import Blocks
from dpsketch.laws.designs import LONGEST, Banded, Contribution, Design, Filter
from dpsketch.laws.pan_private import PanPrivate
from dpsketch.laws.recurrence import Recurrence
from dpsketch.privacy import Budget, PureCost
from dpsketch.sketches.continual.decoding import errors

__all__ = ["DAILY", "DesignName", "Objective", "choose_design"]

Objective = Literal["balanced", "totals", "windows"]
DesignName = Literal["recurrence", "banded", "daily", "blocks", "tree", "pan-private"]

DAILY = Banded((1,))

# For streams of up to so many days: rates in units of 2**-20, gains in units of 2**-26.
_BALANCED = {
    30: ((707226, 962068), (12204090, 13986391)),
    365: ((815474, 1039150), (17687928, 6449628)),
    1_000: ((764262, 1018611, 1045634), (16143796, 4610961, 3237919)),
    10_000: ((816743, 1039276, 1048214), (17216678, 4010634, 1206476)),
}
_TOTALS = {
    30: ((378571, 950277), (10194012, 23722406)),
    365: ((553243, 952956, 1039991), (14234257, 11535624, 7823680)),
    1_000: ((684356, 1003126, 1045345), (18359953, 9728457, 4928206)),
    10_000: ((688698, 1003653, 1043879, 1048252), (18524171, 9538799, 3278357, 1569382)),
}
_GAIN_BITS = 26
# (scale, guard) by the longest horizon they suit: the floors then add about a thousandth to the noise (endless: 0.7%).
_PRECISION = {1_000: (14, 12), 10_000: (16, 14), LONGEST: (18, 12)}

# Of heavy units they may be coarser, down to these; gains then have ten bits.
_LEAST_SCALE, _LEAST_GUARD = 2, 8
# A design is chosen where so many of the heaviest records of one day fit into a cell.
_HEAVY_RECORDS = 2**20

_WINDOWS = (1024, 471, 331, 260, 213, 177, 146)
_BAND_SCALE = 1024
# A state that may be seized has so many tables, each of which a record enters: more have less noise in totals.
_SEIZABLE = {"balanced": 32, "totals": 64}

# How much each of totals, windows of 7 days and single days weighs.
_WEIGHTS: dict[str, tuple[int, int, int]] = {"balanced": (4, 1, 1), "totals": (1, 0, 0), "windows": (0, 1, 0)}

# Under pure ε: up to so many days plain daily tables have the smaller errors, up to so many two levels of blocks.
_PLAIN_DAYS = 48
_TWO_LEVELS = 2_000
# A design is judged over at most so many days.
_JUDGED = 10_000


def choose_design(
    budget: Budget,
    contribution: Contribution,
    horizon: int | None,
    *,
    objective: Objective = "balanced",
    name: DesignName | None = None,
) -> Design:
    """Return the design with the least error for an objective, or the one of a name.

    Parameters
    ----------
    budget : Budget
        δ = 0 allows blocks and daily tables only: correlated noise is Gaussian.
    contribution : Contribution
        What one unit adds. Where a user may be in every day nothing is gained by correlation, and days are published
        by themselves.
    horizon : int or None
        How many days; None without an end.
    objective : {"balanced", "totals", "windows"}
        Which answers should have the least noise.
    name : str, optional
        The design, where it is not to be chosen.
    """
    if objective not in _WEIGHTS:
        raise InvalidInput(f"objective is 'balanced', 'totals' or 'windows', not {objective!r}.")
    pure = isinstance(budget.cost, PureCost)
    # A single day has nothing to correlate: its state may be seized under Laplace noise as well.
    if pure and (name in ("recurrence", "banded") or (name == "pan-private" and horizon != 1)):
        raise InvalidInput("correlated noise is Gaussian, and needs delta > 0 or rho; with delta=0 blocks are best.")
    if name is None and pure:
        name = "daily" if objective == "windows" or (horizon is not None and horizon <= _PLAIN_DAYS) else "blocks"
    match name:
        case "daily":
            return DAILY
        case "tree":
            return Blocks.tree(_ended(horizon))
        case "blocks":
            return _blocks(_ended(horizon))
        case "banded":
            return _square_root(contribution.apart) if contribution.apart > 1 else Banded(_WINDOWS)
        case "recurrence":
            return _recurrence(contribution, horizon, "totals" if objective == "totals" else "balanced")
        case "pan-private":
            if horizon == 1:
                return PanPrivate((1,))
            kept = Banded(_WINDOWS) if objective == "windows" else _square_root(_SEIZABLE[objective])
            return PanPrivate(kept.bands[: LONGEST if horizon is None else horizon])
        case None:
            return min(_candidates(contribution, horizon, objective), key=_judge(contribution, horizon, objective))
        case _:
            names = "'recurrence', 'banded', 'daily', 'blocks', 'tree' or 'pan-private'"
            raise InvalidInput(f"design is {names}, or left out to be chosen; not {name!r}.")


def _candidates(contribution: Contribution, horizon: int | None, objective: Objective) -> list[Design]:
    windows = objective == "windows"
    found: list[Filter] = [Banded(_WINDOWS) if windows else _recurrence(contribution, horizon, objective)]
    if contribution.days > 1 and contribution.apart > 1:
        found.append(_square_root(contribution.apart))
    return [DAILY, *(design for design in found if design.limit >= _HEAVY_RECORDS * contribution.step)]


def _judge(contribution: Contribution, horizon: int | None, objective: Objective) -> Any:
    """Return what weighs a design: the logarithm of its mean squared errors, for one unit of μ."""
    days = min(_JUDGED, LONGEST if horizon is None else horizon)

    def judged(design: Design) -> float:
        noise = design.sensitivity(contribution, LONGEST if horizon is None else horizon).l2
        total = 0.0
        for weight, window in zip(_WEIGHTS[objective], (None, min(7, days), 1), strict=True):
            if weight:
                total += weight * math.log(noise**2 * float(np.mean(errors(design, days, window))))
        return total

    return judged


def _recurrence(contribution: Contribution, horizon: int | None, objective: Objective) -> Recurrence:
    days = LONGEST if horizon is None else horizon
    table = _TOTALS if objective == "totals" else _BALANCED
    rates, gains = table[next((known for known in table if days <= known), max(table))]
    scale, guard = _PRECISION[next(known for known in _PRECISION if days <= known)]
    # The coarser a unit's own step, the coarser the floors may be, and the larger the counts that fit.
    coarser = contribution.step.bit_length() - 1
    guard = max(_LEAST_GUARD, guard - max(0, coarser - (scale - _LEAST_SCALE)))
    scale = max(_LEAST_SCALE, scale - coarser)
    shift = _GAIN_BITS - scale - guard
    held = (gain >> shift if shift > 0 else gain << -shift for gain in gains)
    return Recurrence(rates, tuple(max(1, gain) for gain in held), scale, guard)


def _square_root(bands: int) -> Banded:
    """Return the first bands of the square root of the sums, (1 − z)^−½."""
    exact, found = 1.0, []
    for band in range(min(bands, _BAND_SCALE)):
        found.append(max(1, round(_BAND_SCALE * exact)))
        exact *= (2 * band + 1) / (2 * band + 2)
    return Banded(tuple(found))


def _blocks(days: int) -> Blocks:
    if days < _TWO_LEVELS:
        size = max(2, round(math.sqrt(days)))
        return Blocks((1, size) if size <= days else (1,))
    size = int(days ** (1 / 3))
    return Blocks((1, size, size * (size + 1)))


def _ended(horizon: int | None) -> int:
    if horizon is None:
        raise InvalidInput("blocks of days need an end: say days=, or a budget with delta > 0 or rho.")
    return horizon
