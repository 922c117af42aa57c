"""Randomised response on a bitmap: every bit is published, flipped at random.

**Privacy.** Ones become fair coins, and zeros become ones with probability q = e^−b/2. Then a bit that is set loses at
most b, and one that is cleared at most ln(2 − e^−b). A unit added or removed changes C bits one way, at a loss of C·b.
A unit replaced changes C bits each way, at a loss of C·(b + ln(2 − e^−b)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.noise import random_id, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Cost, PureCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["Coins", "Flips", "are_bits"]

_BITS = np.arange(64, dtype=np.uint64)


@stored
@dataclass(frozen=True, slots=True)
class Flips(OneTable):
    """Randomised response on every bit: ones become fair coins, zeros ones with probability ``threshold``/2⁶⁴."""

    threshold: int

    def __post_init__(self) -> None:
        hold_whole(self, "threshold", low=1, high=2**63)
        if self.table.move != Move.each(self.table.move.cells, 1):
            raise InvalidInput("bits are flipped in a table in which a unit moves each cell by 1.")

    @property
    def probability(self) -> float:
        """The probability with which a zero becomes a one."""
        return self.threshold / 2**64

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return f"a bitmap whose ones are fair coins and whose zeros are ones with probability {self.probability:.4g}"

    def slots(self) -> Mapping[str, Any]:
        """Return the coins."""
        return {"coins": Coins(self.threshold)}

    def costs(self) -> tuple[Cost, ...]:
        """Return the loss of the bits that one unit changes, rounded up."""
        gap = (2**63 - self.threshold) / 2**63  # 1 − 2q, whose digits 2q does not keep near 1
        loss = -math.log1p(-gap) if gap < 0.5 else -math.log(2 * self.probability)
        if self.neighbours == "replace":
            loss += math.log1p(gap)
        return (PureCost(self.table.move.cells * loss * (1 + 2.0**-48)),)

    def draw(self, state: Words, handle: Handle) -> Arrays:
        """Return the bitmap with its bits flipped, and a random name by which the release is known."""
        return {"bitmap": handle.draw("coins", state), "ids": [bytes.fromhex(random_id())]}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is a bitmap, and one name."""
        return are_bits(arrays, self.table) and len(arrays["ids"]) == 1


@dataclass(frozen=True, slots=True)
class Coins:
    """The coins that flip bits: a one becomes a one with probability ½, a zero with probability ``threshold``/2⁶⁴."""

    threshold: int

    def draw(self, bitmap: Words) -> Words:
        """Return a bitmap with its bits flipped."""
        flipped = np.zeros_like(bitmap)
        one = np.uint64(1)
        for place in _BITS:
            drawn = random_words(len(bitmap))
            truth = (bitmap >> place) & one
            limit = np.where(truth == one, np.uint64(2**63), np.uint64(self.threshold))
            flipped |= (drawn < limit).astype(np.uint64) << place
        return flipped


def are_bits(arrays: Arrays, table: Table) -> bool:
    """Say whether these are a bitmap of a table's size and a list of names."""
    if set(arrays) != {"bitmap", "ids"} or table.shape is None:
        return False
    bitmap, ids = arrays["bitmap"], arrays["ids"]
    good = isinstance(bitmap, np.ndarray) and bitmap.dtype == np.uint64 and bitmap.shape == table.shape[:1]
    return good and isinstance(ids, list) and len(set(ids)) == len(ids) and all(len(each) == 16 for each in ids)
