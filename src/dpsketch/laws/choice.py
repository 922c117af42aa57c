"""The two tables by which a bound on a user's keys is chosen: large only where many users have many keys.

1. *Users by number of keys*: how many have 1, 2, 3, 4, 5–6, … 2897–4096 keys (more count as 4096), 24 ranges.
2. *The spread of keys*: each user puts ±1 into one of 128 cells, by a random one of its keys. Cell and sign of a key
   are random and the same for all users. The sum of squares estimates Σ f², where f users put theirs for one key.

Privacy
-------
One user moves one range by 1 and one cell by 1 (:data:`CHOICE_TABLES`). Both carry discrete Laplace noise, so that the
choice is pure, whatever was published before. Ranges and cells are fixed beforehand. Which key of a user is taken, and
where keys lie, is drawn without looking at other users. The bound is computed from the published tables alone
(:mod:`~dpsketch.laws.chosen`). What is drawn after the choice is charged for the dearest bound: ε and δ of a release
are those of the choice and of the rest added up (the choice has no δ).
"""

from __future__ import annotations

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.move import Move, Table
from dpsketch.noise import random_words

__all__ = ["BOUNDS", "CELLS", "CHOICE_TABLES", "EDGES", "LARGEST", "LOWEST", "MIDDLES", "RANGES", "range_of", "tables"]

USERS, SPREAD = "users", "spread"
# The largest and the least number of keys of each range, and one between them.
EDGES: Integers = np.array([round(2 ** (i / 2)) for i in range(1, 25)], np.int64)
LOWEST: Integers = np.concatenate([[1], EDGES[:-1] + 1])
MIDDLES: Floats = np.sqrt(LOWEST * EDGES)
LARGEST, RANGES = int(EDGES[-1]), len(EDGES)
CELLS = 128
BOUNDS: tuple[int, ...] = tuple(np.unique([round(2 ** (i / 4)) for i in range(49)]).tolist())
"""All bounds that may be chosen."""

CHOICE_TABLES = (
    Table(USERS, (RANGES,), Move.each(1, 1)),
    Table(SPREAD, (CELLS,), Move.each(1, 1, signed=True)),
)
"""The users by number of keys, and the spread of keys: one user adds 1 to one range, and ±1 to one cell."""


def range_of(held: Integers) -> Integers:
    """Return the range of each number of keys; the last range has no end."""
    return np.searchsorted(EDGES, np.minimum(held, LARGEST))


def tables(held: Integers, picked: Integers, keys: int) -> tuple[Integers, Integers]:
    """Return both tables without noise. Sensitive.

    Parameters
    ----------
    held : numpy.ndarray of int64
        How many keys each user has, at least 1.
    picked : numpy.ndarray of int64
        One key of each, by its number, drawn at random.
    keys : int
        How many keys there are.
    """
    users = np.bincount(range_of(held), minlength=RANGES)
    words = random_words(keys)
    cells = (words % np.uint64(CELLS)).astype(np.int64)
    signs = 1 - 2 * (words >> np.uint64(63)).astype(np.int64)
    spread = np.zeros(CELLS, np.int64)
    np.add.at(spread, cells[picked], signs[picked])
    return users.astype(np.int64), spread
