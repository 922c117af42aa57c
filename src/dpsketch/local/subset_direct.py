"""Subset reporting without hashing: for a small domain that can be listed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.protocol import SupportProtocol
from dpsketch.local.sets import People
from dpsketch.local.tallies import CountTables, Tables
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_words
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Unit, per_user
from dpsketch.results import key_list

__all__ = ["SubsetDirect"]

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
        items = "1 item" if self.max_items == 1 else f"{self.max_items} items"
        return f"subset reporting, {items} over {self.domain_size} keys"

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
        """Turn random words into symbols; a choice that its word would bias is drawn again, alone."""
        unset = self.domain_size + self.max_items
        symbols = np.full(len(placed), unset, np.uint32)
        todo = np.arange(len(placed))
        while len(todo):
            kernels.subset_direct(
                todo,
                placed.offsets,
                placed.prints,
                self.domain_size,
                self.max_items,
                np.uint64(self.threshold),
                words,
                symbols,
            )
            todo = np.flatnonzero(symbols == unset)
            words[todo, 1] = random_words(len(todo))
        return symbols

    def tally(self) -> CountTables:
        """Count the symbols."""
        return CountTables({"symbols": (self.domain_size + self.max_items,)}, _count_symbols)

    def support(self, tally: Any, fingerprints: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], float]:
        """Count the reports of each key; a key outside the domain is refused."""
        placed = self.place(People(np.arange(len(fingerprints) + 1, dtype=np.int64), fingerprints))
        if len(placed.prints) != len(fingerprints):
            raise InvalidInput("a key to look up is not in the protocol's domain.")
        return tally.tables["symbols"][placed.prints.astype(np.int64)], 0.0


def _count_symbols(tables: Tables, columns: Columns) -> None:
    tables["symbols"] += np.bincount(columns["symbol"], minlength=len(tables["symbols"]))
