"""What a histogram holds when it is released, in an order that says nothing of how it came.

Keys are numbered by their own order, and so are users: a release then draws the same for any split of the records
into batches and partials, in memory or on disk. A mechanism asks the content for sums by key in which each unit of
privacy is bounded, and does so with randomness that no other unit has a part in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.noise import random_words
from dpsketch.sketches.histogram.rounds import unit_weights

__all__ = ["BLOCK", "Block", "Content", "Pairs", "RandomWords", "Records"]

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

BLOCK = 1 << 16
"""So many keys get their noise at once, wherever the content lies."""
_WORDS = 1 << 12  # are drawn at once


class Block(NamedTuple):
    """Some keys of which something counts, by their places, increasing; and how much, 1 or more each."""

    places: Integers
    sums: Integers


class Content(ABC):
    """What a mechanism may ask of the sensitive side. Each answer bounds every unit of privacy anew.

    Blocks come in the order of the keys, :data:`BLOCK` keys each but the last, so that any two contents which hold the
    same draw the same.
    """

    __slots__ = ()

    @abstractmethod
    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys of which something counts; each unit of privacy counts on at most ``cap``."""

    @abstractmethod
    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        """Return the units of the keys at these places, which increase, and of all others together.

        Each unit of privacy counts on at most ``cap`` of the keys asked for, and where it counts on i of them on at
        most cap − i others.
        """

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield the sums of 1/√d over the users who have a key, in steps of 2⁻²⁰; not of the keys at known places.

        Each user counts on at most ``cap`` keys that are not known; d is how many these are. Records have one key, and
        no mechanism weighs them.
        """
        raise InvalidInput("weights are for users with many keys: a record has one.")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records(Content):
    """Counts by key, where a record is on one key. Sensitive."""

    units: Integers

    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys; a record is on one."""
        return _blocks(self.units)

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        """Return the units of each key asked for, and of all others."""
        sums = self.units[asked]
        return sums, int(self.units.sum()) - int(sums.sum())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pairs(Content):
    """Who has which key, and how much of it: sorted by user, then by key, each pair once. Sensitive.

    Attributes
    ----------
    size : int
        How many keys there are.
    users, keys : numpy.ndarray of int64
        The pairs.
    units : numpy.ndarray of int64 or None
        How much of the key counts of the user, after clipping; None: 1 each.
    """

    size: int
    users: Integers
    keys: Integers
    units: Integers | None

    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys, of each user on at most ``cap``."""
        return _blocks(self._added(*self.kept(cap, RandomWords())))

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        """Return the units of each key asked for and of all others, of each user on at most ``cap`` keys."""
        sums = self._added(*self.kept_among(asked, cap, RandomWords()))[asked]
        return sums, self.rest(asked, cap, RandomWords())

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield for each key that is not known the sum of 1/√d over its users, each rounded down."""
        return _blocks(self._added(*self.weighed(known, cap, RandomWords())))

    def kept(self, cap: int, words: RandomWords) -> tuple[Integers, Integers]:
        """Return keys with units: of each user at most ``cap``."""
        return self._taken(_capped(self.users, np.arange(len(self.users)), cap, words))

    def kept_among(self, asked: Integers, cap: int, words: RandomWords) -> tuple[Integers, Integers]:
        """Return keys asked for with units: of each user at most ``cap`` of them."""
        return self._taken(_capped(self.users, np.flatnonzero(_is_in(self.keys, asked)), cap, words))

    def rest(self, asked: Integers, cap: int, words: RandomWords) -> int:
        """Return the units of all keys that are not asked for; what those leave of a user's cap is open to them."""
        among = _is_in(self.keys, asked)
        held = np.bincount(self.users[among], minlength=self._people)
        chosen = _capped(self.users, np.flatnonzero(~among), np.maximum(cap - held, 0), words)
        return len(chosen) if self.units is None else int(self.units[chosen].sum())

    def weighed(self, known: Integers, cap: int, words: RandomWords) -> tuple[Integers, Integers]:
        """Return keys that are not known with weights, 1/√d each: of each user at most ``cap``, d in all."""
        chosen = _capped(self.users, np.flatnonzero(~_is_in(self.keys, known)), cap, words)
        owners = self.users[chosen]
        held = np.bincount(owners, minlength=self._people)
        return self.keys[chosen], unit_weights(cap)[held[owners]]

    @property
    def _people(self) -> int:
        return int(self.users[-1]) + 1 if len(self.users) else 0

    def _taken(self, chosen: Integers) -> tuple[Integers, Integers]:
        units = np.ones(len(chosen), np.int64) if self.units is None else self.units[chosen]
        return self.keys[chosen], units

    def _added(self, keys: Integers, units: Integers) -> Integers:
        sums = np.zeros(self.size, np.int64)
        np.add.at(sums, keys, units)
        return sums


class RandomWords:
    """Fresh random words, drawn in blocks: the same ones come for any way of asking for them in turn."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint64)

    def take(self, n: int) -> Words:
        """Return the next ``n`` words."""
        parts, there = [self._left], len(self._left)
        while there < n:
            parts.append(random_words(_WORDS))
            there += _WORDS
        drawn = np.concatenate(parts)
        self._left = drawn[n:]
        return drawn[:n]


def _blocks(sums: Integers) -> Iterator[Block]:
    """Yield what is there of sums by place."""
    there = np.flatnonzero(sums >= 1)
    for start in range(0, len(there), BLOCK):
        places = there[start : start + BLOCK]
        yield Block(places, sums[places])


def _is_in(keys: Integers, places: Integers) -> Mask:
    """Say which keys are at the places, which increase."""
    if not len(places):
        return np.zeros(len(keys), np.bool_)
    found: Mask = places[np.minimum(np.searchsorted(places, keys), len(places) - 1)] == keys
    return found


def _capped(users: Integers, places: Integers, cap: int | Integers, words: RandomWords) -> Integers:
    """Return of each user's pairs at these places at most ``cap``, each subset of that size as likely as any other.

    ``users`` is sorted and so are the places; ``cap`` may be an array with one number a user. Every pair of a user
    with too many gets a fresh random word, and those with the smallest words stay.
    """
    owners = users[places]
    held = np.bincount(owners, minlength=int(users[-1]) + 1 if len(users) else 0)
    over = (held > cap)[owners]
    if not over.any():
        return places
    crowded, whose = places[over], owners[over]
    order = np.lexsort((words.take(len(crowded)), whose))
    firsts = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
    ranks = np.arange(len(whose)) - np.repeat(firsts, np.diff(np.r_[firsts, len(whose)]))
    limit = cap if isinstance(cap, int) else cap[whose]
    kept = crowded[order[ranks < limit]]
    return np.concatenate([places[~over], kept])
