"""How the law of a sparse histogram is calibrated, and the odds of its survivors, which readers weigh."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Integers, Words
from dpsketch.core.move import Distance, Move
from dpsketch.errors import InvalidInput
from dpsketch.laws.alp import LARGEST_SCALE, LEAST_SCALE, ROOM, SCALE_BITS, Projection
from dpsketch.laws.survivors import Survival
from dpsketch.noise import DiscreteLaplace

__all__ = ["Survivors", "chance_of_survival", "false_rate", "half_width", "projection_for", "pure", "stability"]


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """Entries that reached the cutoff: positions, strictly increasing, and noisy values in units. Public."""

    positions: Words
    values: Integers

    def look_up(self, positions: Words) -> npt.NDArray[np.float64]:
        """Return the noisy value at each position, −1 where none survived."""
        found = np.full(len(positions), -1.0)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            hit = self.positions[places] == positions
            found[hit] = self.values[places[hit]]
        return found


def projection_for(epsilon: float, apart: Distance, *, top: int, rows: int, alpha: int, seed: int) -> Projection:
    """Choose the largest scale at which entries that lie so far apart cost at most ``epsilon``."""
    step = ROOM * largest_step(ROOM * epsilon / apart.cells, alpha)
    scale = min(LARGEST_SCALE, math.floor(step / (apart.most * alpha) * 2**SCALE_BITS))
    if scale < LEAST_SCALE:
        raise InvalidInput(
            "the budget is too small for so many keys and such fine weights: an entry would move by less than "
            "2**-32 of a column. Use a coarser grid=, a smaller max_weight or max_keys, or a larger epsilon."
        )
    return Projection(alpha, scale, top, rows, seed)


def largest_step(epsilon: float, alpha: float) -> float:
    """Return the largest step whose loss is ``epsilon``: the inverse of :func:`loss`.

    Examples
    --------
    >>> largest_step(1.0, 2) == math.expm1(1.0)
    True
    """
    whole = math.floor(epsilon / math.log1p(alpha))
    return alpha * whole + math.expm1(max(0.0, epsilon - whole * math.log1p(alpha)))


def pure(epsilon: float, apart: Distance, domain: int) -> Survival:
    """Choose the cutoff that about one zero of the domain reaches."""
    found = Survival("pure", DiscreteLaplace(epsilon, apart.l1), 1)
    cutoff = math.ceil((math.log(domain) - math.log1p(math.exp(-found.rate))) / found.rate)
    return replace(found, cutoff=max(1, cutoff))


def stability(epsilon: float, delta: float, apart: Distance, move: Move) -> Survival:
    """Choose the least cutoff whose exact δ is at most ``delta``, for entries that one unit moves by ``move``."""
    found = Survival("stability", DiscreteLaplace(epsilon, apart.l1), 1)
    most = min(-math.expm1(math.log1p(-delta) / move.cells), found.odds(move))
    guess = (-math.log(most) - math.log1p(math.exp(-found.rate))) / found.rate
    found = replace(found, cutoff=move.most + max(0, math.ceil(guess) - 2))
    while found.delta(move) > delta or not found.hides(move):
        found = replace(found, cutoff=found.cutoff + 1)
    return found


def false_rate(law: Survival) -> float:
    """Return the probability with which a zero of the domain survives under the pure rule."""
    return math.exp(-law.rate * law.cutoff) / (1 + math.exp(-law.rate))


def half_width(law: Survival, tail: float) -> float:
    """Return the least h such that the noise passes ±h with probability at most ``tail``."""
    return max(0, math.ceil((math.log(2 / tail) - math.log1p(math.exp(-law.rate))) / law.rate) - 1)


def chance_of_survival(law: Survival, units: npt.NDArray[np.float64], *, lost: bool = False) -> npt.NDArray[np.float64]:
    """Return the probability with which entries of these values survive, or do not; small ones are exact."""
    gap = units + (1 - law.cutoff) if lost else law.cutoff - units
    ratio = math.exp(-law.rate)
    above = np.exp(-law.rate * np.maximum(gap, 1)) / (1 + ratio)
    below = np.exp(-law.rate * np.maximum(1 - gap, 1)) / (1 + ratio)
    return np.where(gap >= 1, above, 1 - below)
