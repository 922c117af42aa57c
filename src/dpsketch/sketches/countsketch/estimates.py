"""Estimate counts and their intervals from a released table.

**Location.** A key's signed cells give one number: their mean, their median, Huber's or Tukey's location, for a block
of keys at once. It is the same to the last bit whichever other keys are asked for with it. No single estimate is best.
Under noise alone the mean is; where heavy keys collide, one that ignores outliers; where nearly every cell collides,
the median. A released table shows which case it is: *pseudo-keys*, one random cell a row with a random sign, are keys
that nobody has, so whatever an estimate makes of them is its error. The estimate with the least mean square over
pseudo-keys is taken. All of this is post-processing, and the same on every machine.

**Intervals.** A released cell is a draw of the error, in one row, of a key that is absent: noise plus the signed counts
that collide. So the table itself shows how far estimates stray. An interval from the noise's σ alone would ignore the
collisions and cover 10–83% where it says 95%.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import mix
from dpsketch.arrays import Floats
from dpsketch.distributions import beta_quantile, normal_quantile, student_quantile
from dpsketch.noise import DiscreteLaplace, Noise

_STEPS = 50
_BLOCK = 16_384  # keys a block: their cells stay in the second-level cache


def median_of_rows(values: npt.NDArray[Any]) -> Floats:
    """Return the median of each line of an n × rows array; rows is odd.

    A bubble sort that stops at the middle, each step of which is a minimum and a maximum over a block of keys.
    """
    medians, middle = np.empty(len(values)), values.shape[1] // 2
    for first in range(0, len(values), _BLOCK):
        rows = list(values[first : first + _BLOCK].T)
        for smallest in range(middle + 1):
            for r in range(len(rows) - 1, smallest, -1):
                lower, upper = rows[r - 1], rows[r]
                rows[r - 1], rows[r] = np.minimum(lower, upper), np.maximum(lower, upper)
        medians[first : first + _BLOCK] = rows[middle]
    return medians


def huber_of_rows(cells: Floats, threshold: float) -> Floats:
    """Return the Huber location of each line of ``cells``: the root m of Σ clip(cell − m, ±threshold).

    The sum falls with m and is piecewise linear, so Newton's step from the median, kept inside a bracket, finds the
    root in a few steps.
    """

    def start(rows: Floats, centres: Floats) -> Floats:
        return np.stack([centres, rows.min(axis=0), rows.max(axis=0)])

    def improve(rows: Floats, state: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        m, low, high = state
        gap = rows - m
        cut = np.clip(gap, -threshold, threshold)
        pull, inside = _summed(cut), np.count_nonzero(cut == gap, axis=0)
        low, high = np.where(pull > 0, m, low), np.where(pull > 0, high, m)
        step = np.where(inside > 0, m + pull / np.maximum(inside, 1), low)
        step = np.where((low < step) & (step < high), step, 0.5 * (low + high))
        going = np.abs(pull) > 1e-9 * threshold
        return np.where(going, np.stack([step, low, high]), state), going

    return _settled(cells, start, improve)


def tukey_of_rows(cells: Floats, threshold: float) -> Floats:
    """Return Tukey's biweight location of each line of ``cells``, climbing from the median.

    A cell beyond the threshold has no weight at all, so a collision with a heavy key is ignored, not only bounded.
    """

    def improve(rows: Floats, m: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        gap = rows - m
        weight = gap / threshold  # in place from here on: new arrays would take as long as the arithmetic
        weight *= weight
        np.subtract(1.0, weight, out=weight)
        np.maximum(weight, 0.0, out=weight)
        weight *= weight
        total = _summed(weight)
        weight *= gap
        step = _summed(weight)
        np.divide(step, total, out=step, where=total > 0)  # without any weight the step is 0 already
        return m + step, np.abs(step) > 1e-6 * threshold

    return _settled(cells, lambda rows, centres: centres[np.newaxis], improve)


def _summed(rows: Floats) -> Floats:
    """Return the sum of rows, in their order: NumPy's own depends on how many keys there are."""
    total: Floats = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


