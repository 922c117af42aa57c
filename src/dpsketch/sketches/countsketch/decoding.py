"""Joint decoding: estimate many candidate keys together, so that the heavy ones stop hiding the others.

A collision with a heavy key is an error only as long as that key's count is unknown. Given candidates, the keys that
stand out are fitted together by least squares and their part is subtracted from the table; what is left has smaller
counters, in which more keys stand out. The rest is estimated on what remains. Everything here is post-processing.

The table also says whether this helped: the error of pseudo-keys on what remains, enlarged for the freedom that the
fit had, is compared with their error on the table as it was; where it is not smaller, nothing is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.sketches.countsketch.locating import (
    MEDIAN,
    Location,
    choose_location,
    pseudo_cells,
    root_mean_square,
)

__all__ = ["Decoded", "joint_decode"]

Floats = npt.NDArray[np.float64]

_ROUNDS = 12
# A key stands out when its estimate passes this many standard errors; among a million absent ones less than one does.
_STANDS_OUT = 5.0
# More fitted keys than this share of the counters leave too little to judge the fit by.
_LARGEST_FIT = 0.4
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Decoded:
    """A jointly decoded table.

    Attributes
    ----------
    values : numpy.ndarray
        An estimate for each candidate, in counters.
    remaining : numpy.ndarray
        The table without the fitted keys' part.
    location : Location
        How the rest was estimated on it.
    inflation : float
        By how much errors seen on ``remaining`` are to be enlarged for the freedom of the fit.
    fitted : int
        How many keys were fitted; 0 where plain estimation was better.
    """

    values: Floats
    remaining: Floats
    location: Location
    inflation: float
    fitted: int


def joint_decode(
    table: npt.NDArray[np.int64],
    prints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    noise_scale: float,
) -> Decoded:
    """Estimate candidates (distinct fingerprints) together."""
    counters = table.astype(np.float64)
    plain = _finish(counters, counters, np.empty(0, np.int64), np.empty(0), prints, row_keys, noise_scale)
    best, least = plain, _error(plain)
    chosen, fit = np.empty(0, np.int64), np.empty(0)
    remaining = counters
    for _ in range(_ROUNDS):
        estimates = _located(remaining, prints, row_keys, MEDIAN)
        estimates[chosen] += fit
        # A standard error that a crowd of large counters cannot mislead: that of the estimate itself on pseudo-keys.
        error = float(np.quantile(np.abs(MEDIAN(pseudo_cells(remaining))), 0.6827))
        standing = np.flatnonzero(estimates > _STANDS_OUT * max(error, 1e-12))
        limit = int(_LARGEST_FIT * table.size)
        if len(standing) > limit:
            standing = standing[np.argsort(-estimates[standing], kind="stable")[:limit]]
            standing.sort()
        if len(standing) == 0 or np.array_equal(standing, chosen):
            break
        chosen = standing
        fit = _least_squares(counters, prints[chosen], row_keys, estimates[chosen])
        remaining = counters - _spread(prints[chosen], row_keys, fit, table.shape)
        attempt = _finish(counters, remaining, chosen, fit, prints, row_keys, noise_scale)
        if _error(attempt) < least:
            best, least = attempt, _error(attempt)
    return best


def _finish(
    counters: Floats,
    remaining: Floats,
    chosen: npt.NDArray[np.int64],
    fit: Floats,
    prints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    noise_scale: float,
) -> Decoded:
    location = choose_location(remaining, noise_scale)
    values = _located(remaining, prints, row_keys, location)
    values[chosen] += fit
    # Generalised cross-validation: residuals of a fit with p parameters to n counters are too small by 1 - p/n.
    return Decoded(values, remaining, location, 1 / (1 - len(chosen) / counters.size), len(chosen))


def _error(decoded: Decoded) -> float:
    return decoded.inflation * root_mean_square(decoded.location(pseudo_cells(decoded.remaining)))


def _located(
    table: Floats, prints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64], location: Location
) -> Floats:
    result = np.empty(len(prints))
    for start in range(0, len(prints), _CHUNK):
        result[start : start + _CHUNK] = location(kernels.row_values(table, prints[start : start + _CHUNK], row_keys))
    return result


def _spread(
    prints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64], values: Floats, shape: tuple[int, ...]
) -> Floats:
    """Return the table that keys with these values would make: A·values."""
    table = np.zeros(shape)
    kernels.add_weighted(table, prints, row_keys, values)
    return table


def _least_squares(
    counters: Floats, prints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64], start: Floats
) -> Floats:
    """Solve min ‖counters − A·x‖ by conjugate gradients on the normal equations, from a good start."""

    def gather(table: Floats) -> Floats:
        sums: Floats = kernels.row_values(table, prints, row_keys).sum(axis=1)
        return sums

    x = start.copy()
    residual = gather(counters - _spread(prints, row_keys, x, counters.shape))
    direction = residual.copy()
    size = float(residual @ residual)
    goal = 1e-10 * max(size, 1e-300)
    for _ in range(200):
        if size <= goal:
            break
        image = gather(_spread(prints, row_keys, direction, counters.shape))
        curvature = float(direction @ image)
        if curvature <= 0:
            break
        step = size / curvature
        x += step * direction
        residual -= step * image
        new_size = float(residual @ residual)
        direction = residual + (new_size / size) * direction
        size = new_size
    return x
