"""Protocols whose reports name a hash function and one of its buckets.

:class:`SubsetHashing` is the recommended one for sets of items over a domain too large to list,
:class:`OptimalLocalHashing` is the same for one item. Prefix extension and padding-and-sampling are of the family too.

A person's keys, at most L of them, are hashed into ``width`` buckets by a function drawn from a public pool. With b of
the buckets occupied, the report is a uniform occupied one with probability bE/Ω, Ω = LE + width − L, and else a uniform
empty one. E stands for a fraction just below e^ε.

*Why it is private, rounding included.* The program reports an occupied bucket where a random 64-bit word is below
T(b) = ⌊2⁶⁴·bE/Ω⌋, and every choice among equals is exactly uniform. So a given occupied bucket has probability
T(b)/(2⁶⁴b) ≤ E/Ω, and at least E/Ω − 2⁻⁶⁴ > 1/Ω. A given empty one has (1 − T(b)/2⁶⁴)/(width − b). That is at least
(1 − bE/Ω)/(width − b) ≥ 1/Ω, since b ≤ L; and at most E/Ω, because (1 − bE/Ω)/(width − b) falls short of E/Ω by
(E−1)(width − L)/(Ω(width − b)), which is far more than 2⁻⁶⁴. So all probabilities of all sets lie between 1/Ω and E/Ω:
their ratio is at most E ≤ e^ε, for every hash function and every set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.hashing import row_keys
from dpsketch.local.protocol import LARGEST_SEED, OneItem, SupportProtocol
from dpsketch.local.sets import People
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Unit, per_user

__all__ = ["HashedProtocol", "OptimalLocalHashing", "SubsetHashing", "optimal_width"]

LARGEST_WIDTH = 1 << 22
_FEW = 1 << 18  # pairs of a hash function and a bucket, or reports


def optimal_width(odds: float, max_items: int) -> int:
    """Return the number of buckets that minimises the variance of a rare key, at most 2²².

    It is the root of a quadratic, g = ½[L(E+2) + √(L²(E+2)² + 4L²(E−1) − 8LE)], near LE + 2L. For L = 1 it is E + 1.

    Examples
    --------
    >>> optimal_width(math.e, 26)
    130
    """
    cap = max_items
    linear = cap * (odds + 2)
    root = math.sqrt(linear**2 + 4 * cap**2 * (odds - 1) - 8 * cap * odds)
    return min(LARGEST_WIDTH, max(cap + 1, round((linear + root) / 2)))


@dataclass(frozen=True, slots=True, eq=False)
class HashedCells:
    """How many reports name each bucket of each hash function, where any does: s · width + bucket, ascending."""

    numbers: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class HashedProtocol(SupportProtocol):
    """What the family shares; a member has the fields ``width``, ``seeds`` and ``seed``, and says what its cap is."""

    ranges: ClassVar = {"seeds": (1, 2**16), "seed": (0, LARGEST_SEED)}

    width: int | None
    seeds: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is None:
            object.__setattr__(self, "width", optimal_width(float(self.odds), self.cap))
        # Above the cap, so that an empty bucket is left.
        hold_whole(self, "width", low=self.cap + 1, high=LARGEST_WIDTH)

    @property
    def cap(self) -> int:
        """L, the most keys of a person that a report is about."""
        return 1

    @property
    def buckets(self) -> int:
        """The width, which is never None once the protocol is built."""
        assert self.width is not None
        return self.width

    @property
    def unit(self) -> Unit:
        """As many items as the cap."""
        return per_user(self.cap, neighbours="replace")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: the hash function, and the bucket."""
        return Field("seed", 2, limit=self.seeds), Field("bucket", 4, limit=self.buckets)

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the pool's hash functions."""
        return row_keys(self.seed, self.seeds, "local-hashing")

    @property
    def mass(self) -> Fraction:
        """Ω, the sum of the weights E of L occupied buckets and 1 of all others."""
        return self.cap * self.odds + self.buckets - self.cap

    @property
    def chances(self) -> tuple[float, float]:
        """P and q, over hash functions."""
        return float(self.odds / self.mass), 1 / self.buckets

    def thresholds(self) -> npt.NDArray[np.uint64]:
        """Return T(b) for b = 0 … L: a word below it reports one of b occupied buckets."""
        chance = self.odds / self.mass
        return np.array([math.floor(b * chance * 2**64) for b in range(self.cap + 1)], np.uint64)

    def randomise(self, people: Any) -> Columns:
        """Draw everyone's hash function and bucket."""
        n = len(people)
        seeds = random_below(self.seeds, n).astype(np.uint32)
        words = random_words(3 * n).reshape(n, 3)
        return {"seed": seeds.astype(np.uint16), "bucket": self.decide(people, seeds, words)}

    def decide(
        self, people: People, seeds: npt.NDArray[np.uint32], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint32]:
        """Turn random words into reported buckets; a choice that its word would bias is drawn again, alone."""
        width, keys, thresholds = self.buckets, self.keys, self.thresholds()
        buckets = np.full(len(people), width, np.uint32)
        todo = np.arange(len(people))
        while len(todo):
            kernels.subset_hashing(todo, people.offsets, people.prints, keys, seeds, width, thresholds, words, buckets)
            todo = np.flatnonzero(buckets == width)
            words[todo, 1] = random_words(len(todo))
        return buckets

    def support(self, tally: Any, fingerprints: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], float]:
        """Count the reports that support each key, and estimate τ."""
        cells = self.cells(tally.columns())
        return self.supporters(cells, fingerprints), self.spread(cells)

    def cells(self, columns: Columns) -> HashedCells:
        """Count how often each bucket of each hash function was reported.

        Where all pairs are no more than the reports, or few, they are counted without sorting and a part at a time: a
        question about millions of reports takes neither long nor much memory.
        """
        users, pairs = len(columns["seed"]), self.seeds * self.buckets

        def numbers(part: slice) -> npt.NDArray[np.int64]:
            return columns["seed"][part].astype(np.int64) * self.buckets + columns["bucket"][part]

        if pairs > max(users, _FEW):
            return HashedCells(*np.unique(numbers(slice(None)), return_counts=True))
        sizes = np.zeros(pairs, np.int64)
        step = max(pairs, _FEW)
        for first in range(0, users, step):
            sizes += np.bincount(numbers(slice(first, first + step)), minlength=pairs)
        named = np.flatnonzero(sizes)
        return HashedCells(named, sizes[named])

    def supporters(self, cells: HashedCells, fingerprints: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Count the reports that support each key, in time O(cells + min(cells, pool) · keys)."""
        starts = np.searchsorted(cells.numbers, np.arange(self.seeds + 1) * self.buckets)
        buckets = (cells.numbers % self.buckets).astype(np.uint32)
        counts = np.zeros(len(fingerprints), np.int64)
        kernels.hashed_support(starts, buckets, cells.sizes, self.keys, self.buckets, fingerprints, counts)
        return counts

    def spread(self, cells: HashedCells) -> float:
        """Estimate τ, the variance of C/n for an absent key that sharing hash functions adds.

        An absent key falls on a random bucket of each hash function. Two reports under one function support it together
        where they name the same bucket: with probability Σ p²/g instead of 1/g², p being the function's probabilities.
        So the covariances of all pairs add up to (pairs of equal reports − pairs/g)/g, which the reports show without
        bias.
        """
        sizes = np.bincount(cells.numbers // self.buckets, cells.sizes, self.seeds)
        equal, pairs = float(np.sum(cells.sizes * (cells.sizes - 1.0))), float(np.sum(sizes * (sizes - 1)))
        return max(0.0, equal - pairs / self.buckets) / self.buckets / int(cells.sizes.sum()) ** 2


@dataclass(frozen=True)
class SubsetHashing(HashedProtocol):
    """People report one bucket of a random hash of their whole set.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    max_items : int
        L: of a larger set a random subset of this size is reported about. See :mod:`dpsketch.local.set_size` for how to
        choose it, and what it loses.
    width : int, optional
        Buckets; the best for rare keys if not given.
    seeds : int, optional
        Size of the public pool of hash functions, at most 65536. The collector's time grows with it. A smaller pool
        adds to the variance of a key about Σf²·g/(seeds·(g−L)²), f the shares of the other keys and g the width,
        however many people report.
    seed : int, optional
        Which pool. Public.
    key_type : {"int", "text"}, optional
        What keys must be.

    Privacy
    -------
    ε-locally differentially private: for *any* two sets, whatever their sizes, and any report, the two probabilities of
    the report differ by a factor of at most e^ε, exactly as the program draws them (:mod:`dpsketch.local.hashed` has
    the proof). It costs ε a report.

    Accuracy
    --------
    Unbiased for the share of people who hold a key and whose set is within the cap; a person with s > L items counts
    L/s. n·Var at share 0 is (g−1)(g+L(E−1))²/((E−1)²(g−L)²), g = ``width``, E = e^ε.

    References
    ----------
    Wang et al., *Set-valued data publication with local privacy* (PVLDB 2020) has the wheel on a continuous circle;
    this is its discretisation by a public pool of hash functions. For ``max_items=1`` it is optimal local hashing
    (Wang, Blocki, Li and Jha, USENIX Security 2017).

    Examples
    --------
    >>> protocol = SubsetHashing(epsilon=1.0, max_items=26)
    >>> protocol.width
    130
    >>> reports = protocol.report([["a", "b"], ["b"], []])
    >>> reports.column_names, reports.num_rows
    (['id', 'seed', 'bucket'], 3)
    """

    name: ClassVar[str] = "subset-hashing"
    ranges: ClassVar = {"max_items": (1, 2**16), **HashedProtocol.ranges}

    max_items: int
    width: int | None = None
    seeds: int = 4096
    seed: int = 1

    @property
    def cap(self) -> int:
        """L, as stated."""
        return self.max_items

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        items = "1 item" if self.max_items == 1 else f"{self.max_items} items"
        return f"subset local hashing, {items} into {self.width} buckets"


@dataclass(frozen=True)
class OptimalLocalHashing(OneItem, HashedProtocol):
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

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"optimal local hashing into {self.width} buckets"
