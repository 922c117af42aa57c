"""Estimates of a CountSketch: decoding, and intervals under collisions.

Noise and hash seeds are fixed, so that a pass is a pass for ever; docstrings say how often other seeds would fail.
Intervals under noise alone are held to its law in ``test_exact_coverage.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.seeds import random_seed

RANK = np.arange(20_000) + 1.0


def released(counts: np.ndarray, rows: int, width: int, seed: int, **budget: float) -> dps.PrivateCountSketch:
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed)
    sketch.update(np.arange(len(counts)), counts=counts.astype(np.int64))
    with seeded_noise_for_tests_only(seed):
        return sketch.release(**(budget or {"epsilon": 1.0, "delta": 1e-6}))


def rmse(found: dps.Estimates, truth: np.ndarray) -> float:
    return math.sqrt(float(np.mean((found.value - truth) ** 2)))


def held(found: dps.Estimates, truth: np.ndarray) -> np.ndarray:
    return (found.low <= truth) & (truth <= found.high)


@pytest.mark.parametrize("estimator", ["robust", "median"])
def test_selected_keys_are_covered_jointly(estimator: Any) -> None:
    """All 50 intervals of top(50) hold at once in at least 37 of 40 releases; fewer than 31 where 95% is stated have
    probability 1e-5, and the seeds are fixed."""
    truth = np.floor(1e5 / RANK**0.8)
    together = 0
    for seed in range(40):
        private = released(truth, 7, 1000, seed, rho=1 / 1800)
        found = private.top(50, candidates=np.arange(len(truth)), estimator=estimator)
        together += bool(held(found, truth[np.asarray(found.key)]).all())
    assert together >= 37


SMALL = {
    "zipf": np.floor(2e5 / RANK[:2500] ** 1.05),
    "crowded": np.where(RANK[:2500] <= 2000, 5000, 0),
}


@pytest.mark.parametrize(("name", "shape"), [("zipf", (3, 256)), ("zipf", (5, 1024)), ("crowded", (3, 256))])
def test_decoded_counts_are_covered_and_no_worse_than_plain_ones(name: str, shape: tuple[int, int]) -> None:
    """Of four tables at least 94% of all keys and 92% of the 100 heaviest are covered.

    Keys are correlated like a third as many: for other seeds a right interval fails with probability below 1e-3. The
    twin: 0.85 of the width covers less, where a table has room.
    """
    truth = SMALL[name]
    keys, joint, plain = np.arange(len(truth)), 0.0, 0.0
    hits, narrow = [], []
    for seed in range(4):
        private = released(truth, *shape, seed)
        found = private.decode(keys)
        hits.append(held(found, truth))
        narrow.append(np.abs(found.value - truth) <= 0.85 * (found.high - found.low) / 2)
        joint += rmse(found, truth) ** 2
        plain += rmse(private.estimate(keys), truth) ** 2
    assert 0.94 <= np.mean(hits) <= 0.985
    assert np.mean([hit[:100] for hit in hits]) >= 0.92
    assert math.sqrt(joint) <= 1.02 * math.sqrt(plain)
    if shape == (5, 1024):
        assert np.mean(narrow) < 0.94


def test_heavy_keys_of_narrow_tables_are_covered() -> None:
    """The ten heaviest of 16 tables of 5×32, 160 keys: 99% and more, because intervals are those of plain estimation,
    widened. Fewer than 97% has a probability below 1e-3. What messages alone would say covers about 91%, and its
    standard error is 2%: the mutant that has no narrow tables fails with probability above 0.99."""
    counts = np.append(np.floor(2e5 / np.arange(1, 201) ** 1.05), np.zeros(50))
    found = [released(counts, 5, 32, seed).decode(np.arange(250)) for seed in range(16)]
    assert np.mean([held(each, counts)[:10] for each in found]) >= 0.97


@pytest.mark.parametrize("estimator", ["robust", "median"])
def test_tables_of_a_few_cells_cover(estimator: Any) -> None:
    """All keys of 120 tables. The allowance for few cells is generous: 98% and more are covered, 78–85% without it."""
    counts = np.floor(10_000 / RANK[:40])
    for rows, width in ((1, 2), (3, 2)):
        found = [
            released(counts, rows, width, seed).estimate(np.arange(40), estimator=estimator) for seed in range(120)
        ]
        assert np.mean([held(each, counts) for each in found]) >= 0.94


def test_with_fresh_seeds_every_key_is_covered_as_promised() -> None:
    """A mean below 0.94 over 80,000 intervals, or a key below 0.84 in 200 releases, is a failure.

    One key's number of misses in 200 is binomial with p ≤ 0.05 if the promise holds: more than 32 has a probability
    below 1e-6 for all 400. The bound on the mean has no rate of its own: keys of one release depend on each other. The
    twin: with a fixed seed a key that shares its cells with a heavy one is missed for ever.
    """
    counts = np.maximum(1, 20_000 / RANK[:400] ** 1.1).astype(np.int64)

    def coverage(seeds: list[int]) -> np.ndarray:
        found = np.zeros(400)
        for number, seed in enumerate(seeds):
            sketch = dps.CountSketch(rows=5, width=256, unit=dps.per_record(), seed=seed)
            sketch.update(np.arange(400), counts=counts)
            with seeded_noise_for_tests_only(number):
                private = sketch.release(epsilon=1.0, delta=1e-6)
            found += held(private.estimate(np.arange(400), estimator="median"), counts)
        return found / len(seeds)

    with seeded_noise_for_tests_only(14):
        fresh = coverage([random_seed() for _ in range(200)])
    assert fresh.mean() >= 0.94
    assert fresh.min() >= 0.84
    assert coverage([1] * 40).min() < 0.2
