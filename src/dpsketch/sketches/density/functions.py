"""Map points to the hash cells of each row, or to features, the same on every machine.

All that is random comes from 64-bit words that :func:`dpsketch.hashing.row_keys` derives from the seed, and from
functions of :mod:`dpsketch._compiled.portable`; NumPy's generators and the C library's functions take no part.

**Stratified directions.** A row's function is a point of a unit cube: a direction, a length and a shift. Rows by
themselves must be uniform in it, or the estimate would be biased; but together they may be spread evenly, so that the
mean over rows is nearer the mean over all functions. Up to five coordinates are a lattice under a random shift, more
are a Latin hypercube; in five or more dimensions, directions come in random orthonormal frames, of which each vector is
uniform on the sphere. The functions inside one row (``power`` > 1) are independent: each has a shift and an order of
rows of its own.

**Features.** A kernel is an inner product of features, and a kernel sum is that with one noisy sum of them. With φ a
public map of ‖φ(x)‖ ≤ 1 and k(x, z) = φ(x)·φ(z), the answer φ(z)·(Σφ(x) + noise) has the noise of one coordinate,
whatever their number. What differs is how near φ(x)·φ(z) is to the kernel that is wanted:

- *fourier* (Rahimi and Recht, 2007): (cos ω·x, sin ω·x)/√rows for normal ω, spread as evenly as the rows of RACE are.
- *series*: the same at the frequencies of a period that is six bandwidths longer than the bounds, each with its weight
  in the Gaussian's own series. Nothing is sampled, and what is cut off is known.
- *nystrom*: similarities to public landmarks, solved by the Cholesky factor of their own. What it leaves of a vector's
  length, ρ(x) = √(1 − ‖φ(x)‖²), is one more coordinate, which costs nothing: |k(x, z) − φ(x)·φ(z)| ≤ ρ(x)·ρ(z), since
  what is left of a kernel is one too (a Schur complement), so that Σρ(x) bounds the error of every answer.
- *linear*: the vector itself, scaled down to length 1 where it is longer.
- *signs*: on which side of each of RACE's planes a point lies, as ±1 in one cell instead of 1 in one of two.

Privacy
-------
A record adds whole numbers, φ in steps of 2⁻²⁴ cut towards 0. Their squares' sum is held to that of a length of 1
and their sizes' sum to its own limit, on the integers and for each record by itself, in one order of summation.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import density as compiled
from dpsketch._compiled import portable
from dpsketch._compiled.vectors import add_features, inside_ball
from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.kernels import Angular, Euclidean, Gaussian, HashKernel, Kernel, Linear, Manhattan

# Coordinates beyond are moved to here, in bandwidths, so that every code of a folded row is an exact whole number.
FARTHEST = 2.0**30
# For directions alone, only overflow is to be avoided.
LARGEST = 1e150
# More coordinates than a lattice of a few hundred points can fill evenly.
_LATTICE_DIMS = 5
_SEARCH = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class RowFunctions:
    """The hash functions of all rows.

    Attributes
    ----------
    kernel : HashKernel
        The kernel they realise.
    matrices : numpy.ndarray
        power × dim × rows: the projections, in bandwidths.
    offsets : numpy.ndarray
        power × rows: the shifts, in bandwidths.
    row_keys : numpy.ndarray
        The keys that hash codes to columns.
    order : numpy.ndarray
        The rows in an order in which neighbours are alike, where they are stratified.
    """

    kernel: HashKernel
    matrices: Floats
    offsets: Floats
    row_keys: npt.NDArray[np.uint64]
    order: npt.NDArray[np.intp]

    def columns(self, points: Floats, width: int, rows: slice = slice(None)) -> npt.NDArray[np.int32]:
        """Return the column of each point in each of the rows asked for."""
        keys = self.row_keys[rows]
        matrices, offsets = frozen(self.matrices[:, :, rows]), frozen(self.offsets[:, rows])
        match self.kernel:
            case Angular():
                return compiled.sign_columns(np.clip(points, -LARGEST, LARGEST), matrices)
            case Euclidean(bandwidth=bandwidth) | Manhattan(bandwidth=bandwidth):
                scaled = np.clip(points / bandwidth, -FARTHEST, FARTHEST)
                if folds(self.kernel):
                    return compiled.folded_columns(scaled, matrices[0], offsets[0], width)
                return compiled.hashed_columns(scaled, matrices, offsets, keys, width)
            case _:
                assert_never(self.kernel)

    def smoothed_sums(self, points: Floats, tables: npt.NDArray[np.int64], smoothing: float) -> Floats:
        """Return kernel sums of an angular kernel in each table, its planes being blurred; points × tables."""
        return compiled.smoothed_sums(np.clip(points, -LARGEST, LARGEST), self.matrices, tables, smoothing)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a contiguous array that cannot be written to: numba compiles anew for each other kind."""
    result = np.ascontiguousarray(array)
    result.flags.writeable = False
    return result


