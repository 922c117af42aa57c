"""A set of 128-bit report identifiers: rows in the order in which they came, and an open-addressing table of them.

A slot of the table is one word: in its lower 40 bits the number of a row, from 1 on, and above them bits of its hash,
so that a row is looked at only where these agree. An empty slot is 0. Whoever sends reports chooses the identifiers, so
the slot is found through a secret word of the table's owner: nobody outside can crowd one slot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Words

__all__ = ["forget", "index", "insert"]


M1 = np.uint64(0xBF58476D1CE4E5B9)
M2 = np.uint64(0x94D049BB133111EB)
U0 = np.uint64(0)
U1 = np.uint64(1)
U29 = np.uint64(29)
U32 = np.uint64(32)
ROW = np.uint64((1 << 40) - 1)
TAG = ~ROW


@kernel
def _mixed(low: np.uint64, high: np.uint64, secret: np.uint64) -> np.uint64:
    z = (low ^ secret) * M1
    z = (z ^ (z >> U29) ^ high ^ (secret << U1)) * M2
    return z ^ (z >> U32)


@kernel
def insert(table: Words, held: Words, count: int, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]) -> int:
    """Insert identifiers behind the first ``count`` rows; say of each whether it was new, and return how many rows are.

    The table has 2^k slots and more than it will hold, and there is room for all rows.
    """
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids)):
        low, high = ids[i, 0], ids[i, 1]
        mixed = _mixed(low, high, secret)
        at = mixed & mask
        fresh[i] = True
        while table[at] != U0:
            if (table[at] ^ mixed) & TAG == U0:
                row = (table[at] & ROW) - U1
                if held[row, 0] == low and held[row, 1] == high:
                    fresh[i] = False
                    break
            at = (at + U1) & mask
        if fresh[i]:
            held[count, 0] = low
            held[count, 1] = high
            count += 1
            table[at] = (mixed & TAG) | np.uint64(count)
    return count


@kernel
def forget(table: Words, count: int, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]) -> int:
    """Undo an :func:`insert` after which ``count`` rows were there, last first; return how many there are now."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids) - 1, -1, -1):
        if fresh[i]:
            at = _mixed(ids[i, 0], ids[i, 1], secret) & mask
            while table[at] & ROW != np.uint64(count):
                at = (at + U1) & mask
            table[at] = U0
            count -= 1
    return count


@kernel
def index(held: Words, count: int, table: Words, secret: np.uint64) -> None:
    """Enter the first ``count`` rows, all different, into an empty table."""
    mask = np.uint64(len(table) - 1)
    for i in range(count):
        mixed = _mixed(held[i, 0], held[i, 1], secret)
        at = mixed & mask
        while table[at] != U0:
            at = (at + U1) & mask
        table[at] = (mixed & TAG) | np.uint64(i + 1)
