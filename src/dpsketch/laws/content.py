"""What a histogram holds when it is released, in an order that says nothing of how it came.

Keys are numbered by their own order, and so are users: a release then draws the same for any split of the records
into batches and partials, in memory or on disk. A mechanism asks the content for sums by key in which each unit of
privacy is bounded, and does so with randomness that no other unit has a part in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.xxh64 import hash_integers
from dpsketch.arrays import Integers, Words
from dpsketch.errors import InvalidInput
from dpsketch.hashing import FINGERPRINT_SEED
from dpsketch.laws.rounds import unit_weights
from dpsketch.noise import random_words

__all__ = ["BLOCK", "Block", "Content", "Pairs", "Records", "fresh_seed"]

Mask = npt.NDArray[np.bool_]

BLOCK = 1 << 16
"""So many keys get their noise at once, wherever the content lies."""


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

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return of each unit that has keys at these places how many, and one of them drawn at random, by its turn."""
        raise InvalidInput("a bound is chosen of what one machine holds: state max_keys= in place of 'auto'.")


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

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return one key for each record."""
        picked = np.repeat(np.arange(len(asked)), self.units[asked])
        return np.ones(len(picked), np.int64), picked


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
    prints : callable
        Takes numbers of pairs, and returns for each the fingerprints of its user and its key, one XORed to the other.
    """

    size: int
    users: Integers
    keys: Integers
    units: Integers | None
    prints: Callable[[Integers], Words]

    def counts(self, cap: int) -> Iterator[Block]:
        """Yield the units of all keys, of each user on at most ``cap``."""
        return _blocks(self._added(*self.kept(cap, fresh_seed())))

    def sums(self, asked: Integers, cap: int) -> tuple[Integers, int]:
        """Return the units of each key asked for and of all others, of each user on at most ``cap`` keys."""
        sums = self._added(*self.kept_among(asked, cap, fresh_seed()))[asked]
        return sums, self.rest(asked, cap, fresh_seed())

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield for each key that is not known the sum of 1/√d over its users, each rounded down."""
        return _blocks(self._added(*self.weighed(known, cap, fresh_seed())))

    def kept(self, cap: int, seed: int) -> tuple[Integers, Integers]:
        """Return keys with units: of each user at most ``cap``."""
        return self._taken(_capped(self.users, np.arange(len(self.users)), cap, self._words(seed)))

    def kept_among(self, asked: Integers, cap: int, seed: int) -> tuple[Integers, Integers]:
        """Return keys asked for with units: of each user at most ``cap`` of them."""
        return self._taken(_capped(self.users, np.flatnonzero(_is_in(self.keys, asked)), cap, self._words(seed)))

    def rest(self, asked: Integers, cap: int, seed: int) -> int:
        """Return the units of all keys that are not asked for; what those leave of a user's cap is open to them."""
        among = _is_in(self.keys, asked)
        held = np.bincount(self.users[among], minlength=self._people)
        chosen = _capped(self.users, np.flatnonzero(~among), np.maximum(cap - held, 0), self._words(seed))
        return len(chosen) if self.units is None else int(self.units[chosen].sum())

    def weighed(self, known: Integers, cap: int, seed: int) -> tuple[Integers, Integers]:
        """Return keys that are not known with weights, 1/√d each: of each user at most ``cap``, d in all."""
        chosen = _capped(self.users, np.flatnonzero(~_is_in(self.keys, known)), cap, self._words(seed))
        owners = self.users[chosen]
        held = np.bincount(owners, minlength=self._people)
        return self.keys[chosen], unit_weights(cap)[held[owners]]

    def _words(self, seed: int) -> Callable[[Integers], Integers]:
        """Return what gives each pair the word by which it is chosen: XXH64 of its prints.

        Privacy needs no more of it than that a user's choice follows from nobody else's records. That it depends on the
        seed and on what the pair is, and on no order, lets a cluster choose the same.
        """

        def words(rows: Integers) -> Integers:
            start, found = np.empty(1, np.uint64), np.empty(len(rows), np.uint64)
            hash_integers(np.array([seed], np.int64).view(np.uint64), FINGERPRINT_SEED, start)
            hash_integers(self.prints(rows), start[0], found)
            return found.view(np.int64)

        return words

    def held(self, asked: Integers) -> tuple[Integers, Integers]:
        """Return of each user that has keys at these places how many, and one of them drawn at random, by its turn."""
        return self.held_by(asked, fresh_seed())

    def held_by(self, asked: Integers, seed: int) -> tuple[Integers, Integers]:
        """Return the same, drawn by a seed."""
        places = np.flatnonzero(_is_in(self.keys, asked))
        chosen = _capped(self.users, places, 1, self._words(seed))
        held = np.bincount(self.users[places], minlength=self._people)
        return held[self.users[chosen]], np.searchsorted(asked, self.keys[chosen])

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


def fresh_seed() -> int:
    """Return a fresh seed for one choice of keys: a signed integer of 64 bits."""
    return int(random_words(1).view(np.int64)[0])


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


def _capped(users: Integers, places: Integers, cap: int | Integers, words: Callable[[Integers], Integers]) -> Integers:
    """Return of each user's pairs at these places at most ``cap``: of a user with too many, those with the least words.

    ``users`` is sorted and so are the places; ``cap`` may be an array with one number a user.
    """
    owners = users[places]
    held = np.bincount(owners, minlength=int(users[-1]) + 1 if len(users) else 0)
    over = (held > cap)[owners]
    if not over.any():
        return places
    crowded, whose = places[over], owners[over]
    order = np.lexsort((words(crowded), whose))
    firsts = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
    ranks = np.arange(len(whose)) - np.repeat(firsts, np.diff(np.r_[firsts, len(whose)]))
    limit = cap if isinstance(cap, int) else cap[whose]
    kept = crowded[order[ranks < limit]]
    return np.concatenate([places[~over], kept])
