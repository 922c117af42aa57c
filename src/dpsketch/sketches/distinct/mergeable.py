"""A released bitmap that merges with others after the fact, by exclusive or (sketch, flip, merge)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part
from dpsketch.core.laws import Arrays, Law
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.flips import Flips, are_bits
from dpsketch.normal import normal_quantile
from dpsketch.numbers import probability
from dpsketch.privacy import Unit
from dpsketch.sketches.distinct.private import DistinctRelease
from dpsketch.sketches.distinct.spec import BITS, LEVELS, DistinctSpec
from dpsketch.sketches.specs import refuse_mismatch

if TYPE_CHECKING:
    pass

__all__ = ["MergedFlips", "PrivateDistinctBitmap", "flip_threshold"]

_BITS = np.arange(LEVELS, dtype=np.uint64)


def flip_threshold(epsilon: float, unit: Unit) -> int:
    """Return t such that zeros become ones with probability t/2⁶⁴, rounded towards privacy.

    :mod:`dpsketch.laws.flips` has the loss. Added or removed, a unit leaves b = ε/C for each bit. Replaced, it leaves
    b + ln(2 − e^−b) = ε/C, hence e^b = (e^(ε/C) + 1)/2.
    """
    share = epsilon / unit.max_keys
    inverse = math.exp(-share) if unit.neighbours == "add_remove" else 2 * math.exp(-share) / (1 + math.exp(-share))
    return min(2**63, math.ceil(inverse * 2**63 * (1 + 2.0**-48)) + 1)


@stored
@dataclass(frozen=True, slots=True)
class MergedFlips(Derived):
    """The exclusive or of several bitmaps with flipped bits."""

    flips: tuple[Flips, ...]

    def __post_init__(self) -> None:
        if len(self.flips) < 2 or len({each.table for each in self.flips}) > 1:
            raise InvalidInput("several bitmaps of one table are merged.")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws of the bitmaps."""
        return self.flips

    @property
    def probability(self) -> float:
        """The probability with which a bit that is set in no bitmap is a one."""
        found = 0.0
        for each in self.flips:
            found += each.probability - 2 * found * each.probability
        return found

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a bitmap, and one name for each that was merged."""
        return are_bits(arrays, self.flips[0].table) and len(arrays["ids"]) == len(self.flips)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateDistinctBitmap(DistinctRelease):
    """A released bitmap, which merges with others of the same spec into one of the union."""

    kind: ClassVar[str] = "distinct-bitmap"
    spec_type: ClassVar[Any] = DistinctSpec

    spec: DistinctSpec

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {BITS} and isinstance(parts[BITS].law, Flips | MergedFlips)

    @property
    def bitmap(self) -> Words:
        """The flipped bits, one word a bucket."""
        return cast(Words, self.drawn.parts[BITS].arrays["bitmap"])

    @property
    def flip(self) -> float:
        """The probability with which a zero became a one; ones are fair coins."""
        law: Any = self.drawn.parts[BITS].law
        return float(law.probability)

    @property
    def ids(self) -> frozenset[bytes]:
        """A random name of each release that it was merged of."""
        return frozenset(cast(list[bytes], self.drawn.parts[BITS].arrays["ids"]))

    @property
    def value(self) -> float:
        """The estimated number of distinct keys: the maximum of the likelihood."""
        candidates, likelihood = self._likelihood()
        return float(candidates[int(np.argmax(likelihood))])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for the number of distinct keys, by the likelihood ratio."""
        confidence = probability("confidence", confidence)
        candidates, likelihood = self._likelihood()
        near = likelihood >= np.max(likelihood) - normal_quantile(confidence) ** 2 / 2
        return float(np.min(candidates[near])), float(np.max(candidates[near]))

    def _likelihood(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return numbers of distinct keys around the likeliest, with their log-likelihoods."""
        # Below √buckets/100 nothing can be told from 0.
        smallest = math.sqrt(self.spec.buckets) / 100
        coarse = np.append(0.0, np.geomspace(smallest, 2.0**63, 2500))
        values = self._log_likelihoods(coarse)
        near = np.flatnonzero(values > np.max(values) - 40)
        low, high = coarse[max(near[0] - 1, 0)], coarse[min(near[-1] + 1, len(coarse) - 1)]
        fine = np.append(low, np.geomspace(max(low, smallest), high, 4000))
        return fine, self._log_likelihoods(fine)

    def _log_likelihoods(self, candidates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the log-likelihood of each candidate, bits taken as independent."""
        result = np.zeros(len(candidates))
        for level in range(LEVELS):
            ones = np.count_nonzero((self.bitmap >> _BITS[level]) & np.uint64(1))
            full = -np.expm1(candidates * math.log1p(-math.ldexp(1.0, -level - 1) / self.spec.buckets))
            shown = self.flip + (0.5 - self.flip) * full
            result += ones * np.log(shown) + (self.spec.buckets - ones) * np.log1p(-shown)
        return result

    def merge(self, other: PrivateDistinctBitmap) -> PrivateDistinctBitmap:
        """Return the release of the union.

        The exclusive or of a fair coin with anything is a fair coin, so a bit that is set in either is a coin in the
        result; a bit set in neither is a one with probability q + q' − 2qq'. That needs coins of two releases: a
        release met again would cancel out, and is refused.
        """
        refuse_mismatch(self.spec, other.spec, "merge")
        if not self.ids.isdisjoint(other.ids):
            raise ReleaseRefused(
                "cannot merge: one release is in both, and the bits that it set would cancel out. Merge each once."
            )
        receipts = self.drawn.receipts + other.drawn.receipts
        law = MergedFlips(tuple(law for each in receipts for law in each.laws if isinstance(law, Flips)))
        arrays: dict[str, Array] = {"bitmap": self.bitmap ^ other.bitmap, "ids": sorted(self.ids | other.ids)}
        return PrivateDistinctBitmap(self.spec, Drawn.of(self.spec, receipts, {BITS: Part(law, arrays)}))
