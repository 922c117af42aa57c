"""Blocks of days, each published once, on the evening it is complete: plain days, two levels, or the binary tree.

Under pure ε noise is paid for by the L1 norm, and a record is better in few publications than in many small ones: two
levels of blocks beat the binary tree and every correlated design.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.move import Sensitivity, sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.numbers import whole_number
from dpsketch.sketches.continual.designs import LONGEST, Contribution, Design

__all__ = ["Blocks"]


@stored
@dataclass(frozen=True, slots=True)
class Blocks(Design):
    """Blocks of each of some sizes, every one published once.

    Attributes
    ----------
    sizes : tuple of int
        1 first, each a multiple of the one before it.

    Privacy
    -------
    A record is in one block of each size. A user's days, k of them at least b apart, put at most ⌈size/b⌉ into one
    block, so that the blocks of one size move by at most Δ·√(k·min(k, ⌈size/b⌉)) together.

    Accuracy
    --------
    Blocks are combined by least squares over all that was published by the last day of the question: a block's own
    noise and that of the blocks in it are independent and of one variance.
    """

    name: ClassVar[str] = "blocks"

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = self.sizes if isinstance(self.sizes, list | tuple) else ()
        held = tuple(whole_number("a block's size", size, low=1, high=LONGEST) for size in sizes)
        object.__setattr__(self, "sizes", held)
        nested = all(large > small and large % small == 0 for small, large in pairwise(held))
        if not held or held[0] != 1 or not nested:
            raise InvalidInput("blocks have sizes from 1 day on, each a multiple of the one before.")

    @classmethod
    def tree(cls, days: int) -> Self:
        """Return the binary tree whose blocks end within so many days."""
        return cls(tuple(1 << height for height in range(days.bit_length())))

    @property
    def words(self) -> str:
        """The design in a phrase."""
        return "blocks of " + ", ".join(f"{size:,}" for size in self.sizes) + " days"

    @property
    def buffers(self) -> int:
        """How many tables it keeps beside today's: the open block of each size."""
        return len(self.sizes)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return the bound over all blocks that one unit is in."""
        unit = contribution.within(horizon)
        squared = sum(unit.days * min(unit.days, -(-size // unit.apart)) for size in self.sizes)
        l1 = unit.days * len(self.sizes) * unit.distance.l1
        return Sensitivity(l1, sqrt_up(unit.distance.squared * squared))

    def published(self, day: int) -> int:
        """Return how many blocks are complete after so many days."""
        return sum(day // size for size in self.sizes)

    def names(self, day: int) -> Iterator[tuple[int, int]]:
        """Yield the blocks (level, index) that are complete after so many days, in the order of publication."""
        for each in range(1, day + 1):
            for level, size in enumerate(self.sizes):
                if each % size == 0:
                    yield level, each // size - 1

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish the blocks that this day completes, the smallest first."""
        state += today
        for level, size in enumerate(self.sizes):
            if day % size == 0:
                yield (level, day // size - 1), state[level].copy()
                state[level] = 0

    def weights(self, first: int, last: int) -> Floats:
        """Return the weights of least squares: for one block by all in it, and for a part of one, by all in it too."""
        weights, start = np.zeros(self.published(last)), 0
        for level in reversed(range(len(self.sizes))):
            while start + self.sizes[level] <= last:
                self._spread(weights, level, start // self.sizes[level], 1.0, 0.0, first - 1, last)
                start += self.sizes[level]
        return weights

    def _place(self, level: int, index: int) -> int:
        """Return the place of a block among all that are published."""
        return self.published((index + 1) * self.sizes[level] - 1) + level

    def _ratio(self, level: int) -> int:
        return self.sizes[level] // self.sizes[level - 1]

    def _variance(self, level: int) -> float:
        """Return the variance of a whole block's estimate by all in it; of its own publication, 1."""
        if level == 0:
            return 1.0
        inner = self._ratio(level) * self._variance(level - 1)
        return inner / (inner + 1)

    def _overlap(self, level: int, index: int, start: int, end: int) -> int:
        """Return how many of a block's days are in a window."""
        size = self.sizes[level]
        return max(0, min(end, (index + 1) * size) - max(start, index * size))

    def _covariance(self, level: int, index: int, start: int, end: int) -> float:
        """Return the covariance of a block's estimate with that of its part in a window."""
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.sizes[level]):
            return self._variance(level) if overlap else 0.0
        ratio = self._ratio(level)
        inner = sum(self._covariance(level - 1, ratio * index + i, start, end) for i in range(ratio))
        return inner / (ratio * self._variance(level - 1) + 1)

    def _spread(
        self, weights: Floats, level: int, index: int, window: float, whole: float, start: int, end: int
    ) -> None:
        """Add ``window`` times the estimate of a block's part in a window, and ``whole`` times that of the block.

        The estimate of the block is Σ children + λ·(y − Σ children), and that of its part Σ parts + κ·(y − Σ children),
        with λ and κ the regression of either on the block's own publication y.
        """
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.sizes[level]):
            whole, window = whole + (window if overlap else 0.0), 0.0
        if whole == window == 0:
            return
        if level == 0:
            weights[self._place(level, index)] += whole
            return
        share = self._variance(level) * whole
        if window:
            share += self._covariance(level, index, start, end) * window
        weights[self._place(level, index)] += share
        for i in range(self._ratio(level)):
            self._spread(weights, level - 1, self._ratio(level) * index + i, window, whole - share, start, end)