def folds(kernel: Kernel) -> bool:
    """Say whether codes are taken modulo the width, which keeps near cells apart, instead of hashed."""
    return isinstance(kernel, Euclidean) and kernel.power == 1


def collides(kernel: HashKernel) -> bool:
    """Say whether unlike points meet in one of ``width`` columns by the chance of a hash, to be subtracted again."""
    return not (folds(kernel) or isinstance(kernel, Angular))


def on_lattice(kernel: HashKernel) -> bool:
    """Say whether the rows' functions are one lattice, so that each stands for an equal part of all functions."""
    if kernel.directions == "independent" or kernel.power > 1:
        return False
    return kernel.dim < _LATTICE_DIMS and not (isinstance(kernel, Angular) and kernel.dim > 2)


@lru_cache(maxsize=8)
def row_functions(kernel: HashKernel, rows: int, seed: int) -> RowFunctions:
    """Return the hash functions of a sketch's rows."""
    order = np.arange(rows)
    power = kernel.power
    offsets = np.empty((power, rows))
    match kernel:
        case Angular(dim=dim):
            matrices = np.stack([_normal_directions(kernel, rows, seed, stream, dim) for stream in range(power)])
        case Euclidean(dim=dim) | Manhattan(dim=dim):
            parts = [_lattice(kernel, rows, seed, stream, dim) for stream in range(power)]
            matrices, offsets = np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])
            if power == 1 and kernel.directions == "stratified":
                order = _snake(*parts[0][2])
        case _:
            assert_never(kernel)
    keys = row_keys(seed, rows, "density columns")
    return RowFunctions(kernel, *(frozen(array) for array in (matrices, offsets, keys, order)))


