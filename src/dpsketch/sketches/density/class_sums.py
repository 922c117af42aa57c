"""Sum vectors by class, release the sums, and score points by them whatever the sizes and the noise of classes.

*Score.* With N the noisy sum of a class in d coordinates, each with noise of variance σ², ‖N‖² is ‖true‖² + dσ² on
average, with a deviation of σ²√(2d) where there is nothing but noise. The score z·N/√(max(‖N‖² − dσ², 0) + 2σ²√(2d)) is
the cosine where a class is clear, and small where it is not. In the length, coordinate j has a weight of
vⱼ ∝ √(bⱼ/(bⱼ + σ²)), bⱼ the mean of the classes' squares less σ²: where all classes together have little but noise, it
says less of each one's length. Then Σvⱼ(Nⱼ² − σ²) is taken for ‖N‖² − dσ², and σ²√(2Σvⱼ²) for its deviation.

With second moments, vectors are first measured along directions in which records of one class vary alike (linear
discriminant analysis with noisy moments), all coordinates have one weight, and twice the cosine of the waves is added
to that of the vectors.

*Later passes.* A pass asks of every record how likely each class is, softmax(20·(q·M)) with M the directions that were
released so far, and takes that from 1 for its own class and 0 for the others: r, the residual, 0 where a record is
clear. Σ r qᵀ is released with noise, and M moves by a part of it: a step of gradient descent on the logistic loss
(Song, Chaudhuri and Sarwate, 2013; Abadi et al., 2016) that starts from class sums instead of from nothing, so that a
few steps go as far as dozens would. M moves half as far if the classes' sums are shorter than 30 deviations of their
noise, as they were released. Inner products of integers are exact in doubles, so that a record's residual does not
depend on those it is read with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.vectors import add_rows, residuals
from dpsketch.arrays import Floats, Integers
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived, Drawn, Part
from dpsketch.core.laws import Additive, Arrays, Law, are_integers
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.numbers import hold_real
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.class_spec import (
    COARSE,
    DIAGONAL,
    MOMENTS,
    RESIDUAL,
    SIZES,
    STEPS,
    SUMS,
    WAVES,
    ClassSpec,
    EmbeddingMap,
    Waves,
    triangle_weights,
)
from dpsketch.sketches.density.points import VectorBatch
from dpsketch.sketches.density.sketch import bounded_points
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.weights import checked_total

Codes = npt.NDArray[np.intp]

CORRECTIONS, MAP = "corrections", "map"

STEP = 0.16  # of a direction, in lengths of a class's sum
_SHORT_STEP, _SHORT = 0.08, 30  # if that length is less than so many deviations of its noise
_DIRECTION = 1 << 15  # steps of a direction's coordinates
_FARTHEST = 1 << 10  # where directions end, so that inner products stay below 2⁵³
_SHARPNESS = 20.0  # of the probabilities, beside cosines
_WAVES_WEIGHT = 2.0  # beside the cosine of the vectors
_LEAST_NOISE, _LEAST_VARIANCE = 0.3, 0.1  # where variances within classes are raised to, beside noise and records
_COSINE_SCALE = 0.05
_LEAST = 1e-6  # below the deviation at the largest ρ of a sum beside corrections


@stored
@dataclass(frozen=True, slots=True)
class Corrections(Derived):
    """The sum of what all later passes drew, and how far it moves directions."""

    passes: tuple[Additive, ...]
    step: float

    def __post_init__(self) -> None:
        hold_real(self, "step")
        if not self.passes or not 0 < self.step <= 1:
            raise InvalidInput("corrections are of one pass or more, and move directions by a step of at most 1.")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws of the passes."""
        return self.passes

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is one array of integers, of a pass's shape."""
        return self.passes[0].fits(arrays)


