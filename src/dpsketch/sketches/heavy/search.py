"""Find the frequent keys of a released tree, from the root downwards. All of it is post-processing.

Level by level, every child of a prefix that survived is looked at:

1. The median over rows is taken for each child, and those below half of what is needed are dropped. Nearly all are.
2. The others are decoded jointly, as CountSketch does it, so that a heavy prefix no longer lifts the children of others
   that share its cells. Where that brings a dropped child to light, it is taken in and all are decoded again.
3. A child survives with an estimate of at least 0.6 of the threshold; at the last level, of the threshold itself.

The levels have independent noise and hash functions, so which keys reach the last level says nothing about their errors
there: an interval has to allow for having been picked among those looked at in the last level only.

The threshold is the lowest at which this works. How low that is depends on what joint decoding leaves of the tables,
and that on which keys are decoded, hence on the threshold. So thresholds are tried from the one that noise alone would
allow upwards, until one is as high as what its own search has left of every level asks for. The tables as they were
released tell one that always is.

No level keeps more than ``FRONTIER`` prefixes: beyond that the largest stay. A threshold that needs more is out of
reach of the table, unless the table is much wider than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.arrays import Floats
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import Decoded, joint_decode
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.location import MEDIAN
from dpsketch.sketches.heavy.keys import Keys, KeySpace

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.private import PrivateHeavyHitters

__all__ = [
    "BRANCHING",
    "FRONTIER",
    "INNER",
    "NEARLY",
    "PLAUSIBLE",
    "Found",
    "TooLow",
    "confidence_in_each",
    "find",
    "most_candidates",
    "next_threshold",
    "scale_of_estimates",
    "search",
    "smallest_reach",
]

FRONTIER = 1 << 14
INNER = 0.6
# A child must reach this part of what is needed by its median, before joint decoding gives it a better estimate.
PLAUSIBLE = 0.5
# How many standard errors a threshold must have at the last level (a million children are looked at, and none of them
# may pass by chance) and 0.6 of it above (where the next level takes back what passed by chance).
_LEAF_ERRORS = 5.5
_INNER_ERRORS = 3.5
# Of the 256 children of an absent prefix, no more than two may pass by their medians, or absent prefixes would multiply
# from level to level faster than joint decoding takes them back. It happens where heavy keys fill the table.
BRANCHING = 1 - 2 * 2 / 256
# Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
_EFFICIENCY = 0.95
# How often children that were dropped may be taken in. One that heavy keys hide in most rows shows only when those are
# in, and they may have been hidden themselves; where nobody is, the first look is the last.
_LOOKS = 4
# From one threshold to the next. A threshold holds if its search asks for no more than this much of it.
_LEAST_STEP, _LARGEST_STEP = 1.25, 2.0
NEARLY = 1.02
# More candidates for a cell than this, and more than this in all, are not worth decoding.
_CROWD, _LEAST_CROWD = 8, 1 << 14
# Parents a round; their children fill a few megabytes.
_PARENTS = 256
# The tail of the last level's errors is read off the table, and known to a factor only.
_TAIL_MARGIN = 4


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Keys found, largest first.

    Attributes
    ----------
    keys : Keys
        The keys.
    values : numpy.ndarray
        Their estimates, in counters.
    places : numpy.ndarray
        Their places among what was decoded.
    decoded : Decoded or None
        The last level as it was decoded; None where nothing got that far.
    looked_at : int
        How many keys were looked at in the last level.
    threshold : float
        The threshold of the search, in counters.
    """

    keys: Keys
    values: Floats
    places: npt.NDArray[np.int64]
    decoded: Decoded | None
    looked_at: int
    threshold: float

    def half_widths(self, confidence: float) -> Floats:
        """Half-widths, in counters, of intervals that hold for all keys found at once."""
        if self.decoded is None:
            return np.empty(0)
        return self.decoded.far_half_widths(confidence_in_each(confidence, self.looked_at))[self.places]


def confidence_in_each(confidence: float, looked_at: int) -> float:
    """Return the confidence that each interval needs, so that all hold at once whichever keys are picked."""
    return 1 - (1 - confidence) / (_TAIL_MARGIN * looked_at)


def find(release: PrivateHeavyHitters) -> Found:
    """Find all keys that this release tells from noise."""
    laws = _laws(release)
    alone = [scale_of_estimates(math.sqrt(law.variance), release.spec.rows) for law in laws]
    floor = smallest_reach([math.sqrt(release.noise.dense.variance), *alone[:-1]], alone[-1])
    sure = max(floor, *(_Table.of(release, level).needs(None) for level in range(len(laws))))
    threshold = floor
    while threshold < sure:
        found = search(release, threshold, checked=True)
        if isinstance(found, Found):
            return found
        threshold = next_threshold(threshold, found.needed)
    return search(release, sure)


def next_threshold(threshold: float, needed: float) -> float:
    """Return what to try after a threshold whose own search asks for a higher one."""
    return max(_LEAST_STEP * threshold, min(needed, _LARGEST_STEP * threshold))


def most_candidates(width: int) -> int:
    """Return how many candidates a table of this width is worth decoding for."""
    return max(_LEAST_CROWD, _CROWD * width)


