"""PrivSketch as published: its ordering matrix, its decoding, and the attack that reads a set off the matrix.

A person's sketch has K × M bits, flattened to K·M cells. ``order`` holds each cell's rank, a permutation of 0 … K·M − 1
in which all empty cells come before all occupied ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel
from dpsketch._compiled.local import bucket_of
from dpsketch.arrays import Integers, Words

__all__ = ["columns_of", "decode_all", "decode_sampled", "order_cells", "recover"]

Ranks = npt.NDArray[np.uint16]

U32 = np.uint64(32)


@kernel
def order_cells(
    offsets: Integers,
    prints: Words,
    keys: Words,
    width: int,
    halves: npt.NDArray[np.uint32],
    occupied: npt.NDArray[np.uint8],
    order: Ranks,
) -> None:
    """Fill in everyone's sketch and its ordering matrix, random inside each of the two groups of equal cells.

    A rank among m is ⌊m·u/2³²⌋ for a random 32-bit u: uniform to within m/2³², which matters to nobody here.
    """
    cells = len(keys) * width
    w = np.uint64(width)
    place = np.empty(cells, np.int64)
    for i in range(len(offsets) - 1):
        bits = occupied[i]
        for j in range(offsets[i], offsets[i + 1]):
            for k in range(len(keys)):
                bits[k * width + bucket_of(prints[j], keys[k], w)] = 1
        empty = 0
        full = cells
        for c in range(cells):
            if bits[c] == 0:
                place[empty] = c
                empty += 1
            else:
                full -= 1
                place[full] = c
        for rank in range(cells):
            end = empty if rank < empty else cells
            other = rank + np.int64((np.uint64(halves[i, rank]) * np.uint64(end - rank)) >> U32)
            place[rank], place[other] = place[other], place[rank]
            order[i, place[rank]] = rank


@kernel
def columns_of(prints: Words, keys: Words, width: int) -> npt.NDArray[np.int64]:
    """Return the flat cell of each key in each row: d × K."""
    cells = np.empty((len(prints), len(keys)), np.int64)
    w = np.uint64(width)
    for x in range(len(prints)):
        for k in range(len(keys)):
            cells[x, k] = k * width + bucket_of(prints[x], keys[k], w)
    return cells


@kernel
def _smallest(order: Ranks, cells: Integers) -> np.int64:
    """Return the cell of lowest rank among a key's cells."""
    best = np.int64(cells[0])
    for k in range(1, len(cells)):
        if order[cells[k]] < order[best]:
            best = np.int64(cells[k])
    return best


@kernel
def decode_sampled(
    reported: npt.NDArray[np.uint16],
    bits: npt.NDArray[np.uint8],
    order: Ranks,
    cells: Integers,
    starts: Integers,
    items: Integers,
    ones: Integers,
    matching: Integers,
) -> None:
    """Count, for each key, the reports about its smallest cell, and those among them whose bit is 1.

    ``items[starts[c]:starts[c + 1]]`` are the keys that fall into cell c.
    """
    for i in range(len(reported)):
        cell = np.int64(reported[i])
        for at in range(starts[cell], starts[cell + 1]):
            x = items[at]
            if _smallest(order[i], cells[x]) == cell:
                matching[x] += 1
                ones[x] += bits[i]


@kernel
def decode_all(bits: npt.NDArray[np.uint8], order: Ranks, cells: Integers, ones: Integers) -> None:
    """Count, for each key, the reports whose bit at the key's smallest cell is 1."""
    for i in range(len(bits)):
        for x in range(len(cells)):
            cell = _smallest(order[i], cells[x])
            ones[x] += (bits[i, cell >> 3] >> (cell & 7)) & 1


@kernel
def recover(order: Ranks, cells: Integers, held: npt.NDArray[np.bool_]) -> None:
    """Mark, for each report, the keys that its ordering matrix gives away.

    The occupied cells are the g of highest rank, for some g. A g is consistent if the keys all of whose cells are among
    them cover exactly those g cells; the attack takes the smallest consistent g, and those keys.
    """
    keys, rows = cells.shape
    total = order.shape[1]
    needed = np.empty(keys, np.int64)
    for i in range(len(order)):
        first = np.full(total + 2, -1, np.int64)
        following = np.empty(keys, np.int64)
        for x in range(keys):
            lowest = total
            for k in range(rows):
                lowest = min(lowest, np.int64(order[i, cells[x, k]]))
            needed[x] = total - lowest
            following[x] = first[needed[x]]
            first[needed[x]] = x
        covered = np.zeros(total, np.bool_)
        count = 0
        for g in range(1, total + 1):
            x = first[g]
            while x >= 0:
                for k in range(rows):
                    if not covered[cells[x, k]]:
                        covered[cells[x, k]] = True
                        count += 1
                x = following[x]
            if count == g:
                for y in range(keys):
                    held[i, y] = needed[y] <= g
                break
