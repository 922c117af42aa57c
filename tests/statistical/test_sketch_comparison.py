"""Count-Min, Count-Mean and CountSketch on the same data and budget: who strays least, and who is biased.

The seeds are fixed; the margins asserted are at least ten standard errors of a quantile over 40,000 keys.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from benchmarks.count_min import CountMinForComparison, errors_on_same_data
from dpsketch import noise
from dpsketch.errors import InvalidInput, SensitiveData
from oracles import bounding as oracle


def tails(errors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.quantile(np.abs(strayed), [0.9, 0.95, 0.99]) for name, strayed in errors.items()}


def check_order(counts: np.ndarray, width: int, scale: float) -> None:
    """With 19 rows CountSketch has the thinnest tails and no bias."""
    with noise.seeded_noise_for_tests_only(1):
        errors = errors_on_same_data(counts, rows=19, width=width, scale=scale)
    found = tails(errors)
    best = found["CountSketch, median"]
    assert np.all(found["CountSketch, robust"] < 1.02 * best)
    for name in ("Count-Min, Laplace", "Count-Min, Gaussian", "Count-Mean"):
        assert np.all(best < 0.9 * found[name]), name
    assert abs(errors["Count-Min, Laplace"].mean()) > 5 * scale
    assert abs(errors["CountSketch, median"].mean()) < 0.1 * scale


def test_countsketch_is_best_at_the_tails_of_a_power_law() -> None:
    check_order(np.floor(6e5 / np.arange(1, 40_001) ** 1.1).astype(np.int64), 1000, 30.0)


def test_countsketch_is_best_at_the_tails_of_the_cities(real_data: Path) -> None:
    lines = (real_data / "cities" / "world_cities_population_simplemaps.txt").read_text().splitlines()
    populations = np.array([int(line) for line in lines if line.strip()])
    check_order(populations, 10_000, 1e4)
    check_order(populations, 1_000, 1e5)


def test_one_heavy_key_breaks_the_mean_only() -> None:
    """The reason for the order: whoever shares a cell with the heavy key errs by its count over the rows."""
    counts = np.full(20_000, 10, dtype=np.int64)
    counts[0] = 10**7
    with noise.seeded_noise_for_tests_only(2):
        errors = errors_on_same_data(counts, rows=9, width=500, scale=30.0)
    found = tails(errors)
    assert found["Count-Mean"][2] > 1e5
    assert found["CountSketch, median"][2] < 2000


def test_count_min_is_the_smallest_of_the_counters() -> None:
    """Against counting by hand, with next to no noise."""
    sketch = CountMinForComparison(rows=3, width=16, unit=dps.per_record(), seed=4, key_type="int")
    keys, counts = np.arange(30), np.arange(30) * 100
    sketch.update(keys, counts=counts)
    private = sketch.release(epsilon=1e5, delta=0)
    places = [[bucket for bucket, _ in oracle.cells(key, 4, 3, 16)] for key in keys.tolist()]
    table = np.zeros((3, 16), np.int64)
    for buckets, count in zip(places, counts.tolist(), strict=True):
        for row, bucket in enumerate(buckets):
            table[row, bucket] += count
    assert np.array_equal(private.table, table)
    found = private.estimate(keys)
    assert np.array_equal(found, [min(table[row, bucket] for row, bucket in enumerate(buckets)) for buckets in places])
    assert np.all(found >= counts)


def test_count_min_is_for_comparison_only() -> None:
    sketch = CountMinForComparison(rows=3, width=16, unit=dps.per_record())
    sketch.update(["a", None, "b"])
    assert "sensitive" in repr(sketch)
    with pytest.raises(SensitiveData):
        sketch.__reduce_ex__(4)
    with pytest.raises(InvalidInput, match="comparison"):
        CountMinForComparison(rows=3, width=16, unit=dps.per_user(max_keys=2))
    private = sketch.release(epsilon=1.0, delta=0)
    assert private.guarantee.epsilon == 1.0
    with pytest.raises(InvalidInput, match="null"):
        private.estimate(["a", None])
