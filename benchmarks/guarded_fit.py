"""The decoder that messages replaced, to be compared with: least squares on the keys that stand out.

The keys whose median passes five standard errors are fitted together, their part is subtracted, and more stand out on
what is left. The rest is read off that. Pseudo-keys on what is left, enlarged for the freedom that the fit had, say
whether it helped; where they do not, nothing is fitted, and neither with fewer than three rows, where a heavy count
would be divided among all who share its cell. It has no interval that covers its heaviest keys, because
what it leaves is smaller than what a key met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.sketches.countsketch import PrivateCountSketch
from dpsketch.sketches.countsketch.estimates import (
    MEDIAN,
    Location,
    choose_location,
    pseudo_cells,
    root_mean_square,
)

Floats = npt.NDArray[np.float64]
Prints = npt.NDArray[np.uint64]

LEAST_ROWS = 3
ROUNDS = 12
STANDS_OUT = 5.0
LARGEST_FIT = 0.4
CHUNK = 1 << 16


def fitted(private: PrivateCountSketch, keys: npt.NDArray[np.int64]) -> Floats:
    """Estimate keys by the guarded fit."""
    table, scale = private.table.astype(np.float64), private.noise_scale / private.spec.grid
    prints, rows = fingerprint(keys).fingerprints, row_keys(private.spec.seed, private.spec.rows)
    best, least = finished(table, table, np.empty(0, np.int64), np.empty(0), prints, rows, scale)
    chosen, fit, left = np.empty(0, np.int64), np.empty(0), table
    for _ in range(ROUNDS if len(rows) >= LEAST_ROWS else 0):
        estimates = located(left, prints, rows, MEDIAN)
        estimates[chosen] += fit
        error = float(np.quantile(np.abs(MEDIAN(pseudo_cells(left))), 0.6827))
        standing = np.flatnonzero(estimates > STANDS_OUT * max(error, 1e-12))
        most = int(LARGEST_FIT * table.size)
        if len(standing) > most:
            standing = np.sort(standing[np.argsort(-estimates[standing], kind="stable")[:most]])
        if len(standing) == 0 or np.array_equal(standing, chosen):
            break
        chosen = standing
        fit = least_squares(table, prints[chosen], rows, estimates[chosen])
        left = table - spread(prints[chosen], rows, fit, table.shape)
        attempt, seen = finished(table, left, chosen, fit, prints, rows, scale)
        if seen < least:
            best, least = attempt, seen
    return private.spec.grid * best


def finished(
    table: Floats, left: Floats, chosen: npt.NDArray[np.int64], fit: Floats, prints: Prints, rows: Prints, scale: float
) -> tuple[Floats, float]:
    """Return all keys' estimates after a fit, and the error that pseudo-keys see."""
    location = choose_location(left, scale)
    values = located(left, prints, rows, location)
    values[chosen] += fit
    return values, root_mean_square(location(pseudo_cells(left))) / (1 - len(chosen) / table.size)


def located(table: Floats, prints: Prints, rows: Prints, location: Location) -> Floats:
    """Read keys off a table."""
    pieces = [prints[start : start + CHUNK] for start in range(0, len(prints), CHUNK)]
    return np.concatenate([location(kernels.row_values(table, piece, rows)) for piece in pieces])


def spread(prints: Prints, rows: Prints, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Return the table that keys with these values make: A·values."""
    table = np.zeros(shape)
    kernels.add_weighted(table, prints, rows, values)
    return table


def least_squares(table: Floats, prints: Prints, rows: Prints, start: Floats) -> Floats:
    """Solve min ‖table − A·x‖ by conjugate gradients on the normal equations."""

    def gather(cells: Floats) -> Floats:
        sums: Floats = kernels.row_values(cells, prints, rows).sum(axis=1)
        return sums

    x = start.copy()
    residual = gather(table - spread(prints, rows, x, table.shape))
    direction = residual.copy()
    size = float(residual @ residual)
    goal = 1e-10 * max(size, 1e-300)
    for _ in range(200):
        image = gather(spread(prints, rows, direction, table.shape))
        curvature = float(direction @ image)
        if size <= goal or curvature <= 0:
            break
        x += size / curvature * direction
        residual -= size / curvature * image
        before, size = size, float(residual @ residual)
        direction = residual + size / before * direction
    return x
