"""How far an estimated kernel sum may lie from the true one, read off the release.

An estimate is a mean over rows of counters that a query hashes to. Three things move it:

- *noise and hashing* show in how the rows differ: half the mean square difference of neighbouring rows, in an order in
  which stratified rows are alike;
- *what no row has met*. Far from the data a counter is almost always empty and rarely full: all records may share a
  cell with the query in one row of a hundred. Rows in which that did not happen say nothing of it, so their spread is
  too small just where the estimate is too low. As in the exact interval of a proportion, one more row is therefore
  thought of: full for the upper limit, empty for the lower one (Gaffke, 2005). Rows on a lattice stand for equal parts
  of all functions, and half a row is thought of there;
- *the median's own error*, for the median of means.

The number of records has noise alone, whose law is known: its quantile is computed from the law itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.noise import DiscreteLaplace, Noise

Cells = npt.NDArray[Any]  # integers, or real numbers

# Points of the grid on which the law of a sum of noise is computed, and its reach in standard deviations.
_POINTS = 1 << 14
_REACH = 16.0
# Counters of less skewness are mostly full, and a few rows cut what they count.
_CUT = -1.0


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Estimates in counters and their variances; ``freedom`` is that of the variances."""

    values: Floats
    variances: Floats
    freedom: float


def mean_of_rows(
    cells: Cells, order: npt.NDArray[np.intp], keys: npt.NDArray[np.uint64], noise: Noise, confidence: float
) -> Spread:
    """Return the mean over the rows, whose variance is at least that of the noise.

    Differences of neighbours share rows, which costs a third of the degrees of freedom. Where most rows meet all
    records and a few cut them, as near a tight cluster, those few may be neighbours, and differ by less than evenly
    spread groups of rows do (see :func:`median_of_means`); there the larger of the two variances counts.
    """
    rows, cells = cells.shape[1], cells.astype(np.float64, copy=False)
    steps = np.diff(cells.take(order, axis=1), axis=1)
    variances = np.sum(steps**2, axis=1) / (2 * (rows - 1) * rows)
    most = _most_groups(rows, confidence)
    cut = np.flatnonzero(_skewness(cells) < _CUT)
    if most > 1 and len(cut):
        variances[cut] = np.maximum(variances[cut], _between(cells[cut], order, keys, most))
    freedom = max(1.0, 2 / 3 * (rows - 1))
    return Spread(cells.mean(axis=1), np.maximum(variances, noise.variance / rows), freedom)


def median_of_means(
    cells: Cells, order: npt.NDArray[np.intp], keys: npt.NDArray[np.uint64], noise: Noise, confidence: float
) -> Spread:
    """Return the median of the means of groups of rows.

    Neighbours in the order are dealt to different groups, at random by their keys: each group is then spread as evenly
    as all rows, and none differs from another by its place. (Every g-th row of a lattice is a coarser lattice, which
    may miss a whole direction; the median of such groups errs as one of them does.)

    The median of m-row means with skewness γ lies below their mean by γσ/(6m), σ being a row's standard deviation. At
    most √rows/γ groups keep that below an eighth of the median's own standard deviation; where the counters are so
    skewed that one group is left, it is the mean.
    """
    mean = mean_of_rows(cells, order, keys, noise, confidence)
    values, variances = mean.values.copy(), mean.variances.copy()
    most = _most_groups(cells.shape[1], confidence)
    chosen = _groups(cells, most)
    for groups in np.unique(chosen[chosen > 1]).tolist():
        asked = chosen == groups
        values[asked] = np.median(_means(cells[asked], _dealt(order, keys, groups), groups), axis=1)
        # Groups of stratified rows may differ by more than neighbouring rows show.
        shown = _between(cells[asked], order, keys, most)
        # The median of g normal draws has πg/(2g + π − 2) times the variance of their mean, within 2%.
        variances[asked] = np.maximum(variances[asked], shown) * (math.pi * groups / (2 * groups + math.pi - 2))
    return Spread(values, variances, mean.freedom)


