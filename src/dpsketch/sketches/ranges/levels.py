"""Answer ranges and quantiles from a released tree.

**Ranges** are least squares along two paths.

A tree of intervals has a count for every node, each measured with its own noise. What lies below a value, above it, or
between two values is a sum of few nodes: at each level the siblings left and right of the path. There are many such
sums, because a node's count is also the sum of its children's, and least squares over the whole tree takes the best
weighted mean of all. Along a path it is a chain: from the leaf upwards, the three numbers wanted (what lies left of the
range, in it and right of it, within the node reached so far) are carried with their covariance; the siblings of the
next level are added, and then the node above is one more measurement of the three numbers' sum.

What weight each measurement has in an answer follows by going through the chain once more, from the root downwards. It
is needed where few Laplace draws make up an answer, for the heavier tails of its error.

**Quantiles** invert the number of records at or below a value.

Let R(x) = (records ≤ x) − share·(all records), which never falls. A value v is a quantile where R(v − 1) ≤ 0 ≤ R(v).
R is estimated at any value without bias and with a known error, so the release speaks against the quantile being v or
less where R(v) + reach·error < 0, and against its being v or more where R(v − 1) − reach·error ≥ 0.

Halving finds where that begins if R̂ rises as R does. But R̂ is noisy, and halving can be misled at each value it
passes. That matters where R hardly changes over a long stretch, as between two values that many records share. If
instead the values are gone through from outside, one is misled by the error at the quantile itself or not at all. So
from where halving ended values at distances 1, 2, 4 … are looked at, and again from the farthest that may be the
quantile. Over smooth data many values lie near the end of an interval, each with some noise of its own, and going
through all of them would make it half as wide again. So it is done in steps of a sixteenth of the interval, at nodes
that the tree has; within the last step the end is where the release speaks against all beyond it by a wide margin.

References
----------
Hay, Rastogi, Miklau and Suciu, *Boosting the accuracy of differentially private histograms through consistency* (2010),
for least squares over a whole tree. Changed here: only the paths asked for are solved, so a level may be a sketch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import Decoded, joint_decode
from dpsketch.sketches.heavy.spec import IntegerKeys

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


# R and its standard errors at values, for the share that belongs to each of them.
Balance = Callable[[Nodes, Floats], tuple[Floats, Floats]]

_ONE = np.uint64(1)
# An interval has at least so many steps, as a power of two.
_STEPS = 4
# What counts as a wide margin, in standard errors beyond those of the interval.
_MARGIN = 2.0
# How often an end is moved at most; a few times are enough.
_ROUNDS = 64


def first_reached(balance: Balance, shares: Floats, lean: float, low: Nodes, high: Nodes) -> Nodes:
    """Search by halving, between two values, for the first where R with ``lean`` of its errors added reaches 0."""
    for _ in range(int(np.max(high - low, initial=0)).bit_length()):
        middle = low + ((high - low) >> _ONE)
        values, errors = balance(middle, shares)
        reached = values + lean * errors >= 0
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + _ONE, high))
    return high


def outer_ends(
    balance: Balance, shares: Floats, low: Nodes, high: Nodes, reach: float, last: int
) -> tuple[Nodes, Nodes]:
    """Move the ends of intervals that halving found outwards, until the release speaks against all beyond them.

    Parameters
    ----------
    balance : Balance
        R and its errors.
    shares : numpy.ndarray
        The shares asked for.
    low, high : numpy.ndarray
        The first values where R with ``reach`` of its errors added, or subtracted, reaches 0.
    reach : float
        The interval's quantile of the normal law.
    last : int
        The largest value; the smallest is 0.
    """
    width = (high - low) >> np.uint64(_STEPS)
    step = _ONE << np.floor(np.log2(np.maximum(width, _ONE).astype(np.float64))).astype(np.uint64)
    rest = step - _ONE
    # Whole steps end where a node of the tree does, so that few counters are in R there.
    lower = _walk(balance, shares, np.minimum(low | rest, np.uint64(last)), step, reach, last, "down")
    upper = _walk(balance, shares, high & ~rest, step, reach, last, "up")
    sure = reach + _MARGIN
    lower = first_reached(balance, shares, sure, lower - np.minimum(rest, lower), lower)
    upper = first_reached(balance, shares, -sure, upper, upper + np.minimum(rest, np.uint64(last) - upper))
    return np.minimum(low, lower), np.maximum(high, upper)


def _walk(
    balance: Balance, shares: Floats, ends: Nodes, step: Nodes, reach: float, last: int, way: Literal["down", "up"]
) -> Nodes:
    """Go from an end to the farthest value met that may be the quantile, until there is none."""
    ends = ends.copy()
    powers = np.arange(last.bit_length(), dtype=np.uint64)
    moving = np.arange(len(ends))
    for _ in range(_ROUNDS):
        here, stride = ends[moving, np.newaxis], step[moving, np.newaxis]
        room = here if way == "down" else np.uint64(last) - here
        inside = room // stride >= _ONE << powers
        jumps = np.where(inside, stride << powers, np.uint64(0))
        at = here - jumps if way == "down" else here + np.maximum(jumps, _ONE) - _ONE
        values, errors = balance(at.ravel(), np.repeat(shares[moving], len(powers)))
        may_be = values + reach * errors >= 0 if way == "down" else values - reach * errors < 0
        farthest = np.max(np.where(may_be.reshape(at.shape) & inside, jumps, np.uint64(0)), axis=1)
        ends[moving] = ends[moving] - farthest if way == "down" else ends[moving] + farthest
        moving = moving[farthest > 0]
        if len(moving) == 0:
            break
    return ends


# Children of at most so many nodes are looked for in the next table, of those that hold much and would hide others: an
# estimate of so many standard errors. Fewer are better, because a child that is not there may share cells with one that
# is, and be taken for it.
_PARENTS = 4096
_STANDS_OUT = 4.0
# Noise that rounds to nothing still has to be divided by.
_LEAST_VARIANCE = 1e-9


def prefix_prints(nodes: Nodes) -> npt.NDArray[np.uint64]:
    """Return the fingerprints of nodes, which are leading bits of a value."""
    return IntegerKeys(nodes, 8).prints()


def noise_variance(law: Noise) -> float:
    """Return the variance of the noise in one counter, as a number to divide by."""
    return max(law.variance, _LEAST_VARIANCE)


def combined_variance(own: float, children: float) -> float:
    """Return the variance of the best mean of a node's own measurement and the sum of its children's."""
    return 1 / (1 / own + 1 / children)


@dataclass(frozen=True, slots=True, eq=False)
class DenseLevel:
    """A level kept cell by cell.

    Attributes
    ----------
    depth : int
        Leading bits of a node.
    measured : numpy.ndarray
        The released counters.
    best : numpy.ndarray
        Each node's estimate from its own counter and those of the levels kept cell by cell below it.
    sums : numpy.ndarray
        Running sums of ``best``, from 0 on.
    own_variance, sibling_variance : float
        Variances of ``measured`` and of ``best``.
    own_fourth, sibling_fourth : float
        Fourth cumulants of their errors.
    """

    depth: int
    measured: Floats
    best: Floats
    sums: Floats
    own_variance: float
    sibling_variance: float
    own_fourth: float
    sibling_fourth: float

    def own(self, nodes: Nodes) -> Floats:
        """Return the nodes' own counters."""
        return self.measured[nodes.astype(np.int64)]

    def total(self, first: Nodes, count: Counts) -> Floats:
        """Return the sums of the estimates of ``count`` nodes from ``first`` on."""
        start = first.astype(np.int64)
        found: Floats = self.sums[start + count] - self.sums[start]
        return found


