"""The identifiers of the reports that a collector has counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local_ids as kernels
from dpsketch.noise import random_words

__all__ = ["Identifiers"]

Words = npt.NDArray[np.uint64]

_FEWEST_SLOTS = 1 << 10


class Identifiers:
    """A set of 128-bit identifiers, 16 bytes each in a table that is at most half full."""

    def __init__(self) -> None:
        self._table = np.zeros((_FEWEST_SLOTS, 2), np.uint64)
        self._secret = random_words(1)[0]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def memory(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def insert(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Insert identifiers and say which were new; of equal ones in a batch the first is new."""
        self._make_room(len(ids))
        fresh = np.empty(len(ids), np.bool_)
        kernels.insert(self._table, ids, self._secret, fresh)
        self._count += int(np.count_nonzero(fresh))
        return fresh

    def insert_all(self, ids: Words) -> bool:
        """Insert identifiers if all of them are new, and say so; else leave the set as it was."""
        fresh = self.insert(ids)
        if fresh.all():
            return True
        self._forget(ids, fresh)
        return False

    def unseen(self, ids: Words) -> npt.NDArray[np.bool_]:
        """Say which identifiers :meth:`insert` would find new, and leave the set as it was."""
        fresh = self.insert(ids)
        self._forget(ids, fresh)
        return fresh

    def copy(self) -> Identifiers:
        """Return a set that later identifiers do not change."""
        same = Identifiers()
        same._table, same._secret, same._count = self._table.copy(), self._secret, self._count
        return same

    def _forget(self, ids: Words, fresh: npt.NDArray[np.bool_]) -> None:
        kernels.forget(self._table, ids, self._secret, fresh)
        self._count -= int(np.count_nonzero(fresh))

    def sorted(self) -> Words:
        """Return all identifiers in an order that says nothing about when they came."""
        held = self._table[(self._table != 0).any(axis=1)]
        ordered: Words = held[np.lexsort((held[:, 0], held[:, 1]))]
        return ordered

    def _make_room(self, more: int) -> None:
        slots = len(self._table)
        while slots < 2 * (self._count + more):
            slots *= 2
        if slots > len(self._table):
            larger = np.zeros((slots, 2), np.uint64)
            kernels.rehash(self._table, larger, self._secret)
            self._table = larger
