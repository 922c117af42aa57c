"""Find the frequent keys of a released tree, from the root downwards. All of it is post-processing.

Level by level, every child of a prefix that survived is looked at (``level``), decoded jointly with the others that may
be frequent, and survives with an estimate of at least 0.6 of the threshold; at the last level, of the threshold itself.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import Decoded
from dpsketch.sketches.heavy.keys import Keys, KeySpace
from dpsketch.sketches.heavy.level import INNER, PrefixLevel, scale_of_estimates, smallest_reach

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.private import PrivateHeavyHitters

__all__ = [
    "FRONTIER",
    "NEARLY",
    "FoundKeys",
    "TooLow",
    "confidence_in_each",
    "find",
    "most_candidates",
    "next_threshold",
    "search",
]

FRONTIER = 1 << 14
# From one threshold to the next. A threshold holds if its search asks for no more than this much of it.
_LEAST_STEP, _LARGEST_STEP = 1.25, 2.0
NEARLY = 1.02
# More candidates for a cell than this, and more than this in all, are not worth decoding.
_CROWD, _LEAST_CROWD = 8, 1 << 14
# The tail of the last level's errors is read off the table, and known to a factor only.
_TAIL_MARGIN = 4

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class FoundKeys:
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


def find(release: PrivateHeavyHitters, progress: Progress | None = None) -> FoundKeys:
    """Find all keys that this release tells from noise; ``progress`` is told of each level searched."""
    laws = _laws(release)
    alone = [scale_of_estimates(math.sqrt(law.variance), release.spec.rows) for law in laws]
    floor = smallest_reach([math.sqrt(release.noise.dense.variance), *alone[:-1]], alone[-1])
    sure = max(floor, *(_level(release, level).needs(None) for level in range(len(laws))))
    threshold = floor
    while threshold < sure:
        found = search(release, threshold, checked=True, progress=progress)
        if isinstance(found, FoundKeys):
            return found
        threshold = next_threshold(threshold, found.needed)
    return search(release, sure, progress=progress)


def next_threshold(threshold: float, needed: float) -> float:
    """Return what to try after a threshold whose own search asks for a higher one."""
    return max(_LEAST_STEP * threshold, min(needed, _LARGEST_STEP * threshold))


def most_candidates(width: int) -> int:
    """Return how many candidates a table of this width is worth decoding for."""
    return max(_LEAST_CROWD, _CROWD * width)


@dataclass(frozen=True, slots=True)
class TooLow:
    """A threshold was too low for a level of the tree, which asks for another one."""

    needed: float


@overload
def search(release: PrivateHeavyHitters, threshold: float, *, progress: Progress | None = None) -> FoundKeys: ...
@overload
def search(
    release: PrivateHeavyHitters, threshold: float, *, checked: bool, progress: Progress | None = None
) -> FoundKeys | TooLow: ...
def search(
    release: PrivateHeavyHitters, threshold: float, *, checked: bool = False, progress: Progress | None = None
) -> FoundKeys | TooLow:
    """Find the keys whose count is at least a threshold (in counters).

    Parameters
    ----------
    release : PrivateHeavyHitters
        The tree.
    threshold : float
        The threshold.
    checked : bool
        Give up at a level that, as it was decoded, asks for a higher threshold.
    progress : callable, optional
        Is told after each level how many were searched, and how many there are.
    """
    space = release.spec.space
    counters = release.dense[:-1] if space.key_type == "text" else release.dense
    prefixes = space.from_cells(np.flatnonzero(counters >= INNER * threshold))
    ended: list[Keys] = []
    found = FoundKeys(space.join([]), np.empty(0), np.empty(0, np.int64), None, 0, threshold)
    for number in range(len(release.tables)):
        depth = space.dense_depth + number
        level = _level(release, number)
        reaching = prefixes.reaching(depth)
        if reaching is not None:
            # A text that has ended has nothing below it: it waits for the last level.
            ended.append(prefixes.take(np.flatnonzero(~reaching)))
            prefixes = prefixes.take(np.flatnonzero(reaching))
        children = _Children(space, prefixes, depth, space.join(ended if level.last else []))
        passed = level.frequent(children.prints(), threshold, most_candidates(release.spec.width) if checked else None)
        if passed is None:
            return TooLow(math.inf)
        if checked and level.needs(passed.left) > NEARLY * threshold:
            return TooLow(level.needs(passed.left))
        keys = children.take(passed.places)
        decoded = passed.left if isinstance(passed.left, Decoded) else None
        found = FoundKeys(keys, passed.values, passed.order, decoded, len(children), threshold)
        prefixes = keys.take(np.arange(min(len(keys), FRONTIER)))
        if progress is not None:
            progress(number + 1, len(release.tables))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Children:
    """All that goes on from some prefixes of one depth, and texts that have ended before."""

    space: KeySpace
    prefixes: Keys
    depth: int
    ended: Keys

    def __len__(self) -> int:
        return len(self.prefixes) * self.space.branches + len(self.ended)

    def prints(self) -> npt.NDArray[np.uint64]:
        """Return their fingerprints."""
        return np.append(self.prefixes.children_prints(self.depth), self.ended.prints())

    def take(self, places: npt.NDArray[np.int64]) -> Keys:
        """Return those at some places."""
        below = len(self.prefixes) * self.space.branches
        order = np.argsort(places >= below, kind="stable")
        first, last = np.split(places[order], [np.count_nonzero(places < below)])
        keys = self.space.join([self.prefixes.children(self.depth, first), self.ended.take(last - below)])
        return keys.take(np.argsort(order))


def _level(release: PrivateHeavyHitters, level: int) -> PrefixLevel:
    scale = math.sqrt(_laws(release)[level].variance)
    last = level == len(release.tables) - 1
    return PrefixLevel(release.tables[level].astype(np.float64), release.row_keys[level], scale, last)


def _laws(release: PrivateHeavyHitters) -> list[Noise]:
    return [release.noise.inner] * (len(release.tables) - 1) + [release.noise.leaf]
