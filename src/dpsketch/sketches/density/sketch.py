"""Count points in a sensitive density sketch, and answer kernel sums and densities from its release."""

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
from dpsketch.bounding import CountedUsers, Cut, bound, cut_of_users
from dpsketch.core.drawn import Drawn, Part
from dpsketch.core.laws import Additive
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch, KeyType, row_keys
from dpsketch.kernels import Kernel
from dpsketch.noise import Noise, random_below
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.release import SketchRelease, require_keys
from dpsketch.results import Estimates
from dpsketch.sketches.density.functions import Features, Landmarks, Shape, fitting_features
from dpsketch.sketches.density.intervals import (
    Spread,
    limits,
    mean_of_rows,
    median_of_means,
    noise_quantile,
    summed_quantile,
)
from dpsketch.sketches.density.points import read_vectors
from dpsketch.sketches.density.spec import (
    COUNT_SHARE,
    COUNTERS,
    RECORDS,
    DensitySpec,
    Placement,
    default_width,
    read_bounds,
)
from dpsketch.sketches.frames import RecordColumns
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of
from dpsketch.sketches.weights import WeightGrid, checked_total

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Ledger


DensityEstimator = Literal["mean", "median_of_means"]

_CELLS = 1 << 20  # cells or features computed at a time
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
        return cast("npt.NDArray[Any]", self.drawn.table(COUNTERS))

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
        places = self._places(points)
        if self.spec.features in ("series", "nystrom", "linear"):
            values, low, high = self._summed(places, confidence, estimator)
        else:
            values, low, high = self._averaged(places, confidence, estimator)
        return Estimates(_asked(places), values, low, high, confidence, self.counts)

    def _averaged(
        self, points: Floats, confidence: float, estimator: DensityEstimator
    ) -> tuple[Floats, Floats, Floats]:
        """Return kernel sums as means over rows, with their limits."""
        spread, spec = self._spread(points, confidence, estimator), self.spec
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

    def _summed(self, points: Floats, confidence: float, estimator: DensityEstimator) -> tuple[Floats, Floats, Floats]:
        """Return kernel sums as inner products of features, with the limits of noise and of what the features leave."""
        spec = self.spec
        if estimator != "mean":
            raise InvalidInput("rows of these features are no sample: estimator='mean' is all there is.")
        values, half = np.empty(len(points)), np.empty(len(points))
        number, _ = self._number()
        deviation = math.sqrt(self.noise.variance) / spec.steps * summed_quantile(self.noise, confidence)
        sums = self.table.ravel() / spec.steps
        for part, features in self._features(points):
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

    def _places(self, points: Any) -> Floats:
        batch = read_vectors(points, self.spec.dim, self.spec.columns)
        if batch.skipped:
            raise InvalidInput("a point with a missing coordinate cannot be looked up.")
        self.spec.refuse_outside(batch.values)
        return batch.values

    def _cells(self, points: Floats) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Read the counters of points, some at a time; of features, what each row answers."""
        step = max(1, _COUNTERS // self.spec.rows)
        if self.spec.feature_map is not None:
            for part, features in self._features(points):
                # Each row's features have a length of its own in the same place for all points.
                found = features * (math.sqrt(self.spec.rows) if self.spec.features == "fourier" else 1.0)
                cells = (found * self.table.ravel()).reshape(len(found), self.spec.rows, self.spec.width)
                yield part, cells.sum(axis=2)
            return
        for start in range(0, len(points), step):
            part = slice(start, min(start + step, len(points)))
            yield part, compiled.read(self.table, self.spec.cells(points[part]))

    def _features(self, points: Floats) -> Iterator[tuple[slice, Floats]]:
        """Compute the features of points, some at a time."""
        shape = self.spec.feature_map
        if shape is None:
            raise AssertionError("no features")
        step = max(1, _CELLS // self.table.size)
        for start in range(0, len(points), step):
            part = slice(start, min(start + step, len(points)))
            yield part, shape.values(points[part])

    def _spread(self, points: Floats, confidence: float, estimator: DensityEstimator) -> Spread:
        """Estimate the mean counter of each point over all functions, of which the rows are some."""
        order = self.spec.order
        keys = row_keys(self.spec.seed, self.spec.rows, "density groups")
        values, variances, freedom = np.empty(len(points)), np.empty(len(points)), 1.0
        for part, cells in self._cells(points):
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


def _asked(points: Floats) -> list[Any]:
    """Return the answer's keys: numbers, or lists of coordinates."""
    return list(points[:, 0].tolist() if points.shape[1] == 1 else points.tolist())


