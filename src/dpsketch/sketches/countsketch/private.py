"""The released CountSketch: estimates with intervals, for ever."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch._compiled import countsketch as kernels
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part, Receipt
from dpsketch.core.laws import Additive, Arrays, Law, are_integers
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.laws.shares import OneShare
from dpsketch.laws.streams import Published
from dpsketch.noise import Noise
from dpsketch.numbers import probability, whole_number
from dpsketch.release import KeyedRelease, SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.continual.windows import Stretch, are_finite, are_weights, combined, is_nothing
from dpsketch.sketches.countsketch.addition import sum_of_tables
from dpsketch.sketches.countsketch.decoding import Shown, joint_decode
from dpsketch.sketches.countsketch.estimates import (
    MEAN,
    MEDIAN,
    Location,
    choose_location,
    half_width,
)
from dpsketch.sketches.countsketch.spec import COUNTERS, CountSketchSpec
from dpsketch.sketches.specs import fingerprint_of, refuse_mismatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.sketches.continual.windows import Window


Estimator = Literal["robust", "median", "mean"]

_CHUNK = 1 << 16
# Far in the tail a table's cells are a few heavy keys, repeated in every row: their share is known to a factor only.
_TAIL_MARGIN = 4


@stored
@dataclass(frozen=True, slots=True)
class Combined(Derived):
    """Counters that were computed from several releases, or from the publications of streams.

    Attributes
    ----------
    drawn : tuple of Law
        The law of each release that was drawn as one.
    digests : tuple of str
        A digest of each of these releases.
    streams : tuple of (str, Published)
        The name and the law of each stream; the weights of its publications are among the arrays.
    signed : bool
        Whether counts may be negative: in what changed between two releases.
    """

    drawn: tuple[Law, ...]
    digests: tuple[str, ...]
    streams: tuple[tuple[str, Published], ...]
    signed: bool

    def __post_init__(self) -> None:
        if not self.laws or len(self.drawn) != len(self.digests):
            raise InvalidInput("releases are combined from at least one, and each has a digest.")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws of the releases and streams."""
        return (*self.drawn, *(law for _, law in self.streams))

    @property
    def noises(self) -> tuple[Noise, ...]:
        """The noise of each release."""
        return tuple(noise_of(law) for law in self.drawn)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are counters, and weights of each stream's publications."""
        places = range(len(self.streams))
        named = {"table", *(f"weights{i}" for i in places), *(f"marks{i}" for i in places)}
        if set(arrays) != named or len({name for name, _ in self.streams}) < len(self.streams):
            return False
        for i in places:
            weights, marks = arrays[f"weights{i}"], arrays[f"marks{i}"]
            good = isinstance(marks, np.ndarray) and marks.dtype == np.uint64 and marks.ndim == 1
            if not good or not are_weights(self.streams[i][1], weights, window=False):
                return False
        shape = self.laws[0].tables[0].shape
        if not self.streams:
            return are_integers(arrays, "table", shape)
        noisy = bool(self.drawn) or not all(is_nothing(self.streams[i][1], arrays[f"weights{i}"]) for i in places)
        return are_finite(arrays["table"], shape) and (noisy or bool(np.all(np.abs(arrays["table"]) < 1)))


def noise_of(law: Any) -> Noise:
    """Return the noise in a counter of one law."""
    noise: Noise = law.noise
    return noise


