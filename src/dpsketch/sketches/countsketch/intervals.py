"""Intervals read off a released CountSketch table.

A released cell is a draw of the error, in one row, of a key that is absent: noise plus the signed counts that collide.
So the table itself shows how far estimates stray. An interval from the noise's σ alone would ignore the collisions and
cover 10–83% where it says 95%.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch.normal import normal_quantile
from dpsketch.sketches.countsketch.location import MEDIAN, PSEUDO_KEYS, Cells, Location, pseudo_cells
from dpsketch.student import beta_quantile, student_quantile

__all__ = ["error_quantile", "half_width", "normal_quantile"]

# A quantile is read off pseudo-keys only where at least so many of them lie beyond it.
_BEYOND = 20
_TAIL_GROWTH = 1.1
# Degrees of freedom from which on a series gives Student's quantile.
_MANY = 10_000


def half_width(table: Cells, location: Location, confidence: float) -> float:
    """Half-width, in counters, of an interval around a location estimate.

    For the median it is a closed form, for others the quantile of their error on pseudo-keys. A confidence that rounds
    to 1, as that of each of many intervals may, has an interval without ends.
    """
    if confidence >= 1:
        return math.inf
    if location == MEDIAN:
        return _allowance(table.size - 1, confidence) * _median_half_width(table, confidence)
    return error_quantile(np.abs(location(pseudo_cells(table))), table, confidence)


def error_quantile(
    errors: npt.NDArray[np.float64], table: Cells, confidence: float, freedom: int | None = None
) -> float:
    """Return what errors stay within with this probability, given those of pseudo-keys on a table.

    The table is taken for that many independent cells and one, by default for as many as it has.

    Beyond what 20,000 of those can tell (as for a thousand intervals at once) the median's closed form takes over,
    enlarged by the ratio of the two where both are known; for what decoding left, with degrees of freedom given, also
    reduced by it.
    """
    if confidence >= 1:
        return math.inf
    limit = 1 - _BEYOND / PSEUDO_KEYS
    allowance = _allowance(table.size - 1 if freedom is None else freedom, confidence)
    if confidence <= limit:
        return allowance * _tail_quantile(errors, confidence)
    ratio = _tail_quantile(errors, limit) / max(_median_half_width(table, limit), 1e-12)
    # What is read off what decoding left has the median's tail, within a tenth, down to one in a million.
    least = 1.0 if freedom is None else min(1.0, _TAIL_GROWTH * ratio)
    return max(least, ratio) * allowance * _median_half_width(table, confidence)


def _allowance(freedom: int, confidence: float) -> float:
    """Return by how much a quantile grows because a table's few cells show the law of the errors by chance only.

    It is the ratio of Student's quantile, with so many degrees of freedom, to the normal one. Where
    those are many it is a series in their inverse (Abramowitz and Stegun, 26.7.5), right to 1e-11.
    """
    freedom, z = max(1, freedom), normal_quantile(confidence)
    if freedom >= _MANY and z < math.inf:
        first = (z**2 + 1) / 4
        second = (5 * z**4 + 16 * z**2 + 3) / 96
        third = (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384
        return 1 + (first + (second + third / freedom) / freedom) / freedom
    return student_quantile(freedom, (1 - confidence) / 2) / max(z, 1e-12)


def _median_half_width(table: Cells, confidence: float) -> float:
    """Half-width around the median of the rows.

    The median of ``rows`` symmetric draws stays below the row law's u-quantile with probability
    ``BetaInc(u; (rows+1)/2, (rows+1)/2)``; the row law is pooled over all cells.
    """
    u = beta_quantile((table.shape[0] + 1) / 2, (1 - confidence) / 2)
    return _tail_quantile(np.abs(table).ravel(), 2 * u - 1)


def _tail_quantile(sizes: npt.NDArray[np.int64] | npt.NDArray[np.float64], level: float) -> float:
    """Return the smallest observed size that a share ``level`` stays within; the largest where the data run out."""
    rank = min(len(sizes) - 1, max(0, math.ceil(level * (len(sizes) + 1)) - 1))
    return float(np.partition(sizes, rank)[rank])