def cell_levels(
    counters: Sequence[npt.NDArray[Any]], depths: Sequence[int], variances: Sequence[float], fourths: Sequence[float]
) -> list[DenseLevel]:
    """Make the levels that are kept cell by cell consistent from below, by least squares."""
    levels: list[DenseLevel] = []
    for cells, depth, variance, own_fourth in reversed(list(zip(counters, depths, variances, fourths, strict=True))):
        measured = cells.astype(np.float64)
        best, spread, fourth = measured, variance, own_fourth
        if levels:
            below = levels[-1]
            children = below.best.reshape(len(measured), -1)
            summed = children.shape[1] * below.sibling_variance
            spread = combined_variance(variance, summed)
            best = spread * (measured / variance + children.sum(axis=1) / summed)
            below_fourth = children.shape[1] * below.sibling_fourth
            fourth = (spread / variance) ** 4 * own_fourth + (spread / summed) ** 4 * below_fourth
        sums = np.append(0.0, np.cumsum(best))
        levels.append(DenseLevel(depth, measured, best, sums, variance, spread, own_fourth, fourth))
    return levels[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class SketchedLevel:
    """A level kept as a CountSketch.

    Attributes
    ----------
    depth : int
        Leading bits of a node.
    known : numpy.ndarray
        The nodes that were decoded together, increasing.
    decoded : Decoded
        Their estimates, and what remains of the table without them.
    row_keys : numpy.ndarray
        The keys of the rows.
    own_variance : float
        Mean square error of a node's estimate.
    """

    depth: int
    known: Nodes
    decoded: Decoded
    row_keys: npt.NDArray[np.uint64]
    own_variance: float
    # An estimate is a mean of rows, of much that collides: nearly normal.
    own_fourth: ClassVar[float] = 0.0
    sibling_fourth: ClassVar[float] = 0.0

    @property
    def sibling_variance(self) -> float:
        """The same: nothing below a sketch's node is asked, since each question has an error."""
        return self.own_variance

    def own(self, nodes: Nodes) -> Floats:
        """Estimate nodes."""
        values = self.decoded.read(prefix_prints(nodes), self.row_keys)
        if len(self.known):
            places = np.minimum(np.searchsorted(self.known, nodes), len(self.known) - 1)
            values = np.where(self.known[places] == nodes, self.decoded.values[places], values)
        return values

    def total(self, first: Nodes, count: Counts) -> Floats:
        """Return the sums of the estimates of ``count`` nodes from ``first`` on."""
        owner = np.repeat(np.arange(len(first)), count)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        values = self.own(first[owner] + place.astype(np.uint64))
        sums: Floats = np.bincount(owner, weights=values, minlength=len(first)).astype(np.float64)
        return sums


def table_levels(
    tables: npt.NDArray[Any],
    depths: Sequence[int],
    row_keys: npt.NDArray[np.uint64],
    law: Noise,
    above: DenseLevel,
) -> list[SketchedLevel]:
    """Decode the sketched levels from above, looking for the children of the nodes that hold most.

    A node's part of its row's cell is an error for the others as long as it is unknown. Those looked for are decoded
    together (see :mod:`~dpsketch.sketches.countsketch.decoding`); a node that holds much has a parent that does, so the
    children of the largest parents are enough to look at.
    """
    levels: list[SketchedLevel] = []
    noise = noise_variance(law)
    parents, sizes = np.arange(len(above.best), dtype=np.uint64), above.best
    depth, variance = above.depth, above.sibling_variance
    for table, below, keys in zip(tables, depths, row_keys, strict=True):
        likely = np.flatnonzero(sizes > _STANDS_OUT * math.sqrt(variance))
        largest = np.sort(parents[likely[np.argsort(-sizes[likely], kind="stable")[:_PARENTS]]])
        step = below - depth
        nodes: Nodes = ((largest[:, np.newaxis] << np.uint64(step)) | np.arange(1 << step, dtype=np.uint64)).ravel()
        decoded = joint_decode(table, prefix_prints(nodes), keys, math.sqrt(noise))
        # No estimate is better than the mean of rows that collide with nothing.
        variance = max(decoded.error**2, noise / table.shape[0])
        levels.append(SketchedLevel(below, nodes, decoded, keys, variance))
        parents, sizes, depth = nodes, decoded.values, below
    return levels
