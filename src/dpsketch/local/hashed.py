"""Reports that name a hash function and one of its buckets: drawing them, and counting the support of keys.

This is what :class:`SubsetHashing`, :class:`OptimalLocalHashing`, padding-and-sampling and prefix extension share.

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
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.local.intervals import Frequencies, from_support
from dpsketch.local.sets import People
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words

__all__ = ["FIELDS", "LARGEST_WIDTH", "Hashing", "optimal_width"]

FIELDS = (Field("seed", 2), Field("bucket", 4))
LARGEST_WIDTH = 1 << 22
LARGEST_POOL = 1 << 16
_PURPOSE = "local-hashing"


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


class Hashing:
    """The arithmetic of hashed reports for one choice of odds, cap, width and pool."""

    def __init__(self, odds: Fraction, max_items: int, width: int, seeds: int, seed: int) -> None:
        if width <= max_items:
            raise InvalidInput(f"width must be above max_items ({max_items}): an empty bucket must be left.")
        self.odds = odds
        self.max_items = max_items
        self.width = width
        self.seeds = seeds
        self.seed = seed

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the pool's hash functions."""
        return row_keys(self.seed, self.seeds, _PURPOSE)

    @property
    def mass(self) -> Fraction:
        """Ω, the sum of the weights E of L occupied buckets and 1 of all others."""
        return self.max_items * self.odds + self.width - self.max_items

    @property
    def p_true(self) -> float:
        """The probability that a report supports a key which its sender reports about."""
        return float(self.odds / self.mass)

    @property
    def p_false(self) -> float:
        """The probability, over hash functions, that a report supports any other key."""
        return 1 / self.width

    def thresholds(self) -> npt.NDArray[np.uint64]:
        """Return T(b) for b = 0 … L: a word below it reports one of b occupied buckets."""
        chance = self.odds / self.mass
        return np.array([math.floor(b * chance * 2**64) for b in range(self.max_items + 1)], np.uint64)

    def draw(self, people: People) -> Columns:
        """Draw the hash function and the bucket of everyone's report."""
        n = len(people)
        seeds = random_below(self.seeds, n).astype(np.uint32)
        words = random_words(3 * n).reshape(n, 3)
        return {"seed": seeds.astype(np.uint16), "bucket": self.decide(people, seeds, words)}

    def decide(
        self, people: People, seeds: npt.NDArray[np.uint32], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint32]:
        """Turn random words into reported buckets; a choice that its word would bias is drawn again, alone."""
        buckets = np.full(len(people), self.width, np.uint32)
        keys, thresholds = self.keys, self.thresholds()
        todo = np.arange(len(people))
        while len(todo):
            kernels.subset_hashing(
                todo, people.offsets, people.prints, keys, seeds, self.width, thresholds, words, buckets
            )
            todo = np.flatnonzero(buckets == self.width)
            words[todo, 1] = random_words(len(todo))
        return buckets

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports name a hash function of the pool and one of its buckets."""
        in_range: npt.NDArray[np.bool_] = (columns["seed"] < self.seeds) & (columns["bucket"] < self.width)
        return in_range

    def support(self, columns: Columns, fingerprints: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Count the reports that support each key, in time O(n + min(n, pool) · keys)."""
        starts, buckets = self._by_seed(columns)
        counts = np.zeros(len(fingerprints), np.int64)
        kernels.hashed_support(starts, buckets, self.keys, self.width, fingerprints, counts)
        return counts

    def spread(self, columns: Columns) -> float:
        """Estimate τ, the variance of C/n for an absent key that sharing hash functions adds.

        An absent key falls on a random bucket of each hash function. Two reports under one function support it together
        where they name the same bucket: with probability Σ p²/g instead of 1/g², p being the function's probabilities.
        So the covariances of all pairs add up to (pairs of equal reports − pairs/g)/g, which the reports show without
        bias.
        """
        users = len(columns["seed"])
        cells = columns["seed"].astype(np.int64) * self.width + columns["bucket"]
        _, counts = np.unique(cells, return_counts=True)
        sizes = np.bincount(columns["seed"], minlength=self.seeds).astype(np.float64)
        equal, pairs = float(np.sum(counts * (counts - 1.0))), float(np.sum(sizes * (sizes - 1)))
        return max(0.0, equal - pairs / self.width) / self.width / users**2

    def frequencies(
        self, columns: Columns, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate shares of people from the reports' columns."""
        support = self.support(columns, fingerprints)
        return from_support(support, users, self.p_true, self.p_false, self.spread(columns), confidence)

    def _by_seed(self, columns: Columns) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        order = np.argsort(columns["seed"], kind="stable")
        sizes = np.bincount(columns["seed"], minlength=self.seeds)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        return starts, columns["bucket"][order].astype(np.uint32)
