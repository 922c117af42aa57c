"""Vectors of length at most 1 as integers: each record by itself, in one order of its coordinates.

A vector comes out as whole numbers whose squares sum to at most ``steps``², and whose sizes sum to at most ``limit``
where there is one. Both are held on the integers, whatever the floats before them did.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["add_rows", "whole_vectors"]

FINE = 1 << 20  # steps in which a vector is measured


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
        square = np.int64(0)
        total = np.int64(0)
        for j in range(dim):
            out[i, j] = np.int64(fine[j] * factor)
            square += out[i, j] * out[i, j]
        while square > steps * steps:
            square -= 2 * _shorten(out[i]) - 1
        for j in range(dim):
            total += abs(out[i, j])
        if limit > 0 and total > limit:
            factor = limit / total
            total = np.int64(0)
            for j in range(dim):
                out[i, j] = np.int64(out[i, j] * factor)
                total += abs(out[i, j])
            while total > limit:
                _shorten(out[i])
                total -= 1


@kernel
def add_rows(table: npt.NDArray[np.int64], places: npt.NDArray[np.intp], vectors: npt.NDArray[np.int64]) -> None:
    """Add each vector to the row of a table that is its own."""
    for i in range(len(vectors)):
        for j in range(vectors.shape[1]):
            table[places[i], j] += vectors[i, j]
