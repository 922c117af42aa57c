"""A prefix tree's own loops: the cell of a short text, adding to cells, one user's distinct prefixes, what follows one.

Hashing of prefixes is in :mod:`dpsketch._compiled.xxh64`; tables are filled and read by the kernels of CountSketch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.countsketch import row_values
from dpsketch._compiled.kernel import kernel, plain_kernel
from dpsketch._compiled.xxh64 import hash_one
from dpsketch.arrays import Integers, Words

__all__ = ["add_units", "distinct_prefixes", "hash_following", "rows_reaching", "text_cells"]

# About how long it takes without the compiler to number a byte of a text, and to add to a cell.
BYTE_SECONDS = 20e-9
ADD_SECONDS = 10e-9

# Keys a piece while reading: their cells stay in the second-level cache.
_PIECE = 4096


def _text_cells(data: npt.NDArray[np.uint8], starts: Integers, lengths: Integers, depth: int, cells: Integers) -> None:
    cells[:] = 0
    for j in range(depth):
        held = np.flatnonzero(lengths > j)
        going_on = sum(256**k for k in range(depth - j))
        cells[held] += 1 + data[starts[held] + j].astype(np.int64) * going_on


@plain_kernel(lambda data, starts, lengths, depth, cells: BYTE_SECONDS * depth * len(starts), _text_cells)
def text_cells(data: npt.NDArray[np.uint8], starts: Integers, lengths: Integers, depth: int, cells: Integers) -> None:
    """Fill in the numbers of texts of at most ``depth`` bytes, in the order of a dictionary.

    At depth 2, "" is 0, "b" is 1 + 257·b and "bc" is 1 + 257·b + 1 + c: each byte skips the text that ends before it,
    and all that begin with a smaller byte. Longer texts get the number of their first ``depth`` bytes.
    """
    texts = 1
    for _ in range(depth):
        texts = 1 + 256 * texts
    for i in range(len(starts)):
        number = np.int64(0)
        going_on = texts
        for j in range(min(depth, lengths[i])):
            going_on = (going_on - 1) // 256
            number += 1 + np.int64(data[starts[i] + j]) * going_on
        cells[i] = number


def _add_units(counters: Integers, cells: Integers, units: Integers) -> None:
    np.add.at(counters, cells, units if len(units) == len(cells) else units[0])


@plain_kernel(lambda counters, cells, units: ADD_SECONDS * len(cells), _add_units)
def add_units(counters: Integers, cells: Integers, units: Integers) -> None:
    """Add ``units[i]`` (or, if there is a single one, that) to ``counters[cells[i]]``."""
    step = 1 if len(units) == len(cells) else 0
    for i in range(len(cells)):
        counters[cells[i]] += units[i * step]


@kernel
def distinct_prefixes(
    starts: Integers,
    prints: Words,
    units: Integers,
    present: npt.NDArray[np.bool_],
    kept_starts: Integers,
    kept_prints: Words,
    kept_units: Integers,
) -> None:
    """Merge equal prefixes within each user's run, taking the largest of their units, in the order they first came.

    Run u has the places ``starts[u]`` to ``starts[u + 1]``; those that are not ``present`` are left out.
    """
    users = len(starts) - 1
    longest = 0
    for u in range(users):
        longest = max(longest, starts[u + 1] - starts[u])
    size = 1
    while size < 2 * longest:
        size *= 2
    mask = np.uint64(size - 1)
    owner = np.full(size, -1, np.int64)
    place = np.empty(size, np.int64)
    end = 0
    kept_starts[0] = 0
    for u in range(users):
        for i in range(starts[u], starts[u + 1]):
            if not present[i]:
                continue
            slot = prints[i] & mask
            while owner[slot] == u and kept_prints[place[slot]] != prints[i]:
                slot = (slot + np.uint64(1)) & mask
            if owner[slot] == u:
                kept_units[place[slot]] = max(kept_units[place[slot]], units[i])
            else:
                owner[slot] = u
                place[slot] = end
                kept_prints[end] = prints[i]
                kept_units[end] = units[i]
                end += 1
        kept_starts[u + 1] = end


@kernel
def hash_following(letters: npt.NDArray[np.uint8], seed: np.uint64, hashes: Words) -> None:
    """Fill in, for each line of letters, XXH64 of the text itself and of it with each byte that may follow.

    ``hashes`` has a line of 257 for each.
    """
    n, depth = letters.shape
    text = np.empty(depth + 1, np.uint8)
    for i in range(n):
        for j in range(depth):
            text[j] = letters[i, j]
        hashes[i, 0] = hash_one(text, 0, depth, seed)
        for byte in range(256):
            text[depth] = byte
            hashes[i, byte + 1] = hash_one(text, 0, depth + 1, seed)


@kernel
def rows_reaching(
    table: npt.NDArray[np.float64], prints: Words, row_keys: Words, least: float, counts: npt.NDArray[np.uint16]
) -> None:
    """Fill in, for each key, in how many rows its counter times its sign is at least ``least``.

    A middle value of the rows is at least that where half of them and one are: no value has to be sorted.
    """
    for start in range(0, len(prints), _PIECE):
        values = row_values(table, prints[start : start + _PIECE], row_keys)
        for i in range(len(values)):
            count = 0
            for r in range(len(row_keys)):
                count += 1 if values[i, r] >= least else 0
            counts[start + i] = count
