"""From a key's signed cells to one number: which location estimate suits a table, found out from the table itself.

No single estimate is best. Under noise alone the mean is; where heavy keys collide, one that ignores outliers; where
nearly every cell collides, the median. A released table shows which case it is: *pseudo-keys*, one random cell a row
with a random sign, are keys that nobody has, so whatever an estimate makes of them is its error. The estimate with the
least mean square over pseudo-keys is taken. All of this is post-processing, and the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.countsketch import median_of_rows
from dpsketch._compiled.location import huber_of_rows, tukey_of_rows
from dpsketch._compiled.splitmix import mix
from dpsketch.arrays import Floats

__all__ = [
    "MEAN",
    "MEDIAN",
    "PSEUDO_KEYS",
    "Location",
    "choose_location",
    "pseudo_cells",
    "pseudo_places",
    "root_mean_square",
]

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
                return huber_of_rows(values, median_of_rows(values), self.threshold)
            case "tukey":
                return tukey_of_rows(values, median_of_rows(values), self.threshold)
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
    for scale in sorted(scales):
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