@dataclass(frozen=True, slots=True, eq=False)
class PrivateCountSketch(KeyedRelease, SketchRelease):
    """A released CountSketch."""

    kind: ClassVar[str] = "counts"
    spec_type: ClassVar[Any] = CountSketchSpec

    spec: CountSketchSpec

    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def part_of(cls, spec: CountSketchSpec, table: npt.NDArray[Any], noise: Noise, whole: Drawn) -> Self:
        """Return counters that are a part of another release, to be asked; what they promise is what the whole does."""
        law = Additive(spec.tables()[0], spec.unit.neighbours, noise)
        return cls(spec, replace(whole, parts={COUNTERS: Part(law, {"table": table})}))

    @classmethod
    def of_window(cls, spec: CountSketchSpec, window: Window) -> Self:
        """Return the release of a window of a stream, which may be added to and subtracted from others."""
        (table,) = window.tables.values()
        law = Combined((), (), ((window.stretch.stream, window.law),), window.signed)
        arrays = {"table": table, **_stretched([window.stretch])}
        return cls(spec, Drawn((window.receipt,), {COUNTERS: Part(law, arrays)}, window.guarantee))

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {COUNTERS}

    @property
    def _part(self) -> Part:
        return self.drawn.parts[COUNTERS]

    @property
    def law(self) -> Law | Derived:
        """How the counters were drawn, or computed from others."""
        return self._part.law

    @property
    def table(self) -> npt.NDArray[Any]:
        """The released counters, rows × width, in steps of :attr:`step`: integers, or real numbers of a stream."""
        return cast("npt.NDArray[Any]", self.drawn.table(COUNTERS))

    @property
    def step(self) -> float:
        """One step of a counter in the keys' own unit: the grid, or a part of it in a share of several parties."""
        return self.spec.grid / (self.law.shared.finer if isinstance(self.law, OneShare) else 1)

    @property
    def noise(self) -> tuple[Noise, ...]:
        """The noise in each counter; several laws where releases were combined. Empty in an answer of a stream."""
        return self.law.noises if isinstance(self.law, Combined) else (noise_of(self.law),)

    @property
    def signed(self) -> bool:
        """Whether counts may be negative: in what changed between two releases."""
        return isinstance(self.law, Combined) and self.law.signed

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Which publications of streams this is made of."""
        if not isinstance(self.law, Combined):
            return ()
        arrays: Mapping[str, Any] = self._part.arrays
        return tuple(
            Stretch(name, law.noise, arrays[f"weights{i}"], arrays[f"marks{i}"], law.draws)
            for i, (name, law) in enumerate(self.law.streams)
        )

    @property
    def party(self) -> str | None:
        """The party's number or random name, where this is one of several shares."""
        party: Any = self._part.arrays.get("party", [None])
        return cast("str | None", party[0])

    @property
    def partials(self) -> tuple[str, ...]:
        """Public names of the partials in a share: two shares that have one in common hold the same records."""
        return tuple(cast("list[str]", self._part.arrays.get("partials", [])))

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in one counter, in the keys' own unit."""
        return self.step * math.sqrt(self._noise_variance)

    @property
    def _noise_variance(self) -> float:
        return sum(law.variance for law in self.noise) + sum(each.variance for each in self.stretches)

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
            :mod:`~dpsketch.sketches.countsketch.estimates`). "median": the paper's. "mean": unbiased, and best where no
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
        keys, scale = row_keys(self.spec.seed, self.spec.rows), self.noise_scale / self.step
        found = joint_decode(self.table, prints, keys, scale, signed=self.signed, progress=progress)
        decoded = found.without_messages()
        del prints, found
        shown, half = decoded.shown(estimator), decoded.half_widths(confidence)
        # A posterior mean may lie outside: of a reading far below zero it is nearly zero.
        low, high = np.minimum(shown, decoded.values - half), np.maximum(shown, decoded.values + half)
        values, low, high = (self.step * side[places] for side in (shown, low, high))
        return Estimates(asked, values, low, high, confidence, self.counts)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest of the candidates with their intervals or, without candidates, the counters."""
        shape = f"{self.spec.rows}×{self.spec.width}"
        words = self.title(f"{shape} CountSketch")
        if candidates is None:
            return plots.counters(self.table * self.step, self.noise_scale, words)
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
        return result * self.step

    def _half_width(self, location: Location, confidence: float) -> float:
        if (location, confidence) not in self._known:
            self._known[location, confidence] = self.step * half_width(self.table, location, confidence)
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
                    self._known["location"] = choose_location(self.table, self.noise_scale / self.step)
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
        if isinstance(self.law, OneShare) or isinstance(other.law, OneShare):
            raise ReleaseRefused(
                "cannot combine: a share of several parties is merged with the others', by merge_releases."
            )
        ours, theirs = self._digests(), other._digests()
        if not set(ours).isdisjoint(theirs):
            raise ReleaseRefused(
                "cannot combine: one release is in both, and its noise would count double, or cancel, as no interval "
                "says. Add or subtract each release once."
            )
        mine, others_law = self._as_combined(), other._as_combined()
        stretches = combined(self.stretches, other.stretches, sign)
        table = self.table + sign * other.table if stretches else sum_of_tables([self.table, other.table], [1, sign])
        streams = dict(mine.streams + others_law.streams)
        law = Combined(
            mine.drawn + others_law.drawn,
            ours + theirs,
            tuple((each.stream, streams[each.stream]) for each in stretches),
            sign < 0 or self.signed or other.signed,
        )
        part = Part(law, {"table": table, **_stretched(stretches)})
        return PrivateCountSketch(spec, Drawn.of(spec, self._receipts_with(other), {COUNTERS: part}))

    def _receipts_with(self, other: PrivateCountSketch) -> tuple[Receipt, ...]:
        """Return the receipts of both; a stream that both have answers of was paid for once.

        Two streams may have equal laws: for each stream that both have, one receipt of its law is left out, no more.
        """
        known, found = {each.stream for each in self.stretches}, list(self.drawn.receipts)
        again = [law for name, law in other._as_combined().streams if name in known]
        for receipt in other.drawn.receipts:
            if receipt.laws[0] not in again:
                found.append(receipt)
                continue
            again.remove(receipt.laws[0])
            if not receipt.holds:
                found = [replace(each, holds=False) if each.laws == receipt.laws else each for each in found]
        return tuple(found)

    def _as_combined(self) -> Combined:
        if isinstance(self.law, Combined):
            return self.law
        return Combined((cast("Law", self.law),), self._digests(), (), False)

    def _digests(self) -> tuple[str, ...]:
        """Return digests of the releases that were drawn as one and are in this; of streams, stretches tell."""
        return self.law.digests if isinstance(self.law, Combined) else (self._digest(),)

    def _digest(self) -> str:
        """Return what tells this release from others: its counters, and its charge where it has one."""
        digest = hashlib.sha256(self.table.astype("<i8").tobytes())
        digest.update(b"" if self.charge is None else self.charge.digest.encode())
        return digest.hexdigest()


def _stretched(stretches: Iterable[Stretch]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for i, each in enumerate(stretches):
        found |= {f"weights{i}": each.weights, f"marks{i}": each.marks}
    return found