def _settled(
    cells: Floats,
    start: Callable[[Floats, Floats], Floats],
    improve: Callable[[Floats, Floats], tuple[Floats, npt.NDArray[np.bool_]]],
) -> Floats:
    """Improve the location of each line of ``cells`` from its median until it stays.

    ``improve(rows, state)`` returns a better state for all keys of a block, and which of them still move. The first
    line of a state is the location.
    """
    result = np.empty(len(cells))
    for first in range(0, len(cells), _BLOCK):
        block, found = cells[first : first + _BLOCK], result[first : first + _BLOCK]
        rows, places = np.ascontiguousarray(block.T), np.arange(len(block))
        state, live = start(rows, median_of_rows(block)), np.ones(len(block), np.bool_)
        for _ in range(_STEPS):
            better, going = improve(rows, state)
            state = np.where(live, better, state)
            live &= going
            moving = np.count_nonzero(live)
            if moving == 0:
                break
            if 2 * moving < len(live):  # go on with those that move
                found[places] = state[0]
                rows, state, places = rows.compress(live, axis=1), state.compress(live, axis=1), places[live]
                live = np.ones(moving, np.bool_)
        found[places] = state[0]
    return result


PSEUDO_KEYS = 20_000

Cells = npt.NDArray[np.int64] | Floats


@dataclass(frozen=True, slots=True)
class Location:
    """A location estimate; ``threshold`` is in counters and is the scale beyond which a cell counts as an outlier."""

    shape: Literal["median", "mean", "huber", "tukey"]
    threshold: float = 0.0

    def __call__(self, cells: Cells) -> Floats:
        """Return one estimate a line of ``cells`` (keys × rows)."""
        values = np.asarray(cells, dtype=np.float64)
        match self.shape:
            case "median":
                return median_of_rows(values)
            case "mean":
                means: Floats = values.mean(axis=1)
                return means
            case "huber":
                return huber_of_rows(values, self.threshold)
            case "tukey":
                return tukey_of_rows(values, self.threshold)
            case _:
                assert_never(self.shape)


MEDIAN = Location("median")
MEAN = Location("mean")

# In units of a scale: Huber's and Tukey's estimates with 95% efficiency under Gaussian noise, and tighter ones for
# Laplace noise and crowded tables.
_HUBER = (0.7, 1.345)
_TUKEY = (3.0, 4.685)
# An estimate must promise this much less error than the median to be preferred to it.
_GAIN = 0.99


def choose_location(table: Cells, noise_scale: float) -> Location:
    """Choose the location estimate with the least root mean square error on this table's pseudo-keys.

    Parameters
    ----------
    table : numpy.ndarray
        The released counters, or what is left of them after some keys' parts were subtracted.
    noise_scale : float
        Standard deviation of the noise in one counter.
    """
    # The spread of an ordinary cell: noise and the many small collisions, without the few large ones.
    ordinary = float(np.median(np.abs(table))) / 0.6745
    scales = {noise_scale, max(noise_scale, ordinary)}
    choices = [MEAN]
    for scale in sorted(scales - {0.0}):
        choices += [Location("huber", c * scale) for c in _HUBER] + [Location("tukey", c * scale) for c in _TUKEY]
    cells = pseudo_cells(table)
    best, least = MEDIAN, _GAIN * root_mean_square(MEDIAN(cells))
    for choice in choices:
        error = root_mean_square(choice(cells))
        if error < least:
            best, least = choice, error
    return best


def root_mean_square(errors: Floats) -> float:
    """Return the root mean square of some errors."""
    return math.sqrt(float(np.mean(np.square(errors))))


def pseudo_cells(table: Cells) -> Floats:
    """Return the cells of keys that nobody has: one random cell a row, with a random sign.

    The draw is the same for every call and machine: what is derived from a release is a function of the release.
    """
    places, signs = pseudo_places(*table.shape)
    cells: Floats = table.ravel()[places].astype(np.float64)
    return cells * signs.astype(np.float64)


@lru_cache(maxsize=4)
def pseudo_places(rows: int, width: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return where such keys lie, cells being numbered row after row, and their signs there."""
    steps = np.arange(1, PSEUDO_KEYS + 1, dtype=np.uint64)
    places = np.empty((PSEUDO_KEYS, rows), np.int32)
    signs = np.empty((PSEUDO_KEYS, rows), np.int8)
    for row in range(rows):
        mixed = mix(steps + np.uint64((row + 1) << 32))
        columns = ((mixed >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32)
        places[:, row] = row * width + columns.astype(np.int64)
        signs[:, row] = 1 - 2 * (mixed & np.uint64(1)).astype(np.int8)
    places.flags.writeable = signs.flags.writeable = False
    return places, signs


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


def fourth_cumulant(law: Noise) -> float:
    """Return κ₄: v + 3v² for discrete Laplace noise of variance v, about 0 for rounded Gaussian noise."""
    return law.variance + 3 * law.variance**2 if isinstance(law, DiscreteLaplace) else 0.0