@stored
@dataclass(frozen=True, slots=True)
class PublicMap(Derived):
    """The public mean and directions along which vectors are measured: nothing is drawn of them."""

    @property
    def laws(self) -> tuple[Law, ...]:
        """No law."""
        return ()

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are two arrays of integers; a release holds them against its spec."""
        return set(arrays) == {"mean", "directions"} and all(are_integers(arrays, name, None) for name in arrays)


@dataclass(frozen=True, eq=False)
class PrivateClassSums:
    """What was released of the classes. Public.

    Attributes
    ----------
    spec : ClassSpec
        The public spec.
    drawn : Drawn
        The parts of the release, each with its law, and what was paid for them.
    shape : EmbeddingMap
        How vectors are measured.
    """

    spec: ClassSpec
    drawn: Drawn
    shape: EmbeddingMap = field(init=False)

    def __post_init__(self) -> None:
        spec, parts, measured = self.spec, self.drawn.parts, self.spec.measured
        kinds: dict[str, type] = {table.name: Additive for table in spec.tables()}
        if spec.extras.passes > 1:
            kinds = {SUMS: Additive, CORRECTIONS: Corrections}
        if measured.digest is not None:
            kinds[MAP] = PublicMap
        if {name: type(part.law) for name, part in parts.items()} != kinds:
            raise FileRefused("the file's parts are not those of a classifier of its spec.")
        arrays: Any = {}
        if measured.digest is not None:
            arrays, dim, kept = parts[MAP].arrays, measured.dim, measured.kept
            if not (are_integers(arrays, "mean", (dim,)) and are_integers(arrays, "directions", (dim, kept))):
                raise FileRefused("the file's mean or directions are not those of its spec.")
        shape = EmbeddingMap(measured.dim, arrays.get("mean"), arrays.get("directions"), measured.limit)
        if shape.spec != measured:
            raise FileRefused("the file's mean or directions are not those of its spec.")
        if CORRECTIONS in kinds and self.deviation < _LEAST:  # lengths that corrections are scaled by could be 0
            raise FileRefused("the file's corrections stand beside sums without noise, which no budget pays for.")
        object.__setattr__(self, "shape", shape)

    def _table(self, name: str) -> Integers | None:
        return self.drawn.table(name) if name in self.drawn.parts else None

    def _deviation(self, name: str, steps: int) -> float:
        return math.sqrt(self.drawn.noise(name).variance) / steps if name in self.drawn.parts else 0.0

    @property
    def sums(self) -> Integers:
        """Noisy sums of integers, classes × coordinates."""
        sums: Integers = self.drawn.table(SUMS)
        return sums

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in a sum, beside vectors of length 1."""
        return self._deviation(SUMS, STEPS)

    @cached_property
    def moments(self) -> Floats | None:
        """Noisy second moments of all records, if they were released."""
        noisy, kept = self._table(MOMENTS), self.spec.measured.kept
        if noisy is None:
            return None
        triangle, weights = triangle_weights(kept)
        moments = np.zeros((kept, kept))
        moments[triangle] = noisy / weights / COARSE**2
        return moments + np.triu(moments, 1).T

    @property
    def sizes(self) -> Integers | None:
        """The noisy sizes of the classes, if they were released."""
        return self._table(SIZES)

    @property
    def waves(self) -> Waves | None:
        """The waves whose sums were released as well."""
        return self.spec.extras.waves if WAVES in self.drawn.parts else None

    @property
    def wave_sums(self) -> Integers | None:
        """Noisy sums of waves, classes × features, if they were released."""
        return self._table(WAVES)

    @property
    def corrections(self) -> Integers | None:
        """Noisy sums of all later passes together, classes × coordinates, if there were any."""
        return self._table(CORRECTIONS)

    @property
    def step(self) -> float:
        """How far corrections move directions."""
        law = self.drawn.parts[CORRECTIONS].law if CORRECTIONS in self.drawn.parts else None
        return law.step if isinstance(law, Corrections) else STEP

    @property
    def directions(self) -> Floats:
        """Where the classes lie, from their sums and corrections; about of length 1 where noise is small."""
        return class_directions(self.sums, self.deviation, self.corrections, self.step)

    def kernel_sums(self, points: Floats) -> Floats:
        """Return each point's inner product with each class's sum."""
        return np.asarray(self._measured(points) @ (self.sums / STEPS).T)

    def scores(self, points: Floats) -> Floats:
        """Return how alike points and classes are, whatever the classes' sizes and noise."""
        sums, vectors = self.sums / STEPS, self._measured(points)
        if self.moments is None:
            return np.asarray(vectors @ self.directions.T)
        scales, axes = self._within()
        sums, measured = sums @ axes / np.sqrt(scales), vectors @ axes / np.sqrt(scales)
        noise = self.deviation**2 / scales
        least = np.maximum(np.sum(sums**2 - noise, axis=1), 2 * math.sqrt(2 * np.sum(noise**2)))
        found = np.asarray(measured @ (sums / np.sqrt(least)[:, None]).T)
        if self.waves is None or self.wave_sums is None:
            return found
        lengths = np.linalg.norm(measured, axis=1, keepdims=True)
        cosines = found / np.where(lengths > 0, lengths, 1.0)
        near = self.waves.cosines(vectors, self.wave_sums, self._deviation(WAVES, self.waves.steps))
        return np.asarray((cosines + _WAVES_WEIGHT * near) / (1 + _WAVES_WEIGHT))

    def probabilities(self, points: Floats) -> Floats:
        """Return exponentials of the scores, at a scale of a twentieth, as shares: in the right order, uncalibrated."""
        scores = self.scores(points)
        likelihoods = np.exp((scores - scores.max(axis=1, keepdims=True)) / _COSINE_SCALE)
        return np.asarray(likelihoods / likelihoods.sum(axis=1, keepdims=True))

    def _measured(self, points: Floats) -> Floats:
        return np.concatenate([each for _, each in self.shape.chunks(self.spec.vectors(points))]) / STEPS

    def _within(self) -> tuple[Floats, Floats]:
        """Return how records vary within their classes: variances, raised to what noise leaves of them, and axes."""
        if self.moments is None or self.sizes is None:
            raise AssertionError("no second moments were released")
        dim, sums = self.shape.kept, self.sums / STEPS
        sizes = np.maximum(self.sizes, 2 * self._deviation(SIZES, 1))
        within = self.moments - (sums.T / sizes) @ sums + self.deviation**2 * np.sum(1 / sizes) * np.eye(dim)
        variances, axes = np.linalg.eigh(within)
        least = (
            _LEAST_NOISE * self._deviation(MOMENTS, DIAGONAL * COARSE**2) * math.sqrt(2 * dim)
            + _LEAST_VARIANCE * max(1.0, float(np.sum(sizes))) / dim
        )
        return np.maximum(variances, least), axes


