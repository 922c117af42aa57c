"""The protocols that PrivSketch was compared with, all ε-locally private: Multi-PCMS-Mean, Multi-PCMS-Min, PS-OLH."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.local.arguments import LARGEST_SEED, share_of
from dpsketch.local.bit_rows import BitRows
from dpsketch.local.hashed import FIELDS, LARGEST_POOL, LARGEST_WIDTH, Hashing, optimal_width
from dpsketch.local.intervals import Frequencies, from_support, normal_quantile, support_variance
from dpsketch.local.odds import odds_below
from dpsketch.local.protocol import LocalProtocol, local_guarantee
from dpsketch.local.sets import People
from dpsketch.local.tallies import CountTables, KeptReports
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_words
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Guarantee, per_record

__all__ = ["Decoder", "MultiPCMS", "PadAndSample"]

Decoder = Literal["mean", "min"]
_WHOLE_SET = per_record(neighbours="replace")


@dataclass(frozen=True)
class MultiPCMS(LocalProtocol):
    """Apple's count-mean sketch stretched to sets: a whole row of bits, each at ε/width.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    rows, width : int, optional
        Shape of the sketch; the paper's 4 and 128 by default.
    decoder : {"mean", "min"}
        Multi-PCMS-Mean averages a key's cells and corrects for collisions; Multi-PCMS-Min takes the smallest.
    seed : int, optional
        The hash functions. Public.

    Privacy
    -------
    ε-locally differentially private for sets of any size: each of ``width`` bits is kept with probability T/2³², T
    rounded down, at odds of at most e^(ε/width); the odds of all bits multiply to at most e^ε.

    Accuracy
    --------
    Poor, for noise of scale width/ε in every bit, and for collisions of everyone's items in few rows. The interval of
    "min" covers the noise of one cell alone: the minimum is biased, down by noise and up by collisions.

    References
    ----------
    Li et al., *PrivSketch* (DEXA 2023), sections 2 and 4.

    Examples
    --------
    >>> MultiPCMS(epsilon=3.0, decoder="min").report([["a", "b"]]).column_names
    ['id', 'row', 'bits']
    """

    name: ClassVar[str] = "multi-pcms"

    rows: int = 4
    width: int = 128
    decoder: Decoder = "mean"
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        BitRows.check(self)
        if self.decoder not in ("mean", "min"):
            raise InvalidInput("decoder is 'mean' or 'min'.")

    @property
    def bit_rows(self) -> BitRows:
        """The protocol's arithmetic."""
        return BitRows(odds_below(self.epsilon, self.width), self.rows, self.width, self.seed)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return self.bit_rows.fields

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        words = f"randomised response at ε/{self.width} on each bit of one row; a record is one person's whole set"
        return local_guarantee(self.epsilon, _WHOLE_SET, words)

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
        users = whole_number("users", users, low=1)
        ones, reports = tally.tables["ones"], tally.tables["reports"]
        keep, keys = self.bit_rows.keep, self.bit_rows.keys
        flip, gap = 1 - keep, 2 * keep - 1
        if self.decoder == "min":
            seen = np.maximum(reports, 1)
            rows = [
                (kernels.sum_over_rows(ones[r : r + 1], keys[r : r + 1], fingerprints) / seen[r] - flip) / gap
                for r in range(self.rows)
            ]
            value = np.min(rows, axis=0)
            deviation = np.sqrt(keep * flip / float(seen.min())) / gap
        else:
            occupied = (kernels.sum_over_rows(ones, keys, fingerprints) / users - flip) / gap
            overall = (int(ones.sum()) / (users * self.width) - flip) / gap
            empty = max(1 - overall, 0.01)
            value = (occupied - overall) / empty
            # An absent key falls on random cells: the cells' own variance is that of its support.
            deviation = np.sqrt(float(np.sum(np.var(ones, axis=1, ddof=1)))) / users / gap / empty
        half = normal_quantile(confidence) * deviation
        return Frequencies(value, value - half, value + half)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance that the noise alone gives to the mean of a key's cells, before collisions."""
        keep = self.bit_rows.keep
        _, users = share_of(frequency, users)
        return keep * (1 - keep) / (2 * keep - 1) ** 2 / users


@dataclass(frozen=True)
class PadAndSample(LocalProtocol):
    """PS-OLH: pad or cut every set to a common length, sample one item, report it by optimal local hashing.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    length : int
        ℓ, the common length; the paper takes the 90th percentile of set sizes.
    width, seeds, seed : int, optional
        As for :class:`OptimalLocalHashing`.

    Privacy
    -------
    ε-locally differentially private for sets of any size: a mixture, over the sampled item, of ε-private reports; a
    dummy is a fresh random bucket.

    Accuracy
    --------
    n·Var near ℓ²·4E/(E−1)² for rare keys; a person with s > ℓ items counts ℓ/s.

    References
    ----------
    Wang, Li and Jha, *Locally differentially private frequent itemset mining* (S&P 2018), section IV.

    Examples
    --------
    >>> PadAndSample(epsilon=1.0, length=5).report([["a", "b"], []]).column_names
    ['id', 'seed', 'bucket']
    """

    name: ClassVar[str] = "pad-and-sample"

    length: int
    width: int | None = None
    seeds: int = 4096
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        hold_whole(self, "length", low=1, high=2**31)
        hold_whole(self, "seeds", low=1, high=LARGEST_POOL)
        hold_whole(self, "seed", low=0, high=LARGEST_SEED)
        if self.width is None:
            object.__setattr__(self, "width", optimal_width(float(odds_below(self.epsilon)), 1))
        hold_whole(self, "width", low=2, high=LARGEST_WIDTH)

    @property
    def hashing(self) -> Hashing:
        """The arithmetic of the report about the sampled item."""
        assert self.width is not None  # set above
        return Hashing(odds_below(self.epsilon), 1, self.width, self.seeds, self.seed)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return FIELDS

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        words = f"one item sampled of {self.length}, optimal local hashing; a record is one person's whole set"
        return local_guarantee(self.epsilon, _WHOLE_SET, words)

    def randomise(self, people: People) -> Columns:
        """Sample everyone's item and draw the report about it."""
        people = people.distinct()
        sizes = np.diff(people.offsets)
        place = _below_each(np.maximum(sizes, self.length))
        sampled = random_words(len(people))  # dummies
        real = place < sizes
        sampled[real] = people.prints[(people.offsets[:-1] + place)[real]]
        return self.hashing.draw(People(np.arange(len(people) + 1, dtype=np.int64), sampled))

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
        columns = tally.columns()
        support = self.hashing.support(columns, fingerprints)
        return from_support(support, users, *self._chances(), self.hashing.spread(columns), confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what the pool adds."""
        return support_variance(frequency, users, *self._chances())

    def _chances(self) -> tuple[float, float]:
        p_false = self.hashing.p_false
        return p_false + (self.hashing.p_true - p_false) / self.length, p_false


def _below_each(bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return one exactly uniform integer below each bound."""
    limits = bounds.astype(np.uint64)
    excess = (np.uint64(0) - limits) % limits
    words = random_words(len(limits))
    refused = np.flatnonzero(words > ~excess)
    while len(refused):
        words[refused] = random_words(len(refused))
        refused = refused[words[refused] > ~excess[refused]]
    below: npt.NDArray[np.int64] = (words % limits).astype(np.int64)
    return below
