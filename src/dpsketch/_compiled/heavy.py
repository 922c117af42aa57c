"""Adding to cells, marking distinct keys, and a prefix tree's own loops.

Hashing of prefixes is in :mod:`dpsketch._compiled.hashing`; the tables of a tree are CountSketches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.countsketch import PIECE, locate
from dpsketch._compiled.hashing import hash_one, mix
from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Integers, Words

__all__ = ["add_units", "distinct_prefixes", "hash_following", "mark", "rows_reaching", "text_cells"]

U32 = np.uint64(32)


@kernel
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


@kernel
def add_units(counters: Integers, cells: Integers, units: Integers) -> None:
    """Add ``units[i]`` (or, if there is a single one, that) to ``counters[cells[i]]``."""
    step = 1 if len(units) == len(cells) else 0
    for i in range(len(cells)):
        counters[cells[i]] += units[i * step]


@kernel
def mark(bitmap: Words, fingerprints: Words, row_keys: Words) -> None:
    """Set each key's bit in a bitmap of ``buckets`` words, one of whose 64 bits stands for each level.

    Its bucket is uniform, and its level is l with probability 2^−(l+1) (Flajolet and Martin 1985). ``row_keys`` are
    two, one for the bucket and one for the level.
    """
    buckets = np.uint64(len(bitmap))
    for i in range(len(fingerprints)):
        place = ((mix(fingerprints[i] ^ row_keys[0]) >> U32) * buckets) >> U32
        level = mix(fingerprints[i] ^ row_keys[1])
        # The lowest set bit of a uniform word is at l with probability 2^−(l+1).
        bitmap[place] |= level & (~level + np.uint64(1))


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
    width = np.uint64(table.shape[1])
    buckets = np.empty(min(PIECE, len(prints)), np.int32)
    signs = np.empty(len(buckets), np.int8)
    counts[:] = 0
    for start in range(0, len(prints), PIECE):
        piece = prints[start : start + PIECE]
        for r in range(len(row_keys)):
            row = table[r]
            locate(piece, row_keys[r], width, buckets, signs)
            for i in range(len(piece)):
                counts[start + i] += 1 if signs[i] * row[np.uint64(buckets[i])] >= least else 0
