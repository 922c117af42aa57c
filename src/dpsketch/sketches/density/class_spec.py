"""State the public spec of a classifier by class sums: its map of vectors, its tables and their shares of a budget.

**The map** turns a vector into integers of bounded length, each record by itself. A vector is taken as it is, or less a
public mean and along public directions, rescaled to length 1. Inputs, mean and directions are integers before they are
multiplied, and products and sums stay below 2⁵³: matrix products are exact whatever their order, so that a record's
integers do not depend on the batch that it came in.

**Waves**, summed by class, count near records more than far ones. A sum of vectors tells where the middle of a class
lies. A class of several kinds of record has no middle that is like them; with waves φ whose inner products are about
exp(−‖x − z‖²/2h²) (Rahimi and Recht, 2007), φ(z)·Σφ(x) counts the records near z. A record's waves depend on the record
alone, and are held to length 1 on integers.

**Tables.** A record's integers q, ‖q‖ ≤ S = 2¹⁶, are added to the row of its class. Beside these sums, a release may
have the second moments of all records, the sizes of the classes and the classes' sums of waves; or the corrections of
later passes, each of which reads all records again (:mod:`~dpsketch.sketches.density.class_sums`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.vectors import whole_vectors
from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Law
from dpsketch.core.move import AcuteMove, Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.kernels import Gaussian
from dpsketch.laws.calibration import noise_for
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole, real_number, whole_number
from dpsketch.privacy import Budget, PureCost, Unit
from dpsketch.sketches.density.functions import Bounds, FeatureMap, Shape, feature_map
from dpsketch.sketches.density.spec import read_bounds
from dpsketch.sketches.specs import Spec

STEPS = 1 << 16  # of the longest vector
_FINE, _DIRECTION = 1 << 20, 1 << 15
_CHUNK = 1 << 13
_LEAST_DIMS, _DIMS_OF_A_GUESS = 16, 64
_LARGEST_DIM = 1 << 14  # so that sums of products stay below 2⁵³


@stored
@dataclass(frozen=True, slots=True)
class MapSpec:
    """What a file's header says of an :class:`EmbeddingMap`: its sizes, and the digest of its arrays if it has any."""

    dim: int
    kept: int
    limit: int
    digest: str | None

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=_LARGEST_DIM)
        hold_whole(self, "kept", low=1, high=self.dim)
        hold_whole(self, "limit", low=0, high=_LARGEST_DIM * STEPS)
        if self.digest is None and self.kept != self.dim:
            raise InvalidInput("vectors that are taken as they are keep all coordinates.")

    @property
    def sizes(self) -> int:
        """The largest sum of a vector's sizes."""
        return self.limit or STEPS * self.kept


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """From vectors to integers. Public.

    Attributes
    ----------
    dim : int
        Coordinates of a vector that comes in.
    mean : numpy.ndarray or None
        What is subtracted, in steps of 2⁻²⁰; None where vectors are taken as they are.
    directions : numpy.ndarray or None
        Along which vectors are measured, dim × kept, in steps of 2⁻¹⁵.
    limit : int
        The largest sum of sizes, for Laplace noise; 0 where there is none.
    """

    dim: int
    mean: Integers | None = None
    directions: Integers | None = None
    limit: int = 0

    def __post_init__(self) -> None:
        whole_number("dim", self.dim, low=1)
        if self.dim > _LARGEST_DIM:
            raise InvalidInput(f"vectors have at most {_LARGEST_DIM:,} coordinates.")
        whole_number("limit", self.limit, low=0, high=_LARGEST_DIM * STEPS)
        # Beyond these sums of products would be rounded, and follow the batch.
        for name, array, most in (("mean", self.mean, _FINE), ("directions", self.directions, _DIRECTION)):
            if array is not None and np.any((array < -most) | (array > most)):
                raise InvalidInput(f"the {name} of vectors lie beyond what vectors of length 1 have.")
        if self.kept > self.dim:
            raise InvalidInput("vectors are measured along at most as many directions as they have coordinates.")

    @classmethod
    def fitted(cls, public: Any, dim: int, kept: int) -> Self:
        """Return the map by the mean and the first principal directions of public vectors."""
        vectors = _public_vectors(public, dim)
        units = _whole(vectors, unit_length=True) / STEPS
        mean = units.mean(axis=0)
        _, directions = np.linalg.eigh(np.atleast_2d(np.cov(units.T)))
        return cls(dim, np.rint(mean * _FINE).astype(np.int64), _stepped(directions[:, ::-1][:, :kept]))

    @classmethod
    def rotated(cls, dim: int, kept: int, seed: int) -> Self:
        """Return the map along random directions, with a limit on the sum of sizes that few vectors meet."""
        normal = np.random.default_rng(seed).normal(size=(dim, dim))
        directions, _ = np.linalg.qr(normal)
        return cls(dim, np.zeros(dim, np.int64), _stepped(directions[:, :kept]), _size_limit(kept))

    @property
    def kept(self) -> int:
        """Coordinates that come out."""
        return self.dim if self.directions is None else self.directions.shape[1]

    @property
    def spec(self) -> MapSpec:
        """Its sizes, and a digest of mean and directions."""
        if self.directions is None or self.mean is None:
            return MapSpec(self.dim, self.kept, self.limit, None)
        parts = (np.ascontiguousarray(part, "<i8").tobytes() for part in (self.mean, self.directions))
        return MapSpec(self.dim, self.kept, self.limit, hashlib.sha256(b"".join(parts)).hexdigest())

    def chunks(self, points: Floats) -> Iterator[tuple[slice, Integers]]:
        """Yield the integers of the points, some at a time."""
        for start in range(0, len(points), _CHUNK):
            chosen = slice(start, min(start + _CHUNK, len(points)))
            yield chosen, self.integers(points[chosen])

    def integers(self, points: Floats, steps: int = STEPS) -> Integers:
        """Return the integers of points: their squares sum to at most steps²."""
        if self.directions is None or self.mean is None:
            return _whole(points, steps, limit=self.limit)
        fine = _whole(points, _FINE) - self.mean
        measured = fine.astype(np.float64) @ self.directions.astype(np.float64)  # exact
        return _whole(measured / (_FINE * _DIRECTION), steps, unit_length=True, limit=self.limit)


