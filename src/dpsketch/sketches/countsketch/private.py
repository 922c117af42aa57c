"""The released CountSketch: estimates with intervals, for ever."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from dpsketch import files, plots
from dpsketch._compiled import countsketch as kernels
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.noise import Noise, noise_from_json
from dpsketch.numbers import probability, whole_number
from dpsketch.release import KeyedRelease, combined_guarantee
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.continual.stretches import Stretch, combined, read_stretches, stretch_arrays
from dpsketch.sketches.countsketch.addition import sum_of_tables
from dpsketch.sketches.countsketch.decoding import Shown, joint_decode
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.linear import fourth_cumulant, inner_product, second_moment
from dpsketch.sketches.countsketch.location import MEAN, MEDIAN, Location, choose_location
from dpsketch.sketches.countsketch.shares import ShareTerms
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.documents import (
    read_charge,
    read_guarantee,
    real_array,
    release_document,
    stored_counters,
    wide_when_used,
)
from dpsketch.sketches.specs import fingerprint_of, refuse_mismatch
from dpsketch.sketches.weights import real_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Estimator", "PrivateCountSketch"]

Estimator = Literal["robust", "median", "mean"]

_CHUNK = 1 << 16
# Far in the tail a table's cells are a few heavy keys, repeated in every row: their share is known to a factor only.
_TAIL_MARGIN = 4


@wide_when_used("table")
@dataclass(frozen=True, slots=True, eq=False)
class PrivateCountSketch(KeyedRelease):
    """A released CountSketch: public, to be queried for ever.

    Attributes
    ----------
    spec : CountSketchSpec
        The public spec.
    table : numpy.ndarray
        The released counters, read-only, rows × width, in units of ``spec.grid``: integers, or real numbers in an
        answer of a stream, which is a weighted sum of integers.
    noise : tuple of Noise
        The noise in each counter; several laws where releases were combined. Empty in an answer of a stream.
    share : ShareTerms or None
        Where this is one of several parties' shares: what it needs to be merged with the others.
    signed : bool
        Whether counts may be negative: in what changed between two releases.
    terms : tuple of str
        Where releases were combined: a digest of each. Empty in a release that was drawn as one.
    stretches : tuple of Stretch
        In an answer of a stream (:class:`~dpsketch.ContinualCountSketch`): which of its publications it is made of.
    """

    kind: ClassVar[str] = "counts"

    spec: CountSketchSpec
    table: npt.NDArray[Any]
    noise: tuple[Noise, ...]
    share: ShareTerms | None = None
    signed: bool = False
    terms: tuple[str, ...] = ()
    stretches: tuple[Stretch, ...] = ()

    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in one counter, in the keys' own unit."""
        return self.spec.grid * math.sqrt(self._noise_variance)

    @property
    def _noise_variance(self) -> float:
        return sum(law.variance for law in self.noise) + sum(each.variance for each in self.stretches)

    @property
    def _fourth_cumulant(self) -> float:
        drawn = sum(fourth_cumulant(law) for law in self.noise)
        return drawn + sum(fourth_cumulant(each.law) * float(np.sum(each.weights**4)) for each in self.stretches)

    def __repr__(self) -> str:
        shape = f"{self.spec.rows}×{self.spec.width}"
        return f"<PrivateCountSketch {shape}, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    def estimate(self, keys: Any, *, confidence: float = 0.95, estimator: Estimator = "robust") -> Estimates:
        """Estimate the counts of keys.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up. Nulls are refused.
        confidence : float
            Coverage of each interval, over the noise and the choice of the hash functions together, for keys chosen
            without looking at the release (see :meth:`top` otherwise). Under one seed for ever, a key that collides
            badly is missed in every release, and others are covered more often. What is covered is what was counted,
            after bounding (:attr:`Estimates.counts <dpsketch.Estimates>`).
        estimator : {"robust", "median", "mean"}
            "robust": the location estimate, with the known noise scale, that suits this table best (see
            :mod:`~dpsketch.sketches.countsketch.location`). "median": the paper's. "mean": unbiased, and best where no
            heavy key collides.

        Accuracy
        --------
        The interval is read off the release itself: a cell is a draw of an absent key's error in one row, so the
        spread of all cells, noise and collisions together, gives the spread of the estimate.
        """
        asked, prints = self._fingerprints(keys)
        confidence = probability("confidence", confidence)
        location = self._location(estimator)
        values = self._values(prints, location)
        half = self._half_width(location, confidence)
        return Estimates(asked, values, values - half, values + half, confidence, self.counts)

    def top(self, n: int, *, candidates: Any, confidence: float = 0.95, estimator: Estimator = "robust") -> Estimates:
        """Return the ``n`` candidates with the largest estimates, largest first.

        The intervals hold for all of them at once with the stated confidence, although they were selected by the very
        noise they are about: each is widened for the number of candidates (Bonferroni), and for the tail of the
        error law being read off a few heavy cells, which every row repeats.
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        asked, prints = self._fingerprints(candidates)
        _, first = np.unique(prints, return_index=True)
        if len(first) == 0:
            raise InvalidInput("top needs at least one candidate key.")
        location = self._location(estimator)
        values = self._values(prints[first], location)
        order = np.argsort(-values, kind="stable")[:n]
        half = self._half_width(location, 1 - (1 - confidence) / (_TAIL_MARGIN * len(first)))
        chosen = values[order]
        return Estimates(
            [asked[first[i]] for i in order], chosen, chosen - half, chosen + half, confidence, self.counts
        )

    def decode(
        self,
        candidates: Any,
        *,
        confidence: float = 0.95,
        estimator: Shown = "limited",
        progress: Callable[[int, int], None] | None = None,
    ) -> Estimates:
        """Estimate many candidate keys together, which is more accurate than one at a time.

        Parameters
        ----------
        candidates : list, NumPy, Arrow, pandas or polars column
            Keys that may occur; the more of the heavy keys are among them the better. Absent ones do no harm.
        confidence : float
            Coverage of each interval.
        estimator : {"limited", "unshrunk", "posterior_mean"}
            What is shown in the intervals, which stay the same. "unshrunk": what was read of a key; sums of many keys
            want it. "posterior_mean": what counts of all candidates together make of it; the least error over all keys,
            but keys in the middle are taken for too little. "limited": the former, moved towards the latter by at most
            0.4 standard errors.
        progress : callable, optional
            Is told after each sweep how many there were, and how many there are at most.

        Accuracy
        --------
        Each cell is cleared of what the other rows say its other keys have (see
        :mod:`~dpsketch.sketches.countsketch.decoding`), and each key has its own error. Where that would not help, and
        with fewer than three rows, the answer is that of :meth:`estimate`.
        """
        confidence = probability("confidence", confidence)
        if estimator not in get_args(Shown):
            raise InvalidInput(f"estimator is 'limited', 'unshrunk' or 'posterior_mean', not {estimator!r}.")
        asked, prints = self._fingerprints(candidates)
        prints, inverse = np.unique(prints, return_inverse=True)
        # What a candidate takes beside its answer bounds how many there can be: nothing is held for longer than needed.
        places = inverse.astype(np.int32)
        del inverse
        keys, scale = row_keys(self.spec.seed, self.spec.rows), self.noise_scale / self.spec.grid
        found = joint_decode(self.table, prints, keys, scale, signed=self.signed, progress=progress)
        decoded = found.without_messages()
        del prints, found
        shown, half = decoded.shown(estimator), decoded.half_widths(confidence)
        # A posterior mean may lie outside: of a reading far below zero it is nearly zero.
        low, high = np.minimum(shown, decoded.values - half), np.maximum(shown, decoded.values + half)
        values, low, high = (self.spec.grid * side[places] for side in (shown, low, high))
        return Estimates(asked, values, low, high, confidence, self.counts)

    def inner_product(self, keys: Any, values: Any, *, confidence: float = 0.95) -> Estimate:
        """Estimate Σ value·count over keys with public values, such as the total of a set of keys (values 1).

        Accuracy
        --------
        Unbiased over the hash functions. A table of one row with at most 1/(1 − ``confidence``) counters says how large
        the answer may be for one key alone; for several the interval has no ends.
        """
        confidence = probability("confidence", confidence)
        _, prints = self._fingerprints(keys)
        weights = real_numbers("values", values, len(prints))
        distinct, places = np.unique(prints, return_inverse=True)
        found = inner_product(
            self.table,
            distinct,
            np.bincount(places, weights=weights, minlength=len(distinct)).astype(np.float64),
            row_keys(self.spec.seed, self.spec.rows),
            noise_variance=self._noise_variance,
            confidence=confidence,
        )
        return _scaled(found, self.spec.grid)

    def second_moment(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate F₂, the sum of all squared counts, listed keys or not.

        Accuracy
        --------
        Unbiased over the hash functions. In a table of one row the interval is Chebyshev's, and of at most
        2/(1 − ``confidence``) counters it has no upper end: a few large keys may have cancelled one another.
        """
        confidence = probability("confidence", confidence)
        found = second_moment(
            self.table,
            noise_variance=self._noise_variance,
            fourth_cumulant=self._fourth_cumulant,
            confidence=confidence,
        )
        return _scaled(found, self.spec.grid**2)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest of the candidates with their intervals or, without candidates, the counters."""
        shape = f"{self.spec.rows}×{self.spec.width}"
        words = self.title(f"{shape} CountSketch")
        if candidates is None:
            return plots.counters(self.table * self.spec.grid, self.noise_scale, words)
        return plots.bars(self.top(n, candidates=candidates), words)

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return {
            "noise_scale": self.noise_scale,
            "half_width_95": self._half_width(self._location("robust"), 0.95),
        }

    def _fingerprints(self, keys: Any) -> tuple[list[Any], npt.NDArray[np.uint64]]:
        asked, column = self._looked_up(keys)
        batch = fingerprint(column, self.spec.key_type)
        if batch.skipped:
            raise InvalidInput("a null is not a key that can be looked up.")
        return asked, batch.fingerprints

    def _values(self, prints: npt.NDArray[np.uint64], location: Location) -> npt.NDArray[np.float64]:
        keys = row_keys(self.spec.seed, self.spec.rows)
        result = np.empty(len(prints))
        for start in range(0, len(prints), _CHUNK):
            result[start : start + _CHUNK] = location(
                kernels.row_values(self.table, prints[start : start + _CHUNK], keys)
            )
        return result * self.spec.grid

    def _half_width(self, location: Location, confidence: float) -> float:
        if (location, confidence) not in self._known:
            self._known[location, confidence] = self.spec.grid * half_width(self.table, location, confidence)
        half: float = self._known[location, confidence]
        return half

    def _location(self, estimator: Estimator) -> Location:
        match estimator:
            case "median":
                return MEDIAN
            case "mean":
                return MEAN
            case "robust":
                # A function of the release alone, so it is worked out once.
                if "location" not in self._known:
                    self._known["location"] = choose_location(self.table, self.noise_scale / self.spec.grid)
                chosen: Location = self._known["location"]
                return chosen
            case _:
                raise InvalidInput(f"estimator is 'robust', 'median' or 'mean', not {estimator!r}.")

    def __add__(self, other: PrivateCountSketch) -> PrivateCountSketch:
        """Combine two releases over different records into one of their union.

        Answers of one stream share noise; their sum has the variance that follows from it. Days that are in both count
        twice.

        Raises
        ------
        ReleaseRefused
            If one release is in both: its noise would add up to twice its size, not to √2 of it.
        CounterOverflow
            If a counter might pass what 64 bits hold. A sketch counts up to 2**62, so two releases always fit unless
            they are near that limit or sums themselves.
        """
        return self._combine(other, 1)

    def __sub__(self, other: PrivateCountSketch) -> PrivateCountSketch:
        """Return what changed between two releases; its estimates are differences of counts."""
        return self._combine(other, -1)

    def _combine(self, other: PrivateCountSketch, sign: int) -> PrivateCountSketch:
        spec, others = self.spec, other.spec
        if None in (spec.key_type, others.key_type):
            # One of them takes the question's type, and so does the result.
            spec, others = replace(spec, key_type=None), replace(others, key_type=None)
        refuse_mismatch(spec, others, "combine")
        ours, theirs = self._drawn(), other._drawn()
        # One charge pays for one draw, or for one stream: answers of it without stretches are sums of a tree's nodes.
        paid_once = self.charge is not None and other.charge is not None and self.charge.digest == other.charge.digest
        if not set(ours).isdisjoint(theirs) or (paid_once and (ours or theirs)):
            raise ReleaseRefused(
                "cannot combine: one release is in both, and its noise would count double, or cancel, as no interval "
                "says. Add or subtract each release once."
            )
        signed = sign < 0 or self.signed or other.signed
        stretches = combined(self.stretches, other.stretches, sign)
        if len(stretches) == len(self.stretches) == len(other.stretches) and not self.noise + other.noise:
            # Of one stream, which was paid for once: nothing is drawn or shown that was not before.
            together = self.table + sign * other.table
            stated = self.guarantee if other.guarantee.holds else other.guarantee
            return replace(self, spec=spec, table=together, guarantee=stated, signed=signed, stretches=stretches)
        stated = combined_guarantee(self.guarantee, other.guarantee, self.spec.unit)
        table = self.table + sign * other.table if stretches else sum_of_tables([self.table, other.table], [1, sign])
        laws, terms = self.noise + other.noise, ours + theirs
        return PrivateCountSketch(spec, table, laws, guarantee=stated, signed=signed, terms=terms, stretches=stretches)

    def _drawn(self) -> tuple[str, ...]:
        """Return digests of the releases that were drawn as one and are in this; of streams, stretches tell."""
        return self.terms or ((self._digest(),) if self.noise else ())

    def _digest(self) -> str:
        """Return what tells this release from others: its counters, and its charge where it has one."""
        digest = hashlib.sha256(self.table.astype("<i8").tobytes())
        digest.update(b"" if self.charge is None else self.charge.digest.encode())
        return digest.hexdigest()

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        noise = [law.to_json() for law in self.noise]
        share = None if self.share is None else self.share.to_json()
        more: dict[str, Any] = {"signed": True} if self.signed else {}
        if self.terms:
            more["terms"] = list(self.terms)
        arrays: dict[str, files.Array] = {"table": self.table}
        if self.stretches:
            more["stretches"], weights = stretch_arrays(self.stretches)
            arrays.update(weights)
        return release_document(self, self.spec, arrays, noise=noise, share=share, **more)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        spec = CountSketchSpec.from_json(document.header["spec"])
        share, noise = document.header.get("share"), document.header["noise"]
        stretches = read_stretches(document)
        if not noise and not stretches:
            raise FileRefused("the file does not say which noise its counters have.")
        shape = (spec.rows, spec.width)
        return cls(
            spec,
            real_array(document, "table", shape) if stretches else stored_counters(document, "table", shape),
            tuple(noise_from_json(law) for law in noise),
            None if share is None else ShareTerms.from_json(share),
            document.header.get("signed") is True,
            _read_terms(document),
            stretches,
            guarantee=read_guarantee(document),
            charge=read_charge(document),
        )


def _read_terms(document: files.Document) -> tuple[str, ...]:
    terms = document.header.get("terms", [])
    if not isinstance(terms, list) or not all(isinstance(each, str) for each in terms):
        raise FileRefused("the file's list of combined releases is not one that dpsketch writes.")
    return tuple(terms)


def _scaled(found: Estimate, factor: float) -> Estimate:
    return Estimate(factor * found.value, factor * found.low, factor * found.high, found.confidence)
