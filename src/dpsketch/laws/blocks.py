"""Blocks of days, each published once, on the evening it is complete: plain days, two levels, or the binary tree.

Under pure ε noise is paid for by the L1 norm, and a record is better in few publications than in many small ones: two
levels of blocks beat the binary tree and every correlated design.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.move import Sensitivity, sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.laws.designs import LONGEST, Contribution, Design
from dpsketch.numbers import whole_number

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
