"""What a search will find, predicted from a guess at the data before anything is read or spent.

The model: every level estimates a key's count with a Gaussian error of its own. Its size follows from the law of a
cell, noise and collisions together. While a threshold is looked for, keys of at least 0.6 of it are decoded jointly and
are in nobody's way; all others collide. The last level of the search that holds is looked at more closely: a key near
that limit is decoded with the probability that it got there, and whoever is decoded leaves its own error behind. Keys
share no prefixes beyond the first level; where they do, fewer prefixes collide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincinv, ndtr

from dpsketch.arrays import Floats
from dpsketch.noise import Noise, RoundedGaussian
from dpsketch.sketches.heavy.search import (
    BRANCHING,
    INNER,
    NEARLY,
    PLAUSIBLE,
    confidence_in_each,
    most_candidates,
    next_threshold,
    scale_of_estimates,
    smallest_reach,
)

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.spec import HeavyHittersSpec, TreeNoise


_CONFIDENCE = 0.95
# Points at which a law is tabulated, and the relative breadth of a bin of counts.
_POINTS = 1 << 12
_BIN = 0.05
# The error of the last level and what it leaves of the keys follow from each other; they settle at once.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class SearchPrediction:
    """What ``top(threshold=…)`` would find.

    Attributes
    ----------
    threshold : float
        The threshold in force: that asked for, or the lowest at which keys can be told from noise with confidence 0.95.
    frequent : int
        How many keys are at or above the threshold asked for.
    found : float
        How many keys the list is expected to have.
    recall, precision : float
        Of the frequent keys, the part that is listed; of the listed keys, the part that is frequent.
    lenient_recall, lenient_precision : float
        The same with the benefit of the doubt: recall over keys of at least 1.15 times the threshold asked for,
        precision counting those of at least half of it as right.
    error : float
        Standard deviation of a listed key's estimate.
    """

    threshold: float
    frequent: int
    found: float
    recall: float
    precision: float
    lenient_recall: float
    lenient_precision: float
    error: float


def predict(spec: HeavyHittersSpec, counts: Floats, asked: float, noise: TreeNoise) -> SearchPrediction:
    """Predict a search for keys of at least ``asked``."""
    counts = np.sort(counts)

    def cell(law: Noise, cut: float) -> CellLaw:
        """Return the law of a table's cells; keys of at least ``cut`` are decoded, and are in no other key's way."""
        return CellLaw.of(law, spec.grid, counts[: np.searchsorted(counts, cut)], spec.width)

    tables = [noise.inner] * (spec.sketched > 1) + [noise.leaf]
    raw = [cell(law, math.inf) for law in tables]
    dense = spec.grid * math.sqrt(noise.dense.variance)

    def left_by(threshold: float) -> list[CellLaw]:
        """Return the laws of what a search leaves of the tables."""
        return [cell(law, INNER * threshold) for law in tables]

    def needed(laws: list[CellLaw], errors: Sequence[float]) -> float:
        branching = max(law.half_width(BRANCHING, spec.rows) for law in laws)
        return max(branching / INNER, smallest_reach([dense, *errors[:-1]], errors[-1]))

    sure = needed(raw, [scale_of_estimates(law.ordinary, spec.rows) for law in raw])
    alone = [scale_of_estimates(law.noise_scale, spec.rows) for law in raw]
    threshold = min(sure, smallest_reach([dense, *alone[:-1]], alone[-1]))
    while threshold < sure:
        looked_at = spec.space.branches * int(np.count_nonzero(counts >= INNER * threshold))
        chance_held = raw[0].passing(PLAUSIBLE * INNER * threshold, spec.rows)
        left = left_by(threshold)
        asks = needed(left, [law.error / math.sqrt(spec.rows) for law in left])
        if chance_held * looked_at > most_candidates(spec.width):
            asks = math.inf
        if asks <= NEARLY * threshold:
            break
        threshold = min(sure, next_threshold(threshold, asks))
    left = left_by(threshold)
    errors = [law.error / math.sqrt(spec.rows) for law in left]
    reached = ndtr((counts - INNER * threshold) / dense) * ndtr((counts - INNER * threshold) / errors[0]) ** (
        spec.sketched - 1
    )
    for _ in range(_ROUNDS):
        decoded = reached * ndtr((counts - PLAUSIBLE * threshold) / errors[-1])
        left_over = float(decoded.sum()) / spec.width * errors[-1] ** 2
        left[-1] = CellLaw.of(noise.leaf, spec.grid, counts, spec.width, 1 - decoded, left_over)
        errors[-1] = left[-1].error / math.sqrt(spec.rows)
    # A key is listed if its interval, corrected for selection, excludes 0.
    looked_at = 257 * (1 + int(np.count_nonzero(counts >= INNER * threshold)))
    half = left[-1].half_width(confidence_in_each(_CONFIDENCE, looked_at), spec.rows)
    in_force = max(asked, threshold, half)

    chance = ndtr((counts - in_force) / errors[-1]) * reached
    found = float(chance.sum())

    def listed(at_least: float) -> tuple[float, int]:
        start = np.searchsorted(counts, at_least)
        return float(chance[start:].sum()), len(counts) - int(start)

    right, frequent = listed(asked)
    surely, clear = listed(1.15 * asked)
    nearly, _ = listed(0.5 * asked)
    return SearchPrediction(
        threshold=in_force,
        frequent=frequent,
        found=found,
        recall=right / frequent if frequent else 1.0,
        precision=right / found if found else 1.0,
        lenient_recall=surely / clear if clear else 1.0,
        lenient_precision=nearly / found if found else 1.0,
        error=errors[-1],
    )


@dataclass(frozen=True, slots=True, eq=False)
class CellLaw:
    """The law of one cell of a table: noise, and the signed counts of the keys that fall into it.

    Attributes
    ----------
    places, density : numpy.ndarray
        Points, and the probability at each. Counts beyond the points wrap around; what is far out is far out anyhow.
    noise_scale : float
        Standard deviation of the noise alone.
    """

    places: Floats
    density: Floats
    noise_scale: float

    @classmethod
    def of(
        cls,
        noise: Noise,
        grid: float,
        counts: Floats,
        width: int,
        chances: Floats | None = None,
        more: float = 0.0,
    ) -> CellLaw:
        """Return the law for this noise and these counts, compound Poisson, by its characteristic function.

        ``chances`` says how likely each of them is in the way, if not all are; ``more`` is the variance of what else is
        in a cell.
        """
        scale = grid * math.sqrt(noise.variance)
        step = scale / 4
        values, weights = _binned(counts, np.ones(len(counts)) if chances is None else chances)
        frequencies = 2 * math.pi * np.arange(_POINTS // 2 + 1) / (_POINTS * step)
        waves = np.cos(np.outer(frequencies, values)) - 1
        energy = (scale * frequencies) ** 2 / 2
        alone = np.exp(-energy) if isinstance(noise, RoundedGaussian) else 1 / (1 + energy)
        alone *= np.exp(-more * frequencies**2 / 2)
        density = np.maximum(np.fft.irfft(alone * np.exp(waves @ weights / width), n=_POINTS), 0)
        places: Floats = step * np.fft.fftfreq(_POINTS, 1 / _POINTS).astype(np.float64)
        return cls(places, density / density.sum(), scale)

    @property
    def ordinary(self) -> float:
        """The standard deviation that the median size of a cell suggests, as a search reads it off a table."""
        return max(self.noise_scale, self._size(0.5) / 0.6745)

    def half_width(self, confidence: float, rows: int) -> float:
        """Half-width of an interval around the median of the rows, as a search reads it off a table."""
        share = (rows + 1) / 2
        return self._size(1 - 2 * float(betaincinv(share, share, (1 - confidence) / 2)))

    def passing(self, size: float, rows: int) -> float:
        """Return the probability with which the median of the rows is at least of this size, above 0."""
        share = (rows + 1) / 2
        return float(betainc(share, share, float(self.density[self.places >= size].sum())))

    def _size(self, level: float) -> float:
        """Return the size that a cell stays within with this probability."""
        half = _POINTS // 2
        within = 2 * np.cumsum(self.density[:half]) - self.density[0]  # the law is symmetric, and a point has a breadth
        return float(np.interp(level, within, self.places[:half] + self.places[1] / 2))

    @property
    def error(self) -> float:
        """Standard error, times the root of the rows, of the Huber estimate that suits this law best.

        Huber's estimates run from the median to the mean, and a search takes the one with the least error.
        """
        step = self.places[1] - self.places[0]
        least = math.inf
        for points in np.geomspace(2, _POINTS / 2, 40).astype(np.int64):
            threshold = step * (points + 0.5)  # a point stands for half a step on either side
            inside = float(self.density[np.abs(self.places) <= threshold].sum())
            pull = float((np.clip(self.places, -threshold, threshold) ** 2) @ self.density)
            least = min(least, math.sqrt(pull) / inside)
        return least


def _binned(counts: Floats, chances: Floats) -> tuple[Floats, Floats]:
    """Return few values that stand for many counts, and how many each stands for."""
    there = (counts > 0) & (chances > 0)
    positive, likely = counts[there], chances[there]
    if len(positive) == 0:
        return np.zeros(1), np.zeros(1)
    bins = np.round(np.log(positive) / _BIN).astype(np.int64)
    bins -= bins.min()
    weights = np.bincount(bins, weights=likely).astype(np.float64)
    squares = np.bincount(bins, weights=likely * positive**2)
    held = weights > 0
    return np.sqrt(squares[held] / weights[held]), weights[held]