def written_point(text: str, dim: int) -> list[float]:
    """Read a point as it is written on the command line: its coordinates, with commas between them."""
    try:
        point = [float(part) for part in text.split(",")]
    except ValueError:
        point = []
    if len(point) != dim:
        raise InvalidInput(f"a point of this release is {dim} numbers with commas between them, as in 1.5,2.")
    return point


class DensitySketch(Sketch[DensitySpec, PrivateDensity]):
    """The sensitive sketch of a density: takes points, merges, and is released once its budget is charged.

    Parameters
    ----------
    kernel : Kernel
        How alike two points are, such as ``dps.kernels.Euclidean(dim=2, bandwidth=2.0)``.
    rows : int, optional
        Hash functions, or pairs of Fourier features, to average over. With Gaussian noise more rows are better; for
        pure ε see :func:`best_rows`. Other features have as many as they need, and a series the heaviest so many.
    unit : Unit
        ``dps.per_record()`` or ``dps.per_user(max_keys=…)``, at most so many points a user.
    width : int, optional
        Counters a row; see :func:`default_width`.
    seed : int, optional
        Seed of the hash functions. Sketches merge only if it is the same, hence the fixed default.
    bounds : (low, high) or one pair for each coordinate, optional
        Public bounds; points outside are moved to them. Never take them from the data.
    columns : names, optional
        Names of the coordinates, by which tables are read.
    placement : {"every_row", "one_row"}
        "one_row" counts each record in one row, drawn at random for it alone: as many times faster as there are rows,
        for pure ε only, with slightly more variance. Tables then differ from run to run by those draws.
    features : {"race", "fourier", "series", "nystrom", "linear", "signs"}, optional
        What the table holds: the cells of RACE, or sums of features. For a Gaussian kernel "series" (up to three
        coordinates, with bounds), "nystrom" (with landmarks) or "fourier", in that order if not given; "linear" for the
        linear kernel; "signs", ±1 in one cell a row, for an angular kernel of power 1. RACE for all others.
    landmarks : array, optional
        For "nystrom": *public* points, where records may lie. Never take them from the data.

    Examples
    --------
    >>> import dpsketch as dps
    >>> kernel = dps.kernels.Euclidean(dim=2, bandwidth=2.0)
    >>> sketch = dps.DensitySketch(kernel=kernel, rows=100, unit=dps.per_record())
    >>> sketch.update([[0.5, 1.0], [0.7, 1.2], [5.0, -3.0]])
    >>> private = sketch.release(epsilon=1.0, delta=1e-6)
    >>> private.table.shape
    (100, 256)
    """

    kind: ClassVar[str] = "density"
    spec_type: ClassVar[Any] = DensitySpec
    release_type: ClassVar[Any] = PrivateDensity
    takes: ClassVar[tuple[str, ...]] = ("users",)
    role: ClassVar[str] = "points"

    def __init__(
        self,
        *,
        kernel: Kernel,
        rows: int | None = None,
        unit: Unit,
        width: int | None = None,
        seed: int = DEFAULT_SEED,
        bounds: Any = None,
        columns: Sequence[str] | None = None,
        placement: Placement = "every_row",
        features: Features | None = None,
        landmarks: Any = None,
    ) -> None:
        dim = getattr(kernel, "dim", 0)
        limits = read_bounds(bounds, dim)
        names = None if columns is None else tuple(columns)
        marks = None if landmarks is None else Landmarks.of(landmarks, dim)
        chosen = fitting_features(kernel, limits, marks) if features is None else features
        shape = Shape(chosen, kernel, 1 if rows is None else rows, seed, limits, marks)
        if chosen != "race":
            shape.check()
        rows = shape.own_rows(rows)
        if width is None:
            width = default_width(kernel, limits) if chosen == "race" else shape.width
        self._start(
            DensitySpec(kernel, rows, width, unit, seed, limits, names, placement, features=chosen, landmarks=marks)
        )

    def _count(self, columns: RecordColumns, disjoint_users: bool) -> None:
        batch = read_vectors(columns.records, self._spec.dim, self._spec.columns)
        if not self._protects_users(columns.users, disjoint_users):
            points, skipped, counted, cut = batch.values, batch.skipped, self._counted, Cut()
        else:
            unit, seed = self._spec.unit, self._spec.seed
            of_users = (columns.users, self._counted, disjoint_users)
            rows, skipped, counted, cut = bounded_points(unit, seed, batch.keys(), *of_users)
            points = batch.values[rows]
        mass = checked_total(self._mass, self._spec.steps, 1, len(points))
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._add_bounded(points)
        self._skipped += skipped
        self._cut += cut

    def _add_bounded(self, points: Floats) -> None:
        """Add points that were read and, where the unit is a user, bounded: :meth:`update` does both."""
        spec = self._spec
        if spec.placement == "one_row":
            self._add_to_one_row(points)
        else:
            mapped = spec.feature_map
            held = None if mapped is None else mapped.shape.contribution
            step = max(1, _CELLS // (spec.rows * (1 if held is None else spec.width)))
            for start in range(0, len(points), step):
                some = points[start : start + step]
                if mapped is not None and held is not None:
                    mapped.add(self._arrays[COUNTERS], spec.inside(some), held)
                else:
                    compiled.add(self._arrays[COUNTERS], spec.cells(some))
        self._arrays[RECORDS] += len(points)

    def _add_to_one_row(self, points: Floats) -> None:
        # A fresh draw for each record: a row that followed from its position would move with every record before it.
        drawn = random_below(self._spec.rows, len(points)).astype(np.intp)
        sequence = np.argsort(drawn, kind="stable")
        ends = np.searchsorted(drawn[sequence], np.arange(self._spec.rows + 1))
        for row in range(self._spec.rows):
            part = sequence[ends[row] : ends[row + 1]]
            if len(part):
                compiled.add(self._arrays[COUNTERS][row : row + 1], self._spec.cells(points[part], slice(row, row + 1)))

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
        count_share: float = COUNT_SHARE,
    ) -> PrivateDensity:
        """Charge the budget, add noise, and return what may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. δ > 0: rounded Gaussian noise, analytically calibrated. δ = 0: discrete Laplace noise
            at the L1 sensitivity.
        rho : float
            A zero-concentrated guarantee instead.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before any noise is drawn.
        count_share : float
            The share of the budget spent on the number of records, which normalises densities. With 0 it is read off
            the noisy table, which sums of features cannot be.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation, for the tables that
        :meth:`DensitySpec.tables` states; counters and number of records together cost one budget. Two releases of one
        sketch compose: each is charged.
        """
        budget, account = Budget(epsilon, delta, rho), self._account(ledger, dataset, part)
        return self._release(budget, account, count_share=count_share)


def bounded_points(
    unit: Unit, seed: int, keys: KeyBatch, users: Any, counted: CountedUsers, disjoint_users: bool
) -> tuple[npt.NDArray[np.intp], int, CountedUsers, Cut]:
    """Choose the points that count where the unit is a user.

    Returns which of the complete records to add, how many were left out as incomplete, whom the sketch has counted
    after that, and what bounding cut.
    """
    if users is None:
        raise InvalidInput("this sketch protects users: say users= as well, whose each record is.")
    bounded = bound(users, keys, 1, max_keys=unit.max_keys, max_units=1, seed=seed)
    rows = bounded.rows if keys.kept is None else (np.cumsum(keys.kept) - 1)[bounded.rows]
    cut = cut_of_users(WeightGrid(1, 1), bounded, None).keys_alone
    return rows.astype(np.intp), bounded.skipped, counted.extended(bounded, disjoint_users=disjoint_users), cut
