"""How names of keys are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsketch.files import Array

__all__ = ["are_names", "stored_names", "text_or_bytes"]


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


def text_or_bytes(name: bytes) -> str | bytes:
    """Return bytes as the text that they are, if they are one."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
