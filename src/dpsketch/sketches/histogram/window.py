"""Some days of a stream of histograms: names with counts and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part
from dpsketch.core.laws import Arrays, Law
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.designs import Filter
from dpsketch.laws.entries import COUNTS
from dpsketch.laws.names import are_names, stored_names
from dpsketch.laws.streams import Found, Published
from dpsketch.noise import DiscreteLaplace
from dpsketch.numbers import hold_whole
from dpsketch.release import SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.continual.windows import Window, are_finite, are_weights, is_nothing
from dpsketch.sketches.histogram.named import (
    NamedCounts,
    of_one_type,
    places_of,
    read_names,
)
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.specs import fingerprint_of

__all__ = ["NamedWindow", "PrivateDailyHistogram"]


@stored
@dataclass(frozen=True, slots=True)
class NamedWindow(Derived):
    """The counts of some days of a stream together, decoded, with the names of their keys.

    Attributes
    ----------
    publications : Published
        The stream's law.
    day : int
        The number of days that were published.
    signed : bool
        Whether counts may be negative: in the difference of two windows.
    """

    publications: Published
    day: int
    signed: bool

    def __post_init__(self) -> None:
        hold_whole(self, "day", low=1, high=self.publications.horizon)

    @property
    def laws(self) -> tuple[Law, ...]:
        """The stream's law."""
        return (self.publications,)

    @property
    def ceiling(self) -> tuple[float, float] | None:
        """The threshold that the total of a key which was not found did not pass, and the deviation of its noise.

        Both are in steps of the grid; None if keys are those of a public list.
        """
        law = self.publications
        if not isinstance(law, Found) or not isinstance(law.design, Filter):
            return None
        weights = law.design.weights(1, self.day)
        return law.threshold(self.day), math.sqrt(law.noise.variance * float(np.sum(weights**2)))

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are different names, as many finite counts, and the weights of publications."""
        if set(arrays) != {"names", "table", "weights"} or not are_names(arrays["names"]):
            return False
        shape = (len(arrays["names"]),)
        (table,) = self.publications.stacked
        good = table.shape in (None, shape) and are_finite(arrays["table"], shape)
        good = good and are_weights(self.publications, arrays["weights"], window=not self.signed)
        noisy = good and not is_nothing(self.publications, arrays["weights"])
        return good and (noisy or bool(np.all(np.abs(np.asarray(arrays["table"])) < 1)))


@dataclass(frozen=True, slots=True, eq=False)
class PrivateDailyHistogram(NamedCounts, SketchRelease):
    """The counts of some days of a stream.

    Attributes
    ----------
    spec : HistogramSpec
        The public spec.
    drawn : Drawn
        The counts, and how they follow from what the stream published.
    names : list
        The keys: those of the public list in its order, or those that were found.

    Accuracy
    --------
    Where keys are found, an interval holds with its probability for every key, found or not. Of those that have just
    passed the threshold, fewer hold: their noise helped them, most of all on the day they passed.
    """

    kind: ClassVar[str] = "continual"
    spec_type: ClassVar[Any] = HistogramSpec

    spec: HistogramSpec
    names: list[Any] = field(init=False, repr=False)
    _places: dict[Any, int] = field(init=False, repr=False)

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {COUNTS} and isinstance(parts[COUNTS].law, NamedWindow)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", read_names(self._arrays["names"], self.spec))
        object.__setattr__(self, "_places", places_of(self.names))
        if not of_one_type(self.names, self.spec.key_type):
            raise FileRefused("the file's keys are not of the type that it states.")
        self.values.flags.writeable = False

    @classmethod
    def of_window(cls, spec: HistogramSpec, window: Window) -> Self:
        """Return the release of a window, of the keys of a public list or those that were found by now."""
        names = list(window.published.names or ())
        arrays = {"names": stored_names(names), "table": window.tables[COUNTS], "weights": window.stretch.weights}
        part = Part(NamedWindow(window.law, window.published.day, window.signed), arrays)
        return cls(spec, Drawn((window.receipt,), {COUNTS: part}, window.guarantee))

    @property
    def _arrays(self) -> Arrays:
        return self.drawn.parts[COUNTS].arrays

    @property
    def window(self) -> NamedWindow:
        """How the counts follow from what the stream published."""
        return cast("NamedWindow", self.drawn.parts[COUNTS].law)

    @property
    def values(self) -> Floats:
        """The noisy counts in steps of ``spec.grid``, weighted sums of what was published."""
        return cast("Floats", self._arrays["table"])

    def __repr__(self) -> str:
        shown = f"{len(self.names):,} keys, spec {fingerprint_of(self.spec)}"
        return f"<PrivateDailyHistogram of {shown}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """All keys of the release, in an order that says nothing."""
        return list(self.names)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in a count."""
        return self.spec.grid * self._deviation

    @property
    def _deviation(self) -> float:
        """The standard deviation of the noise in a count, in steps of the grid."""
        law, weights = self.window.publications, cast("Floats", self._arrays["weights"])
        return math.sqrt(law.draws * law.noise.variance * float(np.sum(weights**2)))

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        ceiling = self.window.ceiling
        threshold = None if ceiling is None else self.spec.grid * ceiling[0]
        return {"keys": len(self.names), "noise_scale": self.noise_scale, "threshold": threshold}

    def _read(self, asked: list[Any], places: npt.NDArray[np.int64], confidence: float, tail: float) -> Estimates:
        missing, ceiling, signed = places < 0, self.window.ceiling, self.window.signed
        if missing.any() and ceiling is None:
            raise InvalidInput("a key that was asked for is not on this release's public list, and it knows no other.")
        value, reach = np.zeros(len(places)), np.full(len(places), self._half_width(tail))
        value[~missing] = self.values[places[~missing]]
        low, high = value - reach, value + reach
        if ceiling is not None:
            threshold, deviation = ceiling
            # No window has more than all days have.
            most = threshold + float(ndtri(1 - tail / 2)) * deviation
            low[missing], high[missing] = (-most if signed else 0.0), most
        if not signed:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        grid = self.spec.grid
        return Estimates(asked, grid * value, grid * low, grid * high, confidence, self.counts)

    def _half_width(self, tail: float) -> float:
        law = self.window.publications
        noise = law.noise
        if isinstance(noise, DiscreteLaplace):
            weights = np.repeat(cast("Floats", self._arrays["weights"]), law.draws)
            return _laplace_width(weights * (noise.sensitivity / noise.epsilon), tail)
        return float(ndtri(1 - tail / 2)) * self._deviation


