"""The released distinct count: one number with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, assert_never

from dpsketch.core.drawn import Part
from dpsketch.core.laws import Additive
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.normal import normal_quantile
from dpsketch.numbers import probability
from dpsketch.release import NumberRelease, SketchRelease
from dpsketch.sketches.distinct.spec import ONES, DistinctSpec
from dpsketch.sketches.specs import fingerprint_of

__all__ = ["DistinctRelease", "PrivateDistinct"]


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