def embedding_map(
    dim: int, budget: Budget, classes: int, public: Any, records: float | None, dims: int | None, seed: int
) -> EmbeddingMap:
    """Choose the map for a budget, by public facts alone.

    Gaussian noise in a score does not grow with the dimensions, so vectors are taken as they are, or along half as many
    public directions: what the noise leaves uncertain is a sum's own length, by σ²√(2d). Laplace noise does grow: about
    0.3·ε records of a class for each dimension were best on embeddings of texts.
    """
    kept = None if dims is None else whole_number("dims", dims, low=1, high=dim)
    guess = None if records is None else real_number("expected_records", records)
    if guess is not None and not 0 < guess < math.inf:
        raise InvalidInput("expected_records must be a positive number: a public guess at how many there are.")
    if isinstance(budget.cost, PureCost):
        fitting = _DIMS_OF_A_GUESS if guess is None else round(0.3 * budget.cost.epsilon * guess / classes)
        kept = kept or min(dim, max(_LEAST_DIMS, fitting))
        if public is None:
            return EmbeddingMap.rotated(dim, kept, seed)
        fitted = EmbeddingMap.fitted(public, dim, kept)
        return replace(fitted, limit=_size_limit(kept))
    if public is None:
        if kept is not None:
            raise InvalidInput("dims= goes with public=, or with pure ε: Gaussian noise gains nothing from fewer.")
        return EmbeddingMap(dim)
    return EmbeddingMap.fitted(public, dim, kept or max(1, dim // 2))


def _size_limit(kept: int) -> int:
    """Return a limit on the sum of sizes just above that of a vector of length 1 in a random direction."""
    return math.floor(1.05 * STEPS * math.sqrt(2 * kept / math.pi))


def _public_vectors(public: Any, dim: int) -> Floats:
    """Check public vectors."""
    try:
        vectors = np.asarray(public, dtype=np.float64)
    except (TypeError, ValueError):
        vectors = np.empty(0)  # refused below, without a word of what it holds
    if vectors.ndim != 2 or vectors.shape[1] != dim or len(vectors) < 2 or not np.all(np.isfinite(vectors)):
        raise InvalidInput(f"public= must be two or more vectors of {dim} finite numbers, by the same encoder.")
    return vectors


def _stepped(directions: Floats) -> Integers:
    return np.rint(directions * _DIRECTION).astype(np.int64)


def _whole(points: Floats, steps: int = STEPS, *, unit_length: bool = False, limit: int = 0) -> Integers:
    out = np.empty(points.shape, np.int64)
    whole_vectors(np.ascontiguousarray(points, dtype=np.float64), steps, unit_length, limit, out)
    return out


_PAIRS = 2048
_BANDWIDTH = 0.5  # of vectors of length 1
_MOST_CELLS = 1 << 24  # of all classes
_WAVE_CHUNK = 256


def fitting_waves(dim: int, classes: int, seed: int) -> Waves | None:
    """Return the waves for vectors of length 1; None where the classes are so many that their sums take too much."""
    waves = Waves(dim, _PAIRS, seed, _BANDWIDTH)
    return waves if classes * waves.features <= _MOST_CELLS else None


@stored
@dataclass(frozen=True, slots=True)
class Waves:
    """Which waves are summed. Public.

    Attributes
    ----------
    dim : int
        Coordinates of a vector.
    pairs : int
        Waves, each with a cosine and a sine.
    seed : int
        From which their directions follow.
    bandwidth : float
        At which distance records count for exp(−1/2).
    """

    dim: int
    pairs: int
    seed: int
    bandwidth: float

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1)
        hold_whole(self, "pairs", low=1, high=_PAIRS)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        hold_real(self, "bandwidth")
        Gaussian(self.dim, self.bandwidth)  # refuses what is no bandwidth

    @property
    def features(self) -> int:
        """Numbers of a record."""
        return 2 * self.pairs

    @property
    def steps(self) -> int:
        """Steps of a length of 1."""
        return self._shape.steps

    @property
    def _shape(self) -> Shape:
        return Shape("fourier", Gaussian(self.dim, self.bandwidth), self.pairs, self.seed, None, None)

    @property
    def _map(self) -> FeatureMap:
        return feature_map(self._shape)

    def move(self, records: int) -> Move:
        """Return how far a unit of so many records moves the sums of all classes.

        A record is in one class. Its waves have a length of 1 at most, and may point the other way.
        """
        squares, sizes = self._shape.contribution
        return Move(records * sizes, records**2 * squares, records * self.features, records * self.steps, signed=True)

    def add(self, table: Integers, codes: npt.NDArray[np.intp], vectors: Floats) -> None:
        """Add the waves of vectors to the rows of their classes."""
        for code in np.unique(codes):
            own = vectors[codes == code]
            for start in range(0, len(own), _WAVE_CHUNK):
                self._map.add(table[code], own[start : start + _WAVE_CHUNK], self._shape.contribution)

    def cosines(self, vectors: Floats, sums: Integers, deviation: float) -> Floats:
        """Return about the cosine of each vector's waves and each class's sum, less where noise hides the class."""
        noisy, noise = sums / self.steps, deviation**2
        lengths = np.maximum(np.sum(noisy**2, axis=1) - noise * self.features, 0)
        directions = noisy / np.sqrt(lengths + 2 * noise * math.sqrt(2 * self.features))[:, None]
        found = np.empty((len(vectors), len(sums)))
        for start in range(0, len(vectors), _WAVE_CHUNK):
            chosen = slice(start, start + _WAVE_CHUNK)
            found[chosen] = self._map.values(vectors[chosen]) @ directions.T
        return found


Labels = tuple[bool | int | float | str, ...]

SUMS, MOMENTS, SIZES, WAVES = "sums", "moments", "sizes", "waves"

COARSE = 1 << 10  # steps of a vector in second moments
DIAGONAL, OTHERS = 5, 7  # weights of second moments
RESIDUAL = 1 << 12  # steps of a residual in a later pass
_MOMENTS_SHARE, _SIZES_SHARE, _WAVES_SHARE = 0.1, 0.05, 0.6
_LATER, _SECOND = 5, 10  # the first pass's share of the budget in later ones'; in the second one's of two
_MOST_PASSES = 32
_LEAST_CLASS = 80  # records of a class, in deviations of its sum's noise
_PASSES_CLASS, _FEW_PASSES, _MANY_PASSES = 60, 2, 9


@stored
@dataclass(frozen=True, slots=True)
class Extras:
    """What a release holds beside the sums of vectors.

    Attributes
    ----------
    moments : float
        The share of the budget for second moments; 0 if none are counted.
    waves : Waves or None
        Which waves are counted beside them.
    passes : int
        How often records are read; after the first time, for corrections.
    """

    moments: float = 0.0
    waves: Waves | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        hold_real(self, "moments")
        object.__setattr__(self, "passes", passes_of(self.passes))
        if not 0 <= self.moments < 1:
            raise InvalidInput("the share of second moments must be at least 0 and below 1.")


@stored
@dataclass(frozen=True, slots=True)
class ClassSpec(Spec):
    """All that two partials of a classifier by class sums must share to merge. Public.

    Attributes
    ----------
    labels : tuple of labels
        The public list of classes.
    unit : Unit
        Whose presence a release hides.
    measured : MapSpec
        How vectors are measured.
    extras : Extras
        What is counted beside the sums of vectors.
    seed : int
        By which a user's records are chosen.
    bounds : tuple of (low, high) or None
        Public bounds between which features are scaled first.
    """

    labels: Labels
    unit: Unit
    measured: MapSpec
    extras: Extras
    seed: int
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        hold_whole(self, "seed")
        object.__setattr__(self, "bounds", read_bounds(self.bounds, self.measured.dim))
        if not isinstance(self.unit, Unit) or self.unit.max_weight != 1:
            raise InvalidInput("unit must be dps.per_record() or dps.per_user(max_keys=…), with max_weight 1.")
        if self.extras.waves is not None and self.extras.waves.dim != self.measured.kept:
            raise InvalidInput("waves have as many coordinates as vectors keep.")

    @property
    def dim(self) -> int:
        """The number of features."""
        return self.measured.dim

    @property
    def steps(self) -> int:
        """The most that a record adds to one cell."""
        return max(table.move.most for table in self.tables()) // self.unit.max_keys

    def tables(self) -> tuple[Table, ...]:
        """Return the class sums and what goes beside them.

        Privacy
        -------
        A record lies in one class, so that a unit of m records moves the sums of all classes by at most m·S in L2. Its
        vectors may turn round.

        *Second moments* are the upper triangle of Σ q₁q₁ᵀ, ‖q₁‖ ≤ 2¹⁰, diagonal cells times 5 and others times 7:
        25Σqᵢ⁴ + 49Σ_{i<j}qᵢ²qⱼ² = 24.5‖q‖⁴ + ½Σqᵢ⁴ ≤ 25‖q‖⁴, an L2 of 5·2²⁰. The inner product of two such vectors,
        24.5(x·y)² + ½Σxᵢ²yᵢ², is not negative.

        *Corrections* are sums of r qᵀ. The residual r is cut to whole steps of 2⁻¹², with squares that sum to at most
        2²⁴ and sizes that sum to at most 2·2¹²; so r qᵀ has a length of at most 2²⁸, held on the integers. It depends
        on the record and on what was released before: costs of Gaussian noise add up in that case as well.
        """
        classes, kept, records = len(self.labels), self.measured.kept, self.unit.max_keys
        length = records * STEPS
        move = Move(records * self.measured.sizes, length**2, records * kept, length, signed=True)
        found = [Table(SUMS, (classes, kept), move)]
        if self.extras.passes > 1:
            length = records * RESIDUAL * STEPS
            move = Move(2 * length * kept, length**2, classes * kept, length, signed=True)
            names = (f"corrections-{number}" for number in range(2, self.extras.passes + 1))
            found += [Table(name, (classes, kept), move) for name in names]
        elif self.extras.moments:
            length, pairs = records * DIAGONAL * COARSE**2, kept * (kept + 1) // 2
            found.append(Table(MOMENTS, (pairs,), AcuteMove(length * kept, length**2, pairs, length, signed=True)))
            found.append(Table(SIZES, (classes,), Move.heaped(records, records)))
            if self.extras.waves is not None:
                found.append(Table(WAVES, (classes, self.extras.waves.features), self.extras.waves.move(records)))
        return tuple(found)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of an empty sketch; corrections are computed from what was released before."""
        return {name: array for name, array in Spec.arrays(self).items() if name in (SUMS, MOMENTS, SIZES, WAVES)}

    def shares(self) -> dict[Table, float]:
        """Return the tables with their shares of a budget: a later pass has a fifth of the first one's."""
        sums, *beside = self.tables()
        passes = self.extras.passes
        each = 1 / ((_SECOND if passes == 2 else _LATER) + passes - 1)
        stated = {MOMENTS: self.extras.moments, SIZES: _SIZES_SHARE, WAVES: _WAVES_SHARE}
        found = {table: stated.get(table.name, each) for table in beside}
        return {sums: 1 - math.fsum(found.values()) if found else 1.0, **found}

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        if len(laws) == 1:
            return f"{laws[0].words}, on every coordinate of every class's sum"
        return "; ".join(f"{law.words}, on {_in_words(law.name)}" for law in laws)

    def vectors(self, points: Floats) -> Floats:
        """Return vectors of length at most 1, but for what the map itself scales down."""
        return points if self.bounds is None else scaled_between(points, self.bounds) / np.sqrt(points.shape[1])


def _in_words(name: str) -> str:
    known = {SUMS: "the class sums", MOMENTS: "the second moments", SIZES: "the class sizes"}
    known[WAVES] = "the classes' sums of waves"
    return known.get(name) or f"the corrections of pass {name.partition('-')[2]}"


def check_labels(labels: Labels) -> None:
    """Refuse labels that are not a list of two or more, all of one type."""
    if len(set(labels)) < max(2, len(labels)) or len({type(label) for label in labels}) > 1:
        raise InvalidInput("a classifier has two or more different labels, all of one type.")


def scaled_between(X: Floats, bounds: Bounds) -> Floats:
    """Return features moved into public bounds, and scaled from them to [−1, 1]."""
    lows, highs = np.array(bounds).T
    return np.asarray((np.clip(X, lows, highs) - (lows + highs) / 2) / ((highs - lows) / 2))


def triangle_weights(kept: int) -> tuple[tuple[Integers, Integers], Integers]:
    """Return which second moments are released, and how many times each enters its table."""
    triangle = np.triu_indices(kept)
    return triangle, np.where(triangle[0] == triangle[1], DIAGONAL, OTHERS)


def passes_of(asked: object) -> int:
    """Check how often records are read."""
    return whole_number("passes", asked, low=1, high=_MOST_PASSES)


def fitting_extras(
    budget: Budget, unit: Unit, measured: MapSpec, records: float | None, classes: int, seed: int, *, scaled: bool
) -> Extras:
    """Choose what is released beside the sums: nothing unless there are records enough to tell it from noise.

    With ``noise`` the standard deviation of a class sum's noise if all of the budget went there, beside vectors of
    length 1: second moments and waves pay from about 2·noise·dim^1.5 records on, if each class has 80 times the noise;
    with smaller classes the sums miss the share more than they gain. Measured on embeddings of texts. The waves'
    bandwidth is for vectors of length 1, so features that were ``scaled`` between bounds have none.
    """
    noise = _noise_of(budget, unit, measured)
    if records is None or records < max(2 * noise * measured.kept**1.5, _LEAST_CLASS * noise * classes):
        return Extras()
    return Extras(_MOMENTS_SHARE, None if scaled else fitting_waves(measured.kept, classes, seed))


def fitting_passes(
    asked: object, budget: Budget, unit: Unit, measured: MapSpec, records: float | None, classes: int
) -> int:
    """Return how often records are read: as asked, or for "auto" what pays by public facts.

    With ``noise`` as for :func:`fitting_extras`: nine passes if a class has 60 times the noise, and two if it has
    less. Seen on embeddings of texts: on one data set nine are ahead of two from 40 on, on another from 55.
    """
    if asked != "auto":
        return passes_of(asked)
    if records is None:
        raise InvalidInput("passes='auto' follows from expected_records=, a public guess at how many there are.")
    return _MANY_PASSES if records >= _PASSES_CLASS * _noise_of(budget, unit, measured) * classes else _FEW_PASSES


def _noise_of(budget: Budget, unit: Unit, measured: MapSpec) -> float:
    """Return the noise of a class sum if all of the budget goes there, beside vectors of length 1."""
    (sums,) = ClassSpec((0, 1), unit, measured, Extras(), 0).tables()
    noise = noise_for(budget, sums.between(unit.neighbours))
    return math.sqrt(noise.variance) / STEPS if isinstance(noise, RoundedGaussian) else math.inf
