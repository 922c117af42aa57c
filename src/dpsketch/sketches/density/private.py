"""The released density: kernel sums, densities, anomaly scores and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
import numpy.typing as npt

from dpsketch import plots
from dpsketch._compiled import density as compiled
from dpsketch.arrays import Floats
from dpsketch.core.drawn import Drawn, Part
from dpsketch.core.laws import Additive
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType, row_keys
from dpsketch.noise import Noise
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.release import SketchRelease, require_keys
from dpsketch.results import Estimates, key_list
from dpsketch.sketches.density.intervals import (
    Spread,
    limits,
    mean_of_rows,
    median_of_means,
    noise_quantile,
    summed_quantile,
)
from dpsketch.sketches.density.points import SetBatch, VectorBatch
from dpsketch.sketches.density.spec import COUNTERS, RECORDS, DensitySpec, read_bounds
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Curve", "DensityEstimator", "DensityGrid", "PrivateDensity", "written_point"]

DensityEstimator = Literal["mean", "median_of_means"]

_CELLS = 1 << 20  # features computed at a time
_COUNTERS = 1 << 16  # read at a time: what is worked out of them stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A density along a line: ``value``, ``low`` and ``high`` at each ``x``, and the column's name, if it has one."""

    x: Floats
    value: Floats
    low: Floats
    high: Floats
    confidence: float
    name: str | None


