"""The released sparse histogram: estimates with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch.arrays import Words, read_only
from dpsketch.core.drawn import Part
from dpsketch.core.laws import Arrays
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.laws.sparse import ENTRIES, SparseLaw
from dpsketch.numbers import probability, whole_number
from dpsketch.release import KeyedRelease, SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.sparse.calibration import Survivors
from dpsketch.sketches.sparse.estimators import Reader, SparseEstimator, column_shares, non_increasing
from dpsketch.sketches.sparse.guidance import guidance
from dpsketch.sketches.sparse.spec import SparseHistogramSpec
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PrivateSparseHistogram"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateSparseHistogram(KeyedRelease, SketchRelease):
    """A released sparse histogram, to be queried by key."""

    kind: ClassVar[str] = "sparse"
    spec_type: ClassVar[Any] = SparseHistogramSpec

    spec: SparseHistogramSpec
    _reader: Reader = field(init=False, repr=False)

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {ENTRIES} and isinstance(parts[ENTRIES].law, SparseLaw)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reader", Reader.for_shares(self.law, column_shares(self.table)))

    @property
    def law(self) -> SparseLaw:
        """How it was drawn: the parameters of the ALP part, and of the threshold part if there is one."""
        return cast(SparseLaw, self.drawn.parts[ENTRIES].law)

    @property
    def table(self) -> Words:
        """The released bits, read-only, columns × rows/64."""
        return read_only(cast(Words, self.drawn.parts[ENTRIES].arrays["bits"]))

    @property
    def kept(self) -> Survivors:
        """What the threshold part kept: positions in the domain, and noisy values in units of ``spec.grid``."""
        nobody: Arrays = {"positions": np.empty(0, np.uint64), "values": np.empty(0, np.int64)}
        found: Mapping[str, Any] = {**nobody, **self.drawn.parts[ENTRIES].arrays}
        return Survivors(read_only(found["positions"]), read_only(found["values"]))

    def __repr__(self) -> str:
        projection = self.law.projection
        shape = f"{projection.columns}×{projection.rows} bits, {len(self.kept.positions)} keys kept"
        return f"<PrivateSparseHistogram {shape}, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    def estimate(self, keys: Any, *, confidence: float = 0.95, estimator: SparseEstimator = "mean") -> Estimates:
        """Estimate the values of keys.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up. Nulls are refused, and integers outside the domain.
        confidence : float
            The posterior probability of each interval, over the noise and the choice of the hash functions: under one
            seed for ever, a key that collides badly is off in every release. Of what was counted, after bounding.
        estimator : {"mean", "median", "walk"}
            "mean" and "median" of the posterior; the median has the least mean absolute error, the mean the least mean
            square. "walk": the paper's.

        Accuracy
        --------
        Collisions are accounted for by what the table itself shows of them. A value above the table's top that the
        threshold part dropped, which is rare, reads low; with ``max_value`` every larger value reads as ``max_value``.
        """
        confidence = probability("confidence", confidence)
        asked, positions = self._positions(keys)
        return self._read(asked, positions, estimator, confidence, 1 - confidence)

    @property
    def names_keys(self) -> bool:
        """Whether the threshold part kept keys that it can name: of text it keeps hashes."""
        return self.law.survival is not None and self.spec.key_type == "int"

    def top(
        self, n: int, *, candidates: Any = None, confidence: float = 0.95, estimator: SparseEstimator = "mean"
    ) -> Estimates:
        """Return the ``n`` keys with the largest estimates, largest first.

        Parameters
        ----------
        n : int
            How many.
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to choose from. Without them, the keys that the threshold part kept.
        confidence : float
            The probability with which all intervals hold at once, although the keys were selected by the very noise
            they are about: each is widened for the number of candidates or, without them, of keys kept (Bonferroni),
            and the latter allow for what reaching the cutoff takes. How many keys there were does not matter.
        estimator : {"mean", "median", "walk"}
            As for :meth:`estimate`.
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        tail = 1 - confidence
        if candidates is None:
            asked, positions = self._kept_keys()
            tail /= max(1, len(positions))
        else:
            asked, positions = self._positions(candidates)
            positions, first = np.unique(positions, return_index=True)
            if len(first) == 0:
                raise InvalidInput("top needs at least one candidate key.")
            asked = [asked[i] for i in first]
            tail /= len(first)
        found = self._read(asked, positions, estimator, confidence, tail, listed=candidates is None)
        return _largest(found, n)

    def survivors(self, *, candidates: Any = None, confidence: float = 0.95) -> Estimates:
        """Return the keys that the threshold part kept explicitly, largest first, with intervals for all at once.

        Parameters
        ----------
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to name survivors by: needed for text keys, of which a release holds hashes only. Survivors that are
            not among them are left out.
        confidence : float
            The probability with which all intervals hold.

        Notes
        -----
        Under the pure rule about one key that nobody has survives as well.
        """
        if candidates is None:
            return self.top(max(1, len(self.kept.positions)), confidence=confidence)
        confidence = probability("confidence", confidence)
        self._need_threshold()
        asked, positions = self._positions(candidates)
        positions, first = np.unique(positions, return_index=True)
        hit = self.kept.look_up(positions) >= 0
        chosen = [asked[i] for i in first[hit]]
        tail = (1 - confidence) / max(1, len(chosen))
        return _largest(self._read(chosen, positions[hit], "mean", confidence, tail, listed=True), len(chosen))

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest candidates with intervals or, without candidates, how many keys are how large."""
        words = self.title("sparse histogram")
        if candidates is not None:
            return plots.bars(self.top(n, candidates=candidates), words)
        values, keys = self.sizes()
        figure = plots.new_figure()
        axes = figure.subplots()
        axes.step(values, keys, where="mid", color="#1f4e79")
        axes.set_xlabel("value")
        axes.set_ylabel("about so many keys have at least this value")
        axes.set_ylim(bottom=0)
        axes.set_title(words, fontsize=9, loc="left", wrap=True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return figure

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def sizes(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return values, and about how many keys are at least so large, read off the columns' shares of ones.

        Each key that reaches a column sets one of its bits, so the share of bits that are set tells how many do.
        """
        projection = self.law.projection
        values = np.arange(0.5, projection.columns) * (self.spec.grid / projection.columns_a_unit)
        keys = -projection.rows * np.log1p(-np.minimum(self.collision_rates(), 1 - 1 / projection.rows))
        return values, np.asarray(keys, np.float64)

    def collision_rates(self) -> npt.NDArray[np.float64]:
        """Return for each column the share of bits that some key sets, as the flipped bits show it."""
        flip = self.law.projection.flip
        shares = non_increasing(column_shares(self.table))
        return np.asarray(np.clip((shares - flip) / (1 - 2 * flip), 0, 1))

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return guidance(self.spec, self.law, self.guarantee, self.collision_rates(), len(self.kept.positions))

    def _positions(self, keys: Any) -> tuple[list[Any], Words]:
        asked, column = self._looked_up(keys)
        batch = fingerprint(column, self.spec.key_type)
        if batch.skipped:
            raise InvalidInput("a null is not a key that can be looked up.")
        return asked, self.spec.positions(batch.fingerprints, batch.key_type)

    def _kept_keys(self) -> tuple[list[Any], Words]:
        self._need_threshold()
        if self.spec.key_type != "int":
            whose = "of text keys" if self.spec.key_type == "text" else "without a key type, which may be of text keys,"
            raise InvalidInput(
                f"a release {whose} holds their hashes, not the keys. Give candidates=, a list of keys that may occur "
                "(a public list costs no privacy), or count integers in a histogram that says key_type='int'."
            )
        return self.kept.positions.tolist(), self.kept.positions

    def _need_threshold(self) -> None:
        if self.law.survival is None:
            raise InvalidInput(
                "a release with max_value has no threshold part, so it lists no keys by itself. Give candidates= to "
                "top, or build the histogram without max_value."
            )

    def _read(
        self,
        asked: list[Any],
        positions: Words,
        estimator: SparseEstimator,
        confidence: float,
        tail: float,
        *,
        listed: bool = False,
    ) -> Estimates:
        read = self._reader.read(self.table, self.kept, positions, estimator, tail, listed=listed)
        value, low, high = (self.spec.grid * part for part in read)
        return Estimates(asked, value, low, high, confidence, self.counts)


def _largest(found: Estimates, n: int) -> Estimates:
    order = np.argsort(-found.value, kind="stable")[:n]
    return Estimates(
        [found.key[i] for i in order],
        found.value[order],
        found.low[order],
        found.high[order],
        found.confidence,
        found.counts,
    )
