"""The shape of a column's values, and the bounds that follow from it. Everything after the noise is public.

Each unit of privacy puts one of its values, drawn at random, into one of 281 bins: zero, and half octaves of either
sign from 2⁻²⁰ to 2⁵⁰. So one unit moves one bin by 1 (:func:`shape_table`). The noisy bins are published. From them a
release chooses the bounds to which a column is clipped, and computes how much bounds cut, stated ones as well.

**Which bounds.** A table of K groups has noise of variance v on the column centred between bounds l < u, for values
scaled to a half width of 1, and of variance w on the head count. With h = (u − l)/2 the noise of the K sums adds up to
K·(h²·v + mid²·w). Clipping moves all sums together by the mean excess of a value times the number n of values. It is
spread over groups as the head counts û are, up to their concentration H = Σ(û/Σû)². The least of

    K·(h²·v + mid²·w) + √(H/K)·n²·(excess above u² + excess below l²)

is taken over edges of bins that stand out of the noise, and points between them; a lower bound of 0 is preferred.
√(H/K) is the geometric mean of what the spread may be, from 1/K (even) to H. Where in its bin a value lies is not
known, so each counts at the outer end of its bin: many equal values are not cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.move import Move, Table
from dpsketch.noise import DiscreteLaplace, Noise

__all__ = ["BINS", "EDGES", "Bounds", "Shape", "shape_table", "standing"]

Flags = npt.NDArray[np.bool_]

_POSITIVE = [2.0**-21, *(2.0 ** ((e - 41) / 2) for e in range(2, 141))]
EDGES: tuple[float, ...] = (*(-edge for edge in reversed(_POSITIVE)), *_POSITIVE)
"""The edges between bins: a value lies in the bin whose number is that of the edges at or below it."""
BINS = len(EDGES) + 1
_LARGEST = 2.0**50
# A bin stands out alone, or together with a neighbour, from these numbers of standard deviations on: of mere noise one
# does in about one shape of 300. Laplace noise has heavier tails.
_STANDS = {False: (4.25, 3.0), True: (8.0, 5.5)}
# A bin of much larger values than those of the fullest one would make bounds absurd. It needs more, which mere noise
# reaches in one shape of 100,000, or bins that stand out on the way to it, this many apart at most.
_STRONG = {False: (5.5, 4.0), True: (12.5, 7.5)}
_REACH = 8
# Between bins that stand out, those below this are mostly noise and count by a part.
_WEAK, _WEAK_PART = 1.5, 0.3
_POINTS_IN_A_BIN = 3
# A lower bound of 0 is taken up to this many times the least predicted cost.
_AROUND_ZERO = 1.05
# At budgets that hide nothing the variance of noise is 0 as a float.
_LEAST_DEVIATION = 1e-9


class Bounds(NamedTuple):
    """The bounds of a column.

    Attributes
    ----------
    low, high : float
        The range to which values are clipped.
    cut : float or None
        Estimated part of the sum of absolute values that clipping cuts; None if no bin stands out of the noise.
    """

    low: float
    high: float
    cut: float | None


def shape_table(name: str) -> Table:
    """Return the bins of a column's shape: one unit adds 1 to one bin."""
    return Table(f"shape {name}", (BINS,), Move.each(1, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The published shape of a column.

    Attributes
    ----------
    bins : numpy.ndarray of int64
        The noisy numbers of units with a value in each bin.
    noise : Noise
        The noise of one bin.
    """

    bins: Integers
    noise: Noise

    @property
    def seen(self) -> Floats | None:
        """Share of the units in each bin that stands out of the noise; None if no bin does."""
        deviation = max(math.sqrt(self.noise.variance), _LEAST_DEVIATION)
        heavy = isinstance(self.noise, DiscreteLaplace)
        bins = np.asarray(self.bins, np.float64) / deviation
        stands = standing(bins, *_STANDS[heavy])
        if not stands.any():
            return None
        # The bin of zero is in the middle, so that the distance from it orders bins by the size of their values.
        size = np.abs(np.arange(BINS) - BINS // 2)
        sure = standing(bins, *_STRONG[heavy])
        sure[int(np.argmax(np.where(stands, bins, 0.0)))] = True
        top = int(size[sure].max())
        for each in np.sort(size[stands]):
            top = max(top, int(each)) if each <= top + _REACH else top
        first, last = np.flatnonzero(stands & (size <= top))[[0, -1]]
        inside = (np.arange(BINS) >= first) & (np.arange(BINS) <= last)
        seen = np.where(inside, np.maximum(bins, 0.0), 0.0)
        seen = np.where(seen < _WEAK, _WEAK_PART * seen, seen)
        shares: Floats = seen / seen.sum()
        return shares

    def choose(
        self, *, rows: int, spread: float, values: float, column: float, users: float, mean: bool = False
    ) -> Bounds:
        """Return the bounds with the least predicted error.

        Parameters
        ----------
        rows : int
            The number of rows of the table.
        spread : float
            √(H/K), from the published head counts.
        values : float
            The estimated number of values.
        column, users : float
            The variance of the centred column for a half width of 1, and of the head count.
        mean : bool
            Whether the column is published as a mean t, whose error has (mid − t)² in place of mid².
        """
        seen = self.seen
        if seen is None:
            return Bounds(0.0, 1.0, None)
        low, high = bin_ranges()
        there = np.flatnonzero(seen)
        inner = [np.linspace(low[i], high[i], _POINTS_IN_A_BIN) for i in there]
        points = np.unique(np.concatenate([[0.0], *inner]))
        above, below = self._excess(seen, points)
        half = (points[None, :] - points[:, None]) / 2
        middle = (points[None, :] + points[:, None]) / 2
        away = middle - (float(seen @ _middles()) - above[None, :] + below[:, None] if mean else 0.0)
        cost = rows * (half**2 * column + away**2 * users)
        cost += spread * values**2 * (above[None, :] ** 2 + below[:, None] ** 2)
        cost[half <= 0] = np.inf
        i, j = (int(each) for each in np.unravel_index(int(np.argmin(cost)), cost.shape))
        # A lower bound of 0 leaves small values as they are, and mostly costs the same.
        zero = int(np.searchsorted(points, 0.0))
        if zero < i and cost[zero, j] <= _AROUND_ZERO * cost[i, j]:
            i = zero
        return Bounds(float(points[i]), float(points[j]), self.cut(float(points[i]), float(points[j])))

    def cut(self, low: float, high: float) -> float | None:
        """Return the part of the sum of absolute values that bounds may cut, with each value at its bin's outer end."""
        seen = self.seen
        if seen is None:
            return None
        above, below = self._excess(seen, np.array([low, high]))
        total = float(seen @ np.abs(_middles()))
        return min(1.0, float(above[1] + below[0]) / total) if total else 0.0

    def _excess(self, seen: Floats, points: Floats) -> tuple[Floats, Floats]:
        """Return the mean of what values may have above, and below, each point."""
        lowest, highest = bin_ranges()
        above, below = highest[None, :] - points[:, None], points[:, None] - lowest[None, :]
        return np.maximum(above, 0.0) @ seen, np.maximum(below, 0.0) @ seen

    def quantile_edges(self, leaves: int, grid: float | None, stated: tuple[float, float] | None) -> Floats:
        """Return the inner edges of leaves with about equal parts of the values, on the grid if there is one.

        With stated bounds all leaves but the outermost lie between them. Edges that meet on the grid are put together,
        and infinities stand for those that are left over.
        """
        edges = np.unique(self._equal_parts(leaves, grid, stated)[1:])
        return np.concatenate([edges, np.full(leaves - 1 - len(edges), np.inf)])

    def quantile_cells(
        self, slots: int, grid: float | None, stated: tuple[float, float] | None
    ) -> tuple[Floats, Integers]:
        """Return the lower edges of cells of values but the first's, and the first slot of each cell.

        Each of the slots has about an equal part of the values; those that meet on the grid are one cell. One number
        behind the last cell's is the number of slots.
        """
        lower = self._equal_parts(slots, grid, stated)
        edges, firsts = np.unique(lower, return_index=True)
        return edges[1:], np.append(firsts, slots).astype(np.int64)

    def domain(self, stated: tuple[float, float] | None) -> tuple[float, float]:
        """Return the least and the largest value of quantiles: stated bounds, or the ends of what stands out."""
        seen = self.seen
        if stated is not None or seen is None:
            return (0.0, 1.0) if stated is None else stated
        low, high = bin_ranges()
        there = np.flatnonzero(seen)
        return float(low[there[0]]), float(high[there[-1]])

    def _equal_parts(self, parts: int, grid: float | None, stated: tuple[float, float] | None) -> Floats:
        """Return the lower ends of parts with about equally many values."""
        low, high = bin_ranges()
        if grid is not None:
            # All multiples of the step in a bin have equal parts of it. A bin begins with the first of its own.
            low, high = (np.ceil(np.array(ends) / grid - 1e-9) * grid for ends in (bin_ends()[:-1], bin_ends()[1:]))
        seen = self.seen
        if stated is None and seen is None:
            stated = (0.0, 1.0)
        if stated is not None:
            low, high = np.clip(low, *stated), np.clip(high, *stated)
            wide = np.maximum(high - low, 0.0)
            inside = np.zeros(BINS) if seen is None else np.where(wide > 0, seen, 0.0)
            flat = wide / wide.sum() if wide.any() else np.full(BINS, 1 / BINS)
            seen = flat if not inside.any() else _SHAPED * inside / inside.sum() + (1 - _SHAPED) * flat
        assert seen is not None
        there = np.flatnonzero(seen)
        first, last = there[0], there[-1] + 1
        below = np.concatenate([[0.0], np.cumsum(seen[first:last])])
        places = np.concatenate([low[first : first + 1], high[first:last]])
        starts: Floats = np.interp(np.arange(parts) / parts, below / below[-1], places)
        if grid is not None:
            starts = np.floor(starts / grid + 1e-9) * grid
        return starts + 0.0


# Within stated bounds leaves follow the shape by this part, and are equally wide by the rest.
_SHAPED = 0.95


def bin_ends() -> Floats:
    """Return the edges between bins, with the smallest and largest value."""
    return np.array([-_LARGEST, *EDGES, _LARGEST])


def bin_ranges() -> tuple[Floats, Floats]:
    """Return the lower and upper ends of all bins; the outermost end at ±2⁵⁰, and the middle one is zero."""
    ends = bin_ends()
    low, high = ends[:-1].copy(), ends[1:].copy()
    low[BINS // 2] = high[BINS // 2] = 0.0
    return low, high


def standing(bins: Floats, alone: float, paired: float) -> Flags:
    """Say which bins stand out of the noise, alone or with a neighbour. Bins are counts in standard deviations."""
    stands = bins > alone
    pairs = (bins[:-1] > paired) & (bins[1:] > paired)
    stands[:-1] |= pairs
    stands[1:] |= pairs
    return np.asarray(stands)


def _middles() -> Floats:
    low, high = bin_ranges()
    middles: Floats = np.sign(low + high) * np.sqrt(np.maximum(low * high, 0.0))
    return middles
