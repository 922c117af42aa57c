"""Kernel densities: from points to one column of each row of a table, and from columns to counters and back.

A row's function sends a point to a *code*, and a code to a column of the table:

- *lattice* (Euclidean, Manhattan): the whole part of a·x + b. Folded: the column is the code modulo the width.
  Otherwise, and for several codes a row, the column is a hash of the codes.
- *signs* (angular): one bit a direction, on which side of the plane orthogonal to it the point lies; no hash is needed.

Sums run over the coordinates from first to last, and the offset is added at the end, in double precision without fused
operations: the same point has the same column on every machine. Loops are vectorised over rows, which leaves each row's
order of summation as it is.

mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import mix
from dpsketch._compiled.kernel import kernel
from dpsketch._compiled.portable import LN2, LN2_HIGH, LN2_LOW

__all__ = [
    "add",
    "factor",
    "folded_columns",
    "hashed_columns",
    "landmark_features",
    "lattice_generator",
    "orthonormal",
    "read",
    "sign_columns",
    "smoothed_sums",
    "wave_features",
]

U32 = np.uint64(32)
LARGEST = np.uint64(2**64 - 1)
INVERSE = np.append(0.0, 1 / np.arange(1.0, 26.0))
# What a term of the cosine's and of the sine's series is of the one before.
OF_COSINE = np.append(0.0, [1 / ((2 * n - 1) * (2 * n)) for n in range(1, 13)])
HALVED = 0.5 ** np.arange(1100.0)
# Points that landmarks are solved for together, and how much of the factor is read at a time.
TOGETHER, TILE, COLUMNS = 32, 32, 256
OF_SINE = np.append(0.0, [1 / ((2 * n) * (2 * n + 1)) for n in range(1, 13)])


@kernel
def _project(point: npt.NDArray[np.float64], matrix: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> None:
    """Fill in the inner product of a point with each column of a dim × rows matrix."""
    for r in range(len(sums)):
        sums[r] = 0.0
    for j in range(len(point)):
        x = point[j]
        line = matrix[j]
        for r in range(len(sums)):
            sums[r] += x * line[r]


@kernel
def _lattice(
    point: npt.NDArray[np.float64],
    matrix: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.float64],
    codes: npt.NDArray[np.float64],
) -> None:
    """Fill in ⌊a·x + b⌋ for each row. Codes stay floats: they may pass 64 bits (Cauchy projections)."""
    _project(point, matrix, codes)
    for r in range(len(codes)):
        # Adding zero turns −0 into 0, which has other bits.
        codes[r] = np.floor(codes[r] + offsets[r]) + 0.0


@kernel
def folded_columns(
    points: npt.NDArray[np.float64], matrix: npt.NDArray[np.float64], offsets: npt.NDArray[np.float64], width: int
) -> npt.NDArray[np.int32]:
    """Return the column of each point in each row: the lattice code modulo the width."""
    rows = matrix.shape[1]
    columns = np.empty((len(points), rows), np.int32)
    codes = np.empty(rows)
    for i in range(len(points)):
        _lattice(points[i], matrix, offsets, codes)
        for r in range(rows):
            # Exact for whole numbers below 2⁵³ / width; an integer division would take four times as long.
            columns[i, r] = np.int32(codes[r] - width * np.floor(codes[r] / width))
    return columns


@kernel
def hashed_columns(
    points: npt.NDArray[np.float64],
    matrices: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.float64],
    row_keys: npt.NDArray[np.uint64],
    width: int,
) -> npt.NDArray[np.int32]:
    """Return the column of each point in each row: a hash of its ``len(matrices)`` lattice codes there."""
    power, _, rows = matrices.shape
    columns = np.empty((len(points), rows), np.int32)
    codes = np.empty(rows)
    bits = codes.view(np.uint64)
    hashes = np.empty(rows, np.uint64)
    for i in range(len(points)):
        hashes[:] = row_keys
        for p in range(power):
            _lattice(points[i], matrices[p], offsets[p], codes)
            for r in range(rows):
                hashes[r] = mix(hashes[r] ^ bits[r])
        for r in range(rows):
            columns[i, r] = np.int32(((hashes[r] >> U32) * np.uint64(width)) >> U32)
    return columns


@kernel
def sign_columns(points: npt.NDArray[np.float64], matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Return the column of each point in each row: bit p says whether its inner product with direction p is ≥ 0."""
    power, _, rows = matrices.shape
    columns = np.zeros((len(points), rows), np.int32)
    sums = np.empty(rows)
    for i in range(len(points)):
        for p in range(power):
            _project(points[i], matrices[p], sums)
            bit = np.int32(1 << p)
            for r in range(rows):
                if sums[r] >= 0.0:
                    columns[i, r] += bit
    return columns


