"""Find the frequent keys of a released tree, from the root downwards. All of it is post-processing.

Level by level, every child of a prefix that survived is looked at:

1. The median over rows is taken for each child, and those below half of what is needed are dropped. Nearly all are.
2. The others are decoded jointly, as CountSketch does it: those that stand out are fitted together and subtracted, so
   that a heavy prefix no longer lifts the children of others that share its cells. Where that brings a dropped child to
   light, it is taken in and all are decoded again.
3. A child survives with an estimate of at least 0.6 of the threshold; at the last level, of the threshold itself.

The levels have independent noise and hash functions, so which keys reach the last level says nothing about their errors
there: an interval has to allow for having been picked among those looked at in the last level only.

No level keeps more than ``FRONTIER`` prefixes: beyond that the largest stay. A threshold that needs more is out of
reach of the table, unless the table is much wider than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import Decoded, joint_decode
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.locating import MEDIAN, pseudo_cells, root_mean_square
from dpsketch.sketches.heavy.keys import Keys, KeySpace

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.private import PrivateHeavyHitters

__all__ = [
    "BRANCHING",
    "FRONTIER",
    "INNER",
    "Found",
    "confidence_in_each",
    "lowest_threshold",
    "scale_of_estimates",
    "search",
    "smallest_reach",
    "standard_error",
]

FRONTIER = 1 << 14
INNER = 0.6
# A child must reach this part of what is needed by its median, before joint decoding gives it a better estimate.
_PLAUSIBLE = 0.5
# How many standard errors a threshold must have at the last level (a million children are looked at, and none of them
# may pass by chance) and 0.6 of it above (where the next level takes back what passed by chance).
_LEAF_ERRORS = 5.5
_INNER_ERRORS = 3.5
# Of the 256 children of an absent prefix, no more than two may pass by their medians, or absent prefixes would multiply
# from level to level faster than joint decoding takes them back. It happens where heavy keys fill the table.
BRANCHING = 1 - 2 * 2 / 256
# Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
_EFFICIENCY = 0.95
# How often children that were dropped may be taken in.
_LOOKS = 2
# Parents a round; their children fill a few megabytes.
_PARENTS = 256
# The tail of the last level's errors is read off the table, and known to a factor only.
_TAIL_MARGIN = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Keys found, largest first.

    Attributes
    ----------
    keys : Keys
        The keys.
    values : numpy.ndarray
        Their estimates, in counters.
    decoded : Decoded or None
        The last level as it was decoded; None where nothing got that far.
    looked_at : int
        How many keys were looked at in the last level.
    """

    keys: Keys
    values: Floats
    decoded: Decoded | None
    looked_at: int

    def half_width(self, confidence: float) -> float:
        """Half-width, in counters, of intervals that hold for all keys found at once."""
        if self.decoded is None:
            return 0.0
        level = confidence_in_each(confidence, self.looked_at)
        return self.decoded.inflation * half_width(self.decoded.remaining, self.decoded.location, level)


def confidence_in_each(confidence: float, looked_at: int) -> float:
    """Return the confidence that each interval needs, so that all hold at once whichever keys are picked."""
    return 1 - (1 - confidence) / (_TAIL_MARGIN * looked_at)


def standard_error(decoded: Decoded) -> float:
    """Root mean square error, in counters, of one estimate on a decoded table."""
    return decoded.inflation * root_mean_square(decoded.location(pseudo_cells(decoded.remaining)))


def lowest_threshold(release: PrivateHeavyHitters) -> float:
    """Return the least threshold, in counters, at which this release tells keys from noise.

    It follows from the spread of the released counters, heavy ones left aside.
    """
    laws = _laws(release)
    spreads = [
        max(math.sqrt(law.variance), float(np.median(np.abs(table))) / 0.6745)
        for law, table in zip(laws, release.tables, strict=True)
    ]
    inner = [scale_of_estimates(spread, release.spec.rows) for spread in spreads[:-1]]
    leaf = scale_of_estimates(spreads[-1], release.spec.rows)
    branching = max(half_width(table, MEDIAN, BRANCHING) for table in release.tables)
    return max(branching / INNER, smallest_reach([math.sqrt(release.noise.dense.variance), *inner], leaf))


