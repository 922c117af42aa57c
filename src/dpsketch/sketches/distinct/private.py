"""The released distinct count: one number with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar, assert_never

from dpsketch import files
from dpsketch.errors import FileRefused
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian, noise_from_json
from dpsketch.normal import normal_quantile
from dpsketch.numbers import probability
from dpsketch.release import NumberRelease
from dpsketch.sketches.distinct.spec import DistinctSpec
from dpsketch.sketches.documents import read_charge, read_guarantee, release_document
from dpsketch.sketches.specs import StoredSpec, fingerprint_of

if TYPE_CHECKING:
    from dpsketch.sketches.distinct.exact import DistinctSetSpec

__all__ = ["DistinctRelease", "PrivateDistinct", "read_number"]

SpecT = TypeVar("SpecT", bound=StoredSpec)


class DistinctRelease(NumberRelease):
    """A release that states a number of distinct keys, with an interval."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def spec(self) -> DistinctSpec | DistinctSetSpec:
            """The public spec."""

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
    """A released distinct count: public, for ever.

    Attributes
    ----------
    spec : DistinctSpec
        The public spec.
    ones : int
        The noisy number of ones in the bitmap: all that was released.
    noise : Noise
        The law of the noise in it.
    """

    kind: ClassVar[str] = "distinct"

    spec: DistinctSpec
    ones: int
    noise: Noise

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

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        return release_document(self, self.spec, {}, ones=self.ones, noise=self.noise.to_json())

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        drawn = read_number(document, "ones", DistinctSpec)
        return cls(*drawn, guarantee=read_guarantee(document), charge=read_charge(document))


def read_number(document: files.Document, name: str, spec: type[SpecT]) -> tuple[SpecT, int, Noise]:
    """Read the spec of a release, the noisy number that it has under a name, and the law of its noise."""
    number = document.header[name]
    if type(number) is not int:
        raise FileRefused("the file's count is not one that dpsketch writes.")
    return spec.from_json(document.header["spec"]), number, noise_from_json(document.header["noise"])
