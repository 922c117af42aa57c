"""How a bound on a user's keys follows from the two tables of :mod:`~dpsketch.laws.choice`, which are published.

A bound of m keys costs noise of variance v(m) on each of K counts, and cuts B(m) = Σ(d − m)⁺ pairs of a user and a key
where users have d keys. The cut pairs are not spread evenly: the mean square error of the K counts is about

    v(m) + κ·B(m)²/K,

where κ lies between 1/K (spread evenly) and the chance H that two users' keys meet. No fixed quantile of d is near the
least of it for all data. The bound is the least of v(m) + √(H/K)·B(m)²/K over m = 2^(i/4): the geometric mean of what κ
may be.

Accuracy
--------
How much the bound cut is computed from the same ranges, see :meth:`Choice.cut`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.laws import Additive, Arrays, are_integers
from dpsketch.laws.choice import CELLS, EDGES, LOWEST, MIDDLES
from dpsketch.noise import DiscreteLaplace
from dpsketch.results import Estimate

__all__ = ["Choice", "ShareCut"]

_WINDOWS = (1, 2, 4)
# The largest number in a published table that is taken for one: sums of all of them stay exact.
_MOST = 2**62


class ShareCut(NamedTuple):
    """How much a bound cut of what users hold.

    Attributes
    ----------
    share : Estimate
        The share of the pairs of users and keys that was cut, of users with at most ``up_to`` keys.
    up_to : int
        The largest range that stands out of the noise ends here; 0 if none does. The last range has no end, and is
        none of these.
    beyond : int
        With the same confidence, no more users have more keys than that. They are in no share.
    """

    share: Estimate
    up_to: int
    beyond: int

    @property
    def words(self) -> str:
        """The share in a phrase."""
        if self.up_to == 0:
            return f"how much was cut does not stand out of noise (at most {self.beyond:,} users)"
        low, value, high = (f"{100 * each:.2g}%" for each in (self.share.low, self.share.value, self.share.high))
        return (
            f"about {value} of what users hold was cut ({low} to {high}, not counting users of more than {self.up_to} "
            f"keys, at most {self.beyond:,} of them)"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the share as JSON-ready values, with its words."""
        return {**self.share.to_json(), "up_to": self.up_to, "beyond": self.beyond, "words": self.words}


