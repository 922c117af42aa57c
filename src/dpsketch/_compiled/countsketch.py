"""CountSketch: add keys to a table of counters, and read them back.

A table has ``rows × width`` counters. Row i meets a fingerprint f in one bucket and with one sign, both taken from
z = mix(f ⊕ row_keys[i]), where mix is the finaliser of SplitMix64 without its last shift, which the upper half of z
does not need:

- the sign is −1 where bit 63 of z is set, else +1;
- the bucket is ⌊width · u / 2³²⌋, where u is bits 31 to 62 of z (Lemire's range reduction; width ≤ 2³¹).

No bit serves both, so bucket and sign are independent for every width, and a bucket is uniform to within width / 2³².

Each compiled loop over keys is cut into pieces and each piece into two passes: the first hashes and has no branches or
scattered stores, so that it is vectorised; the second only touches the counters. A question about a few keys is not to
wait for the compiler, so :func:`row_values` is NumPy.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import mix_upper
from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Words

__all__ = ["add_ones", "add_weighted", "cells", "locate", "row_values"]

Number = TypeVar("Number", np.int64, np.float64)

U1 = np.uint64(1)
U32 = np.uint64(32)
U63 = np.uint64(63)

# Keys a piece: the scratch (40 kB) stays in the cache beside the row that is filled or read.
PIECE = 8_192
# Keys a block while adding: so many meet one row before the next, and at least 8 for each of its counters, so that a
# row is loaded into a cache once for many of them. Against 65,536 keys that gives 1.15 times the rate at 5 × 65,536,
# twice at 33 × 65,536 and 1.7 times at 5 × 2²⁰.
ADD_BLOCK = 262_144
# Keys a block while finding cells: the block's part of an n × rows result stays in the second-level cache.
READ_BLOCK = 1_024


@kernel
def locate(
    fingerprints: Words,
    row_key: np.uint64,
    width: np.uint64,
    buckets: npt.NDArray[np.int32],
    signs: npt.NDArray[np.int8],
) -> None:
    """Fill in the bucket and sign of each fingerprint in one row."""
    for i in range(len(fingerprints)):
        z = mix_upper(fingerprints[i] ^ row_key)
        buckets[i] = np.int32((((z << U1) >> U32) * width) >> U32)
        signs[i] = np.int8(1) - np.int8((z >> U63) << U1)


@kernel
def _add(table: npt.NDArray[Number], fingerprints: Words, row_keys: Words, weights: npt.NDArray[Number] | None) -> None:
    """Add each key, once or with its weight, to every row of the table; each of the two is compiled by itself."""
    width = np.uint64(table.shape[1])
    buckets = np.empty(min(PIECE, len(fingerprints)), np.int32)
    signs = np.empty(len(buckets), np.int8)
    size = max(ADD_BLOCK, 8 * table.shape[1])
    for start in range(0, len(fingerprints), size):
        block = fingerprints[start : start + size]
        for r in range(len(row_keys)):
            row = table[r]
            for at in range(0, len(block), PIECE):
                piece = block[at : at + PIECE]
                locate(piece, row_keys[r], width, buckets, signs)
                for i in range(len(piece)):
                    # An unsigned index spares numba the test for a negative one.
                    if weights is None:
                        row[np.uint64(buckets[i])] += np.int64(signs[i])
                    else:
                        row[np.uint64(buckets[i])] += signs[i] * weights[start + at + i]


@kernel
def add_ones(table: npt.NDArray[np.int64], fingerprints: Words, row_keys: Words) -> None:
    """Add each key once to every row of the table, in place."""
    _add(table, fingerprints, row_keys, None)


@kernel
def add_weighted(
    table: npt.NDArray[Number], fingerprints: Words, row_keys: Words, weights: npt.NDArray[Number]
) -> None:
    """Add each key with its weight to every row of the table, in place."""
    _add(table, fingerprints, row_keys, weights)


def row_values(table: npt.NDArray[Number], fingerprints: Words, row_keys: Words) -> npt.NDArray[Number]:
    """Return, for each key and row, the key's counter times its sign: an array of n × rows, typed as the table is.

    A row's values lie one after the other.
    """
    width = np.uint64(table.shape[1])
    values = np.empty((len(row_keys), len(fingerprints)), table.dtype)
    for start in range(0, len(fingerprints), PIECE):
        piece = fingerprints[start : start + PIECE]
        for r, row_key in enumerate(row_keys):
            z = mix_upper(piece ^ row_key)
            counters = table[r].take(((((z << U1) >> U32) * width) >> U32).view(np.int64))
            signs = 1 - ((z >> U63) << U1).view(np.int64)
            np.multiply(counters, signs, out=values[r, start : start + PIECE])
    return values.T


@kernel
def cells(fingerprints: Words, row_keys: Words, width: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return each key's bucket and sign in each row: two arrays of n × rows."""
    buckets = np.empty((len(fingerprints), len(row_keys)), np.int32)
    signs = np.empty((len(fingerprints), len(row_keys)), np.int8)
    for start in range(0, len(fingerprints), READ_BLOCK):
        block = fingerprints[start : start + READ_BLOCK]
        for r in range(len(row_keys)):
            locate(
                block,
                row_keys[r],
                np.uint64(width),
                buckets[start : start + READ_BLOCK, r],
                signs[start : start + READ_BLOCK, r],
            )
    return buckets, signs
