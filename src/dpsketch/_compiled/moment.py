"""The loops of a moment sketch: sum equal keys, then add each key's row of the secret projection."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.chacha import LANES, chacha20_blocks
from dpsketch._compiled.kernel import fused_kernel, kernel
from dpsketch._compiled.stable import stable_variates

__all__ = ["VARIATES_PER_BLOCK", "aggregate", "project"]

VARIATES_PER_BLOCK = 4

_U32 = np.uint64(32)
_U33 = np.uint64(33)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_DOMAIN = np.uint32(0)


@kernel
def aggregate(
    fingerprints: npt.NDArray[np.uint64],
    weights: npt.NDArray[np.float64],
    distinct: npt.NDArray[np.uint64],
    totals: npt.NDArray[np.float64],
) -> int:
    """Sum the weights of equal fingerprints; return how many there are, the first of them filled in.

    ``weights`` has one entry a fingerprint, or a single one for all.
    """
    size = 16
    while size < 2 * len(fingerprints):
        size *= 2
    places = np.zeros(size, np.int64)
    mask = np.uint64(size - 1)
    one_weight = len(weights) == 1
    count = 0
    for i in range(len(fingerprints)):
        key = fingerprints[i]
        place = np.uint64((key ^ (key >> _U33)) * _MIX) >> _U32 & mask
        while places[place] != 0 and distinct[places[place] - 1] != key:
            place = np.uint64(place + np.uint64(1)) & mask
        if places[place] == 0:
            distinct[count] = key
            totals[count] = 0.0
            count += 1
            places[place] = count
        totals[places[place] - 1] += weights[0] if one_weight else weights[i]
    return count


@fused_kernel
def project(
    sums: npt.NDArray[np.float64],
    secret: npt.NDArray[np.uint32],
    fingerprints: npt.NDArray[np.uint64],
    weights: npt.NDArray[np.float64],
    p: float,
) -> None:
    """Add ``weights[k]``·X(fingerprint k, row) to every row's sum.

    A key takes ``blocks`` = len(sums)/4 blocks of the cipher; block b gives the variates of the rows b, blocks + b,
    2·blocks + b and 3·blocks + b. Pairs of a key and a block are laid out one after the other over the lanes.
    """
    blocks = len(sums) // VARIATES_PER_BLOCK
    inputs = np.zeros(4 * LANES, np.uint32)
    words = np.empty(16 * LANES, np.uint32)
    variates, scratch = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    inputs[LANES : 2 * LANES] = _DOMAIN
    key, block = 0, 0
    while key < len(fingerprints):
        first_key, first_block = key, block
        filled = 0
        while filled < LANES and key < len(fingerprints):
            run = min(LANES - filled, blocks - block)
            low = np.uint32(fingerprints[key] & np.uint64(0xFFFFFFFF))
            high = np.uint32(fingerprints[key] >> _U32)
            counters = inputs[filled : filled + run]
            for i in range(run):
                counters[i] = np.uint32(block + i)
            inputs[2 * LANES + filled : 2 * LANES + filled + run] = low
            inputs[3 * LANES + filled : 3 * LANES + filled + run] = high
            filled += run
            block += run
            if block == blocks:
                key, block = key + 1, 0
        chacha20_blocks(secret, inputs, words)
        for slot in range(VARIATES_PER_BLOCK):
            stable_variates(words[4 * slot * LANES : 4 * (slot + 1) * LANES], p, variates, scratch)
            k, b, done = first_key, first_block, 0
            while done < filled:
                run = min(filled - done, blocks - b)
                weight = weights[k]
                rows, drawn = sums[slot * blocks + b : slot * blocks + b + run], variates[done : done + run]
                for i in range(run):
                    rows[i] += weight * drawn[i]
                done += run
                k, b = k + 1, 0
    words[:] = 0
