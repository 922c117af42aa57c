"""Market baskets as the FIMI collection writes them: a basket a line, item numbers between blanks."""

from __future__ import annotations

import gzip
import lzma
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["MARKETS", "Baskets", "read_baskets"]

Integers = npt.NDArray[np.int64]

_OPENERS = {".xz": lzma.open, ".gz": gzip.open}

_KOSARAK = ("sets/kosarak.dat", "sets/kosarak.dat.xz", "sets/kosarak.dat.gz")
_HEAD = ("sets/kosarak_head36682.dat.xz",)
# Name, files, how often each basket counts, the paper's width and largest basket, title. The whole of kosarak has 27
# times as many sessions as its beginning, which so often stands in for it; retail comes last.
MARKETS = (
    ("kosarak", _KOSARAK, 1, 1000, 100, "kosarak"),
    ("kosarak_repeated", _HEAD, 27, 1000, 100, "stand-in for kosarak: first 36,682 sessions, 27 times"),
    ("kosarak_head", _HEAD, 1, 1000, 100, "stand-in for kosarak: first 36,682 sessions"),
    (
        "kosarak_short",
        ("sets/kosarak-5-25.txt.xz",),
        1,
        1000,
        100,
        "stand-in for kosarak: sessions of at most 5 clicks",
    ),
    ("retail", ("sets/retail.dat.xz",), 1, 500, 30, "retail"),
)


@dataclass(frozen=True, slots=True)
class Baskets:
    """Baskets as one record an item.

    Attributes
    ----------
    users, items : numpy.ndarray
        The basket of each record, counted from 0 and ascending, and its item.
    """

    users: Integers
    items: Integers

    def first(self, most: int) -> Baskets:
        """Return the baskets with the first ``most`` items of each, as the paper cuts them."""
        places = np.arange(len(self.users)) - np.searchsorted(self.users, self.users)
        return Baskets(self.users[places < most], self.items[places < most])

    def repeated(self, times: int) -> Baskets:
        """Return every basket so many times, each time as another user."""
        people = int(self.users[-1]) + 1
        users = np.concatenate([self.users + turn * people for turn in range(times)])
        return Baskets(users, np.tile(self.items, times))

    def counted(self) -> tuple[Integers, Integers]:
        """Return the items that occur, and how often."""
        return np.unique(self.items, return_counts=True)


@lru_cache(maxsize=1)
def read_baskets(path: Path) -> Baskets:
    """Read a file of baskets, plain or compressed; blank lines are no baskets."""
    with _OPENERS.get(path.suffix, open)(path, "rt", encoding="ascii") as file:
        lines = [line.split() for line in file]
    baskets = [line for line in lines if line]
    sizes = np.array([len(basket) for basket in baskets])
    items = np.array([item for basket in baskets for item in basket]).astype(np.int64)
    return Baskets(np.repeat(np.arange(len(baskets)), sizes), items)
