"""Protocols whose reports are bits through randomised response: one bit about a random place, or a whole row of them.

:class:`RowTable` is what all have in common whose places are the cells of a table: a hash function a row.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.local.odds import keep_threshold, odds_below
from dpsketch.local.protocol import LARGEST_SEED, LocalProtocol
from dpsketch.local.sets import People
from dpsketch.local.tallies import CountTables, Tables
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words

__all__ = ["BitRow", "OneBit", "RowTable"]

# Random words drawn at a time: each bit of each report takes half of one.
_CHUNK_WORDS = 1 << 22


class RowTable(LocalProtocol):
    """A protocol about a table of ``rows`` × ``width`` cells, every row with a public hash function of its own."""

    ranges: ClassVar = {"rows": (1, 2**16), "width": (2, 2**15), "seed": (0, LARGEST_SEED)}
    purpose: ClassVar[str]
    """What the hash functions are derived for."""
    cell_bits: ClassVar[int] = 27

    rows: int
    width: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows * self.width > 2**self.cell_bits:
            raise InvalidInput(f"rows × width must not pass 2**{self.cell_bits} cells.")

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the rows' hash functions."""
        return row_keys(self.seed, self.rows, self.purpose)


class OneBit(LocalProtocol):
    """A report names a place, drawn without looking at the set, and says one bit about it at odds of at most E.

    The bit is kept with probability T/2⁶⁴, T = ⌊2⁶⁴·E/(E+1)⌋, so that kept/flipped is at most E ≤ e^ε.
    """

    @property
    @abstractmethod
    def places(self) -> dict[str, int]:
        """The coordinates of a place, each with the number of its values."""

    @abstractmethod
    def decide(
        self, people: People, place: tuple[npt.NDArray[Any], ...], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into the reported bits about everyone's place."""

    @property
    def threshold(self) -> int:
        """T: a word below it keeps the bit."""
        return keep_threshold(self.odds)

    @property
    def keep(self) -> float:
        """The probability that a bit is kept, as realised."""
        return self.threshold / 2**64

    def flips(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
        """Return 1 where a word flips the bit."""
        return (words >= np.uint64(self.threshold)).astype(np.uint8)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: the place, and the bit."""
        return *(Field(name, 2, limit=size) for name, size in self.places.items()), Field("bit", 1, limit=2)

    def randomise(self, people: People) -> Columns:
        """Draw everyone's place and bit."""
        n = len(people)
        place = {name: random_below(size, n).astype(np.uint16) for name, size in self.places.items()}
        return {**place, "bit": self.decide(people, tuple(place.values()), random_words(n))}

    def tally(self) -> CountTables:
        """Count reports and ones about each place."""
        shape = tuple(self.places.values())
        return CountTables({"reports": shape, "ones": shape}, self._count)

    def _count(self, tables: Tables, columns: Columns) -> None:
        shape = tables["reports"].shape
        cells = np.ravel_multi_index(tuple(columns[name] for name in self.places), shape)
        size = tables["reports"].size
        tables["reports"] += np.bincount(cells, minlength=size).reshape(shape)
        tables["ones"] += np.bincount(cells[columns["bit"] == 1], minlength=size).reshape(shape)


class BitRow(RowTable):
    """A report is a random row and all its bits, occupied or not, each shown at odds of at most e^(ε/``differing``).

    A bit is kept with probability T/2³², T rounded down. No more than ``differing`` bits differ between two people, so
    the odds of all bits multiply to at most e^ε.
    """

    purpose: ClassVar[str] = "bit-rows"

    @property
    @abstractmethod
    def differing(self) -> int:
        """How many bits may differ between two people."""

    @property
    def threshold(self) -> int:
        """T: a 32-bit word below it keeps a bit."""
        return keep_threshold(odds_below(self.epsilon, self.differing), bits=32)

    @property
    def keep(self) -> float:
        """The probability that a bit is kept, as realised."""
        return self.threshold / 2**32

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: the row, and its bits from the lowest of the first byte on."""
        return Field("row", 2, limit=self.rows), Field.bits("bits", self.width)

    def randomise(self, people: People) -> Columns:
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

    def tally(self) -> CountTables:
        """Count the ones of each cell, and the reports of each row."""
        return CountTables({"ones": (self.rows, self.width), "reports": (self.rows,)}, _count_ones)


def _count_ones(tables: Tables, columns: Columns) -> None:
    kernels.count_bits(columns["row"].astype(np.uint32), columns["bits"], tables["ones"], tables["reports"])
