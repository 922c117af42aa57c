"""Distinct counts: mark keys in a bitmap of ``buckets`` words, one of whose 64 bits stands for each level.

A key sets one bit: its bucket is uniform, and its level is l with probability 2^−(l+1) (Flajolet and Martin 1985).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["mark"]

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_U27, _U30, _U31, _U32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@kernel
def _mix(z: np.uint64) -> np.uint64:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = np.uint64((z ^ (z >> _U30)) * _M1)
    z = np.uint64((z ^ (z >> _U27)) * _M2)
    return np.uint64(z ^ (z >> _U31))


@kernel
def mark(
    bitmap: npt.NDArray[np.uint64], fingerprints: npt.NDArray[np.uint64], row_keys: npt.NDArray[np.uint64]
) -> None:
    """Set each key's bit; ``row_keys`` are two, one for the bucket and one for the level."""
    buckets = np.uint64(len(bitmap))
    for i in range(len(fingerprints)):
        place = ((_mix(fingerprints[i] ^ row_keys[0]) >> _U32) * buckets) >> _U32
        level = _mix(fingerprints[i] ^ row_keys[1])
        # The lowest set bit of a uniform word is at l with probability 2^−(l+1).
        bitmap[place] |= level & (~level + np.uint64(1))
