"""Reports of a whole row of bits, each bit through randomised response: what Apple's sketch and a rival share."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.local.arguments import LARGEST_SEED
from dpsketch.local.odds import keep_threshold
from dpsketch.local.sets import People
from dpsketch.local.tallies import CountTables
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole

__all__ = ["BitRows", "row_spread"]

# Random words drawn at a time: each bit of each report takes half of one.
_CHUNK_WORDS = 1 << 22


class _Shaped(Protocol):
    """A protocol with a table of bits."""

    @property
    def rows(self) -> int: ...
    @property
    def width(self) -> int: ...


class BitRows:
    """The arithmetic of bit-row reports whose every bit shows at most the given odds."""

    def __init__(self, odds: Fraction, rows: int, width: int, seed: int) -> None:
        self.odds = odds
        self.rows = rows
        self.width = width
        self.seed = seed

    @staticmethod
    def check(protocol: _Shaped) -> None:
        """Refuse a protocol whose shape is out of range; its numbers become Python's."""
        hold_whole(protocol, "rows", low=1, high=2**16)
        hold_whole(protocol, "width", low=2, high=2**15)
        hold_whole(protocol, "seed", low=0, high=LARGEST_SEED)
        if protocol.rows * protocol.width > 2**27:
            raise InvalidInput("rows × width must not pass 2**27 cells.")

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the rows' hash functions."""
        return row_keys(self.seed, self.rows, "bit-rows")

    @property
    def threshold(self) -> int:
        """A 32-bit word below it keeps a bit."""
        return keep_threshold(self.odds, bits=32)

    @property
    def keep(self) -> float:
        """The probability that a bit is kept, as realised."""
        return self.threshold / 2**32

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: the row, and its bits from the lowest of the first byte on."""
        return Field("row", 2), Field("bits", -(-self.width // 8), raw=True)

    def draw(self, people: People) -> Columns:
        """Draw everyone's row and bits."""
        n = len(people)
        rows = random_below(self.rows, n).astype(np.uint32)
        bits = np.zeros((n, -(-self.width // 8)), np.uint8)
        step = max(1, 2 * _CHUNK_WORDS // self.width)
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            size = part.stop - start
            halves = random_words(-(-size * self.width // 2)).view(np.uint32)[: size * self.width]
            offsets = people.offsets[start : part.stop + 1]
            self.decide(People(offsets, people.prints), rows[part], halves.reshape(size, self.width), bits[part])
        return {"row": rows.astype(np.uint16), "bits": bits}

    def decide(
        self,
        people: People,
        rows: npt.NDArray[np.uint32],
        halves: npt.NDArray[np.uint32],
        bits: npt.NDArray[np.uint8],
    ) -> None:
        """Turn random 32-bit words into reported bits, in place."""
        threshold = np.uint64(self.threshold)
        kernels.bit_vectors(people.offsets, people.prints, self.keys, rows, self.width, threshold, halves, bits)

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports name a row and set no bit past the width."""
        in_range: npt.NDArray[np.bool_] = columns["row"] < self.rows
        if self.width % 8:
            in_range = in_range & (columns["bits"][:, -1] >> (self.width % 8) == 0)
        return in_range

    def tally(self) -> CountTables:
        """Count the ones of each cell, and the reports of each row."""
        return CountTables({"ones": (self.rows, self.width), "reports": (self.rows,)}, _count)


def _count(tables: dict[str, npt.NDArray[np.int64]], columns: Columns) -> None:
    kernels.count_bits(columns["row"].astype(np.uint32), columns["bits"], tables["ones"], tables["reports"])


def row_spread(support: npt.NDArray[np.int64], reports: npt.NDArray[np.int64], p_false: float) -> float:
    """Estimate the variance of C/n for an absent key that sharing rows adds.

    ``support[r, m]`` counts the reports of row r that support a key in column m. An absent key falls on a random
    column, so the counts' variance over the columns of a row is the variance of its support there. What exceeds that of
    independent reports comes from sharing.
    """
    users = int(reports.sum())
    seen = float(np.sum(np.var(support, axis=1, ddof=1)))
    return max(0.0, seen - users * p_false * (1 - p_false)) / users**2
