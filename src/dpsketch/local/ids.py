"""The identifiers of the reports that a collector has counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local_ids as kernels
from dpsketch.arrays import Words
from dpsketch.local.growing import Growing
from dpsketch.noise import random_words

__all__ = ["Identifiers", "in_order"]


_FEWEST_SLOTS = 1 << 10


class Identifiers:
    """A set of 128-bit identifiers: 16 bytes each, and 16 to 32 in a table that finds them."""

    def __init__(self) -> None:
        self._held = Growing(np.empty((0, 2), np.uint64))
        self._table = np.zeros(_FEWEST_SLOTS, np.uint64)
        self._secret = random_words(1)[0]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def memory(self) -> int:
        """Bytes in use."""
        return self._table.nbytes + self._held.memory

    def rows(self) -> Words:
        """Return all identifiers that are there now, in the order in which they came; later ones do not change it."""
        return self._held.rows()

    def insert(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Insert identifiers and say which were new; of equal ones in a batch the first is new."""
        return self._insert(ids, lambda fresh: True)[0]

    def insert_all(self, ids: Words) -> bool:
        """Insert identifiers if all of them are new, and say so; else leave the set as it was."""
        return self._insert(ids, lambda fresh: bool(fresh.all()))[1]

    def unseen(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Say which identifiers :meth:`insert` would find new, and leave the set as it was."""
        return self._insert(ids, lambda fresh: False)[0]

    def _insert(self, ids: Words, stay: Callable[[npt.NDArray[np.bool_]], bool]) -> tuple[npt.NDArray[np.bool_], bool]:
        """Insert identifiers, and take them out again unless they are to stay; say which were new, and if they stay."""
        held = self._held.with_room(len(ids))
        self._make_room(len(ids))
        fresh = np.empty(len(ids), np.bool_)
        count = kernels.insert(self._table, held, len(self), ids, self._secret, fresh)
        stays = stay(fresh)
        if not stays:
            count = kernels.forget(self._table, count, ids, self._secret, fresh)
        self._held.keep(count)
        return fresh, stays

    def copy(self) -> Identifiers:
        """Return a set that later identifiers do not change."""
        same = Identifiers()
        same._held, same._table, same._secret = self._held.copy(), self._table.copy(), self._secret
        return same

    def _make_room(self, more: int) -> None:
        slots = len(self._table)
        while slots < 2 * (len(self) + more):
            slots *= 2
        if slots > len(self._table):
            self._table = np.zeros(slots, np.uint64)
            kernels.index(self._held.rows(), len(self), self._table, self._secret)


def in_order(ids: Words) -> Words:
    """Return identifiers in an order that says nothing about when they came: by their second word, then the first."""
    order = np.argsort(ids[:, 1])
    ordered: Words = ids[order]
    if bool(np.any(ordered[1:, 1] == ordered[:-1, 1])):
        ordered = ids[np.lexsort((ids[:, 0], ids[:, 1]))]
    return ordered
