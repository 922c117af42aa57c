"""Who has which key: each pair of a user and a key once, with what was counted of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dpsketch.arrays import Integers, Words
from dpsketch.errors import CounterOverflow

__all__ = ["PairTable", "check_room"]


_BITS = 32
_MOST = 1 << _BITS
# So many pairs wait before they are sorted into the others, or as many as there are, if these are more.
_FEW = 1 << 20


class _Held(NamedTuple):
    """Pairs by code, sorted, with their units; and those that wait to be sorted in."""

    codes: Words
    units: Integers
    waiting: list[tuple[Words, Integers]]


class PairTable:
    """Pairs of numbers, each once; the units of equal ones are added, up to a bound. Sensitive.

    Parameters
    ----------
    max_units : int
        What one user can add to one key. Where it is 1 nothing but the pairs is kept.

    Notes
    -----
    ``min(a + b, most)`` does not depend on the order of its terms, so that any split of the records gives one table.
    """

    def __init__(self, max_units: int) -> None:
        self._most = max_units
        # Replaced as a whole, so that an interrupt leaves either what was or what will be.
        self._held = _Held(np.empty(0, np.uint64), np.empty(0, np.int64), [])
        self._wait = 0

    def add(self, users: Integers, keys: Integers, units: Integers) -> None:
        """Add pairs, given by the numbers of their users and keys, with at least one unit each."""
        if len(users) == 0:
            return
        codes = _coded(users, keys)
        self._held.waiting.append((codes, units))
        self._wait += len(codes)
        if self._wait > max(_FEW, len(self._held.codes)):
            self._sorted()

    @property
    def nbytes(self) -> int:
        """How much memory the table takes."""
        waiting = sum(codes.nbytes + units.nbytes for codes, units in self._held.waiting)
        return self._held.codes.nbytes + self._held.units.nbytes + waiting

    def arrays(self) -> tuple[Integers, Integers, Integers]:
        """Return users, keys and units of all pairs, sorted by user and then by key."""
        held = self._sorted()
        users, keys = _decoded(held.codes)
        return users, keys, held.units if self._most > 1 else np.ones(len(users), np.int64)

    def parts(self, rows: int) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield :meth:`arrays` in parts of at most so many pairs."""
        held = self._sorted()
        for start in range(0, len(held.codes), rows):
            users, keys = _decoded(held.codes[start : start + rows])
            yield users, keys, held.units[start : start + rows] if self._most > 1 else np.ones(len(users), np.int64)

    def renumbered(self, users: Integers, keys: Integers) -> tuple[Integers, Integers, Integers]:
        """Return :meth:`arrays` with other numbers for users and keys, sorted by these."""
        old_users, old_keys, units = self.arrays()
        codes = _coded(users[old_users], keys[old_keys])
        if self._most == 1:
            return *_decoded(np.sort(codes)), units
        order = np.argsort(codes)
        return *_decoded(codes[order]), units[order]

    def _sorted(self) -> _Held:
        """Sort in what waits, and return all."""
        held = self._held
        if not held.waiting:
            return held
        codes = np.concatenate([held.codes, *(codes for codes, _ in held.waiting)])
        if self._most == 1:
            merged = _Held(np.unique(codes), held.units, [])
        else:
            units = np.concatenate([held.units, *(units for _, units in held.waiting)])
            order = np.argsort(codes, kind="stable")
            codes, units = codes[order], np.minimum(units[order], self._most)
            firsts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
            merged = _Held(codes[firsts], _bounded_sums(units, firsts, self._most), [])
        self._held = merged
        self._wait = 0
        return merged


def _coded(users: Integers, keys: Integers) -> Words:
    codes: Words = (users.astype(np.uint64) << np.uint64(_BITS)) | keys.astype(np.uint64)
    return codes


def _decoded(codes: Words) -> tuple[Integers, Integers]:
    return (codes >> np.uint64(_BITS)).astype(np.int64), (codes & np.uint64(_MOST - 1)).astype(np.int64)


def _bounded_sums(units: Integers, firsts: Integers, most: int) -> Integers:
    """Return the sums of runs, none above ``most``; none can wrap on the way."""
    if most * len(units) < 1 << 62:
        return np.minimum(np.add.reduceat(units, firsts), most)
    high = np.add.reduceat(units >> 20, firsts)  # exact in two halves, as the whole may pass 64 bits
    low = np.add.reduceat(units & ((1 << 20) - 1), firsts)
    large = high > (most >> 20) + 1
    sums: Integers = np.where(large, most, np.minimum((np.where(large, 0, high) << 20) + low, most))
    return sums


def check_room(users: int, keys: int) -> None:
    """Refuse more users or keys than a pair can name."""
    if max(users, keys) >= _MOST:
        raise CounterOverflow("a histogram holds fewer than 2**32 users and keys; nothing was added.")
