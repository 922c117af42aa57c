"""Buckets and signs behave as independent uniform draws, on keys that are anything but random.

The hashes are fixed, so each test gives the same answer on every run. Its false-positive rate is over the choice of
seed: were the row hashes ideal, one comparison would fail for one seed in 10⁹ (``LEVEL``). There are 144 of them, so
2·10⁻⁷ in all. A bias of two percent is rejected at the same level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from dpsketch._compiled.countsketch import cells
from dpsketch.hashing import fingerprint, row_keys

pytestmark = pytest.mark.statistical

LEVEL = 1e-9
COUNT = 200_000
WIDTHS = [2, 3, 1000, 1024]
FAMILIES: dict[str, Any] = {
    "sequential": np.arange(COUNT),
    "multiples of 2^32": np.arange(COUNT).astype(np.uint64) << np.uint64(32),
    "text with a common prefix": [f"https://example.org/a/rather/long/path/{i}" for i in range(COUNT)],
}
FINGERPRINTS = {name: fingerprint(keys).fingerprints for name, keys in FAMILIES.items()}
ROW_KEYS = np.concatenate([row_keys(7, 2), row_keys(8, 1)])  # two rows of one sketch, and one of the next seed

Integers = npt.NDArray[np.integer[Any]]


def located(family: str, width: int) -> tuple[Integers, Integers]:
    buckets, signs = cells(FINGERPRINTS[family], ROW_KEYS, width)
    return buckets.T.copy(), signs.T.copy()


def uniform(cell: Integers, size: int) -> float:
    """Return the chi-square p-value of equal probabilities for 0, …, size − 1."""
    counts = np.bincount(cell, minlength=size)
    mean = len(cell) / size
    return float(stats.chi2.sf(((counts - mean) ** 2 / mean).sum(), size - 1))


def fair(signs: Integers) -> float:
    """Return the p-value of the two signs having equal probability."""
    return float(2 * stats.norm.sf(abs(signs.sum(dtype=np.int64)) / np.sqrt(len(signs))))


def unrelated(signs: Integers, cell: Integers, size: int) -> float:
    """Return the p-value of the signs being fair within every cell: a squared standard score for each, added up."""
    counts = np.bincount(cell, minlength=size)
    sums = np.bincount(cell, weights=signs, minlength=size)
    return float(stats.chi2.sf((sums**2 / np.maximum(counts, 1)).sum(), np.count_nonzero(counts)))


def joint(first: Integers, second: Integers, size: int) -> float:
    """Return the p-value of two variables on 0, …, size − 1 being uniform together, hence independent."""
    return uniform(first.astype(np.int64) * size + second, size * size)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", WIDTHS)
def test_bucket_and_sign_of_a_row(family: str, width: int) -> None:
    """Buckets are uniform, signs are fair, and fair in every bucket."""
    buckets, signs = located(family, width)
    for r in range(len(ROW_KEYS)):
        assert uniform(buckets[r], width) > LEVEL
        assert fair(signs[r]) > LEVEL
        assert unrelated(signs[r], buckets[r], width) > LEVEL


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_independent(family: str) -> None:
    """Two rows of a sketch, and rows of two seeds: joint buckets, and products of signs."""
    buckets, signs = located(family, 32)
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert joint(buckets[a], buckets[b], 32) > LEVEL
        assert fair(signs[a] * signs[b]) > LEVEL
        assert unrelated(signs[a] * signs[b], buckets[a], 32) > LEVEL
        assert unrelated(signs[a], buckets[b], 32) > LEVEL


def test_a_bias_of_two_percent_is_rejected() -> None:
    """The power of the uniformity test and of the sign test: 2% of the keys moved to bucket 0, or to the sign +1."""
    buckets, signs = located("sequential", 64)
    moved = np.arange(COUNT) % 50 == 0
    assert uniform(np.where(moved, 0, buckets[0]), 64) < LEVEL
    assert fair(np.where(moved, 1, signs[0])) < LEVEL
