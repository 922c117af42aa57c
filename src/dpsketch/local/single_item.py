"""Protocols for one item a person: optimal local hashing, and Apple's two sketches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.local.arguments import LARGEST_SEED
from dpsketch.local.bit_rows import BitRows, row_spread
from dpsketch.local.hashed import FIELDS, LARGEST_POOL, LARGEST_WIDTH, Hashing, optimal_width
from dpsketch.local.intervals import Frequencies, from_support, support_variance
from dpsketch.local.odds import keep_threshold, odds_below
from dpsketch.local.protocol import LocalProtocol, local_guarantee
from dpsketch.local.sets import People, read_single_items
from dpsketch.local.tallies import CountTables, KeptReports
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Guarantee, per_user

__all__ = ["CountMeanSketch", "HadamardCountMean", "OptimalLocalHashing"]

_ONE_ITEM = per_user(1, neighbours="replace")


@dataclass(frozen=True)
class _OneItem(LocalProtocol):
    """What the protocols here share: their input is a flat column, one item a person."""

    def read(self, sets: Any) -> People:
        """Read one item a person from a flat column."""
        return read_single_items(sets, self.key_type)

    def read_person(self, items: Any) -> People:
        """Read what one person holds: a column of exactly one item."""
        person = self.read(items)
        if len(person) != 1:
            raise InvalidInput("this protocol reports exactly one item a person.")
        return person


@dataclass(frozen=True)
class OptimalLocalHashing(_OneItem):
    """One item a person, hashed into about e^ε + 1 buckets and sent through randomised response.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    width : int, optional
        Buckets; the best if not given.
    seeds, seed : int, optional
        Size and choice of the public pool of hash functions.

    Privacy
    -------
    ε-locally differentially private for one item; :mod:`dpsketch.local.hashed` has the proof (L = 1).

    Accuracy
    --------
    Unbiased; n·Var is near 4E/(E−1)² for rare items, E = e^ε.

    References
    ----------
    Wang, Blocki, Li and Jha, *Locally differentially private protocols for frequency estimation* (USENIX Security
    2017), section 5.2. The hash function comes from a pool, so that the collector need not hash every key for every
    report.

    Examples
    --------
    >>> protocol = OptimalLocalHashing(epsilon=1.0)
    >>> protocol.width
    4
    >>> protocol.report(["tea", "milk"]).num_rows
    2
    """

    name: ClassVar[str] = "optimal-local-hashing"

    width: int | None = None
    seeds: int = 4096
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        hold_whole(self, "seeds", low=1, high=LARGEST_POOL)
        hold_whole(self, "seed", low=0, high=LARGEST_SEED)
        if self.width is None:
            object.__setattr__(self, "width", optimal_width(float(odds_below(self.epsilon)), 1))
        hold_whole(self, "width", low=2, high=LARGEST_WIDTH)

    @property
    def hashing(self) -> Hashing:
        """The protocol's arithmetic."""
        assert self.width is not None  # set above
        return Hashing(odds_below(self.epsilon), 1, self.width, self.seeds, self.seed)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return FIELDS

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        return local_guarantee(self.epsilon, _ONE_ITEM, f"optimal local hashing into {self.width} buckets")

    def randomise(self, people: People) -> Columns:
        """Draw everyone's hash function and bucket."""
        return self.hashing.draw(people)

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values in range."""
        return self.hashing.plausible(columns)

    def tally(self) -> KeptReports:
        """Keep the reports: six bytes each."""
        return KeptReports(self.fields, self.plausible)

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        return self.hashing.frequencies(tally.columns(), users, fingerprints, confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what the pool adds."""
        return support_variance(frequency, users, self.hashing.p_true, self.hashing.p_false)