@dataclass(frozen=True, slots=True)
class Choice:
    """What was published to choose a bound. Public.

    Attributes
    ----------
    noises : tuple of DiscreteLaplace
        The noise of one range, and of one cell.
    users : tuple of int
        The noisy numbers of users in each range of :data:`EDGES`.
    spread : tuple of int
        The noisy cells.
    """

    noises: tuple[DiscreteLaplace, DiscreteLaplace]
    users: tuple[int, ...]
    spread: tuple[int, ...]

    @classmethod
    def of(cls, laws: tuple[Additive, ...], arrays: Arrays) -> Self:
        """Return the choice of two published tables."""
        users, spread = (np.asarray(arrays[law.name]) for law in laws)
        first, second = (law.noise for law in laws)
        assert isinstance(first, DiscreteLaplace)
        assert isinstance(second, DiscreteLaplace)
        return cls((first, second), tuple(users.tolist()), tuple(spread.tolist()))

    @staticmethod
    def fits(laws: tuple[Additive, ...], arrays: Arrays) -> bool:
        """Say whether both tables are there: anyone may have written a file."""
        if not all(are_integers(arrays, law.name, law.table.shape) for law in laws):
            return False
        held = [np.asarray(arrays[law.name]) for law in laws]
        return all(int(each.min()) > -_MOST and int(each.max()) < _MOST for each in held)

    @property
    def _standing(self) -> npt.NDArray[np.bool_]:
        """The ranges that stand out of the noise.

        The search starts where one range, or two or four in a row, pass five deviations of their sum, and without such
        ones nothing stands out: of 24 ranges of mere noise one passes two deviations more often than not, and taken
        for users of thousands of keys it would spoil all. From there upward ranges by two deviations stand out, up to
        the first two in a row that do not; one by eight deviations does wherever it lies.
        """
        users = np.array(self.users)
        deviation = math.sqrt(self.noises[0].variance)
        stands = users > 2 * deviation
        surest, first, width = 0.0, 0, 0
        for wide in _WINDOWS:
            sums = np.convolve(users, np.ones(wide), "valid") / math.sqrt(wide)
            if sums.max() > surest:
                surest, first, width = float(sums.max()), int(sums.argmax()), wide
        if surest < 5 * deviation:
            return np.zeros(len(users), np.bool_)
        stands[first : first + width] = True
        start, missed = max([first + width - 1, *np.flatnonzero(users > 8 * deviation)]), 0
        for place in range(int(start) + 1, len(users)):
            missed = 0 if stands[place] else missed + 1
            if missed == 2:
                stands[place:] = False
                break
        return stands

    @property
    def _seen(self) -> Floats:
        """The users of each range, as far as they are told from noise.

        The two ranges after the last that stands out count by what is above 0: what is just hidden there is no less
        likely than what just shows, and without it tails are taken for too thin.
        """
        users, stands = np.array(self.users, np.float64), self._standing
        seen = np.where(stands, users, 0.0)
        if stands.any():
            end = int(np.flatnonzero(stands)[-1]) + 1
            seen[end : end + 2] = np.maximum(users[end : end + 2], 0)
        return seen

    def bound(self, keys: int, variances: Mapping[int, float], *, weight: int = 1) -> int:
        """Return the bound with the least predicted error.

        Parameters
        ----------
        keys : int
            The number of counts that are published.
        variances : mapping of int to float
            The variance of a count's noise under each bound that may be chosen, from the least bound on.
        weight : int
            What a pair of a user and a key counts at most, taken for what each does.
        """
        users, keys = self._seen, max(keys, 1)
        meeting = self._meeting(float(users.sum()), keys)

        def error(bound: int) -> float:
            cut = weight * float(users @ np.maximum(MIDDLES - bound, 0))
            return variances[bound] + math.sqrt(meeting / keys) * cut**2 / keys

        return min(variances, key=error)

    def _meeting(self, users: float, keys: int) -> float:
        """Return the chance that the keys of two users meet, from the sum of squares less what noise adds to it."""
        if users <= 1:
            return 1.0
        squares = float(sum(cell * cell for cell in self.spread))
        chance = (squares - CELLS * self.noises[1].variance - users) / (users * (users - 1))
        return min(max(chance, 1 / keys), 1.0)

    def cut(self, bound: int, *, confidence: float = 0.95) -> ShareCut:
        """Return how much a bound cut, with an interval that holds for any data.

        Notes
        -----
        A range's true number of users lies about its noisy one, and each of them has between its lowest and its
        largest number of keys; so sums over ranges lie between two whose noise is bounded by Chernoff's inequality.
        Which ranges are summed over depends on the noise, so that all 24 ends must hold at once.
        """
        users, stands = np.array(self.users, np.float64), np.flatnonzero(self._standing)
        last = min(int(stands[-1]) + 1, len(EDGES) - 1) if len(stands) else 0
        tail = (1 - confidence) / (5 * len(EDGES))

        def total(each: Integers, side: int) -> float:
            weights = each[:last].astype(np.float64)
            return max(0.0, float(weights @ users[:last]) + side * self._reach(weights, tail))

        lost, kept = np.maximum(LOWEST - bound, 0), np.minimum(LOWEST, bound)
        most_lost, most_kept = np.maximum(EDGES - bound, 0), np.minimum(EDGES, bound)
        low = _share(total(lost, -1), total(most_kept, 1))
        high = _share(total(most_lost, 1), total(kept, -1))
        seen = np.where(np.arange(len(EDGES)) < last, self._seen, 0.0)
        value = _share(float(seen @ np.maximum(MIDDLES - bound, 0)), float(seen @ np.minimum(MIDDLES, bound)))
        over = np.ones(len(EDGES) - last)
        beyond = math.floor(max(0.0, float(users[last:].sum()) + self._reach(over, tail)))
        share = Estimate(min(max(value, low), high), low, high, confidence)
        return ShareCut(share, int(EDGES[last - 1]) if last else 0, beyond)

    def _reach(self, weights: Floats, tail: float) -> float:
        """Return what the noise of a weighted sum of ranges passes, on one side, with a chance of ``tail`` at most.

        P(Σwz ≥ t) ≤ exp(Σ ln E e^(λwz) − λt) for each λ; the least t over some λ is taken. With a = e^(−rate),
        E e^(xz) = (1−a)²/((1−a·e^x)(1−a·e^(−x))) for |x| < rate.
        """
        weights = weights[weights > 0]
        if len(weights) == 0:
            return 0.0
        rate = self.noises[0].epsilon / self.noises[0].sensitivity
        steps = rate / float(weights.max()) * np.linspace(0.001, 0.999, 999)
        shifts = steps[:, None] * weights[None, :]
        logs = 2 * math.log(-math.expm1(-rate)) - np.log(-np.expm1(shifts - rate)) - np.log(-np.expm1(-shifts - rate))
        return float(((logs.sum(axis=1) - math.log(tail)) / steps).min())


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part > 0 else 0.0
