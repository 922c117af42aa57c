"""What the figures of joint decoding take for the truth is what a table of users has counted."""

from __future__ import annotations

import numpy as np

import dpsketch as dps
from benchmarks.decoding import left_out

ROWS, WIDTH, SEED = 3, 4096, 5
USERS = 2000
# So little noise that it rounds to nothing.
EXACT = 1e9


def table(keys: np.ndarray, users: np.ndarray | None, left: np.ndarray) -> np.ndarray:
    """Return the counters of users, or of their records without those of some keys, each taken out once."""
    unit = dps.per_record() if users is None else dps.per_user(max_keys=10)
    sketch = dps.CountSketch(rows=ROWS, width=WIDTH, unit=unit, seed=SEED)
    if users is not None:
        sketch.update(keys, users=users)
        return sketch.release(rho=EXACT).table
    each, counts = np.unique(keys, return_counts=True)
    counts -= np.bincount(np.searchsorted(each, left), minlength=len(each))
    sketch.update(each[counts > 0], counts=counts[counts > 0])
    return sketch.release(rho=EXACT).table


def test_counts_without_what_clipping_leaves_out_are_those_of_the_table() -> None:
    """Nothing here is left to chance: the table is the sum of the keys that are counted, cell by cell."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(USERS), 10)
    keys = np.concatenate([rng.choice(900, 10, replace=False) for _ in range(USERS)])
    spec = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_user(max_keys=10), seed=SEED).spec
    lost, losers = left_out(users, keys, spec)
    counted = table(keys, users, lost)
    assert 0 < losers <= len(lost) < USERS
    assert np.array_equal(counted, table(keys, None, lost))
    assert not np.array_equal(counted, table(keys, None, lost[:0]))
