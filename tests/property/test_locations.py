"""Estimates from a key's cells are those of the oracles, whatever the other keys of the block are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch.sketches.countsketch import estimates as module
from dpsketch.sketches.countsketch.estimates import MEDIAN, Location
from oracles import location as oracle


def cells_of(law: str, keys: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    match law:
        case "noise":
            return rng.normal(0, 10, (keys, rows))
        case "ties":
            return rng.integers(-3, 4, (keys, rows)).astype(np.float64)
        case "tails":
            return 5 * rng.standard_cauchy((keys, rows))
        case _:
            return rng.normal(0, 1, (keys, rows)) + 1e6 * (rng.random((keys, rows)) < 0.3)


@settings(max_examples=100)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 7, 60]),
    st.sampled_from([1, 3, 5, 7, 15]),
    st.sampled_from(["noise", "ties", "tails", "collisions"]),
    st.floats(1e-3, 1e5),
)
def test_locations_are_the_oracles(seed: int, keys: int, rows: int, law: str, threshold: float) -> None:
    cells = cells_of(law, keys, rows, np.random.default_rng(seed))
    np.testing.assert_array_equal(MEDIAN(cells), np.sort(cells, axis=1)[:, rows // 2])
    expected = [oracle.huber(line, threshold) for line in cells.tolist()]
    np.testing.assert_array_equal(Location("huber", threshold)(cells), expected)
    expected = [oracle.tukey(line, threshold) for line in cells.tolist()]
    # Squares are rounded otherwise in Python's powers, which may decide whether one more step is taken.
    np.testing.assert_allclose(Location("tukey", threshold)(cells), expected, rtol=1e-12, atol=2e-6 * threshold)


@pytest.mark.parametrize("shape", ["median", "huber", "tukey"])
def test_blocks_make_no_difference(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of("collisions", 300, 7, np.random.default_rng(1))
    location = Location(shape, 3.0)
    whole = location(cells)
    monkeypatch.setattr(module, "_BLOCK", 7)
    np.testing.assert_array_equal(location(cells), whole)
