"""From noisy counts of a tree's nodes to the best estimate of a range: least squares along two paths.

A tree of intervals has a count for every node, each measured with its own noise. What lies below a value, above it, or
between two values is a sum of few nodes: at each level the siblings left and right of the path. There are many such
sums, because a node's count is also the sum of its children's, and least squares over the whole tree takes the best
weighted mean of all. Along a path it is a chain: from the leaf upwards, the three numbers wanted (what lies left of the
range, in it and right of it, within the node reached so far) are carried with their covariance; the siblings of the
next level are added, and then the node above is one more measurement of the three numbers' sum.

What weight each measurement has in an answer follows by going through the chain once more, from the root downwards. It
is needed where few Laplace draws make up an answer, for the heavier tails of its error.

References
----------
Hay, Rastogi, Miklau and Suciu, *Boosting the accuracy of differentially private histograms through consistency* (2010),
for least squares over a whole tree. Changed here: only the paths asked for are solved, so a level may be a sketch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats

__all__ = ["Level", "Segments", "Silent", "segments"]

Nodes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]


class Level(Protocol):
    """One level of a tree: nodes 0 to 2^depth − 1, each with a noisy count."""

    @property
    def depth(self) -> int:
        """How many leading bits a node has."""

    @property
    def own_variance(self) -> float:
        """Variance of one node's own measurement."""

    @property
    def sibling_variance(self) -> float:
        """Variance of one node's estimate from all that is known of it and below it."""

    @property
    def own_fourth(self) -> float:
        """Fourth cumulant of the error of one node's own measurement."""

    @property
    def sibling_fourth(self) -> float:
        """Fourth cumulant of the error of one node's estimate."""

    def own(self, nodes: Nodes) -> Floats:
        """Return the nodes' own measurements."""

    def total(self, first: Nodes, count: Counts) -> Floats:
        """Return the sums of the estimates of ``count`` nodes from ``first`` on."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A level that measures nothing but has variances: for predictions."""

    depth: int
    own_variance: float
    sibling_variance: float
    own_fourth: float = 0.0
    sibling_fourth: float = 0.0

    def own(self, nodes: Nodes) -> Floats:
        """Return zeros."""
        return np.zeros(len(nodes))

    def total(self, first: Nodes, count: Counts) -> Floats:
        """Return zeros."""
        return np.zeros(len(first))


@dataclass(frozen=True, slots=True, eq=False)
class _Added:
    """So many estimates, of one fourth cumulant each, that came to a segment of a path."""

    path: int
    segment: int
    count: Counts
    fourth: float


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A measurement of the sum of a path's segments, and how far a surprise moved each of them."""

    path: int
    which: npt.NDArray[np.int64]
    gains: Floats
    fourth: float


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """Queries whose second path was joined to the first."""

    which: npt.NDArray[np.bool_]