@dataclass(frozen=True)
class CountMeanSketch(_OneItem):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        BitRows.check(self)

    @property
    def bit_rows(self) -> BitRows:
        """The protocol's arithmetic."""
        return BitRows(odds_below(self.epsilon, 2), self.rows, self.width, self.seed)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return self.bit_rows.fields

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        return local_guarantee(self.epsilon, _ONE_ITEM, f"randomised response on each of {self.width} bits of one row")

    def randomise(self, people: People) -> Columns:
        """Draw everyone's row and bits."""
        return self.bit_rows.draw(people)

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values in range."""
        return self.bit_rows.plausible(columns)

    def tally(self) -> CountTables:
        """Count the ones of each cell, and the reports of each row."""
        return self.bit_rows.tally()

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        ones, reports = tally.tables["ones"], tally.tables["reports"]
        support = kernels.sum_over_rows(ones, self.bit_rows.keys, fingerprints)
        p_true, p_false = self._chances()
        return from_support(support, users, p_true, p_false, row_spread(ones, reports, p_false), confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what few rows add."""
        return support_variance(frequency, users, *self._chances())

    def _chances(self) -> tuple[float, float]:
        keep = self.bit_rows.keep
        return keep, keep / self.width + (1 - keep) * (1 - 1 / self.width)


@dataclass(frozen=True)
class HadamardCountMean(_OneItem):
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

    rows: int = 1024
    width: int = 1024
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        BitRows.check(self)
        if self.width & (self.width - 1):
            raise InvalidInput("width must be a power of two for the Hadamard transform.")

    @property
    def threshold(self) -> int:
        """T: a word below it keeps the sign."""
        return keep_threshold(odds_below(self.epsilon))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return Field("row", 2), Field("index", 2), Field("bit", 1)

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        words = f"randomised response on one of {self.width} Hadamard coefficients"
        return local_guarantee(self.epsilon, _ONE_ITEM, words)

    def randomise(self, people: People) -> Columns:
        """Draw everyone's row, index and sign (bit 1 is −1)."""
        n = len(people)
        rows = random_below(self.rows, n).astype(np.uint32)
        indices = random_below(self.width, n).astype(np.uint32)
        bits = self.decide(people, rows, indices, random_words(n))
        return {"row": rows.astype(np.uint16), "index": indices.astype(np.uint16), "bit": bits}

    def decide(
        self,
        people: People,
        rows: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.uint32],
        words: npt.NDArray[np.uint64],
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into reported signs."""
        columns = kernels.own_buckets(people.prints, self._keys(), rows, self.width)
        flipped = (words >= np.uint64(self.threshold)).astype(np.uint8)
        bits: npt.NDArray[np.uint8] = _hadamard_bit(indices, columns) ^ flipped
        return bits

    def _keys(self) -> npt.NDArray[np.uint64]:
        return row_keys(self.seed, self.rows, "hadamard-count-mean")

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values in range."""
        in_range: npt.NDArray[np.bool_] = (
            (columns["row"] < self.rows) & (columns["index"] < self.width) & (columns["bit"] < 2)
        )
        return in_range

    def tally(self) -> CountTables:
        """Sum the signs of each coefficient, and count the reports of each row."""
        return CountTables({"signs": (self.rows, self.width), "reports": (self.rows,)}, _count_signs)

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        # A report supports a key if its sign is the one that the key's own column would have sent.
        reports = tally.tables["reports"]
        supporting = (reports[:, None] + _hadamard_transform(tally.tables["signs"])) // 2
        support = kernels.sum_over_rows(supporting, self._keys(), fingerprints)
        p_true, p_false = self._chances()
        return from_support(support, users, p_true, p_false, row_spread(supporting, reports, p_false), confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what few rows add."""
        return support_variance(frequency, users, *self._chances())

    def _chances(self) -> tuple[float, float]:
        keep = self.threshold / 2**64
        return keep, keep / self.width + (1 - 1 / self.width) / 2


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


def _count_signs(tables: dict[str, npt.NDArray[np.int64]], columns: Columns) -> None:
    shape = tables["signs"].shape
    cells = columns["row"].astype(np.int64) * shape[1] + columns["index"]
    all_of_them = np.bincount(cells, minlength=shape[0] * shape[1])
    negative = np.bincount(cells[columns["bit"] == 1], minlength=shape[0] * shape[1])
    tables["signs"] += (all_of_them - 2 * negative).reshape(shape)
    tables["reports"] += np.bincount(columns["row"], minlength=shape[0])
