"""How large people's sets are: a private estimate, the cap to choose from it, and what the cap loses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.bits import OneBit
from dpsketch.local.intervals import Frequencies, from_sampled_support, share_of, support_variance
from dpsketch.local.protocol import People
from dpsketch.numbers import probability, whole_number

if TYPE_CHECKING:
    from dpsketch.local.collector import Collector

__all__ = ["CapLoss", "SetSizes", "SizeDistribution"]

_GROWTH = 1.2


@dataclass(frozen=True, slots=True)
class CapLoss:
    """What a cap on set size is expected to lose.

    Attributes
    ----------
    max_items : int
        The cap.
    people : float
        The share of people whose set is cut.
    pairs : float
        The share of all (person, key) pairs that go unreported: by so much the shares of all keys together fall.
    """

    max_items: int
    people: float
    pairs: float

    def __str__(self) -> str:
        return (
            f"a cap of {self.max_items} items cuts the sets of {self.people:.1%} of people and leaves out "
            f"{self.pairs:.1%} of all (person, key) pairs. Estimates fall by that share on average, and by more for "
            "keys that people with large sets hold."
        )


@dataclass(frozen=True, slots=True, eq=False)
class SizeDistribution:
    """The share of people with more than t keys, for rising t from 0 on; falling, and 0 at the end.

    Examples
    --------
    >>> SizeDistribution.from_sizes([1, 2, 3, 10]).loss(4)
    CapLoss(max_items=4, people=0.25, pairs=0.375)
    """

    thresholds: npt.NDArray[np.int64]
    above: npt.NDArray[np.float64]

    @classmethod
    def from_sizes(cls, sizes: Any) -> Self:
        """Count sizes that are public, or that stay inside the trust boundary."""
        whole = np.asarray(sizes)
        if whole.ndim != 1 or whole.dtype.kind not in "iu" or len(whole) == 0 or bool(np.any(whole < 0)):
            raise InvalidInput("sizes must be a flat column of whole numbers that are not negative.")
        counts = np.bincount(whole.astype(np.int64))
        above = 1 - np.cumsum(counts) / len(whole)
        return cls(np.arange(len(counts)), np.maximum(above, 0.0))

    def quantile(self, share: float) -> int:
        """Return the smallest listed size that at least a share of people does not pass; at least 1."""
        within = np.flatnonzero(self.above <= 1 - probability("share", share) + 1e-12)
        return max(1, int(self.thresholds[within[0]]))

    def loss(self, max_items: int) -> CapLoss:
        """Predict what a cap loses."""
        max_items = whole_number("max_items", max_items, low=1, high=2**31)
        steps = np.arange(int(self.thresholds[-1]) + 1)
        above = np.interp(steps, self.thresholds, self.above)
        total = float(above.sum())  # the mean size
        lost = float(above[max_items:].sum())
        people = float(above[max_items]) if max_items < len(above) else 0.0
        return CapLoss(max_items, people, lost / total if total > 0 else 0.0)


@dataclass(frozen=True)
class SetSizes(OneBit):
    """People say, through randomised response, whether their set is larger than a random threshold.

    A few of the people are enough; they should not report their sets too, or their reports add up.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    largest : int
        Sizes above it count as this one. Public knowledge, a generous guess.

    Privacy
    -------
    ε-locally differentially private for sets of any size: the threshold is drawn without looking at the set, and the
    one bit is kept with probability T/2⁶⁴, T = ⌊2⁶⁴·E/(E+1)⌋, E ≤ e^ε.

    Accuracy
    --------
    The share of people above each of J thresholds has variance (v₁ + s(1−s))·J/n, v₁ = E/(E−1)², before the shares are
    made to fall (which lowers it).

    Examples
    --------
    >>> protocol = SetSizes(epsilon=5.0, largest=100)
    >>> collector = protocol.collector().add(protocol.report([list(range(20))] * 5000))
    >>> 15 <= protocol.distribution(collector).quantile(0.9) <= 25
    True
    """

    name: ClassVar[str] = "set-sizes"
    ranges: ClassVar = {"largest": (1, 2**31 - 1)}

    largest: int

    @property
    def thresholds(self) -> npt.NDArray[np.int64]:
        """The thresholds: 0, 1, 2 … growing by a fifth, below ``largest``."""
        listed = [0]
        while (after := max(listed[-1] + 1, round(listed[-1] * _GROWTH))) < self.largest:
            listed.append(after)
        return np.array(listed, np.int64)

    @property
    def places(self) -> dict[str, int]:
        """The thresholds' numbers."""
        return {"index": len(self.thresholds)}

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return "randomised response on whether a set is larger than a random threshold; a record is one person's set"

    def decide(
        self, people: People, place: tuple[npt.NDArray[Any], ...], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into reported bits."""
        [index] = place
        larger = np.diff(people.distinct().offsets) > self.thresholds[index]
        bits: npt.NDArray[np.uint8] = larger ^ self.flips(words)
        return bits

    def fingerprints(self, keys: Any) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of thresholds to look up."""
        return fingerprint(keys, "int").fingerprints

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people with more keys than each of the thresholds asked for."""
        known = fingerprint(self.thresholds, "int").fingerprints
        found = [np.flatnonzero(known == asked) for asked in fingerprints]
        if not all(len(place) for place in found):
            raise InvalidInput("a size to look up is not one of the protocol's thresholds.")
        places = np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)
        ones, reports = tally.tables["ones"][places], tally.tables["reports"][places]
        return from_sampled_support(ones, reports, *self._chances(), 0.0, confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimated share, before the shares are made to fall."""
        frequency, users = share_of(frequency, users)
        keep, flip = self._chances()
        within = frequency * (1 - frequency)  # whose set is large is sampled too
        return (support_variance(frequency, 1, keep, flip) + within) * len(self.thresholds) / users

    def _chances(self) -> tuple[float, float]:
        return self.keep, 1 - self.keep

    def distribution(self, collector: Collector) -> SizeDistribution:
        """Estimate the distribution of sizes.

        The raw shares are made to lie in [0, 1] and to fall (isotonic regression). Beyond the largest threshold above
        which people stand out of the noise, there are taken to be none; else the noise of a long tail would pass for
        large sets.
        """
        found = collector.estimate(self.thresholds)
        weights = np.maximum(collector.tally.tables["reports"], 1).astype(np.float64)
        above = np.clip(_falling(found.value, weights), 0.0, 1.0)
        mass = np.cumsum(weights[::-1])[::-1]
        tail = np.cumsum((weights * found.value)[::-1])[::-1] / mass
        noise = np.sqrt(support_variance(0.0, 1, *self._chances()) / mass)
        silent = np.flatnonzero(tail < 2 * noise)
        if len(silent):
            above[silent[0] :] = 0.0
        return SizeDistribution(np.append(self.thresholds, self.largest), np.append(above, 0.0))


def _falling(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the falling sequence nearest to ``values`` in weighted least squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] < pool[0]:
            mean, mass, length = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, length + pool[2])
        pools.append(pool)
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
