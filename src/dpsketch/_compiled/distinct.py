"""Distinct counts: mark keys in a bitmap of ``buckets`` words, one of whose 64 bits stands for each level.

A key sets one bit: its bucket is uniform, and its level is l with probability 2^−(l+1) (Flajolet and Martin 1985).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import plain_kernel
from dpsketch._compiled.splitmix import mix

__all__ = ["mark"]

_U32 = np.uint64(32)
# About how long it takes without the compiler to mark a key.
KEY_SECONDS = 40e-9


def _mark(
    bitmap: npt.NDArray[np.uint64], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> None:
    places = ((mix(fingerprints ^ row_keys[0]) >> _U32) * np.uint64(len(bitmap))) >> _U32
    levels = mix(fingerprints ^ row_keys[1])
    np.bitwise_or.at(bitmap, places.astype(np.int64), levels & (~levels + np.uint64(1)))


@plain_kernel(lambda bitmap, fingerprints, row_keys: KEY_SECONDS * len(fingerprints), _mark)
def mark(
    bitmap: npt.NDArray[np.uint64], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> None:
    """Set each key's bit; ``row_keys`` are two, one for the bucket and one for the level."""
    buckets = np.uint64(len(bitmap))
    for i in range(len(fingerprints)):
        place = ((mix(fingerprints[i] ^ row_keys[0]) >> _U32) * buckets) >> _U32
        level = mix(fingerprints[i] ^ row_keys[1])
        # The lowest set bit of a uniform word is at l with probability 2^−(l+1).
        bitmap[place] |= level & (~level + np.uint64(1))
