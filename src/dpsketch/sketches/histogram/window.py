"""Some days of a stream of histograms: names with counts and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.noise import DiscreteLaplace
from dpsketch.release import DrawnRelease
from dpsketch.results import Estimates
from dpsketch.sketches.continual.stretches import Stretch, read_stretches, stretch_arrays
from dpsketch.sketches.documents import read_charge, read_guarantee, real_array, release_document
from dpsketch.sketches.histogram.named import NamedCounts, of_one_type, places_of, read_names, stored_names
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.specs import fingerprint_of

__all__ = ["PrivateDailyHistogram"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateDailyHistogram(NamedCounts, DrawnRelease):
    """The counts of some days of a stream: public, to be queried for ever.

    Attributes
    ----------
    spec : HistogramSpec
        The public spec.
    names : list
        The keys: those of the public list in its order, or those that were found.
    values : numpy.ndarray
        Their noisy counts in steps of ``spec.grid``, weighted sums of what was published.
    stretch : Stretch
        Which publications of the stream they are made of.
    signed : bool
        Whether counts may be negative: in what changed between two windows.
    ceiling : tuple of float or None
        Where keys are found: the threshold that the total of a key that was not found has not passed, and the standard
        deviation of its noise, in steps of the grid.

    Accuracy
    --------
    Where keys are found, an interval holds with its probability for every key, found or not. Of those that have just
    passed the threshold, fewer hold: their noise helped them, most of all on the day they passed.
    """

    kind: ClassVar[str] = "continual"

    spec: HistogramSpec
    names: list[Any]
    values: npt.NDArray[np.float64]
    stretch: Stretch
    signed: bool = False
    ceiling: tuple[float, float] | None = None
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        object.__setattr__(self, "_places", places_of(self.names))

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
        return self.spec.grid * math.sqrt(self.stretch.variance)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        ceiling = None if self.ceiling is None else self.spec.grid * self.ceiling[0]
        return {"keys": len(self.names), "noise_scale": self.noise_scale, "threshold": ceiling}

    def _read(self, asked: list[Any], places: npt.NDArray[np.int64], confidence: float, tail: float) -> Estimates:
        missing = places < 0
        if missing.any() and self.ceiling is None:
            raise InvalidInput("a key that was asked for is not on this release's public list, and it knows no other.")
        value, reach = np.zeros(len(places)), np.full(len(places), self._half_width(tail))
        value[~missing] = self.values[places[~missing]]
        low, high = value - reach, value + reach
        if self.ceiling is not None:
            threshold, deviation = self.ceiling
            # No window has more than all days have.
            most = threshold + float(ndtri(1 - tail / 2)) * deviation
            low[missing], high[missing] = (-most if self.signed else 0.0), most
        if not self.signed:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        grid = self.spec.grid
        return Estimates(asked, grid * value, grid * low, grid * high, confidence, self.counts)

    def _half_width(self, tail: float) -> float:
        law = self.stretch.law
        if isinstance(law, DiscreteLaplace):
            return _laplace_width(self.stretch.weights * (law.sensitivity / law.epsilon), tail)
        return float(ndtri(1 - tail / 2)) * math.sqrt(self.stretch.variance)

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        stretches, arrays = stretch_arrays((self.stretch,))
        more = {"signed": self.signed, "stretches": stretches}
        more["ceiling"] = None if self.ceiling is None else list(self.ceiling)
        named = {"names": stored_names(self.names), "values": self.values}
        return release_document(self, self.spec, {**named, **arrays}, **more)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        header, spec = document.header, HistogramSpec.from_json(document.header["spec"])
        names, stretches = read_names(document.arrays.get("names"), spec), read_stretches(document)
        values, ceiling = real_array(document, "values", (len(names),)), header["ceiling"]
        good = len(stretches) == 1 and len(set(names)) == len(names) and of_one_type(names, spec.key_type)
        if ceiling is not None:
            pair = isinstance(ceiling, list) and len(ceiling) == 2
            good = good and pair and all(isinstance(each, float) and math.isfinite(each) for each in ceiling)
        if not good:
            raise FileRefused("the file's keys are not those that a stream of histograms publishes.")
        found = None if ceiling is None else (ceiling[0], ceiling[1])
        content = spec, names, values, stretches[0], header["signed"] is True, found
        return cls(*content, guarantee=read_guarantee(document), charge=read_charge(document))


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