def class_directions(sums: Integers, deviation: float, corrections: Integers | None, step: float) -> Floats:
    """Return where classes lie, from their noisy sums and from corrections so far."""
    found = sums / STEPS / np.sqrt(_squared_lengths(sums, deviation))[:, None]
    if corrections is None:
        return np.asarray(found)
    return np.asarray(found + step / (_typical_length(sums, deviation) * RESIDUAL * STEPS) * corrections)


def fitting_step(sums: Integers, deviation: float) -> float:
    """Return how far directions move for a correction of one class sum's length, from what the first pass released.

    Long steps carry the corrections' noise with them: half of one is as good if noise is small, and better if class
    sums are short beside it.
    """
    return _SHORT_STEP if _typical_length(sums, deviation) < _SHORT * deviation else STEP


def residual_sums(shape: EmbeddingMap, vectors: Floats, codes: Codes, directions: Floats) -> Integers:
    """Return the sums of residuals times vectors, classes × coordinates. Sensitive."""
    whole = np.rint(np.clip(directions, -_FARTHEST, _FARTHEST) * _DIRECTION)
    total = np.zeros(directions.shape, np.int64)
    for chosen, integers in shape.chunks(vectors):
        measured = integers.astype(np.float64)
        left = np.empty((len(measured), len(whole)))
        residuals(measured @ whole.T, codes[chosen], _SHARPNESS / (STEPS * _DIRECTION), RESIDUAL, left)
        total += (left.T @ measured).astype(np.int64)  # exact: a chunk's sums are below 2⁵³
    return total


def _typical_length(sums: Integers, deviation: float) -> float:
    """Return the root mean square of the classes' lengths."""
    return math.sqrt(np.mean(_squared_lengths(sums, deviation)))


def _squared_lengths(whole: Integers, deviation: float) -> Floats:
    """Return the squared length of each class's sum less that of noise, and two deviations of it more."""
    sums, noise = whole / STEPS, np.full(whole.shape[1], deviation**2)
    weights = _length_weights(sums, noise)
    squares = np.sum((sums**2 - noise) * weights, axis=1)  # in one order on every machine: later passes go on from it
    return np.asarray(np.maximum(squares, 0) + 2 * math.sqrt(2 * np.sum((weights * noise) ** 2)))


def _length_weights(sums: Floats, noise: Floats) -> Floats:
    """Return how much each coordinate counts in a class's length: less where noise is most of what all classes have.

    With b the mean square of the classes' sums less the noise's, never taken for less than the deviation that noise has
    in it: √(b/(b + noise)), such that the squared lengths of all classes add up to what they were.
    """
    if not np.any(noise):
        return np.ones(sums.shape[1])
    squares = np.maximum(np.mean(sums**2, axis=0) - noise, noise * math.sqrt(2 / len(sums)))
    weights = np.sqrt(squares / (squares + noise))
    return np.asarray(weights * (np.sum(squares) / np.sum(weights * squares)))


