"""Trees whose tables do not tell some keys or prefixes apart, and confidences that round to 1."""

from __future__ import annotations

import math

import numpy as np

import dpsketch as dps
from dpsketch import noise
from dpsketch.sketches.countsketch.messages import places_of
from dpsketch.sketches.heavy.search import search
from dpsketch.sketches.heavy.sketch import level_keys

HEAVY = 5000


def tree() -> dps.HeavyHitters:
    return dps.HeavyHitters(rows=3, width=64, unit=dps.per_record(), key_bits=32, seed=3)


def release(keys: np.ndarray, count: int) -> dps.PrivateHeavyHitters:
    sketch = tree()
    sketch.update(keys, counts=np.full(len(keys), count))
    with noise.seeded_noise_for_tests_only(1):
        return sketch.release(epsilon=1.0, delta=1e-6)


def test_a_heavy_prefix_survives_beside_one_that_no_row_tells_from_it() -> None:
    """Each has half of what both have, which may be all of one of them: the next level tells."""
    spec = tree().spec
    siblings = spec.space.from_cells(np.array([134])).children(spec.space.dense_depth, np.arange(256)).prints()
    places, signs = places_of(siblings, level_keys(spec)[0], spec.width)
    assert np.array_equal(places[8], places[107])
    assert np.array_equal(signs[8], signs[107])
    key = (134 << 16) + (8 << 8) + 5
    found = search(release(np.array([key]), 1000), 900.0)
    assert found.keys.plain() == [key]


def test_a_confidence_that_rounds_to_one_has_intervals_without_ends() -> None:
    """Of many intervals at once, each must be so sure that no double says it."""
    sketch = dps.CountSketch(rows=5, width=256, unit=dps.per_record(), seed=3)
    sketch.update(np.repeat(np.arange(5), 1000))
    found = sketch.release(epsilon=1.0, delta=1e-6).top(3, candidates=np.arange(50), confidence=1 - 1e-15)
    assert found.low.tolist() == [-math.inf] * 3
    assert found.high.tolist() == [math.inf] * 3
