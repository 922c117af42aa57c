"""How names of keys are written, and how likely a secret hash takes two keys for one."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsketch.files import Array

__all__ = ["are_names", "collision_chance", "stored_names"]

HASH_BITS = 127  # of a long text's identity; one of the 128 says that it is a hash


def collision_chance(rows: int) -> float:
    """Return a bound on the chance that any two different keys of a given number of rows are taken for one.

    It is n²/2¹²⁸: n(n−1)/2 pairs, each of which meets with probability 2⁻¹²⁷ if SipHash-2-4 under a secret key cannot
    be told from a random function (which is what it was designed for, and nobody has found otherwise). A table that
    absorbed others under other secrets adds up their chances and its own.

    Examples
    --------
    >>> collision_chance(10**9)
    2.9387358770557188e-21
    """
    return min(1.0, float(rows) ** 2 * 0.5 ** (HASH_BITS + 1))


def stored_names(names: list[Any]) -> Array:
    """Return names as an array of a file: integers, or the bytes of texts; no names are no texts."""
    if names and isinstance(names[0], int):
        return np.array(names, np.int64)
    return [name if isinstance(name, bytes) else str(name).encode() for name in names]


def are_names(listed: Any, found: Any = ()) -> bool:
    """Say whether arrays of a file are different names of one type, and those that were found are in their order."""
    held = []
    for array in (listed, found):
        if isinstance(array, np.ndarray):
            if array.ndim != 1 or array.dtype.kind not in "iu":
                return False
            held.append(array.tolist())
        else:
            held.append(list(array))
    names = held[0] + held[1]
    good = len({type(name) for name in names}) <= 1 and all(isinstance(name, int | bytes) for name in names)
    return good and len(set(names)) == len(names) and held[1] == sorted(held[1])
