"""Vectors of length at most 1 as integers: each record by itself, in one order of its coordinates.

A vector comes out as whole numbers whose squares sum to at most ``steps``², and whose sizes sum to at most ``limit``
where there is one. Both are held on the integers, whatever the floats before them did.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel
from dpsketch._compiled.portable import exponential

__all__ = ["add_features", "add_rows", "inside_ball", "residuals", "whole_vectors"]

FINE = 1 << 20  # steps in which a vector is measured
FAR = 1.001  # beyond so many times its bound a vector is scaled down first, not step by step


@kernel
def _shorten(vector: npt.NDArray[np.int64]) -> np.int64:
    """Move the largest coordinate one step towards 0; return its size before."""
    largest = 0
    for j in range(1, len(vector)):
        if abs(vector[j]) > abs(vector[largest]):
            largest = j
    size = np.int64(abs(vector[largest]))
    vector[largest] += -1 if vector[largest] > 0 else 1
    return size


@kernel
def _hold(vector: npt.NDArray[np.int64], squares: int, sizes: int) -> None:
    """Shorten whole numbers until their squares sum to at most ``squares``, and their sizes to ``sizes`` (0: any)."""
    square = np.int64(0)
    total = np.int64(0)
    for j in range(len(vector)):
        square += vector[j] * vector[j]
    if square > FAR * squares:
        factor = np.sqrt(squares / square)
        square = np.int64(0)
        for j in range(len(vector)):
            vector[j] = np.int64(vector[j] * factor)
            square += vector[j] * vector[j]
    while square > squares:
        square -= 2 * _shorten(vector) - 1
    for j in range(len(vector)):
        total += abs(vector[j])
    if sizes > 0 and total > sizes:
        factor = sizes / total
        total = np.int64(0)
        for j in range(len(vector)):
            vector[j] = np.int64(vector[j] * factor)
            total += abs(vector[j])
        while total > sizes:
            _shorten(vector)
            total -= 1


@kernel
def whole_vectors(
    points: npt.NDArray[np.float64], steps: int, unit_length: bool, limit: int, out: npt.NDArray[np.int64]
) -> None:
    """Fill in the integers of each point.

    Points longer than 1 are scaled down to it, and with ``unit_length`` shorter ones up, but for 0. A coordinate is cut
    towards 0, and one that is no finite number is 0. ``limit`` 0 is none.
    """
    dim = points.shape[1]
    fine = np.empty(dim, np.int64)
    for i in range(len(points)):
        largest = 1.0
        for j in range(dim):
            if largest < abs(points[i, j]) < np.inf:
                largest = abs(points[i, j])
        square = np.int64(0)
        for j in range(dim):
            value = points[i, j] / largest
            fine[j] = np.int64(value * FINE) if abs(value) <= 1.0 else 0
            square += fine[j] * fine[j]
        if square > 0 and (unit_length or largest > 1.0 or square > FINE * FINE):
            factor = steps / np.sqrt(np.float64(square))
        else:
            factor = steps / FINE
        for j in range(dim):
            out[i, j] = np.int64(fine[j] * factor)
        _hold(out[i], steps * steps, limit)


@kernel
def add_rows(table: npt.NDArray[np.int64], places: npt.NDArray[np.intp], vectors: npt.NDArray[np.int64]) -> None:
    """Add each vector to the row of a table that is its own."""
    for i in range(len(vectors)):
        for j in range(vectors.shape[1]):
            table[places[i], j] += vectors[i, j]


@kernel
def add_features(
    table: npt.NDArray[np.int64], features: npt.NDArray[np.float64], steps: int, squares: int, sizes: int
) -> None:
    """Add the features of each record in whole steps, cut towards 0, none longer than is paid for."""
    vector = np.empty(len(table), np.int64)
    for i in range(len(features)):
        for j in range(len(table)):
            value = features[i, j]
            vector[j] = np.int64(value * steps) if abs(value) <= 2.0 else 0
        _hold(vector, squares, sizes)
        for j in range(len(table)):
            table[j] += vector[j]


@kernel
def inside_ball(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return points of length at most 1: longer ones are scaled down, each by itself."""
    dim = points.shape[1]
    result = np.empty(points.shape)
    for i in range(len(points)):
        largest = 1.0
        for j in range(dim):
            largest = max(largest, abs(points[i, j]))
        square = 0.0
        for j in range(dim):
            result[i, j] = points[i, j] / largest
            square += result[i, j] * result[i, j]
        if largest > 1.0 or square > 1.0:
            length = np.sqrt(square)
            for j in range(dim):
                result[i, j] /= length
    return result


@kernel
def residuals(
    inner: npt.NDArray[np.float64],
    codes: npt.NDArray[np.intp],
    sharpness: float,
    steps: int,
    out: npt.NDArray[np.float64],
) -> None:
    """Fill in what each record's own class lacks of probability 1, and the others have too much.

    Probabilities are the softmax of ``sharpness`` times the record's inner products. Whole steps, cut towards 0, whose
    squares sum to at most ``steps``²: longer ones are scaled down.
    """
    classes = inner.shape[1]
    shares = np.empty(classes)
    whole = np.empty(classes, np.int64)
    for i in range(len(inner)):
        largest = inner[i, 0]
        for c in range(1, classes):
            largest = max(largest, inner[i, c])
        total = 0.0
        for c in range(classes):
            shares[c] = exponential(max(sharpness * (inner[i, c] - largest), -700.0))
            total += shares[c]
        square = 0.0
        for c in range(classes):
            shares[c] = (1.0 if c == codes[i] else 0.0) - shares[c] / total
            square += shares[c] * shares[c]
        factor = steps / max(1.0, np.sqrt(square))
        for c in range(classes):
            whole[c] = np.int64(shares[c] * factor)
        _hold(whole, steps * steps, 0)
        for c in range(classes):
            out[i, c] = whole[c]