def _between(cells: Cells, order: npt.NDArray[np.intp], keys: npt.NDArray[np.uint64], groups: int) -> Floats:
    """Return the variance of the mean over the rows that groups of them show."""
    shown: Floats = _means(cells, _dealt(order, keys, groups), groups).var(axis=1, ddof=1) / groups
    return shown


def _dealt(order: npt.NDArray[np.intp], keys: npt.NDArray[np.uint64], groups: int) -> npt.NDArray[np.intp]:
    """Return the rows in an order of which group i has every ``groups``-th, from the i-th on."""
    return order[np.lexsort((keys, np.arange(len(order)) // groups))]


def _means(cells: Cells, dealt: npt.NDArray[np.intp], groups: int) -> Floats:
    return np.stack([cells[:, dealt[first::groups]].mean(axis=1) for first in range(groups)], axis=1)


def _most_groups(rows: int, confidence: float) -> int:
    """Return an odd number of groups, of eight rows at least."""
    number = min(rows // 8, math.ceil(8 * math.log(1 / (1 - confidence))))
    return max(1, number - 1 + number % 2)


def _groups(cells: Cells, most: int) -> npt.NDArray[np.int64]:
    """Return the odd number of groups for each query: few where its counters are skewed."""
    skewness = np.abs(_skewness(cells))
    wanted = np.minimum(most, math.sqrt(cells.shape[1]) / np.maximum(skewness, 1e-9)).astype(np.int64)
    return np.asarray(np.maximum(1, wanted - 1 + wanted % 2))


def _skewness(cells: Cells) -> Floats:
    """Return the skewness of each query's counters; 0 where all are equal."""
    centred = cells - cells.mean(axis=1, keepdims=True)
    squares = centred**2
    scale = np.sqrt(np.mean(squares, axis=1))
    third = np.mean(squares * centred, axis=1)  # a power of 3 takes thirty times as long
    skewness: Floats = np.divide(third, scale**3, out=np.zeros(len(cells)), where=scale > 0)
    return skewness


def limits(
    spread: Spread, rows: int, records: float, unseen: float, confidence: float, *, least: float = 0.0
) -> tuple[Floats, Floats]:
    """Return the lower and the upper limit of kernel sums.

    Parameters
    ----------
    spread : Spread
        The estimated sums.
    rows, records : int, float
        How many rows they are means of, and the number of records: the most that a row can have met.
    unseen : float
        How many rows may have been missed: 1, or ½ on a lattice.
    confidence : float
        Coverage of each interval.
    least : float
        The least that a row can have met: 0, or less where similarities may be negative.
    """
    times = quantile(spread.freedom, confidence)
    below = unseen / rows * np.maximum(0.0, spread.values - least)
    above = unseen / rows * np.maximum(0.0, records - spread.values)
    low = spread.values - below - times * np.sqrt(spread.variances + below**2)
    return low, spread.values + above + times * np.sqrt(spread.variances + above**2)


def quantile(freedom: float, confidence: float) -> float:
    """Return Student's two-sided quantile; the normal one for infinite degrees of freedom."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, (1 - confidence) / 2))


def summed_quantile(noise: Noise, confidence: float) -> float:
    """Return how far a weighted sum of draws stays from 0 with the given probability, in its standard deviations.

    Between one draw's and the normal law's, whatever the weights: the larger of the two is taken.
    """
    normal = quantile(math.inf, confidence)
    if not isinstance(noise, DiscreteLaplace):
        return normal
    return max(normal, noise_quantile(((1.0, 1, noise),), confidence) / math.sqrt(noise.variance))


@lru_cache(maxsize=64)
def noise_quantile(parts: tuple[tuple[float, int, Noise], ...], confidence: float) -> float:
    """Return how far a sum of independent noise stays from 0 with the given probability.

    Parameters
    ----------
    parts : tuple of (weight, number, noise)
        The sum has, for each part, ``number`` draws of its noise times its weight. There are one or two parts, and one
        of two has a single draw.
    confidence : float
        The probability.

    Accuracy
    --------
    Gaussian noise: the normal law. Discrete Laplace noise: the law of the sum itself, from its characteristic function
    on a grid that no draw leaves but with probability 1e-6, and, for a single draw, its closed form. A grid coarser
    than the integers costs half a step, which is added: less than a thousandth of a standard deviation.
    """
    sums = [part for part in parts if part[0] > 0 and part[2].variance > 0]
    if not sums:
        return 0.0
    deviation = math.sqrt(sum(number * weight**2 * noise.variance for weight, number, noise in sums))
    laplace = [(weight, number, noise) for weight, number, noise in sums if isinstance(noise, DiscreteLaplace)]
    if len(laplace) < len(sums):
        return quantile(math.inf, confidence) * deviation
    return _laplace_quantile(laplace, deviation, confidence)


def _laplace_quantile(parts: list[tuple[float, int, DiscreteLaplace]], deviation: float, confidence: float) -> float:
    single = next(((weight, noise) for weight, number, noise in parts if number == 1), None)
    summed = next(((weight, number, noise) for weight, number, noise in parts if number > 1), None)
    places: Floats = np.zeros(1)
    masses: Floats = np.ones(1)
    step = 0.0
    if summed is not None:
        weight, number, noise = summed
        spacing, masses = _summed_law(noise, number)
        places = weight * spacing * np.arange(-(len(masses) // 2), len(masses) // 2, dtype=np.float64)
        # Whole numbers are their own grid.
        step = weight * (spacing - 1) / 2

    def within(size: float) -> float:
        if single is None:
            return float(masses[np.abs(places) <= size * (1 + 1e-12)].sum())
        scale, draw = single
        room = 1e-9
        below = np.floor((size - places) / scale + room)
        above = np.ceil((-size - places) / scale - room)
        return float(masses @ (_at_most(draw, below) - _at_most(draw, above - 1)))

    low, high = 0.0, deviation
    while within(high) < confidence and high < 1e6 * deviation:
        low, high = high, 2 * high
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) >= confidence else (middle, high)
    return high + step


def _at_most(noise: DiscreteLaplace, value: Floats) -> Floats:
    """Return P(Z ≤ value) at whole numbers: a/(1 + a) · a^(−value − 1) below 0, and one minus its mirror above."""
    rate = noise.epsilon / noise.sensitivity
    tail = np.exp(-rate * np.where(value < 0, -value, value + 1)) / (1 + math.exp(-rate))
    return np.where(value < 0, tail, 1 - tail)


def _summed_law(noise: DiscreteLaplace, number: int) -> tuple[float, Floats]:
    """Return the law of a sum of draws on a grid around 0: its spacing, and the probability of each of its points.

    One draw has the characteristic function (1 − a)²/(1 − 2a·cos t + a²), a = e^(−ε/Δ). Where the sum spreads over
    more integers than the grid has points, the waves that a coarser grid cannot hold have long died out.
    """
    from scipy.fft import fft

    reach = _REACH * math.sqrt(number * noise.variance) + 8
    spacing = max(1.0, 2 * reach / _POINTS)
    waves = np.minimum(np.arange(_POINTS), _POINTS - np.arange(_POINTS)) * (2 * math.pi / (_POINTS * spacing))
    rate = noise.epsilon / noise.sensitivity
    # 1 − φ = 2a(1 − cos t)/((1 − a)² + 2a(1 − cos t)), without cancellation at either end.
    moved = 4 * math.exp(-rate) * np.sin(waves / 2) ** 2
    logs = -number * np.log1p(moved / math.expm1(-rate) ** 2)
    masses: Floats = np.maximum(0.0, np.fft.fftshift(np.real(fft(np.exp(logs)))) / _POINTS)
    return spacing, masses / masses.sum()