class ClassPartial(Sketch[ClassSpec, PrivateClassSums]):
    """Hold sums of vectors by class, of some of the records, for a classifier. Sensitive."""

    kind: ClassVar[str] = "classes"
    spec_type: ClassVar[Any] = ClassSpec

    _shape: EmbeddingMap

    @classmethod
    def measuring(cls, spec: ClassSpec, shape: EmbeddingMap) -> Self:
        """Start an empty partial, of which the spec has the map's sizes and digest only."""
        sketch = cls.from_spec(spec)
        sketch._shape = shape
        return sketch

    def _start(self, spec: ClassSpec) -> None:
        super()._start(spec)
        self.caveat: str | None = None  # what a guarantee has to say of the list of classes

    def count(self, points: Floats, codes: Codes, users: Any = None) -> Codes:
        """Add records by their points and classes. Return which of them count: a later pass reads the same."""
        chosen, counted = chosen_records(self._spec.unit, self._spec.seed, points, codes, users, self._counted)
        mass = checked_total(self._mass, self._spec.steps, 1, len(chosen))
        vectors = self._spec.vectors(points[chosen])
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._add_vectors(vectors, codes[chosen])
        return chosen

    def _add_vectors(self, points: Floats, codes: Codes) -> None:
        tables, waves = self._arrays, self._spec.extras.waves
        for chosen, vectors in self._shape.chunks(points):
            add_rows(tables[SUMS], codes[chosen], vectors)
            if waves is not None and WAVES in tables:
                waves.add(tables[WAVES], codes[chosen], vectors / STEPS)
        if MOMENTS in tables:
            triangle, weights = triangle_weights(self._shape.kept)
            tables[MOMENTS] += weights * _second_moments(self._shape, points)[triangle]
            tables[SIZES] += np.bincount(codes, minlength=len(tables[SIZES]))

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self.caveat = self.caveat or other.caveat

    def publish(self, budget: Budget, account: Account, again: tuple[Floats, Codes] | None = None) -> PrivateClassSums:
        """Charge the budget, draw what may be published, and return it.

        ``again`` are the points and classes of all records that count, for later passes.
        """
        spec = self._spec
        if again is None and spec.extras.passes > 1:
            raise InvalidInput("passes= goes with fit(), which has all records at once; nothing was charged.")
        note = f"density classifier, linear in {spec.measured.kept} dimensions"
        permit = Permit.pay(spec, spec.laws(budget), budget, account, note=note)
        arrays = {law.name: permit.draw(law, self._arrays) for law in permit.laws if law.name in self._arrays}
        later = tuple(law for law in permit.laws if law.name not in arrays and isinstance(law, Additive))
        parts: dict[str, Part] = {}
        if again is not None and later:
            vectors, codes = spec.vectors(again[0]), again[1]
            first = next(law for law in permit.laws if isinstance(law, Additive))
            sums, deviation = cast("Integers", arrays[SUMS]["table"]), math.sqrt(first.noise.variance) / STEPS
            step, total = fitting_step(sums, deviation), None
            for law in later:
                directions = class_directions(sums, deviation, total, step)
                arrays[law.name] = permit.draw(law, {law.name: residual_sums(self._shape, vectors, codes, directions)})
                noisy = cast("Integers", arrays[law.name]["table"])
                total = noisy if total is None else total + noisy
            parts[CORRECTIONS] = Part(Corrections(later, step), {"table": cast("Integers", total)})
        if self._shape.mean is not None and self._shape.directions is not None:
            parts[MAP] = Part(PublicMap(), {"mean": self._shape.mean, "directions": self._shape.directions})
        drawn = permit.drawn(caveat=self.caveat)
        own = {name: part for name, part in drawn.parts.items() if name in self._arrays}
        return PrivateClassSums(spec, replace(drawn, parts=own | parts))


def chosen_records(
    unit: Unit, seed: int, points: Floats, codes: Codes, users: Any, counted: CountedUsers
) -> tuple[Codes, CountedUsers]:
    """Choose the records that count, a user's being bounded over all classes together; and whom was counted after."""
    if unit.level == "record":
        if users is not None:
            raise InvalidInput("this classifier protects records: users= goes with unit=dps.per_user(max_keys=…).")
        return np.arange(len(points)), counted
    keys = VectorBatch(np.column_stack([points, codes]), None, 0).keys()
    chosen, _, counted, _ = bounded_points(unit, seed, keys, users, counted, False)
    return chosen, counted


def _second_moments(shape: EmbeddingMap, points: Floats) -> Integers:
    """Return Σ q qᵀ of vectors in coarse steps. Products of a chunk are exact in doubles."""
    total = np.zeros((shape.kept, shape.kept), np.int64)
    for start in range(0, len(points), 1 << 13):
        coarse = shape.integers(points[start : start + (1 << 13)], COARSE).astype(np.float64)
        total += (coarse.T @ coarse).astype(np.int64)
    return total
