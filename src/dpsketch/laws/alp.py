"""The ALP projection: values in unary, hashed into a bit table, every bit flipped at random.

**Privacy.** Write q = (1 − p)/p for the odds of an unflipped bit; p ≥ 1/(α + 2), so q ≤ 1 + α. Setting one bit more
changes the probability of any output by a factor in [1/q, q]. Let one entry move by t after scaling by ε', which is t/α
columns, all others fixed. Crossing a whole column costs at most ln q. Within one column the output's law is a mixture
(1 − f)·A + f·B of two that differ in at most one bit, and moving f by h changes any probability by a factor of at most
1 + α·h. Hence a loss of at most

    g(t) = ⌊t/α⌋·ln(1 + α) + ln(1 + t − α·⌊t/α⌋),

which is reached where the entry starts on a whole column. Given the other entries' bits the bound is the same, whether
or not they share them, so the losses of several entries add. A value that passes the last column can only lose less.

g is subadditive: for a, b < α with a + b ≥ α, (1+a)(1+b) − (1+α)(1+a+b−α) = (α−a)(α−b) ≥ 0. So if two keys of a unit
share an entry, that costs no more than if they did not, and the worst that moves k entries by at most w each is to move
all k by w: a loss of k·g(w·ε'). The hash functions are public. The coins are fresh and secret: known rounding coins
would cost ln(1 + α) an entry.

References
----------
Aumüller, Lebeda and Pagh, *Differentially Private Sparse Vectors with Low Error, Optimal Space, and Fast Access*
(2021), Algorithms 1 and 2. Changed here: ε' inverts g for the unit that is protected, which for one record is e^ε − 1
instead of ε; α = 2, so that p = 1/4 exactly; scaling and rounding are exact, in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import sparse as kernels
from dpsketch.arrays import Words
from dpsketch.core.codec import stored
from dpsketch.core.move import Distance
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.noise import random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import PureCost

__all__ = ["LARGEST_SCALE", "LEAST_SCALE", "ROOM", "SCALE_BITS", "Projection", "flip_odds", "loss"]

SCALE_BITS = 48
MOST_COLUMNS = 1 << 13
MOST_BITS = 1 << 33
# A scale of at least 2¹⁶ loses at most 2⁻¹⁶ of ε' when it is rounded down; at most 2⁵⁴ keeps products in 64 bits.
LEAST_SCALE = 1 << 16
LARGEST_SCALE = 1 << 54
# Covers the rounding of a few double-precision operations many times over.
ROOM = 1 - 2.0**-40
# A flip probability that is no power of two is rounded up to so many bits.
_FLIP_BITS = 16
_CHUNK = 1 << 16


def loss(step: float, alpha: float) -> float:
    """Return g(t), the privacy loss of one entry that moves by ``step`` after scaling by ε'.

    Examples
    --------
    >>> round(loss(math.e - 1, 2), 12)
    1.0
    """
    whole = math.floor(step / alpha)
    return whole * math.log1p(alpha) + math.log1p(max(0.0, step - alpha * whole))


def flip_odds(alpha: int) -> tuple[int, int]:
    """Return the flip probability 1/(α + 2), rounded up to numerator/2^bits, as (numerator, bits).

    Examples
    --------
    >>> flip_odds(2), flip_odds(3)
    ((1, 2), (3277, 14))
    """
    numerator, bits = -((-1 << _FLIP_BITS) // (alpha + 2)), _FLIP_BITS
    while numerator % 2 == 0:
        numerator, bits = numerator // 2, bits - 1
    return numerator, bits


@stored
@dataclass(frozen=True, slots=True)
class Projection:
    """The public parameters of one ALP table, which draws itself.

    Attributes
    ----------
    alpha : int
        Large: fewer columns and fewer flips, but coarser steps.
    scale : int
        Columns a unit, times 2⁴⁸.
    top : int
        The largest value that the columns hold; larger ones read as this.
    rows : int
        Bits in a column, a multiple of 64.
    seed : int
        Seed of the hash functions.
    """

    alpha: int
    scale: int
    top: int
    rows: int
    seed: int

    def __post_init__(self) -> None:
        hold_whole(self, "alpha", low=1, high=62)
        hold_whole(self, "scale", low=LEAST_SCALE, high=LARGEST_SCALE)
        hold_whole(self, "top", low=1, high=2**62)
        hold_whole(self, "rows", low=64, high=MOST_BITS)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        if self.rows % 64:
            raise InvalidInput("rows must be a multiple of 64.")
        if self.columns > MOST_COLUMNS or self.columns * self.rows > MOST_BITS:
            raise InvalidInput(
                f"values up to the largest one asked for need a table of {self.columns} columns × {self.rows} bits; at "
                f"most {MOST_COLUMNS} columns and 2**33 bits are made. Leave max_value out, so that large values go to "
                "the threshold part, or lower max_value or expected_keys."
            )

    def cost(self, apart: Distance) -> PureCost:
        """Return k·g(w·ε') for neighbours that differ in k entries by at most w each, rounded up."""
        step = self.alpha * (apart.most * self.scale / 2**SCALE_BITS)
        return PureCost(apart.cells * loss(step, self.alpha) / ROOM)

    @property
    def columns(self) -> int:
        """The number of columns that values up to the top need."""
        return max(1, -(-self.top * self.scale >> SCALE_BITS))

    @property
    def columns_a_unit(self) -> float:
        """How many columns one unit takes."""
        return self.scale / float(1 << SCALE_BITS)

    @property
    def flip(self) -> float:
        """The probability with which a bit is flipped."""
        numerator, bits = flip_odds(self.alpha)
        return numerator / float(1 << bits)

    @property
    def column_keys(self) -> Words:
        """The keys of the columns' hash functions."""
        return row_keys(self.seed, self.columns, "sparse")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table in words of 64 bits."""
        return self.columns, self.rows // 64

    def draw(self, positions: Words, units: npt.NDArray[np.int64]) -> Words:
        """Write entries into a fresh table, and flip its bits. The result may be published.

        Parameters
        ----------
        positions : numpy.ndarray of uint64
            The entries' places in the domain, each once.
        units : numpy.ndarray of int64
            Their values, at least 0.
        """
        table = np.zeros(self.shape, np.uint64)
        # From here on a value sets all columns; capping it keeps the product with the scale within 64 bits.
        full = -(-(self.columns << SCALE_BITS) // self.scale)
        coins = random_words(len(positions))
        kernels.project(table, positions, np.minimum(units, full), np.uint64(self.scale), coins, self.column_keys)
        numerator, bits = flip_odds(self.alpha)
        flat = table.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            part = flat[start : start + _CHUNK]
            kernels.flip(part, numerator, random_words(bits * len(part)).reshape(len(part), bits))
        return table