def _lattice(
    kernel: Euclidean | Manhattan, rows: int, seed: int, stream: int, dim: int
) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return one function a row: a dim × rows matrix, the shifts, and two coordinates that order the rows."""
    stratified = kernel.directions == "stratified"
    if isinstance(kernel, Manhattan):
        uniforms = (_stratified if stratified else _independent)(rows, dim + 1, seed, stream)
        return _cauchy(uniforms[:, 1:]), uniforms[:, 0], (uniforms[:, 1], uniforms[:, -1])
    if not stratified:
        uniforms = _independent(rows, 1, seed, stream)
        return _independent_normals(rows, seed, stream, dim), uniforms[:, 0], (uniforms[:, 0], uniforms[:, 0])
    if dim in (3, 4):
        uniforms = _stratified(rows, dim + 1, seed, stream)
        return _normal_quantiles(uniforms[:, 1:]), uniforms[:, 0], (uniforms[:, 1], uniforms[:, 2])
    uniforms = _stratified(rows, 3 if dim == 2 else 2, seed, stream)
    lengths = portable.chi_quantiles(np.ascontiguousarray(uniforms[:, -1]), dim)
    match dim:
        case 1:
            directions = np.ones((1, rows))
        case 2:
            directions = _half_circle(uniforms[:, 1])
        case _:
            directions = _frames(rows, seed, stream, dim)
    return lengths * directions, uniforms[:, 0], (uniforms[:, -1], uniforms[:, -2])


def _normal_directions(kernel: Angular, rows: int, seed: int, stream: int, dim: int) -> Floats:
    """Return one direction a row, as a dim × rows matrix; lengths do not matter."""
    if kernel.directions == "independent":
        return _independent_normals(rows, seed, stream, dim)
    if dim == 2:
        return _half_circle(_stratified(rows, 1, seed, stream)[:, 0])
    return _frames(rows, seed, stream, dim)


def _independent_normals(rows: int, seed: int, stream: int, dim: int) -> Floats:
    return portable.normals(row_keys(seed, 2 * dim * rows, f"density normals {stream}")).reshape(rows, dim).T.copy()


def _frames(rows: int, seed: int, stream: int, dim: int) -> Floats:
    """Return random orthonormal frames one after the other, one vector a row; the last frame may be cut short."""
    vectors = portable.normals(row_keys(seed, 2 * dim * rows, f"density frames {stream}")).reshape(rows, dim)
    for start in range(0, rows, dim):
        compiled.orthonormal(vectors[start : start + dim])
    return vectors.T.copy()


def _half_circle(levels: Floats) -> Floats:
    """Return directions in the upper half plane: the other half has the same cells."""
    return portable.circle(np.ascontiguousarray(levels))


def _normal_quantiles(levels: Floats) -> Floats:
    """Return the quantiles of the normal law, transposed: a sign, and the length of a vector in one dimension."""
    sizes = portable.chi_quantiles(np.abs(2 * levels - 1).ravel(), 1).reshape(levels.shape)
    return np.ascontiguousarray(np.copysign(sizes, levels - 0.5).T)


def _cauchy(levels: Floats) -> Floats:
    """Return the quantiles of the Cauchy law, transposed."""
    cosine, sine = portable.circle(levels.ravel())
    return np.ascontiguousarray(np.reshape(-cosine / sine, levels.shape).T)


def _independent(rows: int, dims: int, seed: int, stream: int) -> Floats:
    return portable.uniforms(row_keys(seed, rows * dims, f"density uniforms {stream}")).reshape(rows, dims)


def _stratified(rows: int, dims: int, seed: int, stream: int) -> Floats:
    """Return ``rows`` points of the unit cube, each uniform in it and together spread evenly."""
    orders = row_keys(seed, (dims + 1) * rows, f"density orders {stream}").reshape(dims + 1, rows).argsort(axis=1)
    if dims <= _LATTICE_DIMS:
        words = _korobov(rows, dims) + row_keys(seed, dims, f"density shifts {stream}")
        # The first function keeps the lattice's own order, in which rows of one remainder are spread evenly too.
        words = words if stream == 0 else words[orders[0]]
        return portable.uniforms(words.ravel()).reshape(rows, dims)
    return np.asarray((orders[:dims].T + _independent(rows, dims, seed, stream)) / rows)


def _korobov(rows: int, dims: int) -> npt.NDArray[np.uint64]:
    """Return a lattice of ``rows`` points of the unit cube, as 64-bit fractions."""
    factor = compiled.lattice_generator(rows, dims, max(16, _SEARCH // rows))
    words = np.empty((rows, dims), dtype=np.uint64)
    for j in range(dims):
        place = np.arange(rows, dtype=np.uint64) * np.uint64(pow(factor, j, rows)) % np.uint64(rows)
        # place · 2⁶⁴ / rows, rounded down, in two steps of 32 bits.
        upper, rest = np.divmod(place << np.uint64(32), np.uint64(rows))
        words[:, j] = (upper << np.uint64(32)) + (rest << np.uint64(32)) // np.uint64(rows)
    return words


def _snake(first: Floats, second: Floats) -> npt.NDArray[np.intp]:
    """Order the rows by strata of the first coordinate, up and down the second in turn, so that neighbours are near."""
    stratum = np.floor(first * math.isqrt(len(first)))
    within = np.where(stratum % 2 == 0, second, 1 - second)
    return np.lexsort((within, stratum))


Bounds = tuple[tuple[float, float], ...]
Features = Literal["race", "fourier", "series", "nystrom", "linear", "signs"]
FEATURES: tuple[Features, ...] = ("race", "fourier", "series", "nystrom", "linear", "signs")

STEPS = 1 << 24
_JITTER = 1e-6  # added to the landmarks' own similarities, so that they can be solved
_GAP = 6.0  # bandwidths between the bounds and their next image
_CUT = 5.3  # frequencies beyond have less than a millionth of the weight
# Dimensions in which the waves of Fourier features are drawn independently.
_UNEVEN = (3, 4)
_SERIES_DIMS = 3
_MOST_FREQUENCIES = 1 << 22
_MOST_NUMBERS = 1 << 16  # of all landmarks, which are in a file's header
_MOST_LANDMARKS = 1 << 12  # solving them takes their number to the third power


@stored
@dataclass(frozen=True, slots=True)
class Landmarks:
    """Public points of ``dim`` coordinates, none of them twice, packed as text that a file's header has room for."""

    dim: int
    packed: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            values = self.points
        except ValueError:
            values = np.empty(0)
        if self.packed != _packed(_read_landmarks(values, self.dim)):
            raise InvalidInput("landmarks are packed otherwise than dpsketch packs them.")

    @classmethod
    def of(cls, points: Any, dim: int) -> Self:
        """Return the landmarks of an array of public points."""
        return cls(dim, _packed(_read_landmarks(points, dim)))

    @property
    def points(self) -> Floats:
        """The points, one row each."""
        return _unpacked(self.packed, self.dim)

    def __len__(self) -> int:
        return len(self.points)