def _laplace_width(scales: npt.NDArray[np.float64], tail: float) -> float:
    """Return what a sum of Laplace draws of these scales passes, up or down, with probability ``tail``.

    By the saddlepoint (Lugannani and Rice 1980), which is at most 3% above the tail of one draw or of two, and never
    below it. The normal law would be far below it where the tail is small, as it is for many keys at once.
    """
    held = np.abs(scales[scales != 0])
    if not len(held):
        return 0.0
    low, high = 0.0, 1 / float(held.max())
    for _ in range(60):
        point = (low + high) / 2
        width, beyond = _saddlepoint(held, point)
        low, high = (point, high) if beyond > tail / 2 else (low, point)
    return width


def _saddlepoint(scales: npt.NDArray[np.float64], point: float) -> tuple[float, float]:
    """Return where a point of the cumulants' function lies, and the chance of more than that."""
    squares = (scales * point) ** 2
    first = float(np.sum(2 * scales**2 * point / (1 - squares)))
    second = float(np.sum(2 * scales**2 * (1 + squares) / (1 - squares) ** 2))
    root = math.sqrt(2 * (point * first + float(np.sum(np.log1p(-squares)))))
    density = math.exp(-(root**2) / 2) / math.sqrt(2 * math.pi)
    return first, float(ndtr(-root)) + density * (1 / (point * math.sqrt(second)) - 1 / root)
