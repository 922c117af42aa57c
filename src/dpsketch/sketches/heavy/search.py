"""Find the frequent keys of a released tree, from the root downwards. All of it is post-processing.

Level by level, every child of a prefix that survived is looked at:

1. The median over rows is taken for each child, and those below half of what is needed are dropped. Nearly all are.
2. The others are decoded jointly, as CountSketch does it: those that stand out are fitted together and subtracted, so
   that a heavy prefix no longer lifts the children of others that share its cells.
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
from dpsketch.sketches.countsketch.locating import pseudo_cells, root_mean_square
from dpsketch.sketches.heavy.keys import Keys

if TYPE_CHECKING:
    from dpsketch.sketches.heavy.private import PrivateHeavyHitters

__all__ = [
    "FRONTIER",
    "INNER",
    "Found",
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
# Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
_EFFICIENCY = 0.95
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
        level = 1 - (1 - confidence) / (_TAIL_MARGIN * self.looked_at)
        return self.decoded.inflation * half_width(self.decoded.remaining, self.decoded.location, level)


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
    return smallest_reach([math.sqrt(release.noise.dense.variance), *inner], leaf)


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
    laws, row_keys = _laws(release), release.row_keys
    for level, table in enumerate(release.tables):
        depth = space.dense_depth + level
        last = level == len(release.tables) - 1
        reaching = prefixes.reaching(depth)
        if reaching is not None:
            # A text that has ended has nothing below it: it waits for the last level.
            ended.append(prefixes.take(np.flatnonzero(~reaching)))
            prefixes = prefixes.take(np.flatnonzero(reaching))
        needed = threshold if last else INNER * threshold
        plausible: list[Keys] = []
        looked_at = 0
        for children in _children(prefixes, depth, ended if last else []):
            cells = kernels.row_values(table, children.prints(), row_keys[level])
            likely = np.flatnonzero(kernels.median_of_rows(cells) >= _PLAUSIBLE * needed)
            plausible.append(space.join([children.take(likely)]))  # a copy: most children are let go
            looked_at += len(children)
        prefixes = space.join(plausible)
        if len(prefixes) == 0:
            if last or not any(map(len, ended)):
                return Found(prefixes, np.empty(0), None, looked_at)
            continue
        scale = math.sqrt(laws[level].variance)
        decoded = joint_decode(table, prefixes.prints(), row_keys[level], scale)
        order = np.argsort(-decoded.values, kind="stable")
        order = order[: np.count_nonzero(decoded.values >= needed)]
        if not last:
            prefixes = prefixes.take(order[:FRONTIER])
    return Found(prefixes.take(order), decoded.values[order], decoded, looked_at)


def _laws(release: PrivateHeavyHitters) -> list[Noise]:
    return [release.noise.inner] * (len(release.tables) - 1) + [release.noise.leaf]


def _children(prefixes: Keys, depth: int, ended: list[Keys]) -> Iterator[Keys]:
    """Yield all that goes on from some prefixes, a few parents at a time, and then the texts that have ended."""
    for start in range(0, len(prefixes), _PARENTS):
        yield prefixes.take(np.arange(start, min(start + _PARENTS, len(prefixes)))).children(depth)
    for texts in ended:
        if len(texts):
            yield texts