def scale_of_estimates(spread: float, rows: int) -> float:
    """Return the standard error of an estimate from ``rows`` cells with this spread."""
    return spread / math.sqrt(_EFFICIENCY * rows)


def smallest_reach(above: list[float], leaf: float) -> float:
    """Return the least threshold for these standard errors, of the levels above the leaf and of the leaf."""
    return max(_LEAF_ERRORS * leaf, *(_INNER_ERRORS / INNER * error for error in above))


@dataclass(frozen=True, slots=True)
class TooLow:
    """A threshold was too low for a level of the tree, which asks for another one."""

    needed: float


@overload
def search(release: PrivateHeavyHitters, threshold: float) -> Found: ...
@overload
def search(release: PrivateHeavyHitters, threshold: float, *, checked: bool) -> Found | TooLow: ...
def search(release: PrivateHeavyHitters, threshold: float, *, checked: bool = False) -> Found | TooLow:
    """Find the keys whose count is at least a threshold (in counters).

    Parameters
    ----------
    release : PrivateHeavyHitters
        The tree.
    threshold : float
        The threshold.
    checked : bool
        Give up at a level that, as it was decoded, asks for a higher threshold.
    """
    space = release.spec.space
    counters = release.dense[:-1] if space.key_type == "text" else release.dense
    prefixes = space.from_cells(np.flatnonzero(counters >= INNER * threshold))
    ended: list[Keys] = []
    found = Found(space.join([]), np.empty(0), np.empty(0, np.int64), None, 0, threshold)
    for level in range(len(release.tables)):
        depth = space.dense_depth + level
        table = _Table.of(release, level)
        reaching = prefixes.reaching(depth)
        if reaching is not None:
            # A text that has ended has nothing below it: it waits for the last level.
            ended.append(prefixes.take(np.flatnonzero(~reaching)))
            prefixes = prefixes.take(np.flatnonzero(reaching))
        children = _Children(space, prefixes, depth, tuple(ended) if table.last else ())
        attempt = _frequent(children, table, threshold, most_candidates(release.spec.width) if checked else None)
        if isinstance(attempt, TooLow):
            return attempt
        found = attempt
        if checked and table.needs(found.decoded) > NEARLY * threshold:
            return TooLow(table.needs(found.decoded))
        prefixes = found.keys.take(np.arange(min(len(found.values), FRONTIER)))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One level's released table, the keys of its rows, its noise's standard deviation, and whether it is the last."""

    counters: npt.NDArray[np.int64]
    row_keys: npt.NDArray[np.uint64]
    noise_scale: float
    last: bool

    @classmethod
    def of(cls, release: PrivateHeavyHitters, level: int) -> _Table:
        scale = math.sqrt(_laws(release)[level].variance)
        return cls(release.tables[level], release.row_keys[level], scale, level == len(release.tables) - 1)

    def needs(self, decoded: Decoded | None) -> float:
        """Return the least threshold that what was left of the table allows; of all of it where nothing was decoded."""
        if decoded is None:
            spread = max(self.noise_scale, float(np.median(np.abs(self.counters))) / 0.6745)
            error, left = scale_of_estimates(spread, len(self.counters)), self.counters.astype(np.float64)
        else:
            error, left = decoded.error, decoded.remaining
        reach = _LEAF_ERRORS * error if self.last else _INNER_ERRORS / INNER * error
        return max(half_width(left, MEDIAN, BRANCHING) / INNER, reach)


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


def _frequent(children: _Children, table: _Table, threshold: float, most: int | None) -> Found | TooLow:
    """Return the children whose estimate is at least what is needed, largest first; give up if too many may be."""
    needed = threshold if table.last else INNER * threshold
    counters = table.counters.astype(np.float64)
    held = children.reaching(counters, table.row_keys, PLAUSIBLE * needed, None)
    if len(held) == 0:
        return Found(held, np.empty(0), np.empty(0, np.int64), None, len(children), threshold)
    if most is not None and len(held) > most:
        return TooLow(math.inf)
    decoded = joint_decode(table.counters, held.prints(), table.row_keys, table.noise_scale)
    for _ in range(_LOOKS):
        # Heavy keys may have hidden one from its median; now that they are gone, it shows.
        more = children.reaching(decoded.remaining, table.row_keys, needed, held)
        if len(more) == len(held):
            break
        held = more
        decoded = joint_decode(table.counters, held.prints(), table.row_keys, table.noise_scale, start=decoded)
    # Candidates were picked by this very table: those that chance lifted would take their share of the others' cells.
    held = held.take(np.flatnonzero(decoded.values >= PLAUSIBLE * needed))
    decoded = joint_decode(table.counters, held.prints(), table.row_keys, table.noise_scale)
    order = np.argsort(-decoded.values, kind="stable")
    order = order[: np.count_nonzero(decoded.values >= needed)]
    return Found(held.take(order), decoded.values[order], order, decoded, len(children), threshold)


def _laws(release: PrivateHeavyHitters) -> list[Noise]:
    return [release.noise.inner] * (len(release.tables) - 1) + [release.noise.leaf]
