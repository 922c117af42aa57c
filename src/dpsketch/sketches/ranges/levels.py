"""A released tree, made ready to be asked: consistent where it is kept cell by cell, decoded where it is a sketch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.noise import Noise
from dpsketch.sketches.countsketch.decoding import Decoded, joint_decode
from dpsketch.sketches.heavy.keys import IntegerKeys
from dpsketch.sketches.ranges.chain import Counts, Nodes

__all__ = [
    "DenseLevel",
    "SketchedLevel",
    "cell_levels",
    "combined_variance",
    "noise_variance",
    "prefix_prints",
    "table_levels",
]

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
