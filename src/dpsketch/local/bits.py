"""Protocols whose reports are bits through randomised response: one bit about a random place, or a whole row of them.

:class:`CountMeanSketch` and :class:`HadamardCountMean` are Apple's two sketches for one item a person.
:class:`SampledBit` reports one cell of a person's own sketch, without a cap on the size of a set. All of them are a
:class:`RowTable`: their places are the cells of a table with a hash function a row.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.local.intervals import Frequencies, from_sampled_support, share_of
from dpsketch.local.protocol import (
    LARGEST_SEED,
    LocalProtocol,
    OneItem,
    People,
    SupportProtocol,
    keep_threshold,
    odds_below,
    privacy_parameter,
)
from dpsketch.local.tallies import CountTables, TallyTables
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import real_number, whole_number

__all__ = ["BitRow", "CountMeanSketch", "HadamardCountMean", "OneBit", "RowTable", "SampledBit", "best_width"]

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

    def _count(self, tables: TallyTables, columns: Columns) -> None:
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


def _count_ones(tables: TallyTables, columns: Columns) -> None:
    kernels.count_bits(columns["row"].astype(np.uint32), columns["bits"], tables["ones"], tables["reports"])


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
    def supporting(self, tables: TallyTables) -> npt.NDArray[np.int64]:
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

    def supporting(self, tables: TallyTables) -> npt.NDArray[np.int64]:
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

    def supporting(self, tables: TallyTables) -> npt.NDArray[np.int64]:
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


def _count_signs(tables: TallyTables, columns: Columns) -> None:
    shape = tables["signs"].shape
    cells = columns["row"].astype(np.int64) * shape[1] + columns["index"]
    all_of_them = np.bincount(cells, minlength=shape[0] * shape[1])
    negative = np.bincount(cells[columns["bit"] == 1], minlength=shape[0] * shape[1])
    tables["signs"] += (all_of_them - 2 * negative).reshape(shape)
    tables["reports"] += np.bincount(columns["row"], minlength=shape[0])


# Where nearly every cell is occupied, absent keys look like present ones; estimates are not stretched further.
_LEAST_EMPTY = 0.01


def best_width(epsilon: float, mean_items: float) -> int:
    """Return the width with the least variance for rare keys, for sets of about ``mean_items`` items.

    Examples
    --------
    >>> best_width(1.0, 20)
    43
    """
    epsilon, mean_items = privacy_parameter(epsilon), real_number("mean_items", mean_items)
    if not (math.isfinite(mean_items) and mean_items > 0):
        raise InvalidInput("mean_items must be positive.")
    odds = float(odds_below(epsilon))
    noise = odds / (odds - 1) ** 2

    def variance(width: int) -> float:
        empty = math.exp(-mean_items / width)
        return width * (noise + empty * (1 - empty)) / empty**2

    return min(range(2, max(4, math.ceil(8 * mean_items))), key=variance)


@dataclass(frozen=True)
class SampledBit(RowTable, OneBit):
    """People report whether a random cell of a random row of their own bit sketch is occupied.

    This is PrivSketch without its ordering matrix, hence private, with many rows and calibrated for collisions.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    width : int
        Cells in a row; :func:`best_width` chooses it from the usual size of a set, about twice of which is good.
    rows : int, optional
        Size of the public pool of hash functions, at most 65536; below 1024 collisions add much to the error.
    seed : int, optional
        Which pool. Public.

    Privacy
    -------
    ε-locally differentially private for sets of *any* size: row and column are drawn without looking at the set, and
    the one bit is kept with probability T/2⁶⁴, T = ⌊2⁶⁴·E/(E+1)⌋, so that kept/flipped is at most E ≤ e^ε.

    Accuracy
    --------
    f̂ = (θ̂ − π̂)/(1 − π̂), θ̂ the share of occupied cells among reports about the key's own cells, π̂ among all.
    Variance near M(v₁ + θ(1−θ))/(n(1−π)²), v₁ = E/(E−1)². *Biased* by about −f(1−f)(π₁−π₀)/(1−π) for a key whose
    holders fill a share π₁ of cells with their other items and the others π₀: where holders of a key have larger sets
    than others it is underestimated, by a tenth to two fifths for skewed set sizes. Best for ε below 1, and where no
    cap is known.

    Examples
    --------
    >>> SampledBit(epsilon=0.5, width=40).report([["a", "b"], []]).column_names
    ['id', 'row', 'column', 'bit']
    """

    name: ClassVar[str] = "sampled-bit"
    ranges: ClassVar = {**RowTable.ranges, "width": (2, 2**16)}
    purpose: ClassVar[str] = "sampled-bit"

    width: int
    rows: int = 4096
    seed: int = 1

    @property
    def places(self) -> dict[str, int]:
        """The cells."""
        return {"row": self.rows, "column": self.width}

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"randomised response on one of {self.width} cells of a random row; a record is one person's whole set"

    def decide(
        self, people: People, place: tuple[npt.NDArray[Any], ...], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into reported bits."""
        bits = np.empty(len(people), np.uint8)
        rows, columns = (each.astype(np.uint32) for each in place)
        threshold = np.uint64(self.threshold)
        kernels.sampled_bits(
            people.offsets, people.prints, self.keys, rows, columns, self.width, threshold, words, bits
        )
        return bits

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        users = whole_number("users", users, low=1)
        keep, keys = self.keep, self.keys
        flip, gap = 1 - keep, 2 * keep - 1
        reports, ones = tally.tables["reports"], tally.tables["ones"]
        about = kernels.sum_over_rows(reports, keys, fingerprints)
        support = kernels.sum_over_rows(ones, keys, fingerprints)
        overall = (int(ones.sum()) / users - flip) / gap
        occupied = from_sampled_support(support, about, keep, flip, self._spread(reports, ones, users), confidence)
        empty = max(1 - overall, _LEAST_EMPTY)
        value, low, high = ((end - overall) / empty for end in (occupied.value, occupied.low, occupied.high))
        return Frequencies(value, low, high)

    def _spread(self, reports: npt.NDArray[np.int64], ones: npt.NDArray[np.int64], users: int) -> float:
        """Estimate the variance of a key's share of ones that sharing rows adds, from pairs of reports in one cell."""
        together = float(np.sum(ones * (ones - 1.0)))
        pairs = float(np.sum(reports * (reports - 1.0)))
        by_chance = (int(ones.sum()) / users) ** 2 * pairs
        return max(0.0, together - by_chance) * self.width / users**2

    def variance(self, frequency: float, users: int, *, occupied: float = 0.5) -> float:
        """Predict the variance where a share ``occupied`` of cells is taken, without what the pool adds."""
        frequency, users = share_of(frequency, users)
        occupied = real_number("occupied", occupied)
        keep = self.keep
        noise = keep * (1 - keep) / (2 * keep - 1) ** 2
        rest = 1 - frequency
        theta = frequency + rest * occupied
        own, others = noise + theta * (1 - theta), noise + occupied * (1 - occupied)
        return ((self.width - 2 * rest) * own + rest**2 * others) / (users * (1 - occupied) ** 2)
