"""Classes by a density sketch each: all tables under one guarantee, and the score of a point in them.

A kernel sum is the size of a class times its density at the point. Angular sums are compared as cosines of vectors are:
with T the noisy table of a class less its mean, R rows and a noise of variance σ² in the mean over rows, ‖T‖²/R is the
squared length of the class's part in feature space and Dσ² more, D the number of counters. A sum is divided by
√(max(‖T‖²/R − Dσ², 0) + 4σ²√(2D)), so that a class neither wins by its size nor by its noise, and where noise hides
every class's length, plain sums are compared. Of power 1, a record counts ±1 in one cell a row instead of 1 in one of
two: the noise of a score has half of the variance.

The angular kernel needs an origin that means something. A private one is the mean of the scaled features: their sums
and the number of records are released as one vector of integers, on a grid of 2⁻¹⁰. The number is weighted so that it
has a fifth of the vector's squared length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Drawn
from dpsketch.core.laws import Additive, ClassCounters, Law
from dpsketch.core.move import Move, Table
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.kernels import Angular, Kernel, named
from dpsketch.laws.calibration import additive
from dpsketch.noise import Noise
from dpsketch.numbers import hold_real
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.class_spec import Labels, check_labels, scaled_between
from dpsketch.sketches.density.functions import Bounds, row_functions
from dpsketch.sketches.density.sketch import DensitySketch, PrivateDensity
from dpsketch.sketches.density.spec import (
    COUNTERS,
    DensitySpec,
    default_width,
    read_bounds,
    share_of_budget,
)
from dpsketch.sketches.specs import Spec

CENTRE = "centre"

_STEPS = 1 << 10  # of a feature in the centre's sums
_SCALED = (-1.0, 1.0)
_FLOOR = 4.0  # deviations of a squared length where there is nothing but noise


def class_kernel(name: str | None, features: int, power: int, bandwidth: float | None) -> Kernel:
    """Return the kernel of a classifier by its name."""
    match name:
        case "angular" | None:
            if features < 2:
                raise InvalidInput("the data have 1 feature, n_features = 1; an angular kernel needs two or more.")
            return named("angular", dim=features, power=power)
        case "euclidean" | "manhattan":
            if bandwidth is None:
                raise InvalidInput(f"the {name} kernel needs bandwidth=, in halves of a feature's range.")
            return named(name, dim=features, power=power, bandwidth=bandwidth)
        case _:
            raise InvalidInput(f"kernel is 'linear', 'angular', 'euclidean' or 'manhattan', not {name!r}.")


def density_of_a_class(kernel: Kernel, features: int, rows: int, unit: Unit, seed: int) -> DensitySpec:
    """Return the spec of every class's sketch."""
    if isinstance(kernel, Angular) and kernel.power == 1:
        return DensitySpec(kernel, rows, 1, unit, seed, features="signs")
    return DensitySpec(kernel, rows, default_width(kernel, read_bounds(_SCALED, features)), unit, seed)


def centre_table(unit: Unit, features: int) -> Table:
    """Return the table of a private centre.

    Features lie in [−1, 1], so that a point adds at most 2¹⁰ steps to each of them, and the fixed weight of the count.
    """
    weight, points = _count_weight(features), unit.max_keys
    squared = points**2 * (features * _STEPS**2 + weight**2)
    move = Move(points * (features * _STEPS + weight), squared, features + 1, points * max(_STEPS, weight), signed=True)
    return Table(CENTRE, (features + 1,), move)


@stored
@dataclass(frozen=True, slots=True)
class ClassDensitySpec(Spec):
    """The public spec of a classifier by densities.

    Attributes
    ----------
    density : DensitySpec
        The sketch of each class.
    labels : tuple of labels
        The public list of classes.
    bounds : tuple of (low, high)
        Public bounds of the features, between which they are scaled to [−1, 1].
    smoothing : float
        For the angular kernel, how far planes are blurred.
    centre : tuple of float or None
        The public centre, after scaling; None if it is private.
    """

    density: DensitySpec
    labels: Labels
    bounds: Bounds
    smoothing: float
    centre: tuple[float, ...] | None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        object.__setattr__(self, "bounds", read_bounds(self.bounds, self.density.dim))
        if self.bounds is None:
            raise InvalidInput("say bounds=: public bounds of the features. None may be read from the data.")
        hold_real(self, "smoothing")
        if not 0 <= self.smoothing < math.inf:
            raise InvalidInput("smoothing must be a number of at least 0.")
        if self.centre is not None and (len(self.centre) != self.dim or not np.all(np.isfinite(self.centre))):
            raise InvalidInput(f"centre must have a finite number for each of the {self.dim} features.")

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""
        return self.density.unit

    @property
    def dim(self) -> int:
        """The number of features."""
        return self.density.dim

    def tables(self) -> tuple[Table, ...]:
        """Return the counters of all classes, and the sums for a private centre.

        A record lies in one class, so that a unit moves the counters of all classes as far as those of one.
        """
        each = self.density.tables()[0]
        counters = replace(each, shape=(len(self.labels), self.density.rows, self.density.width))
        return (counters,) if self.centre is not None else (counters, centre_table(self.unit, self.dim))

    def laws(self, budget: Budget, centre_share: float = 0.0) -> tuple[Additive, ...]:
        """Return the noise on the tables, with a share of the budget for a private centre."""
        counters, *centre = self.tables()
        share = share_of_budget("the features' sums", centre_share) if centre else 0.0
        laws = additive(budget, self.unit.neighbours, {counters: 1 - share, **dict.fromkeys(centre, share)})
        return ClassCounters(counters, laws[0].neighbours, laws[0].noise), *laws[1:]

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        on = {COUNTERS: "every counter", CENTRE: "the features' sums"}
        return "; ".join(f"{law.words}, on {on[law.name]}" for law in laws)

    def scaled(self, points: Floats) -> Floats:
        """Return features moved into the bounds, and scaled from them to [−1, 1]."""
        return scaled_between(points, self.bounds)