_Log = list[_Added | _Measured | _Joined]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """For each query, what lies left of a range, in it, and right of it: n × 3, with covariances n × 3 × 3.

    A range has two paths, the second to its upper end until the two meet. What both took in is kept in one log.
    """

    counts: Floats
    covariances: Floats
    path: int
    log: _Log

    @classmethod
    def empty(cls, queries: int, path: int, log: _Log) -> Self:
        """Begin a path."""
        return cls(np.zeros((queries, 3)), np.zeros((queries, 3, 3)), path, log)

    def begin(self, leaf: Level, ends: Nodes, which: npt.NDArray[np.bool_]) -> None:
        """Put the leaves at the ends of some queries into their ranges."""
        self.counts[which, 1] = leaf.own(ends[which])
        self.covariances[which, 1, 1] = leaf.own_variance
        self.log.append(_Added(self.path, 1, which.astype(np.int64), leaf.own_fourth))

    def combined(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the values and variances of sums of the three, weighted (n × 3)."""
        values: Floats = np.einsum("ij,ij->i", weights, self.counts)
        variances: Floats = np.einsum("ij,ijk,ik->i", weights, self.covariances, weights)
        return values, np.maximum(variances, 0.0)

    def drawn(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the fourth cumulants of the errors of sums of the three, weighted (n × 3), and their steps at most.

        A step is how far a sum moves if one draw changes by one; a sibling's estimate moves by less than its draw.
        """
        found, step = np.zeros(len(weights)), np.zeros(len(weights))
        shares = weights.copy(), np.zeros(weights.shape)
        for taken in reversed(self.log):
            match taken:
                case _Measured(path, which, gains, fourth):
                    share = np.einsum("ij,ij->i", shares[path][which], gains)
                    found[which] += fourth * share**4
                    step[which] = np.maximum(step[which], np.abs(share))
                    shares[path][which] -= share[:, np.newaxis]
                case _Added(path, segment, count, fourth):
                    share = shares[path][:, segment]
                    found += fourth * count * share**4
                    step = np.maximum(step, np.where(count > 0, np.abs(share), 0.0))
                case _Joined(met):
                    shares[1][met] = shares[0][met]
        return found, step

    def add(self, segment: int, level: Level, first: Nodes, count: Counts) -> None:
        """Add siblings to a segment."""
        some = np.flatnonzero(count)
        if len(some):
            self.counts[some, segment] += level.total(first[some], count[some])
            self.covariances[some, segment, segment] += count[some] * level.sibling_variance
            self.log.append(_Added(self.path, segment, count, level.sibling_fourth))

    def join(self, other: Segments, which: npt.NDArray[np.bool_]) -> None:
        """Move the other's part of some queries over to here."""
        self.counts[which] += other.counts[which]
        self.covariances[which] += other.covariances[which]
        other.counts[which] = 0.0
        other.covariances[which] = 0.0
        self.log.append(_Joined(which))

    def measure(self, level: Level, nodes: Nodes, which: npt.NDArray[np.int64]) -> None:
        """Take in the measurement of the nodes that the segments of some queries fill together."""
        counts, covariances = self.counts[which], self.covariances[which]
        along = covariances.sum(axis=2)
        spread = along.sum(axis=1) + level.own_variance
        gains = along / spread[:, np.newaxis]
        surprise = level.own(nodes[which]) - counts.sum(axis=1)
        self.counts[which] = counts + gains * surprise[:, np.newaxis]
        self.covariances[which] = covariances - gains[:, :, np.newaxis] * along[:, np.newaxis, :]
        self.log.append(_Measured(self.path, which, gains, level.own_fourth))


def segments(levels: Sequence[Level], low: Nodes, high: Nodes) -> Segments:
    """Estimate what lies left of, in and right of the ranges from ``low`` to ``high``, both included.

    ``levels`` begin with the root, of depth 0, and end with the leaves.
    """
    n = len(low)
    everyone = np.arange(n)
    log: _Log = []
    left, right = (Segments.empty(n, path, log) for path in range(2))
    joined = low == high
    left.begin(levels[-1], low, np.ones(n, np.bool_))
    right.begin(levels[-1], high, ~joined)
    i, j = low, high
    for above, level in zip(levels[-2::-1], levels[:0:-1], strict=True):
        step = np.uint64(level.depth - above.depth)
        others = np.uint64((1 << int(step)) - 1)
        # At the root of a tree of 64 bits a shift by all of them would be undefined, hence one level at a time.
        up_i, up_j = i >> step, j >> step
        before_i, after_i = (i & others).astype(np.int64), (~i & others).astype(np.int64)
        before_j, after_j = (j & others).astype(np.int64), (~j & others).astype(np.int64)
        meeting = (up_i == up_j) & ~joined
        left.join(right, meeting)
        inside = np.where(meeting, (j - i).astype(np.int64) - 1, after_i)
        joined_now = joined | meeting
        left.add(0, level, i & ~others, before_i)
        left.add(1, level, i + np.uint64(1), np.where(joined, 0, inside))
        left.add(2, level, j + np.uint64(1), np.where(joined_now, after_j, 0))
        right.add(1, level, j & ~others, np.where(joined_now, 0, before_j))
        right.add(2, level, j + np.uint64(1), np.where(joined_now, 0, after_j))
        left.measure(above, up_i, everyone)
        right.measure(above, up_j, np.flatnonzero(~joined_now))
        i, j, joined = up_i, up_j, joined_now
    return left