@kernel
def add(table: npt.NDArray[np.int64], columns: npt.NDArray[np.int32]) -> None:
    """Add each point once to its counter in every row, in place."""
    for i in range(len(columns)):
        for r in range(len(table)):
            table[r, np.uint64(columns[i, r])] += 1


@kernel
def read(table: npt.NDArray[Any], columns: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """Return the counter of each point in each row, an array of points × rows."""
    cells = np.empty(columns.shape, table.dtype)
    for i in range(len(columns)):
        for r in range(len(table)):
            cells[i, r] = table[r, np.uint64(columns[i, r])]
    return cells


@kernel
def smoothed_sums(
    points: npt.NDArray[np.float64],
    matrices: npt.NDArray[np.float64],
    tables: npt.NDArray[np.int64],
    smoothing: float,
) -> npt.NDArray[np.float64]:
    """Return the mean over rows of each point's counters in each of several sign tables, planes being blurred.

    A plane at distance u from the point counts it on its upper side with weight ½ + u/(2h), between 0 and 1, and on its
    lower side with the rest; h is ``smoothing`` times the point's length over √dim, the typical distance of a plane.
    """
    power, dim, rows = matrices.shape
    result = np.zeros((len(points), len(tables)))
    distances = np.empty((power, rows))
    weights = np.empty(1 << power)
    for i in range(len(points)):
        square = 0.0
        for j in range(dim):
            square += points[i, j] * points[i, j]
        reach = 2.0 * smoothing * math.sqrt(square / dim)
        for p in range(power):
            _project(points[i], matrices[p], distances[p])
        for r in range(rows):
            weights[0] = 1.0
            filled = 1
            for p in range(power):
                u = distances[p, r]
                if reach > 0.0:
                    upper = min(1.0, max(0.0, 0.5 + u / reach))
                else:
                    upper = 1.0 if u >= 0.0 else 0.0
                for k in range(filled):
                    weights[filled + k] = weights[k] * upper
                    weights[k] *= 1.0 - upper
                filled *= 2
            for k in range(filled):
                if weights[k] > 0.0:
                    for c in range(len(tables)):
                        result[i, c] += weights[k] * tables[c, r, k]
        for c in range(len(tables)):
            result[i, c] /= rows
    return result


@kernel
def lattice_generator(rows: int, dims: int, candidates: int) -> int:
    """Return the a for which the points (1, a, a², …)·i/rows modulo 1 are spread most evenly over the unit cube.

    Korobov's lattices, by the worst-case error P₂ = mean of Π (1 + 2π²·B₂(x)) − 1, B₂(x) = x² − x + 1/6 (Sloan and Joe,
    1994); among all a coprime to ``rows``, or about ``candidates`` of them.
    """
    chosen = 1
    best = np.inf
    for a in range(1, rows, max(1, rows // candidates)):
        if math.gcd(a, rows) != 1:
            continue
        total = 0.0
        for i in range(rows):
            place = i
            product = 1.0
            for _ in range(dims):
                x = place / rows
                product *= 1.0 + 2.0 * math.pi * math.pi * (x * x - x + 1.0 / 6.0)
                place = place * a % rows
            total += product
        if total < best:
            best = total
            chosen = a
    return chosen


@kernel
def orthonormal(vectors: npt.NDArray[np.float64]) -> None:
    """Make the lines of an array orthonormal in place, in their order (Gram and Schmidt, modified)."""
    n, dim = vectors.shape
    for i in range(n):
        for k in range(i):
            inner = 0.0
            for j in range(dim):
                inner += vectors[i, j] * vectors[k, j]
            for j in range(dim):
                vectors[i, j] -= inner * vectors[k, j]
        square = 0.0
        for j in range(dim):
            square += vectors[i, j] * vectors[i, j]
        length = math.sqrt(square)
        for j in range(dim):
            vectors[i, j] /= length


@kernel
def _waves(turns: npt.NDArray[np.float64], cosines: npt.NDArray[np.float64], sines: npt.NDArray[np.float64]) -> None:
    """Fill in the cosines and sines of π·turns: Taylor's series up to a quarter turn, without divisions or branches."""
    for r in range(len(turns)):
        half = np.floor(turns[r] + 0.5)
        sign = 1.0 - 2.0 * (half - 2.0 * np.floor(0.5 * half))
        z = (turns[r] - half) * math.pi
        square = z * z
        cosine = 1.0
        sine = 1.0
        for n in range(12, 0, -1):
            cosine = 1.0 - cosine * square * OF_COSINE[n]
            sine = 1.0 - sine * square * OF_SINE[n]
        cosines[r] = sign * cosine
        sines[r] = sign * z * sine


@kernel
def wave_features(
    points: npt.NDArray[np.float64], matrix: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return two features a row: its size times the cosine and the sine of π times a point's inner product with it."""
    rows = matrix.shape[1]
    result = np.empty((len(points), 2 * rows))
    turns, cosines, sines = np.empty(rows), np.empty(rows), np.empty(rows)
    for i in range(len(points)):
        _project(points[i], matrix, turns)
        _waves(turns, cosines, sines)
        for r in range(rows):
            result[i, 2 * r] = sizes[r] * cosines[r]
            result[i, 2 * r + 1] = sizes[r] * sines[r]
    return result


@kernel
def _bells(
    point: npt.NDArray[np.float64],
    columns: npt.NDArray[np.float64],
    found: npt.NDArray[np.float64],
    halvings: npt.NDArray[np.float64],
) -> None:
    """Fill in exp(−c²/2) for the distance c of a point from each column of a dim × landmarks matrix.

    ``halvings`` is room for as many numbers: powers of two are looked up after the series, which has no branch then.
    """
    found[:] = 0.0
    for j in range(len(point)):
        x = point[j]
        line = columns[j]
        for r in range(len(found)):
            gap = x - line[r]
            found[r] += gap * gap
    for r in range(len(found)):
        exponent = -0.5 * found[r] if found[r] < 1400.0 else -700.0  # also of what is no number
        k = np.floor(exponent / LN2 + 0.5)
        rest = (exponent - k * LN2_HIGH) - k * LN2_LOW
        series = 1.0
        for n in range(14, 0, -1):
            series = 1.0 + series * rest * INVERSE[n]
        found[r] = series
        halvings[r] = -k
    for r in range(len(found)):
        found[r] *= HALVED[int(halvings[r])]  # exact


@kernel
def factor(columns: npt.NDArray[np.float64], added: float) -> npt.NDArray[np.float64]:
    """Return Cholesky's factor of the landmarks' similarities, with so much added to the diagonal; line j is column j.

    Sums run in one order, so that every machine has the same factor.
    """
    size = columns.shape[1]
    result = np.zeros((size, size))
    points, halvings = columns.T.copy(), np.empty(size)
    for j in range(size):
        _bells(points[j], columns, result[j], halvings)
        result[j, j] += added
    for j in range(size):
        root = math.sqrt(result[j, j])
        result[j, :j] = 0.0
        for i in range(j, size):
            result[j, i] /= root
        done = result[j]
        for k in range(j + 1, size):
            times = done[k]
            line = result[k]
            for i in range(k, size):
                line[i] -= times * done[i]
    return result


@kernel
def _solve(lines: npt.NDArray[np.float64], lower: npt.NDArray[np.float64]) -> None:
    """Solve lines by a factor in place, in tiles of it that stay in the cache while all lines use them.

    Every number has the numbers before it subtracted from first to last, whatever the tiles and the other lines are.
    """
    size = len(lower)
    for start in range(0, size, TILE):
        stop = min(start + TILE, size)
        for i in range(len(lines)):
            line = lines[i]
            for j in range(start, stop):
                value = line[j] / lower[j, j]
                line[j] = value
                rest, below = line[j + 1 : stop], lower[j, j + 1 : stop]
                for k in range(len(rest)):
                    rest[k] -= value * below[k]
        for first in range(stop, size, COLUMNS):  # a tile that is cut short is the last
            last = min(first + COLUMNS, size)
            for i in range(len(lines)):
                line, rest = lines[i], lines[i, first:last]
                for j in range(start, stop, 4):
                    a, b, c, d = line[j], line[j + 1], line[j + 2], line[j + 3]
                    one, two = lower[j, first:last], lower[j + 1, first:last]
                    three, four = lower[j + 2, first:last], lower[j + 3, first:last]
                    for k in range(len(rest)):
                        rest[k] = (((rest[k] - a * one[k]) - b * two[k]) - c * three[k]) - d * four[k]


@kernel
def landmark_features(
    points: npt.NDArray[np.float64], columns: npt.NDArray[np.float64], lower: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the similarities to the landmarks, solved by their factor, and what they leave of a length of 1."""
    size = columns.shape[1]
    result = np.empty((len(points), size + 1))
    halvings, block = np.empty(size), np.empty((TOGETHER, size))
    for start in range(0, len(points), TOGETHER):
        lines = block[: min(TOGETHER, len(points) - start)]
        for i in range(len(lines)):
            _bells(points[start + i], columns, lines[i], halvings)
        _solve(lines, lower)
        for i in range(len(lines)):
            left = 1.0
            for j in range(size):
                left -= lines[i, j] * lines[i, j]
                result[start + i, j] = lines[i, j]
            result[start + i, size] = math.sqrt(max(0.0, left))
    return result
