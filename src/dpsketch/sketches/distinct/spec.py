"""The public spec of a distinct count, and the law of its bitmap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Additive
from dpsketch.core.move import Move, Table
from dpsketch.hashing import KeyType
from dpsketch.laws.calibration import quietest
from dpsketch.noise import Noise
from dpsketch.numbers import hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.specs import ReleasePreview, Spec, hold_common

__all__ = ["BITS", "DEFAULT_SEED", "LEVELS", "ONES", "DistinctSpec"]

DEFAULT_SEED = 1
LEVELS = 64
ONES, BITS = "ones", "bits"


@stored
@dataclass(frozen=True, slots=True)
class DistinctSpec(Spec):
    """All that two distinct sketches must share to merge. Public.

    Attributes
    ----------
    buckets : int
        Words of the bitmap; the relative error is about 0.7/√buckets.
    unit : Unit
        Whose presence a release hides; of its bounds only ``max_keys`` matters.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    weighs: ClassVar[bool] = False

    buckets: int
    unit: Unit
    seed: int = DEFAULT_SEED
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_whole(self, "buckets", low=16, high=2**24)
        hold_common(self)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.buckets} buckets"

    def arrays(self) -> dict[str, Any]:
        """Return the bitmap of an empty sketch."""
        return {BITS: np.zeros(self.buckets, np.uint64)}

    @property
    def memory(self) -> int:
        """Bytes of the bitmap. Where the unit is a user, eight more for each user counted."""
        return 8 * self.buckets

    def tables(self) -> tuple[Table, ...]:
        """Return the number of ones, of which C keys set at most C, and the bits themselves."""
        keys = self.unit.max_keys
        return Table(ONES, (1,), Move.heaped(1, keys)), Table(BITS, (self.buckets, LEVELS), Move.each(keys, 1))

    def laws(self, budget: Budget) -> tuple[Additive]:
        """Return the quieter of Laplace and Gaussian noise on the number of ones."""
        return (quietest(budget, self.unit.neighbours, self.tables()[0]),)

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        distinct: float = 0.0,
    ) -> ReleasePreview:
        """Say what a release would promise, and its standard error at a guessed number of ``distinct`` keys."""
        distinct = real_number("distinct", distinct)
        budget = Budget(epsilon, delta, rho)
        (law,) = self.laws(budget)
        error = self.error(distinct, law.noise)
        return ReleasePreview(promise(self, Receipt(budget, (law,))), math.sqrt(law.noise.variance), error)

    def ones(self, distinct: float) -> float:
        """Return the mean number of ones after so many distinct keys."""
        return -self.buckets * float(np.sum(np.expm1(distinct * self._log_missed)))

    def variance_of_ones(self, distinct: float) -> float:
        """Return the variance of the number of ones, to first order in 1/buckets."""
        free = np.exp(distinct * self._log_missed)
        # Balls in cells: independent cells, less what the fixed number of balls takes away.
        alone = self.buckets * float(np.sum(free * (1 - free)))
        return max(0.0, alone - distinct * self._rise(distinct) ** 2)

    def error(self, distinct: float, noise: Noise) -> float:
        """Return the standard error of an estimate near so many distinct keys."""
        return math.sqrt(self.variance_of_ones(distinct) + noise.variance) / self._rise(distinct)

    def distinct_for(self, ones: float) -> float:
        """Return the number of distinct keys whose mean number of ones is this; 0 where there is none."""
        if ones <= 0:
            return 0.0
        return _root(lambda distinct: self.ones(distinct) - ones)

    def _rise(self, distinct: float) -> float:
        return -self.buckets * float(np.sum(self._log_missed * np.exp(distinct * self._log_missed)))

    @property
    def _log_missed(self) -> npt.NDArray[np.float64]:
        """The logarithm of the probability that a key misses a given bit, for each level."""
        return np.log1p(-np.ldexp(1.0, -np.arange(1, LEVELS + 1)) / self.buckets)


def _root(function: Any) -> float:
    """Return where an increasing function of a number of keys passes 0, between 0 and 2⁶⁴."""
    low, high = 0.0, 2.0**64
    if function(high) < 0:
        return high
    for _ in range(200):
        # Halve the ratio where the numbers are large, the difference where they are small.
        middle = math.sqrt(low * high) if low > 1 else (low + min(high, 4 * low + 4)) / 2
        if middle <= low or middle >= high or high - low < 1e-9 * high:
            break
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2
