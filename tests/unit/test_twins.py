"""Joint decoding of keys that no row tells apart: what is seen is shared, and intervals say what is not seen."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch._compiled import countsketch as kernels
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.sketches.countsketch.decoding import joint_decode
from oracles import decoding as oracle

ROWS, WIDTH, SEED = 3, 64, 11
OTHERS = np.arange(100_000, 100_200)
HEAVY = 5000


@cache
def twins(turned: int) -> tuple[int, int]:
    """Return two keys with the same cells and equal signs, or, turned by −1, all of them opposite."""
    keys = np.arange(8000)
    cells, signs = kernels.cells(fingerprint(keys).fingerprints, row_keys(SEED, ROWS), WIDTH)
    seen: dict[tuple[int, ...], int] = {}
    for key, places, sign in zip(keys.tolist(), cells.tolist(), signs.tolist(), strict=True):
        if (other := seen.get((*places, *(turned * each for each in sign)))) is not None:
            return other, key
        seen[(*places, *sign)] = key
    raise AssertionError("no such keys among those looked at")


def release(keys: tuple[int, int], counts: tuple[int, int], draw: int) -> dps.PrivateCountSketch:
    """Return a release of the two keys, and of 200 others of which the first 20 are heavy."""
    sketch = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_record(), seed=SEED)
    sketch.update(np.append(keys, OTHERS[:20]), counts=np.append(counts, np.full(20, HEAVY)))
    with noise.seeded_noise_for_tests_only(draw):
        return sketch.release(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("counts", [(HEAVY, HEAVY), (0, HEAVY), (0, 0)])
def test_keys_with_the_same_cells_have_equal_parts_of_their_sum(counts: tuple[int, int]) -> None:
    """Of each of 8 tables: both covered, whoever has it all, and the others read as if nothing were the matter. A sum
    is covered with 95%, and what widens the interval is half of the sum, or, of nothing, nothing: fewer than 5 of 8
    has a probability below 1e-3."""
    held = []
    for draw in range(8):
        keys = twins(1)
        found = release(keys, counts, draw).decode(np.append(keys, OTHERS))
        assert found.value[0] == found.value[1]
        assert abs(found.value[:2].sum() - sum(counts)) < 60
        held.append(np.all((found.low[:2] <= counts) & (counts <= found.high[:2])))
        others = found.value[2:] - np.where(np.arange(200) < 20, HEAVY, 0)
        assert np.sqrt(np.mean(others**2)) < 12
        if sum(counts):
            # It says what is not known: that one of them may have everything, and the other nothing.
            assert found.low[0] <= 60
            assert found.high[1] >= sum(counts) - 60
    assert np.sum(held) >= 5


@pytest.mark.parametrize("counts", [(0, HEAVY), (HEAVY, 700), (HEAVY, HEAVY)])
def test_of_keys_with_opposite_signs_the_difference_is_seen(counts: tuple[int, int]) -> None:
    """What both have is in no cell: the least counts that have the difference are shown, and intervals reach as far as
    the largest counter beyond."""
    private = release(twins(-1), counts, 0)
    found = private.decode(np.append(twins(-1), OTHERS))
    assert np.abs(found.value[:2] - (np.array(counts) - min(counts))).max() < 60
    assert np.all((found.low[:2] <= counts) & (counts <= found.high[:2]))
    assert np.all(found.high[:2] - found.value[:2] >= np.abs(private.table).max())
    assert np.sqrt(np.mean((found.value[2:] - np.where(np.arange(200) < 20, HEAVY, 0)) ** 2)) < 12


@pytest.mark.parametrize("signed", [False, True])
def test_keys_that_no_row_tells_apart_are_answered_alike(signed: bool) -> None:
    """They have one value, and an interval reaches whatever counts of theirs may hide: what keys with opposite signs
    have in common is in no cell."""
    opposed_keys = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        row_keys, prints = (rng.integers(0, 2**64, size, dtype=np.uint64) for size in (ROWS, 40))
        table = np.rint(rng.normal(0, 3, (ROWS, 2))).astype(np.int64)
        kernels.add_weighted(table, prints, row_keys, rng.integers(-500 if signed else 0, 5000, 40))
        decoded = joint_decode(table, prints, row_keys, 3.0, signed=signed)
        half, largest = decoded.half_widths(0.95), np.abs(table).max()
        for i, (first, alike, opposed) in enumerate(oracle.twins(*kernels.cells(prints, row_keys, 2))):
            assert (decoded.values[i], half[i]) == (decoded.values[first], half[first])
            if decoded.errors[i] != decoded.error:  # not a plain answer
                assert half[i] >= (alike - 1) * abs(decoded.values[i])
                assert half[i] >= (opposed + (alike - 1 if signed else 0)) * largest
                opposed_keys += opposed > 0
    assert opposed_keys > 50