@dataclass(frozen=True, slots=True, eq=False)
class DensityGrid:
    """A density over a rectangle: ``value[i, j]`` at (``x[j]``, ``y[i]``), the centres of equal cells."""

    x: Floats
    y: Floats
    value: Floats
    low: Floats
    high: Floats
    confidence: float
    names: tuple[str, str] | None
    bounds: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateDensity(SketchRelease):
    """A released density sketch."""

    kind: ClassVar[str] = "density"
    spec_type: ClassVar[Any] = DensitySpec

    spec: DensitySpec

    @classmethod
    def part_of(cls, spec: DensitySpec, table: npt.NDArray[Any], noise: Noise, whole: Drawn) -> Self:
        """Return counters that are a part of another release, to be asked; what they promise is what the whole does."""
        law = Additive(spec.tables()[0], spec.unit.neighbours, noise)
        return cls(spec, replace(whole, parts={COUNTERS: Part(law, {"table": table})}))

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        """Say whether these are the parts of a density: sums of features do not tell the number of records."""
        named = parts.keys() == {COUNTERS, RECORDS} or (parts.keys() == {COUNTERS} and spec.features == "race")
        return named and all(hasattr(part.law, "noise") for part in parts.values())

    @property
    def table(self) -> npt.NDArray[Any]:
        """The released counters, rows × width: integers, or real numbers in an answer of a stream."""
        return cast(npt.NDArray[Any], self.drawn.table(COUNTERS))

    @property
    def noise(self) -> Noise:
        """The noise in each counter."""
        return self.drawn.noise(COUNTERS)

    @property
    def noisy_count(self) -> float | None:
        """The released number of records, if a share of the budget was spent on it; see :meth:`count`."""
        return self.drawn.table(RECORDS)[0].item() if RECORDS in self.drawn.parts else None

    @property
    def count_noise(self) -> Noise | None:
        """The noise in the number of records, if it was released."""
        return self.drawn.noise(RECORDS) if RECORDS in self.drawn.parts else None

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in an estimated kernel sum."""
        return self.spec.noise_factor * math.sqrt(self.noise.variance)

    def __repr__(self) -> str:
        spec = self.spec
        return f"<PrivateDensity {spec.size}, {spec.kernel}, spec {fingerprint_of(spec)}: {self.guarantee}>"

    def estimate(self, points: Any, *, confidence: float = 0.95, estimator: DensityEstimator = "mean") -> Estimates:
        """Estimate kernel sums: for each point asked, Σ similarity(point, record) over all records.

        Parameters
        ----------
        points : as for ``DensitySketch.update``
            Where to look. A missing coordinate is refused, and so is a point outside the spec's bounds: records there
            were moved to the nearest point inside, so nothing is known of it.
        confidence : float
            Coverage of each interval, over the noise and the choice of the hash functions, for points chosen without
            looking at the release.
        estimator : {"mean", "median_of_means"}
            "mean" over the rows is unbiased. "median_of_means" takes the median of the means of up to ⌈8·ln(1/(1 −
            confidence))⌉ groups of rows, of eight rows at least. Where the rows are skewed, as far from the data, a
            median reads too low: there the groups are fewer, down to one, which is the mean.

        Accuracy
        --------
        The interval is read off the release: noise and hashing both show in how the rows differ, and what few rows
        cannot show, that all records meet the query in a row that was not drawn, is added. Above the estimate it is
        wider than below it. It covers at least what it says; where stratification helps most it is two to four times
        as wide as it need be, because how evenly rows are spread does not show in them. Coleman and Shrivastava (2021,
        Theorem 3.4) bound the error of the median of means, for independent directions: with probability 1 − α below
        √(32·(f̃²/R + 2R/ε²)·ln(1/α)), f̃ = Σ √similarity.

        Of a series and of linear features the interval is that of the noise, and of what was cut off; of landmarks, it
        also has ρ(point)·Σρ(record), what they leave of points and records: wide where landmarks are far.
        """
        confidence = probability("confidence", confidence)
        if estimator not in ("mean", "median_of_means"):
            raise InvalidInput(f"estimator is 'mean' or 'median_of_means', not {estimator!r}.")
        batch = self._batch(points)
        if self.spec.features in ("series", "nystrom", "linear"):
            values, low, high = self._summed(batch, confidence, estimator)
        else:
            values, low, high = self._averaged(batch, confidence, estimator)
        return Estimates(_asked(points, batch), values, low, high, confidence, self.counts)

    def _averaged(
        self, batch: VectorBatch | SetBatch, confidence: float, estimator: DensityEstimator
    ) -> tuple[Floats, Floats, Floats]:
        """Return kernel sums as means over rows, with their limits."""
        spread, spec = self._spread(batch, confidence, estimator), self.spec
        number, variance = self._number()
        least = 0.0
        if spec.placement == "one_row":
            spread = _times(spread, spec.rows)
        if spec.collides:
            width = spec.width
            spread = replace(
                spread,
                values=(width * spread.values - number) / (width - 1),
                variances=(width**2 * spread.variances + variance) / (width - 1) ** 2,
            )
        if spec.features == "signs":  # 1 − 2θ/π, of which the kernel is 1 − θ/π
            spread = replace(spread, values=(number + spread.values) / 2, variances=(variance + spread.variances) / 4)
        if spec.features == "fourier":
            spread, least = _times(spread, math.sqrt(spec.rows) / spec.steps), -number
        low, high = limits(spread, spec.rows, number, spec.unseen_rows, confidence, least=least)
        cut = spec.error * max(0.0, number)
        return spread.values, low - cut, high + cut

    def _summed(
        self, batch: VectorBatch | SetBatch, confidence: float, estimator: DensityEstimator
    ) -> tuple[Floats, Floats, Floats]:
        """Return kernel sums as inner products of features, with the limits of noise and of what the features leave."""
        spec, shape = self.spec, self.spec.feature_map
        if shape is None or not isinstance(batch, VectorBatch):
            raise AssertionError("no features")
        if estimator != "mean":
            raise InvalidInput("rows of these features are no sample: estimator='mean' is all there is.")
        values, half = np.empty(len(batch)), np.empty(len(batch))
        number, _ = self._number()
        deviation = math.sqrt(self.noise.variance) / spec.steps * summed_quantile(self.noise, confidence)
        sums = self.table.ravel() / spec.steps
        for part, features in self._features(batch):
            if spec.features == "nystrom":
                left = features[:, -1] * max(0.0, sums[-1] + deviation)
                features = features[:, :-1]
            else:
                left = np.zeros(len(features))
            values[part] = features @ sums[: features.shape[1]]
            half[part] = left + deviation * np.sqrt(np.sum(features**2, axis=1)) + spec.error * max(0.0, number)
        return values, values - half, values + half

    def density(
        self,
        points: Any,
        *,
        confidence: float = 0.95,
        estimator: DensityEstimator = "mean",
        records: float | None = None,
    ) -> Estimates:
        """Estimate the mean similarity of the records to each point: the kernel sum over the number of records.

        Parameters
        ----------
        points, confidence, estimator
            As for :meth:`estimate`.
        records : float, optional
            The number of records where it is public; otherwise it is the release's own, with its error.
        """
        sums = self.estimate(points, confidence=confidence, estimator=estimator)
        if records is None:
            count = self.count(confidence=confidence)
            number, error = max(1.0, float(count.value[0])), float(count.high[0] - count.value[0])
        else:
            number, error = float(real_number("records", records)), 0.0
            if number <= 0:
                raise InvalidInput("records must be positive.")
        values = sums.value / number
        low = values - np.hypot(sums.value - sums.low, values * error) / number
        high = values + np.hypot(sums.high - sums.value, values * error) / number
        return Estimates(sums.key, values, low, high, sums.confidence, self.counts)

    def anomaly_score(self, points: Any) -> Floats:
        """Return how unlike the records each point is, one minus its density: near 1 far from all, less in a crowd."""
        return 1 - self.density(points).value

    def count(self, *, confidence: float = 0.95) -> Estimates:
        """Estimate the number of records, under the key "records".

        Every row's counters add up to it, with the noise of them all; where a share of the budget was spent on it, the
        two are averaged by their variances.

        Accuracy
        --------
        The interval is the quantile of the law of the noise itself, which for pure ε is not the normal one.
        """
        confidence = probability("confidence", confidence)
        half = noise_quantile(self._number_noise(), confidence)
        value = np.array([self._number()[0]])
        return Estimates(["records"], value, value - half, value + half, confidence, self.counts)

    def curve(self, bounds: tuple[float, float] | None = None, *, size: int = 200, confidence: float = 0.95) -> Curve:
        """Return the density at ``size`` places along one coordinate, for a picture.

        ``bounds`` are the spec's if not given; they must be public.
        """
        (limits,) = self._limits(bounds, 1)
        x = np.linspace(*limits, whole_number("size", size, low=2, high=2**20))
        found = self.density(x[:, None], confidence=confidence)
        name = None if self.spec.columns is None else self.spec.columns[0]
        return Curve(x, found.value, found.low, found.high, found.confidence, name)

    def grid(self, bounds: Any = None, *, size: tuple[int, int] = (100, 100), confidence: float = 0.95) -> DensityGrid:
        """Return the density at the centres of ``size`` = (across, down) cells of a rectangle, for a heat map.

        ``bounds`` are the spec's if not given; they must be public.
        """
        limits = self._limits(bounds, 2)
        cells = [whole_number("size", n, low=2, high=2**14) for n in size]
        x, y = (low + (high - low) * (np.arange(n) + 0.5) / n for (low, high), n in zip(limits, cells, strict=True))
        across, down = np.meshgrid(x, y)
        found = self.density(np.column_stack([across.ravel(), down.ravel()]), confidence=confidence)
        shape = (len(y), len(x))
        names = None if self.spec.columns is None else (self.spec.columns[0], self.spec.columns[1])
        value, low, high = (array.reshape(shape) for array in (found.value, found.low, found.high))
        return DensityGrid(x, y, value, low, high, found.confidence, names, (limits[0], limits[1]))

    def question(self, text: str | int, key_type: KeyType | None = None) -> list[float]:
        """Return a point, as in 1.5,2."""
        return written_point(str(text), self.spec.dim)

    def subtracts(self, asked: Any) -> bool:
        """Say no: what no row has met may differ from one window to the other."""
        return False

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Estimate the density at points, each written as in 1.5,2; or kernel sums, with the estimator "sum"."""
        require_keys(asked)
        if estimator not in (None, "density", "sum"):
            raise InvalidInput("of a density the estimator is density, a mean similarity, or sum, that of all records.")
        written = [str(one) for one in asked]
        points = [written_point(text, self.spec.dim) for text in written]
        if estimator == "sum":
            return replace(self.estimate(points, confidence=confidence), key=written)
        found = self.density(points, confidence=confidence)
        return replace(
            found,
            key=written,
            note="a density is the mean similarity of the records, density() in Python; "
            "--estimator sum gives their sum, as estimate() does.",
        )

    def plot(self) -> Figure:
        """Draw the density: of one column as a curve, of two as a map."""
        words = self.title()
        match self.spec.dim:
            case 1:
                curve = self.curve()
                return plots.curve(curve.x, curve.value, curve.low, curve.high, curve.name or "value", "density", words)
            case 2:
                grid = self.grid()
                return plots.heat_map(grid.value, grid.bounds, grid.names or ("first", "second"), words)
            case _:
                raise InvalidInput("a density of more than two columns has no picture.")

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return {"noise_scale": self.noise_scale, "records": float(self._number()[0])}

    def _limits(self, bounds: Any, dim: int) -> tuple[tuple[float, float], ...]:
        if self.spec.dim != dim:
            raise InvalidInput(f"this release has {self.spec.dim} coordinates, not {dim}.")
        limits = self.spec.bounds if bounds is None else read_bounds(bounds, dim)
        if limits is None:
            raise InvalidInput("say bounds=: the sketch has none, and none may be read from the data.")
        return limits

    def _batch(self, points: Any) -> VectorBatch | SetBatch:
        batch = self.spec.read(points)
        if batch.skipped:
            raise InvalidInput("a point with a missing coordinate cannot be looked up.")
        if isinstance(batch, VectorBatch):
            self.spec.refuse_outside(batch)
        return batch

    def _cells(self, batch: VectorBatch | SetBatch) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Read the counters of a batch of points, some points at a time; of features, what each row answers."""
        step = max(1, _COUNTERS // self.spec.rows)
        if self.spec.feature_map is not None:
            for part, features in self._features(batch):
                # Each row's features have a length of its own in the same place for all points.
                found = features * (math.sqrt(self.spec.rows) if self.spec.features == "fourier" else 1.0)
                cells = (found * self.table.ravel()).reshape(len(found), self.spec.rows, self.spec.width)
                yield part, cells.sum(axis=2)
            return
        for start in range(0, len(batch), step):
            part = slice(start, min(start + step, len(batch)))
            columns = self.spec.cells(batch.take(np.arange(part.start, part.stop)))
            yield part, compiled.read(self.table, columns)

    def _features(self, batch: VectorBatch | SetBatch) -> Iterator[tuple[slice, Floats]]:
        """Compute the features of a batch of points, some points at a time."""
        shape = self.spec.feature_map
        if shape is None or not isinstance(batch, VectorBatch):
            raise AssertionError("no features")
        step = max(1, _CELLS // self.table.size)
        for start in range(0, len(batch), step):
            part = slice(start, min(start + step, len(batch)))
            yield part, shape.values(batch.values[part])

    def _spread(self, batch: VectorBatch | SetBatch, confidence: float, estimator: DensityEstimator) -> Spread:
        """Estimate the mean counter of each point over all functions, of which the rows are some."""
        order = self.spec.order
        keys = row_keys(self.spec.seed, self.spec.rows, "density groups")
        values, variances, freedom = np.empty(len(batch)), np.empty(len(batch)), 1.0
        for part, cells in self._cells(batch):
            if estimator == "mean":
                found = mean_of_rows(cells, order, keys, self.noise, confidence)
            else:
                found = median_of_means(cells, order, keys, self.noise, confidence)
            values[part], variances[part], freedom = found.values, found.variances, found.freedom
        return Spread(values, variances, freedom)

    def _number(self) -> tuple[float, float]:
        """Return the best estimate of the number of records, and its variance."""
        (own, _, _), (summed, _, _) = parts = self._number_noise()
        number = summed * float(self.table.sum(dtype=np.float64)) + own * (self.noisy_count or 0)
        return number, sum(weight**2 * draws * noise.variance for weight, draws, noise in parts)

    def _number_noise(self) -> tuple[tuple[float, int, Noise], tuple[float, int, Noise]]:
        """Return the weight of the released number of records and of each counter in the best estimate of it.

        With each, how many draws of which noise it has.
        """
        if self.spec.features != "race" and self.count_noise is not None:
            return (1.0, 1, self.count_noise), (0.0, self.table.size, self.noise)
        counters = self.table.size
        share = 1 if self.spec.placement == "one_row" else self.spec.rows
        variance = self.noise.variance * counters / share**2
        if self.noisy_count is None or self.count_noise is None or variance == 0:
            return (0.0, 1, self.noise), (1 / share, counters, self.noise)
        weight = variance / (variance + self.count_noise.variance)
        return (weight, 1, self.count_noise), ((1 - weight) / share, counters, self.noise)


def _times(spread: Spread, factor: float) -> Spread:
    return replace(spread, values=spread.values * factor, variances=spread.variances * factor**2)


def _asked(points: Any, batch: VectorBatch | SetBatch) -> list[Any]:
    """Return the answer's keys: numbers, lists of coordinates, or sets as they were asked."""
    if isinstance(batch, SetBatch):
        return key_list(points)
    return list(batch.values[:, 0].tolist() if batch.values.shape[1] == 1 else batch.values.tolist())


def written_point(text: str, dim: int) -> list[float]:
    """Read a point as it is written on the command line: its coordinates, with commas between them."""
    try:
        point = [float(part) for part in text.split(",")]
    except ValueError:
        point = []
    if len(point) != dim:
        raise InvalidInput(f"a point of this release is {dim} numbers with commas between them, as in 1.5,2.")
    return point
