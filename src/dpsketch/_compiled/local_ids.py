"""A set of 128-bit report identifiers, kept in an open-addressing table.

An identifier is two words; the pair (0, 0) marks an empty slot and is never an identifier. Whoever sends reports
chooses the identifiers, so the slot is found through a secret word of the table's owner: nobody outside can crowd one
slot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["forget", "insert", "rehash"]

Words = npt.NDArray[np.uint64]

M1 = np.uint64(0xBF58476D1CE4E5B9)
M2 = np.uint64(0x94D049BB133111EB)
U0 = np.uint64(0)
U1 = np.uint64(1)
U29 = np.uint64(29)
U32 = np.uint64(32)


@kernel
def _slot(low: np.uint64, high: np.uint64, secret: np.uint64, mask: np.uint64) -> np.uint64:
    z = (low ^ secret) * M1
    z = (z ^ (z >> U29) ^ high ^ (secret << U1)) * M2
    return (z ^ (z >> U32)) & mask


@kernel
def insert(table: Words, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]) -> None:
    """Insert identifiers; say for each whether it was new. The table has 2^k slots, and more than it will hold."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids)):
        low, high = ids[i, 0], ids[i, 1]
        at = _slot(low, high, secret, mask)
        fresh[i] = True
        while table[at, 0] != U0 or table[at, 1] != U0:
            if table[at, 0] == low and table[at, 1] == high:
                fresh[i] = False
                break
            at = (at + U1) & mask
        if fresh[i]:
            table[at, 0] = low
            table[at, 1] = high


@kernel
def forget(table: Words, ids: Words, secret: np.uint64, fresh: npt.NDArray[np.bool_]) -> None:
    """Undo an :func:`insert`: take out what it put in, last first, which leaves the table as it was."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(ids) - 1, -1, -1):
        if fresh[i]:
            at = _slot(ids[i, 0], ids[i, 1], secret, mask)
            while table[at, 0] != ids[i, 0] or table[at, 1] != ids[i, 1]:
                at = (at + U1) & mask
            table[at, 0] = U0
            table[at, 1] = U0


@kernel
def rehash(table: Words, larger: Words, secret: np.uint64) -> None:
    """Move all identifiers into a larger, empty table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 0] != U0 or table[i, 1] != U0:
            at = _slot(table[i, 0], table[i, 1], secret, mask)
            while larger[at, 0] != U0 or larger[at, 1] != U0:
                at = (at + U1) & mask
            larger[at, 0] = table[i, 0]
            larger[at, 1] = table[i, 1]
