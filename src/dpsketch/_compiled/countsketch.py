"""CountSketch: add keys to a table of counters, and read them back.

A table has ``rows × width`` counters. Row i meets a fingerprint f in one bucket and with one sign, both taken from
z = mix(f ⊕ row_keys[i]), where mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014; the constants
are those of Stafford's variant 13) without its last shift, which the upper half of z does not need:

- the sign is −1 where bit 63 of z is set, else +1;
- the bucket is ⌊width · u / 2³²⌋, where u is bits 31 to 62 of z (Lemire's range reduction; width ≤ 2³¹).

No bit serves both, so bucket and sign are independent for every width, and a bucket is uniform to within width / 2³².

Each loop over keys is cut into pieces and each piece into two passes: the first hashes and has no branches or scattered
stores, so that it is vectorised; the second only touches the counters.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel, part, plain_kernel
from dpsketch._compiled.splitmix import mix_upper
from dpsketch.arrays import Integers

__all__ = ["add_ones", "add_weighted", "cells", "median_of_rows", "row_values"]

Number = TypeVar("Number", np.int64, np.float64)

U1 = np.uint64(1)
U32 = np.uint64(32)
U63 = np.uint64(63)

# Keys a piece while adding: the scratch (40 kB) stays in the cache beside the row being filled.
ADD_PIECE = 8_192
# Keys a block while adding: so many meet one row before the next, and at least 8 for each of its counters, so that a
# row is loaded into a cache once for many of them. Against 65,536 keys that gives 1.15 times the rate at 5 × 65,536,
# twice at 33 × 65,536 and 1.7 times at 5 × 2²⁰.
ADD_BLOCK = 262_144
# Keys a block while reading: the block's part of an n × rows result stays in the second-level cache.
READ_BLOCK = 1_024
# About how long it takes without the compiler to find a key's cell in one row and add to it or read it, and to sort a
# value.
CELL_SECONDS = 15e-9
SORT_SECONDS = 30e-9


@kernel
def _locate(
    fingerprints: npt.NDArray[np.uint64],
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
def _block(width: int) -> int:
    return max(ADD_BLOCK, 8 * width)


def _found(fingerprints: npt.NDArray[np.uint64], row_key: np.uint64, width: int) -> tuple[Integers, Integers]:
    """Return the bucket and sign of each fingerprint in one row, as :func:`_locate` does."""
    z = mix_upper(fingerprints ^ row_key)
    buckets = (((z << U1) >> U32) * np.uint64(width)) >> U32
    return buckets.astype(np.int64), 1 - ((z >> U63) << U1).astype(np.int64)


def _add_weighted(
    table: npt.NDArray[Number],
    fingerprints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    weights: npt.NDArray[Number] | None = None,
) -> None:
    for start in range(0, len(fingerprints), ADD_PIECE):
        piece = fingerprints[start : start + ADD_PIECE]
        for row, row_key in zip(table, row_keys, strict=True):
            buckets, signs = _found(piece, row_key, len(row))
            np.add.at(row, buckets, signs if weights is None else signs * weights[start : start + ADD_PIECE])


def _cell_seconds(fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]) -> float:
    return CELL_SECONDS * len(fingerprints) * len(row_keys)


@part
def _add(
    table: npt.NDArray[Number],
    fingerprints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    weights: npt.NDArray[Number] | None,
) -> None:
    """Add each key, once or with its weight, to every row of the table; each of the two is compiled by itself."""
    width = np.uint64(table.shape[1])
    buckets = np.empty(min(ADD_PIECE, len(fingerprints)), np.int32)
    signs = np.empty(len(buckets), np.int8)
    size = _block(table.shape[1])
    for start in range(0, len(fingerprints), size):
        block = fingerprints[start : start + size]
        for r in range(len(row_keys)):
            row = table[r]
            for at in range(0, len(block), ADD_PIECE):
                piece = block[at : at + ADD_PIECE]
                _locate(piece, row_keys[r], width, buckets, signs)
                for i in range(len(piece)):
                    # An unsigned index spares numba the test for a negative one.
                    if weights is None:
                        row[np.uint64(buckets[i])] += np.int64(signs[i])
                    else:
                        row[np.uint64(buckets[i])] += signs[i] * weights[start + at + i]


@plain_kernel(lambda table, fingerprints, row_keys: _cell_seconds(fingerprints, row_keys), _add_weighted)
def add_ones(
    table: npt.NDArray[np.int64], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> None:
    """Add each key once to every row of the table, in place."""
    _add(table, fingerprints, row_keys, None)


@plain_kernel(lambda table, fingerprints, row_keys, weights: _cell_seconds(fingerprints, row_keys), _add_weighted)
def add_weighted(
    table: npt.NDArray[Number],
    fingerprints: npt.NDArray[np.uint64],
    row_keys: npt.NDArray[np.uint64],
    weights: npt.NDArray[Number],
) -> None:
    """Add each key with its weight to every row of the table, in place."""
    _add(table, fingerprints, row_keys, weights)


def _row_values(
    table: npt.NDArray[Number], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> npt.NDArray[Number]:
    values = np.empty((len(fingerprints), len(row_keys)), table.dtype)
    for start in range(0, len(fingerprints), ADD_PIECE):
        piece = fingerprints[start : start + ADD_PIECE]
        for r, row_key in enumerate(row_keys):
            buckets, signs = _found(piece, row_key, table.shape[1])
            values[start : start + ADD_PIECE, r] = signs * table[r, buckets]
    return values


@plain_kernel(lambda table, fingerprints, row_keys: _cell_seconds(fingerprints, row_keys), _row_values)
def row_values(
    table: npt.NDArray[Number], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> npt.NDArray[Number]:
    """Return, for each key and row, the key's counter times its sign: an array of n × rows, typed as the table is."""
    width = np.uint64(table.shape[1])
    values = np.empty((len(fingerprints), len(row_keys)), table.dtype)
    buckets = np.empty(min(READ_BLOCK, len(fingerprints)), np.int32)
    signs = np.empty(len(buckets), np.int8)
    for start in range(0, len(fingerprints), READ_BLOCK):
        block = fingerprints[start : start + READ_BLOCK]
        for r in range(len(row_keys)):
            row = table[r]
            target = values[start : start + READ_BLOCK, r]
            _locate(block, row_keys[r], width, buckets, signs)
            for i in range(len(block)):
                target[i] = signs[i] * row[np.uint64(buckets[i])]
    return values


