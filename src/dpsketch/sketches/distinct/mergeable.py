"""A released bitmap that merges with others after the fact, by exclusive or (sketch, flip, merge)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Words
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.noise import random_id, random_words
from dpsketch.normal import normal_quantile
from dpsketch.numbers import probability
from dpsketch.privacy import Cost, PureCost, Unit
from dpsketch.release import combined_guarantee
from dpsketch.sketches.distinct.private import DistinctRelease
from dpsketch.sketches.distinct.spec import LEVELS, DistinctSpec
from dpsketch.sketches.documents import read_charge, read_guarantee, release_document
from dpsketch.sketches.partials import ids_array, stored_ids
from dpsketch.sketches.specs import refuse_mismatch

__all__ = ["BITS", "Flips", "PrivateDistinctBitmap", "flip_threshold"]


BITS = "the bits"

_BITS = np.arange(LEVELS, dtype=np.uint64)


def flip_threshold(epsilon: float, unit: Unit) -> int:
    """Return t such that zeros become ones with probability t/2⁶⁴, rounded towards privacy.

    With ones turned into fair coins and zeros into ones with probability q = e^−b/2, a bit set or cleared loses at most
    b or ln(2 − e^−b). A unit added or removed changes C bits one way: b = ε/C. One replaced changes C each way:
    b + ln(2 − e^−b) = ε/C, hence e^b = (e^(ε/C) + 1)/2.
    """
    share = epsilon / unit.max_keys
    inverse = math.exp(-share) if unit.neighbours == "add_remove" else 2 * math.exp(-share) / (1 + math.exp(-share))
    return min(2**63, math.ceil(inverse * 2**63 * (1 + 2.0**-48)) + 1)


@dataclass(frozen=True, slots=True)
class Flips:
    """Randomised response on every bit: ones become fair coins, zeros ones with probability ``threshold``/2⁶⁴."""

    threshold: int
    epsilon: float

    @property
    def probability(self) -> float:
        """The probability with which a zero becomes a one."""
        return self.threshold / 2**64

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return f"a bitmap whose ones are fair coins and whose zeros are ones with probability {self.probability:.4g}"

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing the bits costs."""
        return (PureCost(self.epsilon),)

    def draw(self, bitmap: Words) -> Words:
        """Return a bitmap with its bits flipped."""
        flipped = np.zeros_like(bitmap)
        one = np.uint64(1)
        for level in range(LEVELS):
            drawn = random_words(len(bitmap))
            truth = (bitmap >> _BITS[level]) & one
            limit = np.where(truth == one, np.uint64(2**63), np.uint64(self.threshold))
            flipped |= (drawn < limit).astype(np.uint64) << _BITS[level]
        return flipped


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateDistinctBitmap(DistinctRelease):
    """A released bitmap: public; merges with others of the same spec into one of the union.

    Attributes
    ----------
    spec : DistinctSpec
        The public spec.
    bitmap : numpy.ndarray
        The flipped bits, a word a bucket, read-only.
    flip : float
        The probability with which a zero became a one; ones are fair coins.
    ids : frozenset of str
        A random name of this release, or those of the releases it was merged of; drawn when it was made, and public.
    """

    kind: ClassVar[str] = "distinct-bitmap"

    spec: DistinctSpec
    bitmap: Words
    flip: float
    ids: frozenset[str] = field(default_factory=lambda: frozenset({random_id()}))

    def __post_init__(self) -> None:
        self.bitmap.flags.writeable = False

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
        stated = combined_guarantee(self.guarantee, other.guarantee, self.spec.unit)
        flip = self.flip + other.flip - 2 * self.flip * other.flip
        return PrivateDistinctBitmap(
            self.spec, self.bitmap ^ other.bitmap, flip, self.ids | other.ids, guarantee=stated
        )

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        return release_document(self, self.spec, {"bitmap": self.bitmap, "ids": ids_array(self.ids)}, flip=self.flip)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        spec = DistinctSpec.from_json(document.header["spec"])
        bitmap, flip = document.arrays["bitmap"], document.header["flip"]
        known = isinstance(bitmap, np.ndarray) and bitmap.dtype == np.uint64 and bitmap.shape == (spec.buckets,)
        if not known or not isinstance(flip, float) or not 0 < flip <= 0.5:
            raise FileRefused("the file's bitmap is not what its spec prescribes.")
        ids = stored_ids(document, "ids")
        return cls(spec, np.array(bitmap), flip, ids, guarantee=read_guarantee(document), charge=read_charge(document))