class FeatureBounds(NamedTuple):
    """How far a record moves the table at most: the sum of its squares, and of its sizes."""

    squares: int
    sizes: int


class Shape(NamedTuple):
    """What a map follows from, all public."""

    features: Features
    kernel: Kernel
    rows: int
    seed: int
    bounds: Bounds | None
    landmarks: Landmarks | None

    def check(self) -> None:
        """Refuse a kernel, or what goes with it, that the features are not for."""
        if self.features not in FEATURES:
            raise InvalidInput(f"features is one of {', '.join(FEATURES)}, not {self.features!r}.")
        match self.features, self.kernel:
            case "linear", Linear():
                pass
            case "signs", Angular(power=1):
                pass
            case (("fourier" | "series" | "nystrom"), Gaussian()):
                pass
            case _:
                fitting = {"linear": "Linear(dim)", "signs": "Angular(dim, power=1)"}
                kernel = fitting.get(self.features, "Gaussian(dim, bandwidth)")
                raise InvalidInput(f"features={self.features!r} goes with kernel=dps.kernels.{kernel}.")
        if (self.landmarks is not None) != (self.features == "nystrom"):
            raise InvalidInput("features='nystrom' and landmarks=, public points, go together.")
        if self.landmarks is not None and self.landmarks.dim != getattr(self.kernel, "dim", 0):
            raise InvalidInput("landmarks have as many coordinates as the kernel.")
        if self.features == "series" and (self.bounds is None or len(self.bounds) > _SERIES_DIMS):
            raise InvalidInput("features='series' needs bounds=, in at most three coordinates.")

    def own_rows(self, asked: int | None) -> int:
        """Return how many rows the features have, some being as many as are asked for."""
        match self.features:
            case "linear":
                return self.kernel.dim if isinstance(self.kernel, Linear) else 1
            case "nystrom":
                return len(self.landmarks or ()) + 1
            case "series" if isinstance(self.kernel, Gaussian) and self.bounds is not None:
                most = len(_frequencies(self.kernel, self.bounds)[1])
                if asked is not None and asked > most:
                    raise InvalidInput(
                        f"a series of this kernel has {most:,} rows between these bounds; leave rows out."
                    )
                return most if asked is None else asked
            case _:
                if asked is None:
                    raise InvalidInput("say rows=: how many functions to average over.")
                return asked

    @property
    def width(self) -> int:
        """Cells a row."""
        return 2 if self.features in ("fourier", "series") else 1

    @property
    def steps(self) -> int:
        """Steps of a feature's unit."""
        return 1 if self.features == "signs" else STEPS

    @property
    def contribution(self) -> FeatureBounds:
        """How far a record moves the table."""
        match self.features:
            case "signs":
                return FeatureBounds(self.rows, self.rows)
            case "series":
                return FeatureBounds(STEPS**2, math.ceil(STEPS * math.fsum(np.sqrt(2 * _series(self)[1]).tolist())))
            case _:
                return FeatureBounds(STEPS**2, math.isqrt(self.rows * self.width * STEPS**2))

    @property
    def error(self) -> float:
        """How far a record's similarity may be from the kernel, where it is known: what is cut of it."""
        # Cutting towards 0 takes less than a step of each feature, of which a query's sizes sum to √features at most.
        cut = 0.0 if self.features == "signs" else math.sqrt(self.rows * self.width) / STEPS
        return cut + (_series(self)[2] if self.features == "series" else 0.0)

    @property
    def sampled(self) -> bool:
        """Whether rows are a sample of all functions, so that how they differ shows the error."""
        return self.features in ("fourier", "signs")


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """From points to features. Public.

    Attributes
    ----------
    shape : Shape
        What it follows from.
    matrix : numpy.ndarray
        dim × rows: waves in half turns a bandwidth, planes, or landmarks.
    sizes : numpy.ndarray
        The largest size of each wave; empty for others.
    lower : numpy.ndarray
        The landmarks' factor; empty for others.
    order : numpy.ndarray
        The rows in an order in which neighbours are alike.
    """

    shape: Shape
    matrix: Floats
    sizes: Floats
    lower: Floats
    order: npt.NDArray[np.intp]

    def add(self, table: npt.NDArray[np.int64], points: Floats, held: FeatureBounds) -> None:
        """Add the features of points to a table, none moving it further than is held."""
        add_features(table.reshape(-1), self.values(points), self.shape.steps, held.squares, held.sizes)

    def values(self, points: Floats) -> Floats:
        """Return the features of each point, an array of points × (rows · width)."""
        match self.shape.features:
            case "fourier" | "series":
                return compiled.wave_features(_scaled(points, self.shape), self.matrix, self.sizes)
            case "nystrom":
                return compiled.landmark_features(_scaled(points, self.shape), self.matrix, self.lower)
            case "linear":
                return inside_ball(np.ascontiguousarray(points))
            case "signs":
                sides = compiled.sign_columns(np.clip(points, -LARGEST, LARGEST), self.matrix[None])
                return (2 * sides - 1).astype(np.float64)
            case _:
                raise AssertionError("RACE has cells, no features")


