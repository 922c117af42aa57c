"""Count distinct keys in a bitmap, and release the number, or the flipped bitmap, which merges after the release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, assert_never, cast

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.heavy import mark
from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part, Receipt, promise
from dpsketch.core.laws import Additive, Arrays, Law
from dpsketch.core.move import Move, Table
from dpsketch.distributions import normal_quantile
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.hashing import KeyType, row_keys
from dpsketch.laws.calibration import quietest
from dpsketch.laws.distinct import Flips, are_bits
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import hold_whole, probability, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.release import NumberRelease, SketchRelease
from dpsketch.sketches.sketch import Entries, Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec, fingerprint_of, hold_common, refuse_mismatch

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger


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


@dataclass(frozen=True, slots=True, eq=False)
class DistinctRelease(NumberRelease, SketchRelease):
    """A release that states a number of distinct keys, with an interval."""

    @property
    def subject(self) -> str:
        """What the number is of."""
        return "distinct keys"

    def __repr__(self) -> str:
        low, high = self.interval()
        return (
            f"<{type(self).__name__} {self.value:.4g} keys [{low:.4g}, {high:.4g}], "
            f"spec {fingerprint_of(self.spec)}: {self.guarantee}>"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateDistinct(DistinctRelease):
    """A released distinct count."""

    kind: ClassVar[str] = "distinct"
    spec_type: ClassVar[Any] = DistinctSpec

    spec: DistinctSpec

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {ONES} and isinstance(parts[ONES].law, Additive)

    @property
    def ones(self) -> int:
        """The noisy number of ones in the bitmap: all that was released."""
        return int(self.drawn.table(ONES)[0])

    @property
    def noise(self) -> Noise:
        """The noise in :attr:`ones`."""
        return self.drawn.noise(ONES)

    @property
    def value(self) -> float:
        """The estimated number of distinct keys."""
        return self.spec.distinct_for(self.ones)

    @property
    def error(self) -> float:
        """The standard error of :attr:`value`, from the release itself."""
        return self.spec.error(self.value, self.noise)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for the number of distinct keys: all that the released number does not contradict."""
        confidence = probability("confidence", confidence)
        quantile = normal_quantile(confidence)
        match self.noise:
            case RoundedGaussian():
                reach = quantile * math.sqrt(self.noise.variance)
            case DiscreteLaplace(epsilon, sensitivity):
                reach = -math.log1p(-confidence) * sensitivity / epsilon
            case never:
                assert_never(never)

        def end(side: int) -> float:
            # A few rounds settle it: the spread hardly changes along the interval.
            distinct = self.value
            for _ in range(6):
                spread = math.hypot(quantile * math.sqrt(self.spec.variance_of_ones(distinct)), reach)
                distinct = self.spec.distinct_for(self.ones + side * spread)
            return distinct

        return end(-1), end(1)


_BITS = np.arange(LEVELS, dtype=np.uint64)


def flip_threshold(epsilon: float, unit: Unit) -> int:
    """Return t such that zeros become ones with probability t/2⁶⁴, rounded towards privacy.

    :mod:`dpsketch.laws.distinct` has the loss. Added or removed, a unit leaves b = ε/C for each bit. Replaced, it
    leaves b + ln(2 − e^−b) = ε/C, hence e^b = (e^(ε/C) + 1)/2.
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
        return cast("Words", self.drawn.parts[BITS].arrays["bitmap"])

    @property
    def flip(self) -> float:
        """The probability with which a zero became a one; ones are fair coins."""
        law: Any = self.drawn.parts[BITS].law
        return float(law.probability)

    @property
    def ids(self) -> frozenset[bytes]:
        """A random name of each release that it was merged of."""
        return frozenset(cast("list[bytes]", self.drawn.parts[BITS].arrays["ids"]))

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


class DistinctSketch(Sketch[DistinctSpec, PrivateDistinct]):
    """The sensitive sketch of the number of distinct keys.

    If eight bytes a key can be held, :class:`~dpsketch.DistinctSet` has no error but the noise.

    Parameters
    ----------
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``.
    buckets : int, optional
        Size of the bitmap, eight bytes each; the relative error is about 0.7/√buckets, 1.1% by default.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    key_type : {"int", "text"}, optional
        What the keys are; a column's own type states it if it is not given. A release does not say it.

    Privacy
    -------
    A release is the number of ones with noise; one unit changes it by at most ``max_keys``. The noise is discrete
    Laplace, whose guarantee has δ = 0, unless Gaussian noise is smaller, which takes a large δ.

    Accuracy
    --------
    The relative error is about 0.7/√buckets; the noise adds √2·max_keys/ε keys where there are few of them.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> sketch = DistinctSketch(unit=per_record())
    >>> sketch.update(range(10_000))
    >>> private = sketch.release(epsilon=1.0, delta=0)
    >>> 9_000 < private.value < 11_000
    True
    """

    kind: ClassVar[str] = "distinct"
    spec_type: ClassVar[Any] = DistinctSpec
    release_type: ClassVar[Any] = PrivateDistinct
    takes: ClassVar[tuple[str, ...]] = ("users",)

    def __init__(
        self, *, unit: Unit, buckets: int = 4096, seed: int = DEFAULT_SEED, key_type: KeyType | None = None
    ) -> None:
        self._start(DistinctSpec(buckets, unit, seed, key_type))

    def _start(self, spec: DistinctSpec) -> None:
        super()._start(spec)
        self._row_keys = row_keys(spec.seed, 2, "distinct")

    def _prepare(self, entries: Entries) -> Callable[[], None]:
        return partial(mark, self._arrays[BITS], entries.prints, self._row_keys)

    def _absorb(self, other: Self) -> None:
        self._arrays[BITS] |= other._arrays[BITS]

    @property
    def _published(self) -> DistinctSpec:
        return replace(self._spec, key_type=None)

    def _exact(self) -> dict[str, Any]:
        """Return the number of ones. Sensitive."""
        return {ONES: np.bitwise_count(self._arrays[BITS]).sum(dtype=np.int64, keepdims=True)}

    def release_mergeable(
        self,
        *,
        epsilon: float,
        delta: float = 0,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateDistinctBitmap:
        """Charge the budget, and return the bitmap with every bit flipped at random, to be merged with others'.

        Privacy
        -------
        ε-differential privacy for the spec's unit and neighbour relation, by randomised response on every bit; the flip
        probability is exact to 2⁻⁶⁴ and rounded towards privacy. Pure: a δ above 0 is not used.

        Accuracy
        --------
        At ε = 1 the relative error is about 2.5/√buckets, and about 1.1·√buckets keys where there are few.
        """
        spec, spent = self._published, float(Budget(epsilon, delta).epsilon or 0)
        flips = Flips(spec.tables()[1], spec.unit.neighbours, flip_threshold(spent, spec.unit))
        permit = self._pay(spec, (flips,), Budget(spent, 0), self._account(ledger, dataset, part))
        return PrivateDistinctBitmap(spec, permit.draw_all(self._arrays[BITS], caveat=self._counted.caveat))
