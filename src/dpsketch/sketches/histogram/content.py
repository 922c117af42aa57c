"""What a histogram holds when it is released, in an order that says nothing of how it came.

Keys are numbered by their own order, and so are users: a release then draws the same for any split of the records
into batches and partials. A mechanism asks the content for sums by key in which each unit of privacy is bounded, and
does so with randomness that no other unit has a part in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpsketch.noise import random_words
from dpsketch.sketches.histogram.rounds import WEIGHT_ONE, unit_weights

__all__ = ["Content", "Pairs", "Records"]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Content(Protocol):
    """What a mechanism may ask of the sensitive side. Each answer bounds every unit of privacy anew."""

    @property
    def size(self) -> int:
        """How many keys there are. Sensitive."""

    def sums(self, among: Mask, cap: int) -> tuple[Integers, int]:
        """Return the units of each key, and of all keys that are not ``among`` those asked for.

        Each unit of privacy counts on at most ``cap`` of the keys asked for, and where it counts on i of them on at
        most cap − i others.
        """

    def weights(self, among: Mask, cap: int) -> Integers:
        """Return for each key asked for the sum of 1/√d over the units that have it, in steps of 2⁻²⁰.

        Each unit of privacy counts on at most ``cap`` of its keys among those asked for; d is how many these are.
        """

    def held(self, among: Mask) -> tuple[Integers, Integers]:
        """Return of each unit that has keys among those asked for how many, and one of them, drawn at random."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records:
    """Counts by key, where a record is on one key. Sensitive."""

    units: Integers

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.units)

    def sums(self, among: Mask, cap: int) -> tuple[Integers, int]:
        """Return the units of each key asked for, and of all others; a record is on one."""
        return np.where(among, self.units, 0), int(self.units[~among].sum())

    def weights(self, among: Mask, cap: int) -> Integers:
        """Return the units of each key asked for, in steps of 2⁻²⁰: a record has one key."""
        return np.where(among, self.units, 0) * WEIGHT_ONE

    def held(self, among: Mask) -> tuple[Integers, Integers]:
        """Return one key for each record."""
        picked = np.repeat(np.flatnonzero(among), self.units[among])
        return np.ones(len(picked), np.int64), picked


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pairs:
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

    def sums(self, among: Mask, cap: int) -> tuple[Integers, int]:
        """Return the units of each key asked for and of all others, of each user on at most ``cap`` keys."""
        asked = among[self.keys]
        chosen = _capped(self.users, np.flatnonzero(asked), cap)
        sums = self._added(chosen)
        if asked.all():
            return sums, 0
        # What the keys asked for left of a user's cap is open to others.
        places = np.flatnonzero(~asked)
        open_ = cap - np.bincount(self.users[chosen], minlength=self._people)
        rest = _capped(self.users, places, open_)
        return sums, len(rest) if self.units is None else int(self.units[rest].sum())

    def weights(self, among: Mask, cap: int) -> Integers:
        """Return for each key asked for the sum of 1/√d over its users, in steps of 2⁻²⁰, each rounded down."""
        chosen = _capped(self.users, np.flatnonzero(among[self.keys]), cap)
        held = np.bincount(self.users[chosen], minlength=self._people)
        steps = unit_weights(cap)
        # Floats hold the sums exactly: fewer than 2³² users give a key at most 2²⁰ each.
        sums = np.bincount(self.keys[chosen], weights=steps[held[self.users[chosen]]], minlength=self.size)
        return sums.astype(np.int64)

    def held(self, among: Mask) -> tuple[Integers, Integers]:
        """Return of each user that has keys among those asked for how many, and one of them, drawn at random."""
        places = np.flatnonzero(among[self.keys])
        chosen = _capped(self.users, places, 1)
        held = np.bincount(self.users[places], minlength=self._people)
        return held[self.users[chosen]], self.keys[chosen]

    @property
    def _people(self) -> int:
        return int(self.users[-1]) + 1 if len(self.users) else 0

    def _added(self, chosen: Integers) -> Integers:
        if self.units is None:
            return np.bincount(self.keys[chosen], minlength=self.size).astype(np.int64)
        sums = np.zeros(self.size, np.int64)
        np.add.at(sums, self.keys[chosen], self.units[chosen])
        return sums


def _capped(users: Integers, places: Integers, cap: int | Integers) -> Integers:
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
    order = np.lexsort((random_words(len(crowded)), whose))
    firsts = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
    ranks = np.arange(len(whose)) - np.repeat(firsts, np.diff(np.r_[firsts, len(whose)]))
    limit = cap if isinstance(cap, int) else cap[whose]
    kept = crowded[order[ranks < limit]]
    return np.concatenate([places[~over], kept])