@lru_cache(maxsize=8)
def feature_map(shape: Shape) -> FeatureMap:
    """Return the map of a shape, the same on every machine."""
    order, none = np.arange(shape.rows), np.empty(0)
    match shape.kernel:
        case Gaussian(dim=dim) if shape.features == "fourier":
            # Euclidean rows project on the same normal vectors. In three and four dimensions those that are spread
            # evenly err together in some directions, which the differences between rows then do not show.
            even = dim not in _UNEVEN
            kernel = Euclidean(dim, 1.0, directions="stratified" if even else "independent")
            drawn = row_functions(kernel, shape.rows, shape.seed)
            sizes = np.full(shape.rows, 1 / math.sqrt(shape.rows))
            return FeatureMap(shape, frozen(drawn.matrices[0] / math.pi), sizes, none, drawn.order)
        case Gaussian() if shape.features == "series":
            waves, weights, _ = _series(shape)
            return FeatureMap(shape, frozen(waves), np.sqrt(weights), none, order)
        case Gaussian() if shape.landmarks is not None:
            columns = frozen(_scaled(shape.landmarks.points, shape).T)
            return FeatureMap(shape, columns, none, compiled.factor(columns, _JITTER), order)
        case Angular() as kernel:
            planes = row_functions(kernel, shape.rows, shape.seed)
            return FeatureMap(shape, planes.matrices[0], none, none, planes.order)
        case _:
            return FeatureMap(shape, none, none, none, order)


def fitting_features(kernel: Kernel, bounds: Bounds | None, landmarks: Landmarks | None) -> Features:
    """Return the features for a kernel where none are asked for."""
    match kernel:
        case Linear():
            return "linear"
        case Gaussian(dim=dim):
            if landmarks is not None:
                return "nystrom"
            return "series" if bounds is not None and dim <= _SERIES_DIMS else "fourier"
        case _:
            return "race"


