"""Apple's two sketches for one item a person: a row of bits, or one coefficient of its Hadamard transform."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.local.bits import BitRow, OneBit, RowTable
from dpsketch.local.protocol import OneItem, SupportProtocol
from dpsketch.local.sets import People
from dpsketch.local.tallies import CountTables, Tables
from dpsketch.local.wire import Columns

__all__ = ["CountMeanSketch", "HadamardCountMean"]


class _CountMean(OneItem, SupportProtocol, RowTable):
    """What the two share: in each row, a key is supported by the reports that speak for its column."""

    @property
    @abstractmethod
    def keep(self) -> float:
        """The probability that a report speaks for the column of its item."""

    @property
    @abstractmethod
    def others(self) -> float:
        """The probability that a report speaks for another column."""

    @abstractmethod
    def supporting(self, tables: Tables) -> npt.NDArray[np.int64]:
        """Return how many reports of each row speak for each column."""

    @property
    def chances(self) -> tuple[float, float]:
        """P and q, over hash functions."""
        return self.keep, self.keep / self.width + self.others * (1 - 1 / self.width)

    def support(self, tally: Any, fingerprints: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], float]:
        """Count the reports that support each key, and estimate τ."""
        supporting = self.supporting(tally.tables)
        spread = _row_spread(supporting, tally.tables["reports"], self.chances[1])
        return kernels.sum_over_rows(supporting, self.keys, fingerprints), spread


@dataclass(frozen=True)
class CountMeanSketch(BitRow, _CountMean):
    """Apple's count-mean sketch: a row of bits with the item's own bit set, every bit through randomised response.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    rows, width : int, optional
        Shape of the sketch; a report is ``width`` bits.
    seed : int, optional
        The hash functions. Public.

    Privacy
    -------
    ε-locally differentially private for one item: two items differ in two bits, and each is kept with probability
    T/2³², T = ⌊2³²·E₂/(E₂+1)⌋, E₂ ≤ e^(ε/2).

    Accuracy
    --------
    Unbiased over hash functions; n·Var near e^(ε/2)/(e^(ε/2)−1)² · (width/(width−1))², plus what few rows add.

    References
    ----------
    Apple, *Learning with privacy at scale* (2017), section "Private count mean sketch".

    Examples
    --------
    >>> CountMeanSketch(epsilon=4.0, rows=64, width=256).report(["tea", "milk"]).column_names
    ['id', 'row', 'bits']
    """

    name: ClassVar[str] = "count-mean-sketch"

    rows: int = 1024
    width: int = 1024
    seed: int = 1

    @property
    def differing(self) -> int:
        """Two items differ in two bits."""
        return 2

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"randomised response on each of {self.width} bits of one row"

    @property
    def others(self) -> float:
        """Another column's bit is 0, and flipped."""
        return 1 - self.keep

    def supporting(self, tables: Tables) -> npt.NDArray[np.int64]:
        """Return the ones of each cell."""
        return tables["ones"]


@dataclass(frozen=True)
class HadamardCountMean(OneBit, _CountMean):
    """Apple's Hadamard count-mean sketch: one bit of the Hadamard transform of a row with the item's own bit set.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    rows, width : int, optional
        Shape of the sketch; the width is a power of two.
    seed : int, optional
        The hash functions. Public.

    Privacy
    -------
    ε-locally differentially private for one item: row and index are drawn without looking at it, and the one sign is
    kept with probability T/2⁶⁴, T = ⌊2⁶⁴·E/(E+1)⌋, E ≤ e^ε.

    Accuracy
    --------
    Unbiased over hash functions; n·Var near ((E+1)/(E−1))² for rare items, plus what few rows add.

    References
    ----------
    Apple, *Learning with privacy at scale* (2017), section "Private Hadamard count mean sketch".

    Examples
    --------
    >>> HadamardCountMean(epsilon=4.0).report(["tea", "milk"]).column_names
    ['id', 'row', 'index', 'bit']
    """

    name: ClassVar[str] = "hadamard-count-mean"
    purpose: ClassVar[str] = "hadamard-count-mean"

    rows: int = 1024
    width: int = 1024
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width & (self.width - 1):
            raise InvalidInput("width must be a power of two for the Hadamard transform.")

    @property
    def places(self) -> dict[str, int]:
        """The coefficients."""
        return {"row": self.rows, "index": self.width}

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"randomised response on one of {self.width} Hadamard coefficients"

    @property
    def others(self) -> float:
        """Two columns agree in half of the coefficients."""
        return 0.5

    def decide(
        self, people: People, place: tuple[npt.NDArray[Any], ...], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into reported signs (bit 1 is −1)."""
        rows, indices = (each.astype(np.uint32) for each in place)
        columns = kernels.own_buckets(people.prints, self.keys, rows, self.width)
        bits: npt.NDArray[np.uint8] = _hadamard_bit(indices, columns) ^ self.flips(words)
        return bits

    def tally(self) -> CountTables:
        """Sum the signs of each coefficient, and count the reports of each row."""
        return CountTables({"signs": (self.rows, self.width), "reports": (self.rows,)}, _count_signs)

    def supporting(self, tables: Tables) -> npt.NDArray[np.int64]:
        """Return the reports of each row whose sign is the one that each column would have sent."""
        supporting: npt.NDArray[np.int64] = (tables["reports"][:, None] + _hadamard_transform(tables["signs"])) // 2
        return supporting


def _row_spread(support: npt.NDArray[np.int64], reports: npt.NDArray[np.int64], p_false: float) -> float:
    """Estimate the variance of C/n for an absent key that sharing rows adds.

    ``support[r, m]`` counts the reports of row r that support a key in column m. An absent key falls on a random
    column, so the counts' variance over the columns of a row is the variance of its support there. What exceeds that of
    independent reports comes from sharing.
    """
    users = int(reports.sum())
    seen = float(np.sum(np.var(support, axis=1, ddof=1)))
    return max(0.0, seen - users * p_false * (1 - p_false)) / users**2


def _hadamard_bit(indices: npt.NDArray[np.uint32], columns: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Return 1 where the entry of the Hadamard matrix is −1."""
    parity: npt.NDArray[np.uint8] = np.bitwise_count(indices & columns) & np.uint8(1)
    return parity


def _hadamard_transform(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each row times the Hadamard matrix."""
    rows, width = table.shape
    result = table.copy()
    half = 1
    while half < width:
        pairs = result.reshape(rows, -1, 2, half)
        result = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return np.ascontiguousarray(result.reshape(rows, width))


def _count_signs(tables: Tables, columns: Columns) -> None:
    shape = tables["signs"].shape
    cells = columns["row"].astype(np.int64) * shape[1] + columns["index"]
    all_of_them = np.bincount(cells, minlength=shape[0] * shape[1])
    negative = np.bincount(cells[columns["bit"] == 1], minlength=shape[0] * shape[1])
    tables["signs"] += (all_of_them - 2 * negative).reshape(shape)
    tables["reports"] += np.bincount(columns["row"], minlength=shape[0])