def class_tables(spec: ClassDensitySpec, scaled: Floats, codes: npt.NDArray[np.intp]) -> Iterable[Integers]:
    """Yield the exact counters of each class, of scaled points less a centre. Sensitive."""
    for code in range(len(spec.labels)):
        sketch = DensitySketch.from_spec(spec.density)
        sketch._add_bounded(scaled[codes == code])
        yield sketch._arrays[COUNTERS]


def centre_vector(scaled: Floats) -> Integers:
    """Return the sums of the features in steps of the grid, and the weighted number of points. Sensitive."""
    sums = np.rint(_STEPS * np.clip(scaled, -1, 1)).astype(np.int64).sum(axis=0)
    return np.append(sums, _count_weight(scaled.shape[1]) * len(scaled))


def private_centre(noisy: Integers, noise: Noise) -> Floats:
    """Return the mean of points in [−1, 1]^features, from what was released of it.

    It is drawn towards 0 by as much as noise of that size would lengthen it (James and Stein, 1961): if there are too
    few records, the centre stays in the middle of the bounds.
    """
    features = len(noisy) - 1
    number = max(1.0, noisy[-1] / _count_weight(features))
    mean = noisy[:-1] / (_STEPS * number)
    variance = noise.variance / (_STEPS * number) ** 2
    square = float(np.sum(mean**2))
    kept = max(0.0, 1 - max(1, features - 2) * variance / square) if square > 0 else 0.0
    return np.asarray(np.clip(kept * mean, -1, 1))


def _count_weight(features: int) -> int:
    return round(_STEPS * math.sqrt(features) / 2)


@dataclass(frozen=True, eq=False)
class PrivateClassDensities:
    """What was released of the classes. Public.

    Attributes
    ----------
    spec : ClassDensitySpec
        The public spec.
    drawn : Drawn
        The parts of the release, each with its law, and what was paid for them.
    """

    spec: ClassDensitySpec
    drawn: Drawn

    def __post_init__(self) -> None:
        kinds = {table.name: Additive for table in self.spec.tables()} | {COUNTERS: ClassCounters}
        if {name: type(part.law) for name, part in self.drawn.parts.items()} != kinds:
            raise FileRefused("the file's parts are not those of a classifier of its spec.")

    @cached_property
    def centre(self) -> Floats:
        """From where directions are taken, after scaling."""
        if self.spec.centre is not None:
            return np.array(self.spec.centre)
        return private_centre(self.drawn.table(CENTRE), self.drawn.noise(CENTRE))

    @cached_property
    def densities(self) -> list[PrivateDensity]:
        """The release of each class."""
        noise, tables = self.drawn.noise(COUNTERS), self.drawn.table(COUNTERS)
        return [PrivateDensity.part_of(self.spec.density, table, noise, self.drawn) for table in tables]

    def kernel_sums(self, points: Floats) -> Floats:
        """Return the kernel sum of each point in each class; angular ones less what points at a right angle have."""
        scaled = self.spec.scaled(points) - self.centre
        if not isinstance(self.spec.density.kernel, Angular):
            return np.stack([density.estimate(scaled).value for density in self.densities], axis=1)
        functions = row_functions(self.spec.density.kernel, self.spec.density.rows, self.spec.density.seed)
        tables = self.drawn.table(COUNTERS)
        if self.spec.density.features == "signs":  # ±1 in one cell is ±½ in either of two
            both: Any = np.concatenate([-tables, tables], axis=2)
            return functions.smoothed_sums(scaled, both, self.spec.smoothing) / 2
        return np.asarray(functions.smoothed_sums(scaled, tables, self.spec.smoothing) - tables.mean(axis=(1, 2)))

    def scores(self, points: Floats) -> Floats:
        """Return kernel sums; angular ones as they would be if all classes were of one length, the mean of theirs."""
        sums, density = self.kernel_sums(points), self.spec.density
        if not isinstance(density.kernel, Angular):
            return sums
        tables = self.drawn.table(COUNTERS).astype(np.float64)
        if density.features != "signs":
            tables -= tables.mean(axis=(1, 2), keepdims=True)
        _, rows, width = tables.shape
        noise = self.drawn.noise(COUNTERS).variance / rows
        squares = np.sum(tables**2, axis=(1, 2)) / rows - noise * rows * width
        lengths = np.sqrt(np.maximum(squares, 0) + _FLOOR * noise * math.sqrt(2 * rows * width))
        return np.asarray(sums * (lengths.mean() / lengths))

    def probabilities(self, points: Floats) -> Floats:
        """Return scores as shares; small and negative ones become small positive numbers, at the scale of the noise."""
        scores, scale = self.scores(points), self.densities[0].noise_scale
        positive = scale * np.logaddexp(0, scores / scale)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))
