"""The released HeavyHitters sketch: the frequent keys, their counts, and all the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, assert_never, cast

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch.compound import CompoundKey
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint, row_keys, to_arrow
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.normal import normal_quantile
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.release import KeyedRelease, SketchRelease
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.countsketch import Estimator, PrivateCountSketch
from dpsketch.sketches.countsketch.decoding import LEAST_ROWS, joint_decode
from dpsketch.sketches.countsketch.linear import fourth_cumulant
from dpsketch.sketches.countsketch.location import root_mean_square
from dpsketch.sketches.heavy.search import FoundKeys, find
from dpsketch.sketches.heavy.spec import DENSE, INNER, LEAF, TOTAL, HeavyHittersSpec, TreeNoise
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.sketches.tails import widening

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


__all__ = ["PrivateHeavyHitters", "level_keys"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateHeavyHitters(KeyedRelease, SketchRelease):
    """A released tree of prefixes, to be searched and queried.

    Its tables hold integers, or real numbers in an answer of a stream (:class:`~dpsketch.ContinualSketch`).
    """

    kind: ClassVar[str] = "heavy"
    spec_type: ClassVar[Any] = HeavyHittersSpec

    spec: HeavyHittersSpec

    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def total(self) -> npt.NDArray[Any]:
        """The released total of all records, one number."""
        return cast(npt.NDArray[Any], self.drawn.table(TOTAL))

    @property
    def dense(self) -> npt.NDArray[Any]:
        """The released first level, one number a prefix; for text the last one counts keys that were too long."""
        return cast(npt.NDArray[Any], self.drawn.table(DENSE))

    @property
    def tables(self) -> npt.NDArray[Any]:
        """The released CountSketches, levels × rows × width; the last one counts the keys themselves."""
        if "tables" not in self._known:
            levels = [self.drawn.table(name) for name in (INNER, LEAF) if name in self.drawn.parts]
            self._known["tables"] = np.concatenate(levels) if len(levels) > 1 else levels[0]
            self._known["tables"].setflags(write=False)
        return cast(npt.NDArray[Any], self._known["tables"])

    @property
    def noise(self) -> TreeNoise:
        """The noise in each part."""
        noises = {name: self.drawn.noise(name) for name in self.drawn.parts}
        return TreeNoise(noises[TOTAL], noises[DENSE], noises.get(INNER, noises[LEAF]), noises[LEAF])

    @property
    def row_keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the tables' rows, levels × rows."""
        return level_keys(self.spec)

    @property
    def leaf(self) -> PrivateCountSketch:
        """The last level by itself: an ordinary CountSketch of the keys."""
        return PrivateCountSketch.part_of(self.spec.leaf, self.tables[-1], self.noise.leaf, self.drawn)

    @property
    def lowest_threshold(self) -> float:
        """The least threshold at which this release tells keys from noise; a lower one asked for acts as this one."""
        return self.spec.grid * self._found.threshold

    @property
    def searches(self) -> bool:
        """Whether keys are searched for: yes, from level to level."""
        return True

    @property
    def _found(self) -> FoundKeys:
        return self._search(None)

    def _search(self, progress: Callable[[int, int], None] | None) -> FoundKeys:
        # A function of the release alone, so it is worked out once.
        if "found" not in self._known:
            self._known["found"] = find(self, progress)
        return cast(FoundKeys, self._known["found"])

    def __repr__(self) -> str:
        shape = f"{self.spec.sketched} tables of {self.spec.rows}×{self.spec.width}"
        return f"<PrivateHeavyHitters {shape}, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    def top(
        self,
        n: int | None = None,
        *,
        threshold: float | None = None,
        candidates: Any = None,
        confidence: float = 0.95,
        progress: Callable[[int, int], None] | None = None,
    ) -> Estimates:
        """Return the most frequent keys, largest first, without being told any.

        Parameters
        ----------
        n : int, optional
            At most so many keys.
        threshold : float, optional
            Only keys with an estimate of at least this. None, or one below :attr:`lowest_threshold`, acts as that: what
            lies below cannot be told from noise, and is never listed, also where fewer than ``n`` keys are left. Where
            nothing is listed, the answer's ``note`` says why.
        candidates : column of keys, optional
            Look at these keys only; then there is no lowest threshold.
        confidence : float
            The intervals hold for all keys listed at once with this probability, although the keys were picked by the
            very noise they are about. A key whose interval reaches 0 may be absent, and is not listed.
        progress : callable, optional
            Is told after each level of the tree how many were searched, and how many there are. It begins again with
            each threshold that is tried; a release that was searched before tells nothing.
        """
        confidence = probability("confidence", confidence)
        limit = None if n is None else whole_number("n", n, low=1, high=2**31)
        threshold = None if threshold is None else real_number("threshold", threshold)
        if threshold is not None and not math.isfinite(threshold):
            raise InvalidInput("threshold must be a finite number.")
        if candidates is not None:
            return self._top_of(candidates, limit, threshold, confidence)
        found, grid = self._search(progress), self.spec.grid
        half = found.half_widths(confidence)
        asked = 0.0 if threshold is None else threshold / grid
        listed = np.flatnonzero((found.values > half) & (found.values >= asked))
        named = self._named(found.keys.take(listed).plain())
        keys = [key for key in named if key is not None][:limit]
        listed = listed[[key is not None for key in named]][:limit] if named else listed
        values, half = grid * found.values[listed], grid * half[listed]
        note = "" if keys else self._why_none(threshold, confidence)
        return Estimates(keys, values, values - half, values + half, confidence, self.counts, note)

    def _why_none(self, threshold: float | None, confidence: float) -> str:
        """Say why no key was listed."""
        half = self._found.half_widths(confidence)
        least = max(self.lowest_threshold, self.spec.grid * (float(half.min()) if len(half) else 0.0))
        if threshold is not None and threshold > least:
            return f"no key passes {threshold:.6g}, the threshold asked for; one of {least:.6g} or more can be told."
        note = (
            f"no key passes {least:.6g}: the noise and collisions allow nothing below that to be told from nothing. A "
            "larger budget, or more width"
        )
        rows = "" if self.spec.rows >= LEAST_ROWS else f" and rows={LEAST_ROWS} or more, so that keys can be told apart"
        return f"{note}{rows}, lets smaller keys be found; candidates= asks for keys by name."

    def _top_of(self, candidates: Any, limit: int | None, threshold: float | None, confidence: float) -> Estimates:
        column = self._column(candidates)
        listed = self.leaf.top(max(1, len(column)), candidates=self._askable(candidates), confidence=confidence)
        stop = len(listed) if threshold is None else int(np.count_nonzero(listed.value >= threshold))
        stop = stop if limit is None else min(stop, limit)
        return Estimates(
            listed.key[:stop],
            listed.value[:stop],
            listed.low[:stop],
            listed.high[:stop],
            confidence,
            self.counts,
        )

    def estimate(self, keys: Any, *, confidence: float = 0.95, estimator: Estimator = "robust") -> Estimates:
        """Estimate the counts of keys, as :meth:`PrivateCountSketch.estimate` does, from the last level."""
        return self.leaf.estimate(self._askable(keys), confidence=confidence, estimator=estimator)

    def decode(
        self, candidates: Any, *, confidence: float = 0.95, progress: Callable[[int, int], None] | None = None
    ) -> Estimates:
        """Estimate many candidate keys together, as :meth:`PrivateCountSketch.decode` does, from the last level."""
        return self.leaf.decode(self._askable(candidates), confidence=confidence, progress=progress)

    def all_records(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate the total weight of all records, those with keys that were too long included."""
        confidence = probability("confidence", confidence)
        value = self.spec.grid * float(self.total[0])
        half = self.spec.grid * _noise_quantile(self.noise.total, confidence)
        return Estimate(value, value - half, value + half, confidence, self.counts)

    def too_long(self, *, confidence: float = 0.95) -> Estimate:
        """Estimate the weight of the records whose text key was longer than ``key_bytes``; such keys are not found."""
        confidence = probability("confidence", confidence)
        if self.spec.key_type == "int":
            return Estimate(0.0, 0.0, 0.0, confidence, self.counts)
        value = self.spec.grid * float(self.dense[-1])
        half = self.spec.grid * _noise_quantile(self.noise.dense, confidence)
        return Estimate(value, value - half, value + half, confidence, self.counts)

    def everything_else(self, listed: Estimates | Any = None, *, confidence: float = 0.95) -> Estimate:
        """Estimate the total weight of all keys that are not in a list.

        Parameters
        ----------
        listed : Estimates or column of keys, optional
            The list, such as :meth:`top` returns. None: all keys that :meth:`top` finds.
        confidence : float
            Coverage of the interval.

        Accuracy
        --------
        The total has noise of its own and is accurate; what the listed keys have together is subtracted, and its
        error is that of one estimate times the root of their number. Keys picked just above a threshold are
        overestimated on average; the interval reaches up by as much. Where the unit is a user, what the clip left out
        of the last level (see :attr:`HeavyHitters.clipped_users`) counts as everything else.
        """
        confidence = probability("confidence", confidence)
        if listed is None:
            listed = self.top()
        column = self._column(listed.key if isinstance(listed, Estimates) else listed)
        prints = np.unique(fingerprint(column, self.spec.key_type).fingerprints)
        if not len(prints):
            return self.all_records(confidence=confidence)
        decoded = joint_decode(self.tables[-1], prints, self.row_keys[-1], math.sqrt(self.noise.leaf.variance))
        value = float(self.total[0]) - float(decoded.values.sum())
        variance = self.noise.total.variance + float(np.sum(decoded.errors**2))
        picked = _picked(decoded.values, root_mean_square(decoded.errors))
        normal = normal_quantile(confidence)
        wider = widening(normal, fourth_cumulant(self.noise.total) / variance**2)
        half = normal * wider * math.sqrt(variance)
        grid = self.spec.grid
        low = value - half - decoded.unseen  # what listed keys with opposite signs both have is in no cell
        return Estimate(grid * value, grid * low, grid * (value + half + picked), confidence, self.counts)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` most frequent keys with their intervals."""
        return plots.bars(self.top(n, candidates=candidates), self.title(f"{n} most frequent keys"))

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the release, or the ``n`` largest of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        facts = {
            **self.leaf.facts(),
            "levels": self.spec.sketched + 1,
            "lowest_threshold": self.lowest_threshold,
            "all_records": self.all_records().to_json(),
        }
        return facts if self.spec.key_type == "int" else {**facts, "too_long": self.too_long().to_json()}

    def _column(self, keys: Any) -> Any:
        """Read keys to look up, refusing those that no record of the spec can have."""
        column = to_arrow(self._looked_up(keys)[1], self.spec.key_type)
        if column.null_count:
            raise InvalidInput("a null is not a key that can be looked up.")
        fingerprint(column[:0], self.spec.key_type)
        if self.spec.space.parse(column).fitting() is not None:
            raise InvalidInput(
                f"a key has more than key_bytes={self.spec.key_bytes} bytes; such keys were not counted one by one. "
                "See too_long() for all of them together."
            )
        return column

    def _askable(self, keys: Any) -> Any:
        """Return keys as the last level is asked for them, refusing those that no record of the spec can have."""
        column = self._column(keys)
        return keys if self.key_columns else column

    def _named(self, keys: list[Any]) -> list[Any]:
        """Return keys that were found as answers name them; None for a text that noise made up, and is no such key."""
        columns = len(self.key_columns)
        return [CompoundKey.stored(key, columns) for key in keys] if columns else keys


def level_keys(spec: HeavyHittersSpec) -> npt.NDArray[np.uint64]:
    """Return the keys of the tables' rows, levels × rows; those of the leaf are an ordinary CountSketch's."""
    above = row_keys(spec.seed, spec.rows * (spec.sketched - 1), "heavy").reshape(-1, spec.rows)
    return np.vstack([above, row_keys(spec.seed, spec.rows)])


def _noise_quantile(law: Noise, confidence: float) -> float:
    """Return the least whole number that the noise stays within with this probability, from Gaussian or exponential."""
    match law:
        case RoundedGaussian(sigma):
            return math.ceil(sigma * normal_quantile(confidence) + 0.5)
        case DiscreteLaplace(epsilon, sensitivity):
            return math.ceil(sensitivity / epsilon * math.log(1 / (1 - confidence)))
        case _:
            assert_never(law)


def _picked(values: npt.NDArray[np.float64], error: float) -> float:
    """Return by how much keys that were picked by their estimates may exceed the truth in all.

    It is error²·(how many estimates there are a unit of count, at the threshold) on average. What the threshold was is
    not known here, and the smallest estimate does not tell: one key may have come out far below it. So the density is
    that of the densest stretch of two errors' breadth, and two standard errors of how many are in it.
    """
    ordered = np.sort(values)
    near = int(np.max(np.searchsorted(ordered, ordered + 2 * error, "right") - np.arange(len(ordered))))
    return (near + 2 * math.sqrt(near)) * error / 2
