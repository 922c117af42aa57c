"""Subset reporting: a bucket of a hash function, one that a key of the person falls into E times as likely as others.

:class:`SubsetHashing` is the recommended protocol for sets of items over a domain too large to list,
:class:`OptimalLocalHashing` is the same for one item. Prefix extension and padding-and-sampling are of the family too.
:class:`SubsetDirect` reports without hashing, for a small domain that can be listed.

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
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.local.protocol import LARGEST_SEED, OneItem, People, SupportProtocol, items_words
from dpsketch.local.tallies import CountTables, TallyTables
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Unit, per_user
from dpsketch.results import key_list

__all__ = ["HashedProtocol", "OptimalLocalHashing", "SubsetDirect", "SubsetHashing", "optimal_width"]

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


def _settled(
    people: int,
    unset: int,
    words: npt.NDArray[np.uint64],
    draw: Callable[[npt.NDArray[np.intp], npt.NDArray[np.uint32]], None],
) -> npt.NDArray[np.uint32]:
    """Draw everyone's choice; one that its word would bias is left unset, and drawn again, alone."""
    choices = np.full(people, unset, np.uint32)
    todo = np.arange(people)
    while len(todo):
        draw(todo, choices)
        todo = np.flatnonzero(choices == unset)
        words[todo, 1] = random_words(len(todo))
    return choices


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
        """Turn random words into reported buckets."""
        width, keys, thresholds = self.buckets, self.keys, self.thresholds()

        def draw(todo: npt.NDArray[np.intp], buckets: npt.NDArray[np.uint32]) -> None:
            kernels.subset_hashing(todo, people.offsets, people.prints, keys, seeds, width, thresholds, words, buckets)

        return _settled(len(people), width, words, draw)

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
        return f"subset local hashing, {items_words(self.max_items)} into {self.width} buckets"


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


LARGEST_DOMAIN = 1 << 20


@dataclass(frozen=True)
class SubsetDirect(SupportProtocol):
    """People report one key of the domain, one of their own E times as likely as any other.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    max_items : int
        L: of a larger set a random subset of this size is reported about; a smaller one is padded with dummies.
    domain : int, or sequence of int or str
        The keys there are: a number d for the integers 0 … d−1, or a public list. Other keys are left out on the
        device.

    Privacy
    -------
    ε-locally differentially private. The padded set has exactly L of d + L symbols. A member is reported with
    probability T/(2⁶⁴L) ≤ E/Ω each, any other with (1 − T/2⁶⁴)/d ≥ 1/Ω, where Ω = LE + d, T = ⌊2⁶⁴·LE/Ω⌋ and E ≤ e^ε.

    Accuracy
    --------
    Unbiased, up to the cap as in :class:`SubsetHashing`; n·Var at share 0 is (Ω−1)/(E−1)². Better than hashing where d
    is below about LE.

    References
    ----------
    Padding and sampling with generalised randomised response, its amplification by sampling taken into account, is the
    same law (Wang, Li and Jha, S&P 2018).

    Examples
    --------
    >>> protocol = SubsetDirect(epsilon=3.0, max_items=2, domain=["red", "green", "blue"])
    >>> protocol.report([["red"], ["blue", "green"]]).column_names
    ['id', 'symbol']
    """

    name: ClassVar[str] = "subset-direct"
    ranges: ClassVar = {"max_items": (1, 2**16)}

    max_items: int
    domain: int | tuple[int | str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.domain, Integral) and not isinstance(self.domain, bool):
            hold_whole(self, "domain", low=1, high=LARGEST_DOMAIN)
            return
        if isinstance(self.domain, bool | str | bytes) or not hasattr(self.domain, "__len__"):
            raise InvalidInput("domain is a number of integer keys, or a list of keys.")
        keys = key_list(self.domain)
        object.__setattr__(self, "domain", tuple(keys))
        whole_number("the length of domain", len(keys), low=1, high=LARGEST_DOMAIN)
        if len(np.unique(self._domain_prints())) != len(keys):
            raise InvalidInput("domain lists a key twice, or a null.")

    def _domain_prints(self) -> npt.NDArray[np.uint64]:
        keys = np.arange(self.domain) if isinstance(self.domain, int) else list(self.domain)
        return fingerprint(keys, self.key_type).fingerprints

    @property
    def domain_size(self) -> int:
        """d, the number of keys."""
        return self.domain if isinstance(self.domain, int) else len(self.domain)

    @property
    def mass(self) -> Fraction:
        """Ω, the sum of the weights E of L members and 1 of d others."""
        return self.max_items * self.odds + self.domain_size

    @property
    def threshold(self) -> int:
        """T: a word below it reports a member."""
        return math.floor(self.max_items * self.odds / self.mass * 2**64)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: a place in the domain, or a dummy."""
        return (Field("symbol", 4, limit=self.domain_size + self.max_items),)

    @property
    def unit(self) -> Unit:
        """As many items as the cap."""
        return per_user(self.max_items, neighbours="replace")

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"subset reporting, {items_words(self.max_items)} over {self.domain_size} keys"

    @property
    def chances(self) -> tuple[float, float]:
        """P and q."""
        return float(self.odds / self.mass), float(1 / self.mass)

    def randomise(self, people: People) -> Columns:
        """Draw everyone's symbol."""
        return {"symbol": self.decide(self.place(people), random_words(3 * len(people)).reshape(-1, 3))}

    def place(self, people: People) -> People:
        """Replace fingerprints by places in the domain; keys outside it are left out."""
        prints = self._domain_prints()
        order = np.argsort(prints)
        found = np.minimum(np.searchsorted(prints[order], people.prints), self.domain_size - 1)
        known = prints[order][found] == people.prints
        return People(people.offsets, order[found].astype(np.uint64)).only(known)

    def decide(self, placed: People, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Turn random words into symbols."""
        size, cap, threshold = self.domain_size, self.max_items, np.uint64(self.threshold)

        def draw(todo: npt.NDArray[np.intp], symbols: npt.NDArray[np.uint32]) -> None:
            kernels.subset_direct(todo, placed.offsets, placed.prints, size, cap, threshold, words, symbols)

        return _settled(len(placed), size + cap, words, draw)

    def tally(self) -> CountTables:
        """Count the symbols."""
        return CountTables({"symbols": (self.domain_size + self.max_items,)}, _count_symbols)

    def support(self, tally: Any, fingerprints: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], float]:
        """Count the reports of each key; a key outside the domain is refused."""
        placed = self.place(People(np.arange(len(fingerprints) + 1, dtype=np.int64), fingerprints))
        if len(placed.prints) != len(fingerprints):
            raise InvalidInput("a key to look up is not in the protocol's domain.")
        return tally.tables["symbols"][placed.prints.astype(np.int64)], 0.0


def _count_symbols(tables: TallyTables, columns: Columns) -> None:
    tables["symbols"] += np.bincount(columns["symbol"], minlength=len(tables["symbols"]))