@lru_cache(maxsize=8)
def _series(shape: Shape) -> tuple[Floats, Floats, float]:
    """Return the waves of a series, dim × rows in half turns a bandwidth, their weights, and what is cut off."""
    if not isinstance(shape.kernel, Gaussian) or shape.bounds is None:
        raise AssertionError("a series is of a Gaussian kernel between bounds")
    waves, masses, total = _frequencies(shape.kernel, shape.bounds)
    kept = masses[: shape.rows]
    left = max(0.0, 1 - math.fsum(kept.tolist()) / total)
    images = 4 * shape.kernel.dim * math.exp(-(_GAP**2) / 2)
    return waves[:, : shape.rows], kept / math.fsum(kept.tolist()), 2 * left + images


@lru_cache(maxsize=8)
def _frequencies(kernel: Gaussian, bounds: Bounds) -> tuple[Floats, Floats, float]:
    """Return all frequencies worth keeping, the heaviest first, their masses, and the mass of all there are.

    A wave and the one that runs the other way are one pair of features, with the mass of both.
    """
    lows, highs = np.array(bounds).T
    with np.errstate(over="ignore"):
        periods = ((highs - lows) / kernel.bandwidth + _GAP).tolist()
    reach = [math.ceil(_CUT * min(period, float(_MOST_FREQUENCIES)) / (2 * math.pi)) for period in periods]
    if math.prod(2 * each + 1 for each in reach) > _MOST_FREQUENCIES:
        raise InvalidInput(
            "the bandwidth is too narrow for a series between these bounds: it would have millions of frequencies. "
            "Take a wider one, narrower bounds, or features='fourier'."
        )
    axes = [np.arange(-each, each + 1) for each in reach]
    numbers = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")])
    waves = numbers * np.array([2 / period for period in periods])[:, None]  # in half turns a bandwidth
    squares = np.zeros(waves.shape[1])
    for line in waves:
        squares += (math.pi * line) ** 2
    # The later half of a symmetric grid runs the other way round.
    forward = np.arange(len(squares)) >= len(squares) // 2
    chosen = np.flatnonzero(forward & (squares <= _CUT**2))
    chosen = chosen[np.argsort(squares[chosen], kind="stable")]
    masses = np.array([portable.exponential(-square / 2) for square in squares[chosen].tolist()])
    masses[1:] *= 2
    total = math.prod(
        math.fsum(math.exp(-((2 * math.pi * k / period) ** 2) / 2) for k in range(-3 * most, 3 * most + 1))
        for period, most in zip(periods, reach, strict=True)
    )
    return np.ascontiguousarray(waves[:, chosen]), masses, total


def _read_landmarks(points: Any, dim: int) -> Floats:
    """Return public points as an array of finite numbers, each point once."""
    try:
        values = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim == 1 and dim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != dim or len(values) < 1 or not np.all(np.isfinite(values)):
        raise InvalidInput(f"landmarks must be public points of {dim} finite numbers each.")
    if values.size > _MOST_NUMBERS:
        raise InvalidInput(f"landmarks: at most {_MOST_NUMBERS:,} numbers in all, and these are {values.size:,}.")
    found = dict.fromkeys(tuple(line) for line in values.tolist())
    if len(found) > _MOST_LANDMARKS:
        raise InvalidInput(
            f"landmarks: at most {_MOST_LANDMARKS:,} points, and these are {len(found):,}. The time to solve them "
            "grows with the third power of their number: take a sample of them."
        )
    return np.array(list(found))


@lru_cache(maxsize=8)
def _unpacked(packed: str, dim: int) -> Floats:
    return np.frombuffer(base64.b64decode(packed, validate=True), "<f8").reshape(-1, max(1, dim))


def _packed(points: Floats) -> str:
    return base64.b64encode(points.astype("<f8").tobytes()).decode()


def _scaled(points: Floats, shape: Shape) -> Floats:
    """Return points in bandwidths, from a public place among them: seconds since 1970 are far from 0."""
    if not isinstance(shape.kernel, Gaussian):
        raise AssertionError("only distances have a bandwidth")
    start = np.zeros(shape.kernel.dim)
    if shape.bounds is not None:
        start = np.array(shape.bounds)[:, 0]
    elif shape.landmarks is not None:
        start = shape.landmarks.points[0]
    with np.errstate(over="ignore"):  # what is too far for a double is moved to the farthest as well
        return np.ascontiguousarray(np.clip((points - start) / shape.kernel.bandwidth, -FARTHEST, FARTHEST))
