"""Votes in buckets: each holds one key by its exact bytes, that key's majority count, and its load.

A record of the bucket's key adds one to the majority count, one of another key takes one off, and at 0 the next record
takes the bucket (Boyer and Moore's majority vote, 1981). k equal records in turn are one step. So is another sketch's
bucket: its majority count c, as c records of its key, is what is left of all its records when those of different keys
have been paired off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import load8, mix
from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Integers, Words

__all__ = ["cast_votes", "copy_names", "find_buckets"]

Bytes = npt.NDArray[np.uint8]

STORED = -1  # in place of a row: the bucket has the name that it had before this batch

U32 = np.uint64(32)


@kernel
def find_buckets(prints: Words, row_key: np.uint64, buckets: int, found: Integers) -> None:
    """Fill in the bucket of each key, by its fingerprint."""
    number = np.uint64(buckets)
    for i in range(len(prints)):
        found[i] = np.int64(((mix(prints[i] ^ row_key) >> U32) * number) >> U32)


@kernel
def _equal(a: Bytes, start: int, stop: int, b: Bytes, first: int, last: int) -> bool:
    equal = stop - start == last - first
    i = 0
    while equal and i + 8 <= stop - start:
        equal = load8(a, start + i) == load8(b, first + i)
        i += 8
    while equal and i < stop - start:
        equal = a[start + i] == b[first + i]
        i += 1
    return equal


@kernel
def cast_votes(
    buckets: Integers,
    prints: Words,
    times: Integers,
    rows: Integers,
    data: Bytes,
    edges: Integers,
    votes: Integers,
    loads: Integers,
    held: Words,
    names: Bytes,
    name_edges: Integers,
    holders: Integers,
) -> None:
    """Count ``times[i]`` equal records after each other, whose key is ``data[edges[r]:edges[r + 1]]``, r = ``rows[i]``.

    ``held`` are the fingerprints of the buckets' keys, which spare most comparisons of bytes. ``holders`` says where a
    bucket's name is: in a row of this batch, or, at :data:`STORED`, in ``names``.
    """
    for i in range(len(buckets)):
        b, k, r = buckets[i], times[i], rows[i]
        if k == 0:
            continue
        loads[b] += k
        c = votes[b]
        equal = c > 0 and held[b] == prints[i]
        if equal:
            h = holders[b]
            if h == STORED:
                equal = _equal(data, edges[r], edges[r + 1], names, name_edges[b], name_edges[b + 1])
            else:
                equal = _equal(data, edges[r], edges[r + 1], data, edges[h], edges[h + 1])
        if equal:
            votes[b] = c + k
        elif k <= c:
            votes[b] = c - k
        else:
            votes[b] = k - c
            held[b] = prints[i]
            holders[b] = r


@kernel
def copy_names(
    holders: Integers, data: Bytes, edges: Integers, names: Bytes, name_edges: Integers, found: Bytes, ends: Integers
) -> None:
    """Copy each bucket's name to ``found``, of which it gets ``ends[b]`` to ``ends[b + 1]``; no bytes are no name."""
    for b in range(len(holders)):
        h = holders[b]
        for i in range(ends[b + 1] - ends[b]):
            if h == STORED:
                found[ends[b] + i] = names[name_edges[b] + i]
            else:
                found[ends[b] + i] = data[edges[h] + i]