def _sorted_medians(values: npt.NDArray[Number]) -> npt.NDArray[np.float64]:
    return np.sort(values, axis=1)[:, values.shape[1] // 2].astype(np.float64)


@plain_kernel(lambda values: SORT_SECONDS * values.size, plain=_sorted_medians)
def median_of_rows(values: npt.NDArray[Number]) -> npt.NDArray[np.float64]:
    """Return the median of each line of an n × rows array; rows is odd.

    A bubble sort that stops at the middle, run on a block of keys at once: every step is a minimum and a maximum of two
    lines of scratch, which the compiler vectorises over keys.
    """
    keys, rows = values.shape
    middle = rows // 2
    medians = np.empty(keys, np.float64)
    scratch = np.empty((rows, min(READ_BLOCK, keys)), values.dtype)
    for start in range(0, keys, READ_BLOCK):
        block = values[start : start + READ_BLOCK]
        count = len(block)
        for i in range(count):
            for r in range(rows):
                scratch[r, i] = block[i, r]
        for smallest in range(middle + 1):
            for r in range(rows - 1, smallest, -1):
                lower = scratch[r - 1]
                upper = scratch[r]
                for i in range(count):
                    a = lower[i]
                    b = upper[i]
                    lower[i] = min(a, b)
                    upper[i] = max(a, b)
        medians[start : start + count] = scratch[middle, :count]
    return medians


def _cells(
    fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64], width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    buckets = np.empty((len(fingerprints), len(row_keys)), np.int32)
    signs = np.empty((len(fingerprints), len(row_keys)), np.int8)
    for r, row_key in enumerate(row_keys):
        buckets[:, r], signs[:, r] = _found(fingerprints, row_key, width)
    return buckets, signs


@plain_kernel(lambda fingerprints, row_keys, width: _cell_seconds(fingerprints, row_keys), _cells)
def cells(
    fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64], width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return each key's bucket and sign in each row: two arrays of n × rows."""
    buckets = np.empty((len(fingerprints), len(row_keys)), np.int32)
    signs = np.empty((len(fingerprints), len(row_keys)), np.int8)
    for start in range(0, len(fingerprints), READ_BLOCK):
        block = fingerprints[start : start + READ_BLOCK]
        for r in range(len(row_keys)):
            _locate(
                block,
                row_keys[r],
                np.uint64(width),
                buckets[start : start + READ_BLOCK, r],
                signs[start : start + READ_BLOCK, r],
            )
    return buckets, signs
