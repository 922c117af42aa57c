"""Classes by the noisy sums of their vectors: one pass, and a score that noise and size do not sway.

*Release.* A record's integers q, ‖q‖ ≤ S = 2¹⁶, are added to the row of its class: all classes together move by S in L2
under add/remove. Replaced, a record may turn round within its class: 2S. Where second moments are asked for, the
upper triangle of Σ q₁q₁ᵀ is released too, ‖q₁‖ ≤ 2¹⁰, diagonal cells times 5 and others times 7:
25Σqᵢ⁴ + 49Σ_{i<j}qᵢ²qⱼ² = 24.5‖q‖⁴ + ½Σqᵢ⁴ ≤ 25‖q‖⁴, an L2 of 5·2²⁰; two such vectors have an inner product of
24.5(x·y)² + ½Σxᵢ²yᵢ² ≥ 0, so that replacing moves them by √2 times that at most. Class sizes go with them, and the
classes' sums of waves (:mod:`~dpsketch.sketches.density.class_waves`).

*Score.* With N the noisy sum of a class in d coordinates, each with noise of variance σ², ‖N‖² is ‖true‖² + dσ² on
average, with a deviation of σ²√(2d) where there is nothing but noise. The score z·N/√(max(‖N‖² − dσ², 0) + 2σ²√(2d)) is
the cosine where a class is clear, and small where it is not. In the length, coordinate j has a weight of
vⱼ ∝ √(bⱼ/(bⱼ + σ²)), bⱼ the mean of the classes' squares less σ²: where all classes together have little but noise, it
says less of each one's length. Then Σvⱼ(Nⱼ² − σ²) is taken for ‖N‖² − dσ², and σ²√(2Σvⱼ²) for its deviation.

With second moments, vectors are first measured along directions in which records of one class vary alike (linear
discriminant analysis with noisy moments), all coordinates have one weight, and twice the cosine of the waves is added
to that of the vectors.

Where records are read again (:mod:`~dpsketch.sketches.density.class_passes`), corrections are added to N over its
length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.vectors import add_rows
from dpsketch.arrays import Floats, Integers
from dpsketch.errors import InvalidInput
from dpsketch.noise import RoundedGaussian
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.class_passes import (
    STEP,
    correction_scale,
    correction_shares,
    fitting_step,
    later_passes,
    passes_of,
)
from dpsketch.sketches.density.class_waves import Waves, fitting_waves
from dpsketch.sketches.density.embedding import STEPS, EmbeddingMap
from dpsketch.sketches.permit import Calibration, Permit, Share, additive
from dpsketch.sketches.specs import Sensitivity

__all__ = [
    "COARSE",
    "DIAGONAL",
    "MOMENTS",
    "OTHERS",
    "SIZES",
    "SUMS",
    "WAVES",
    "Extras",
    "HeldSums",
    "PrivateClassSums",
    "calibrate",
    "fitting_extras",
    "fitting_passes",
]

Codes = npt.NDArray[np.intp]

SUMS, MOMENTS, SIZES = "the class sums", "the second moments", "the class sizes"
WAVES = "the classes' sums of waves"

COARSE = 1 << 10  # steps of a vector in second moments
DIAGONAL, OTHERS = 5, 7
_MOMENTS_SHARE, _SIZES_SHARE, _WAVES_SHARE = 0.1, 0.05, 0.6
_WAVES_WEIGHT = 2.0  # beside the cosine of the vectors
_LEAST_CLASS = 80  # records of a class, in deviations of its sum's noise
_PASSES_CLASS, _FEW_PASSES, _MANY_PASSES = 60, 2, 9
_LEAST_NOISE, _LEAST_VARIANCE = 0.3, 0.1  # where variances within classes are raised to, beside noise and records


class Extras(NamedTuple):
    """What a release holds beside the sums of vectors.

    Attributes
    ----------
    moments : float
        The share of the budget for second moments; 0 where none are counted.
    waves : Waves or None
        Which waves are counted beside them.
    passes : int
        How often records are read; after the first time, for corrections.
    """

    moments: float = 0.0
    waves: Waves | None = None
    passes: int = 1


def fitting_extras(
    budget: Budget, unit: Unit, shape: EmbeddingMap, records: float | None, labels: int, seed: int, *, scaled: bool
) -> Extras:
    """Choose what is released beside the sums: nothing unless there are records enough to tell it from noise.

    With ``noise`` the standard deviation of a class sum's noise if all of the budget went there, beside vectors of
    length 1: second moments and waves pay from about 2·noise·dim^1.5 records on, if each class has 80 times the noise;
    with smaller classes the sums miss the share more than they gain. Measured on embeddings of texts. The waves'
    bandwidth is for vectors of length 1, so features that were ``scaled`` between bounds have none.
    """
    noise = _noise_of(budget, unit, shape)
    if records is None or records < max(2 * noise * shape.kept**1.5, _LEAST_CLASS * noise * labels):
        return Extras()
    return Extras(_MOMENTS_SHARE, None if scaled else fitting_waves(shape.kept, labels, seed))


def fitting_passes(
    asked: object, budget: Budget, unit: Unit, shape: EmbeddingMap, records: float | None, labels: int
) -> int:
    """Return how often records are read: as asked, or for "auto" what pays by public facts.

    With ``noise`` as for :func:`fitting_extras`: nine passes where a class has 60 times the noise, and two where it has
    less. Seen on embeddings of texts: on one data set nine are ahead of two from 40 on, on another from 55.
    """
    if asked != "auto":
        return passes_of(asked)
    if records is None:
        raise InvalidInput("passes='auto' follows from expected_records=, a public guess at how many there are.")
    return _MANY_PASSES if records >= _PASSES_CLASS * _noise_of(budget, unit, shape) * labels else _FEW_PASSES


def calibrate(budget: Budget, unit: Unit, shape: EmbeddingMap, extras: Extras) -> Calibration:
    """Return the noise of a release at this budget, with shares of it for what goes beside the sums."""
    vectors = unit.max_keys * (2 if unit.neighbours == "replace" else 1)
    sums = Sensitivity(vectors * (shape.limit or STEPS * shape.kept), float(vectors * STEPS))
    if not extras.moments and extras.passes == 1:
        calibrated = additive(budget, Share(SUMS, sums))
        return replace(calibrated, words=f"{calibrated.law(SUMS).words}, on every coordinate of every class's sum")
    beside = correction_shares(unit, shape, extras.passes) or _shares_beside(unit, shape, extras)
    calibrated = additive(budget, Share(SUMS, sums, 1 - math.fsum(share.part for share in beside)), *beside)
    return replace(
        calibrated, words="; ".join(f"{calibrated.law(part.name).words}, on {part.name}" for part in calibrated.parts)
    )


def _shares_beside(unit: Unit, shape: EmbeddingMap, extras: Extras) -> list[Share]:
    """Return the parts of what is counted beside the sums."""
    records, replaced = unit.max_keys, unit.neighbours == "replace"
    apart = math.nextafter(math.sqrt(2), 2) if replaced else 1.0
    squares = records * apart * DIAGONAL * COARSE**2
    sizes = Sensitivity(records * (2 if replaced else 1), records * apart)
    beside = [
        Share(MOMENTS, Sensitivity(math.ceil(squares * shape.kept), squares), extras.moments),
        Share(SIZES, sizes, _SIZES_SHARE),
    ]
    if extras.waves is not None:
        beside.append(Share(WAVES, extras.waves.sensitivity(unit), _WAVES_SHARE))
    return beside


@dataclass(frozen=True, eq=False)
class HeldSums:
    """What was counted of the classes. Sensitive.

    Attributes
    ----------
    shape : EmbeddingMap
        How vectors are measured.
    table, sizes : numpy.ndarray
        Sums of integers, classes × coordinates, and the classes' sizes.
    extras : Extras
        What is wanted beside the sums.
    squares : numpy.ndarray or None
        Second moments of all records, in coarse steps, where they are wanted.
    waves : numpy.ndarray or None
        Sums of waves, classes × features, where they are wanted.
    """

    shape: EmbeddingMap
    extras: Extras
    table: Integers
    sizes: Integers
    squares: Integers | None
    waves: Integers | None

    @classmethod
    def empty(cls, shape: EmbeddingMap, classes: int, extras: Extras) -> Self:
        """Return what is counted of nobody."""
        return cls(
            shape,
            extras,
            np.zeros((classes, shape.kept), np.int64),
            np.zeros(classes, np.int64),
            np.zeros((shape.kept, shape.kept), np.int64) if extras.moments else None,
            None if extras.waves is None else np.zeros((classes, extras.waves.features), np.int64),
        )

    @property
    def parts(self) -> dict[str, Integers]:
        """What is counted, by name."""
        held = {"table": self.table, "sizes": self.sizes, "squares": self.squares, "waves": self.waves}
        return {name: array for name, array in held.items() if array is not None}

    def add(self, points: Floats, codes: Codes) -> None:
        """Count vectors, each in its class."""
        for chosen, vectors in self.shape.chunks(points):
            add_rows(self.table, codes[chosen], vectors)
            if self.waves is not None and self.extras.waves is not None:
                self.extras.waves.add(self.waves, codes[chosen], vectors / STEPS)
        self.sizes[:] += np.bincount(codes, minlength=len(self.sizes))
        if self.squares is not None:
            self.squares[:] += _second_moments(self.shape, points)

    def absorb(self, other: HeldSums) -> None:
        """Add what another has counted."""
        for name, array in other.parts.items():
            self.parts[name][:] += array


@dataclass(frozen=True, eq=False)
class PrivateClassSums:
    """What was released of the classes. Public.

    Attributes
    ----------
    shape : EmbeddingMap
        How vectors are measured.
    sums : numpy.ndarray
        Noisy sums of integers, classes × coordinates.
    deviation : float
        The noise's standard deviation in a sum, beside vectors of length 1.
    moments, sizes : numpy.ndarray or None
        Noisy second moments of all records, and the classes' sizes.
    moment_deviation, size_deviation : float
        Their noise, on the diagonal and on a size.
    waves : Waves or None
        The waves whose sums were released too.
    wave_sums : numpy.ndarray or None
        Noisy sums of them, classes × features.
    wave_deviation : float
        Their noise, beside waves of length 1.
    corrections : numpy.ndarray or None
        Noisy sums of all later passes together, classes × coordinates.
    step : float
        How far they move directions.
    """

    shape: EmbeddingMap
    sums: Integers
    deviation: float
    moments: Floats | None = None
    sizes: Integers | None = None
    moment_deviation: float = 0.0
    size_deviation: float = 0.0
    waves: Waves | None = None
    wave_sums: Integers | None = None
    wave_deviation: float = 0.0
    corrections: Integers | None = None
    step: float = STEP

    @classmethod
    def drawn(cls, held: HeldSums, permit: Permit) -> Self:
        """Draw all that the permit holds."""
        shape, laws = held.shape, {part.name: permit.calibration.law(part.name) for part in permit.calibration.parts}
        deviation = math.sqrt(laws[SUMS].variance) / STEPS
        sums = permit.add_noise(held.table, SUMS)
        if MOMENTS not in laws or held.squares is None:
            return cls(shape, sums, deviation)
        triangle = np.triu_indices(shape.kept)
        weights = np.where(triangle[0] == triangle[1], DIAGONAL, OTHERS)
        noisy = permit.add_noise(weights * held.squares[triangle], MOMENTS)
        moments = np.zeros((shape.kept, shape.kept))
        moments[triangle] = noisy / weights / COARSE**2
        moments = moments + np.triu(moments, 1).T
        sizes = permit.add_noise(held.sizes, SIZES)
        spread = math.sqrt(laws[MOMENTS].variance) / (DIAGONAL * COARSE**2)
        found = cls(shape, sums, deviation, moments, sizes, spread, math.sqrt(laws[SIZES].variance))
        waves = held.extras.waves
        if held.waves is None or waves is None:
            return found
        noisy = permit.add_noise(held.waves, WAVES)
        return replace(
            found, waves=waves, wave_sums=noisy, wave_deviation=math.sqrt(laws[WAVES].variance) / waves.steps
        )

    def corrected(self, vectors: Floats, codes: Codes, permit: Permit, passes: int) -> Self:
        """Read the records again, and draw what later passes correct."""
        stepped = replace(self, step=fitting_step(self._typical_length(), self.deviation))
        found = later_passes(
            self.shape,
            vectors,
            codes,
            lambda past: replace(stepped, corrections=past)._directions(),
            permit.add_noise,
            passes,
        )
        return self if found is None else replace(stepped, corrections=found)

    def _directions(self) -> Floats:
        """Return where the classes lie, from their sums and corrections; about of length 1 where noise is small."""
        found = self.sums / STEPS / np.sqrt(self._squared_lengths())[:, None]
        if self.corrections is None:
            return np.asarray(found)
        return np.asarray(found + correction_scale(self.step, self._typical_length()) * self.corrections)

    def _squared_lengths(self) -> Floats:
        return _lengths(self.sums / STEPS, np.full(self.shape.kept, self.deviation**2))

    def _typical_length(self) -> float:
        """Return the root mean square of the classes' lengths."""
        return math.sqrt(np.mean(self._squared_lengths()))

    def kernel_sums(self, points: Floats) -> Floats:
        """Return each point's inner product with each class's sum."""
        return np.asarray(self._measured(points) @ (self.sums / STEPS).T)

    def scores(self, points: Floats) -> Floats:
        """Return how alike points and classes are, whatever the classes' sizes and noise."""
        sums, measured = self.sums / STEPS, self._measured(points)
        if self.moments is None:
            return np.asarray(measured @ self._directions().T)
        scales, axes = self._within()
        sums, measured = sums @ axes / np.sqrt(scales), measured @ axes / np.sqrt(scales)
        noise = self.deviation**2 / scales
        least = np.maximum(np.sum(sums**2 - noise, axis=1), 2 * math.sqrt(2 * np.sum(noise**2)))
        found = np.asarray(measured @ (sums / np.sqrt(least)[:, None]).T)
        if self.waves is None or self.wave_sums is None:
            return found
        lengths = np.linalg.norm(measured, axis=1, keepdims=True)
        cosines = found / np.where(lengths > 0, lengths, 1.0)
        near = self.waves.cosines(self._measured(points), self.wave_sums, self.wave_deviation)
        return np.asarray((cosines + _WAVES_WEIGHT * near) / (1 + _WAVES_WEIGHT))

    def _measured(self, points: Floats) -> Floats:
        return np.concatenate([vectors for _, vectors in self.shape.chunks(points)]) / STEPS

    def _within(self) -> tuple[Floats, Floats]:
        """Return how records vary within their classes: variances, raised to what noise leaves of them, and axes."""
        if self.moments is None or self.sizes is None:
            raise AssertionError("no second moments were released")
        dim, sums = self.shape.kept, self.sums / STEPS
        sizes = np.maximum(self.sizes, 2 * self.size_deviation)
        within = self.moments - (sums.T / sizes) @ sums + self.deviation**2 * np.sum(1 / sizes) * np.eye(dim)
        variances, axes = np.linalg.eigh(within)
        least = (
            _LEAST_NOISE * self.moment_deviation * math.sqrt(2 * dim)
            + _LEAST_VARIANCE * max(1.0, float(np.sum(sizes))) / dim
        )
        return np.maximum(variances, least), axes


def _lengths(sums: Floats, noise: Floats) -> Floats:
    """Return the squared length of each class's sum less that of noise, and two deviations of it more."""
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


def _second_moments(shape: EmbeddingMap, points: Floats) -> Integers:
    """Return Σ q qᵀ of vectors in coarse steps. Products of a chunk are exact in doubles."""
    total = np.zeros((shape.kept, shape.kept), np.int64)
    for start in range(0, len(points), 1 << 13):
        coarse = shape.integers(points[start : start + (1 << 13)], COARSE).astype(np.float64)
        total += (coarse.T @ coarse).astype(np.int64)
    return total


def _noise_of(budget: Budget, unit: Unit, shape: EmbeddingMap) -> float:
    """Return the noise of a class sum if all of the budget goes there, beside vectors of length 1."""
    law = calibrate(budget, unit, shape, Extras()).law(SUMS)
    return math.sqrt(law.variance) / STEPS if isinstance(law, RoundedGaussian) else math.inf
