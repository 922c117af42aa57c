"""From a kernel and a seed to the hash function of each row, the same on every machine.

All that is random comes from 64-bit words that :func:`dpsketch.hashing.row_keys` derives from the seed, and from
functions of :mod:`dpsketch._compiled.portable`; NumPy's generators and the C library's functions take no part.

**Stratified directions.** A row's function is a point of a unit cube: a direction, a length and a shift. Rows by
themselves must be uniform in it, or the estimate would be biased; but together they may be spread evenly, so that the
mean over rows is nearer the mean over all functions. Up to five coordinates are a lattice under a random shift, more
are a Latin hypercube; in five or more dimensions, directions come in random orthonormal frames, of which each vector is
uniform on the sphere. The functions inside one row (``power`` > 1) are independent: each has a shift and an order of
rows of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import density as compiled
from dpsketch._compiled import portable
from dpsketch.arrays import Floats
from dpsketch.hashing import row_keys
from dpsketch.kernels import Angular, Euclidean, HashKernel, Jaccard, Kernel, Manhattan
from dpsketch.sketches.density.points import SetBatch, VectorBatch

__all__ = ["FARTHEST", "LARGEST", "RowFunctions", "collides", "folds", "frozen", "on_lattice", "row_functions"]


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
    item_keys : numpy.ndarray
        power × rows: the keys that hash items of sets.
    row_keys : numpy.ndarray
        The keys that hash codes to columns.
    order : numpy.ndarray
        The rows in an order in which neighbours are alike, where they are stratified.
    """

    kernel: HashKernel
    matrices: Floats
    offsets: Floats
    item_keys: npt.NDArray[np.uint64]
    row_keys: npt.NDArray[np.uint64]
    order: npt.NDArray[np.intp]

    def columns(self, batch: VectorBatch | SetBatch, width: int, rows: slice = slice(None)) -> npt.NDArray[np.int32]:
        """Return the column of each point in each of the rows asked for."""
        keys = self.row_keys[rows]
        if isinstance(batch, SetBatch):
            return compiled.set_columns(batch.items, batch.starts, frozen(self.item_keys[:, rows]), keys, width)
        matrices, offsets = frozen(self.matrices[:, :, rows]), frozen(self.offsets[:, rows])
        match self.kernel:
            case Angular():
                return compiled.sign_columns(np.clip(batch.values, -LARGEST, LARGEST), matrices)
            case Euclidean(bandwidth=bandwidth) | Manhattan(bandwidth=bandwidth):
                scaled = np.clip(batch.values / bandwidth, -FARTHEST, FARTHEST)
                if folds(self.kernel):
                    return compiled.folded_columns(scaled, matrices[0], offsets[0], width)
                return compiled.hashed_columns(scaled, matrices, offsets, keys, width)
            case Jaccard():
                raise TypeError("a Jaccard kernel takes sets")
            case _:
                assert_never(self.kernel)

    def smoothed_sums(
        self, batch: VectorBatch, tables: npt.NDArray[np.int64], smoothing: float
    ) -> npt.NDArray[np.float64]:
        """Return kernel sums of an angular kernel in each table, its planes being blurred; points × tables."""
        points = np.clip(batch.values, -LARGEST, LARGEST)
        return compiled.smoothed_sums(points, self.matrices, tables, smoothing)


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
    if isinstance(kernel, Jaccard) or kernel.directions == "independent" or kernel.power > 1:
        return False
    return kernel.dim < _LATTICE_DIMS and not (isinstance(kernel, Angular) and kernel.dim > 2)


@lru_cache(maxsize=8)
def row_functions(kernel: HashKernel, rows: int, seed: int) -> RowFunctions:
    """Return the hash functions of a sketch's rows."""
    order = np.arange(rows)
    power = kernel.power
    matrices, offsets, item_keys = np.empty((power, 0, rows)), np.empty((power, rows)), np.empty((power, 0), np.uint64)
    match kernel:
        case Jaccard():
            item_keys = row_keys(seed, power * rows, "density items").reshape(power, rows)
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
    return RowFunctions(kernel, *(frozen(array) for array in (matrices, offsets, item_keys, keys, order)))


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
