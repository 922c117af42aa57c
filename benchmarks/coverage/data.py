"""Data whose answers are known: counts of keys in the shapes that are hard for a sketch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

KEYS = 2000


def zipf(rng: np.random.Generator, keys: int = KEYS, records: int = 200_000) -> Integers:
    """Give a few keys most of the records."""
    shares = np.arange(1, keys + 1) ** -1.2
    return rng.multinomial(records, shares / shares.sum())


def flat(rng: np.random.Generator, keys: int = KEYS) -> Integers:
    """Make all keys alike."""
    return rng.poisson(50, keys)


def equal_heavy(rng: np.random.Generator, keys: int = KEYS) -> Integers:
    """Hide a hundred keys of 5,000 each among light ones."""
    return np.where(np.arange(keys) < 100, 5000, rng.poisson(5, keys))


SHAPES: dict[str, Callable[[np.random.Generator], Integers]] = {
    "Zipf": zipf,
    "flat": flat,
    "equal heavy": equal_heavy,
}


def named_keys(seed: int, keys: int = KEYS) -> Integers:
    """Return keys to count and to ask for: other ones in every trial."""
    return np.arange(keys) * 7919 + 104_729 * seed