def scale_of_estimates(spread: float, rows: int) -> float:
    """Return the standard error of an estimate from ``rows`` cells with this spread."""
    return spread / math.sqrt(_EFFICIENCY * rows)


def smallest_reach(above: list[float], leaf: float) -> float:
    """Return the least threshold for these standard errors, of the levels above the leaf and of the leaf."""
    return max(_LEAF_ERRORS * leaf, *(_INNER_ERRORS / INNER * error for error in above))


def search(release: PrivateHeavyHitters, threshold: float) -> Found:
    """Find the keys whose count is at least a threshold (in counters)."""
    space = release.spec.space
    counters = release.dense[:-1] if space.key_type == "text" else release.dense
    prefixes = space.from_cells(np.flatnonzero(counters >= INNER * threshold))
    ended: list[Keys] = []
    found = Found(space.join([]), np.empty(0), None, 0)
    for level, law in enumerate(_laws(release)):
        depth = space.dense_depth + level
        last = level == len(release.tables) - 1
        reaching = prefixes.reaching(depth)
        if reaching is not None:
            # A text that has ended has nothing below it: it waits for the last level.
            ended.append(prefixes.take(np.flatnonzero(~reaching)))
            prefixes = prefixes.take(np.flatnonzero(reaching))
        children = _Children(space, prefixes, depth, tuple(ended) if last else ())
        table = _Table(release.tables[level], release.row_keys[level], math.sqrt(law.variance))
        found = _frequent(children, table, threshold if last else INNER * threshold)
        prefixes = found.keys.take(np.arange(min(len(found.values), FRONTIER)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One level's released table, the keys of its rows, and the standard deviation of its noise."""

    counters: npt.NDArray[np.int64]
    row_keys: npt.NDArray[np.uint64]
    noise_scale: float


@dataclass(frozen=True, slots=True, eq=False)
class _Children:
    """All that goes on from some prefixes of one depth, and texts that have ended before."""

    space: KeySpace
    prefixes: Keys
    depth: int
    ended: tuple[Keys, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ended)) + len(self.prefixes) * self.space.branches

    def __iter__(self) -> Iterator[Keys]:
        """Yield them, those of a few parents at a time."""
        for start in range(0, len(self.prefixes), _PARENTS):
            yield self.prefixes.take(np.arange(start, min(start + _PARENTS, len(self.prefixes)))).children(self.depth)
        yield from self.ended

    def reaching(self, counters: Floats, row_keys: npt.NDArray[np.uint64], least: float, held: Keys | None) -> Keys:
        """Return those whose median over the rows is at least ``least`` and that are not held already."""
        known = np.empty(0, np.uint64) if held is None else held.prints()
        parts = [] if held is None else [held]
        for batch in self:
            prints = batch.prints()
            medians = kernels.median_of_rows(kernels.row_values(counters, prints, row_keys))
            places = np.flatnonzero(medians >= least)
            places = places[~np.isin(prints[places], known)]
            parts.append(self.space.join([batch.take(places)]))  # a copy: most children are let go
        return self.space.join(parts)


def _frequent(children: _Children, table: _Table, needed: float) -> Found:
    """Return the children whose estimate is at least what is needed, largest first."""
    counters = table.counters.astype(np.float64)
    held = children.reaching(counters, table.row_keys, _PLAUSIBLE * needed, None)
    if len(held) == 0:
        return Found(held, np.empty(0), None, len(children))
    decoded = joint_decode(table.counters, held.prints(), table.row_keys, table.noise_scale)
    for _ in range(_LOOKS):
        # Heavy keys may have hidden one from its median; now that they are gone, it shows.
        more = children.reaching(decoded.remaining, table.row_keys, needed, held)
        if len(more) == len(held):
            break
        held = more
        decoded = joint_decode(table.counters, held.prints(), table.row_keys, table.noise_scale)
    order = np.argsort(-decoded.values, kind="stable")
    order = order[: np.count_nonzero(decoded.values >= needed)]
    return Found(held.take(order), decoded.values[order], decoded, len(children))


def _laws(release: PrivateHeavyHitters) -> list[Noise]:
    return [release.noise.inner] * (len(release.tables) - 1) + [release.noise.leaf]
