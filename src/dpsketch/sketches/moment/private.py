"""Released moments: one number with its interval, or several under one guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from dpsketch import files, plots
from dpsketch.core.drawn import Part
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.scales import ScaleEstimator, pivot_interval, pivot_variance
from dpsketch.laws.stable import Floor, significant
from dpsketch.release import NumberRelease, SketchRelease, refuse_keys
from dpsketch.results import Estimates
from dpsketch.sketches.moment.spec import MomentProfileSpec, MomentSpec
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PrivateMoment", "PrivateMomentProfile"]


class _FloorRelease(SketchRelease):
    """A release that floors drew, one for each table of the spec."""

    __slots__ = ()

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        names = {table.name for table in spec.tables()}
        return parts.keys() == names and all(isinstance(part.law, Floor) for part in parts.values())


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMoment(NumberRelease, _FloorRelease):
    """A released moment."""

    kind: ClassVar[str] = "moment"
    spec_type: ClassVar[Any] = MomentSpec

    spec: MomentSpec

    @property
    def _part(self) -> Part:
        return self.drawn.parts[self.spec.weights.name]

    @property
    def _law(self) -> Floor:
        return cast(Floor, self._part.law)

    @property
    def scale(self) -> float:
        """The rounded estimate of F_p + floor: all that was released."""
        scale: Any = self._part.arrays["scale"]
        return float(scale[0])

    @property
    def floor(self) -> float:
        """The floor; public, a function of the spec and the budget."""
        return self._law.height

    @property
    def estimator(self) -> ScaleEstimator:
        """How the scale was estimated."""
        return self._law.estimator

    @property
    def p(self) -> float:
        """The exponent."""
        return self.spec.p

    @property
    def subject(self) -> str:
        """What the number is of."""
        return f"F_{self.p:g}"

    @property
    def value(self) -> float:
        """The estimate of F_p. Unbiased, hence below 0 at times where F_p is small beside the floor."""
        return significant(self.scale - self.floor, 4)

    @property
    def error(self) -> float:
        """The standard error of :attr:`value`, from the release itself."""
        return self.scale * math.sqrt(pivot_variance(self.spec.p, self.spec.size, self.estimator))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for F_p.

        Accuracy
        --------
        The estimate is the true scale times a pivot whose law is known, so coverage does not depend on the data: it is
        within half a percentage point of the confidence from 50 coordinates on, and within one from 10 on.
        """
        low, high = pivot_interval(self.spec.p, self.spec.size, self.estimator, confidence)
        return self.scale * low - self.floor, self.scale * high - self.floor

    def __repr__(self) -> str:
        low, high = self.interval()
        return (
            f"<PrivateMoment F_{self.spec.p:g} ≈ {self.value:g} [{low:.4g}, {high:.4g}], "
            f"spec {fingerprint_of(self.spec)}: {self.guarantee}>"
        )

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        if [law.name for receipt in self.drawn.receipts for law in receipt.laws] != [self._law.name]:
            raise InvalidInput("this moment was released with others, or as published: it has no file of its own.")
        return SketchRelease.to_document(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrivateMomentProfile(_FloorRelease):
    """Moments released together: F_p against p, under one guarantee. Iterating gives one after the other."""

    kind: ClassVar[str] = "moments"
    spec_type: ClassVar[Any] = MomentProfileSpec

    spec: MomentProfileSpec

    @property
    def moments(self) -> tuple[PrivateMoment, ...]:
        """One moment an exponent, in the order asked. Each carries the guarantee of all together."""
        return tuple(PrivateMoment(spec, self.drawn) for spec in self.spec.specs)

    def __iter__(self) -> Iterator[PrivateMoment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.spec.specs)

    def __getitem__(self, p: float) -> PrivateMoment:
        """Return the moment with this exponent."""
        for moment in self.moments:
            if moment.p == p:
                return moment
        raise InvalidInput(f"F_{p:g} was not released; there are {', '.join(f'{m.p:g}' for m in self.moments)}.")

    def __repr__(self) -> str:
        words = ", ".join(f"F_{moment.p:g} ≈ {moment.value:g}" for moment in self.moments)
        return f"<PrivateMomentProfile {words}: {self.guarantee}>"

    def curve(self, *, confidence: float = 0.95) -> Estimates:
        """Return F_p against p, with intervals: the data of the plot."""
        ends = [moment.interval(confidence) for moment in self.moments]
        low, high = (np.array(side) for side in zip(*ends, strict=True))
        values = np.array([moment.value for moment in self.moments])
        return Estimates([moment.p for moment in self.moments], values, low, high, confidence, self.counts)

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """State every moment, with its interval."""
        refuse_keys(asked)
        found = self.curve(confidence=confidence)
        return replace(found, key=[f"F_{p:g}" for p in found.key])

    def plot(self) -> Figure:
        """Draw F_p against p, with the band of the intervals."""
        found = self.curve()
        order = np.argsort(found.key)
        p = np.asarray(found.key, dtype=np.float64)[order]
        words = self.title()
        return plots.curve(p, found.value[order], found.low[order], found.high[order], "p", "F_p", words, log=True)

    def public_spec(self) -> dict[str, Any]:
        """Return what the specs of all moments share, with the list of their exponents."""
        return {**self.spec.first.to_json(), "p": [spec.p for spec in self.spec.specs]}
