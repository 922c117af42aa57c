"""Intervals of joint decoding cover, those of the heaviest keys too, and its error is not above plain estimation's.

Noise and hash seeds are fixed. Each share is of at least 300 keys; with a true coverage of 95% and keys of one table
correlated like a third as many, one falls below its bound by chance with probability below 1e-3 before seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise

KEYS = np.arange(2500)
RANK = KEYS + 1.0
LAWS = {
    "zipf": np.floor(2e5 / RANK**1.05),
    "flat": np.where(RANK <= 1500, 50, 0),
    "equal heavy": np.where(RANK <= 50, 20_000, 0),
    "crowded": np.where(RANK <= 2000, 5000, 0),
}
SHAPES = [(3, 256), (5, 1024), (7, 4096)]


def release(counts: np.ndarray, rows: int, width: int, seed: int) -> dps.PrivateCountSketch:
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed)
    sketch.update(KEYS, counts=counts.astype(np.int64))
    with noise.seeded_noise_for_tests_only(seed):
        return sketch.release(epsilon=1.0, delta=1e-6)


def measure(name: str, rows: int, width: int, seeds: range) -> tuple[dict[str, float], float, float]:
    """Return the coverage of some groups of keys, and the errors of joint and of plain estimation."""
    truth = LAWS[name]
    hits: dict[str, list[float]] = {"all": [], "top 10": [], "top 100": [], "absent": []}
    joint, plain = 0.0, 0.0
    for seed in seeds:
        private = release(truth, rows, width, seed)
        found = private.decode(KEYS)
        hit = (found.low <= truth) & (truth <= found.high)
        groups = {"all": KEYS, "top 10": KEYS[:10], "top 100": KEYS[:100], "absent": KEYS[truth == 0]}
        for group, keys in groups.items():
            hits[group].extend(hit[keys])
        joint += float(np.mean((found.value - truth) ** 2))
        plain += float(np.mean((private.estimate(KEYS).value - truth) ** 2))
    return {group: float(np.mean(shares)) for group, shares in hits.items() if shares}, joint, plain


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], pytest.param(SHAPES[2], marks=pytest.mark.full)])
@pytest.mark.parametrize("name", LAWS)
def test_intervals_cover_and_errors_are_not_above_plain_estimation(name: str, shape: tuple[int, int]) -> None:
    covered, joint, plain = measure(name, *shape, range(4))
    assert covered["all"] >= 0.94
    assert covered["top 100"] >= 0.92
    assert covered["all"] <= 0.985
    assert math.sqrt(joint) <= 1.02 * math.sqrt(plain)


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LAWS)
def test_every_group_covers_over_many_seeds(name: str, shape: tuple[int, int]) -> None:
    covered, joint, plain = measure(name, *shape, range(100, 140))
    assert all(share >= 0.935 for group, share in covered.items() if group != "top 10"), covered
    assert covered["top 10"] >= 0.92
    assert math.sqrt(joint) <= 1.01 * math.sqrt(plain)


def test_the_twin_intervals_that_are_a_tenth_too_short_are_noticed() -> None:
    truth = LAWS["zipf"]
    hits = []
    for seed in range(4):
        found = release(truth, 5, 1024, seed).decode(KEYS)
        half = 0.85 * (found.high - found.value)
        hits.append(np.abs(found.value - truth) <= half)
    assert np.mean(hits) < 0.94


def test_heavy_keys_of_narrow_tables_are_covered() -> None:
    """The ten heaviest of 16 tables of 5×32, 160 keys: 99% and more, because intervals are those of plain estimation,
    widened. Fewer than 97% has a probability below 1e-3. What messages alone would say covers about 91%, and its
    standard error is 2%: the mutant that has no narrow tables fails with probability above 0.99."""
    counts = np.append(np.floor(2e5 / np.arange(1, 201) ** 1.05), np.zeros(50))
    keys = np.arange(len(counts))
    held = []
    for seed in range(16):
        sketch = dps.CountSketch(rows=5, width=32, unit=dps.per_record(), seed=seed)
        sketch.update(keys, counts=counts.astype(np.int64))
        with noise.seeded_noise_for_tests_only(seed):
            found = sketch.release(epsilon=1.0, delta=1e-6).decode(keys)
        held.append(((found.low <= counts) & (counts <= found.high))[:10])
    assert np.mean(held) >= 0.97


@pytest.mark.parametrize(("rows", "width"), [(1, 2), (1, 3), (3, 2)])
@pytest.mark.parametrize("estimator", ["robust", "median"])
def test_tables_of_a_few_cells_cover(rows: int, width: int, estimator: str) -> None:
    """All keys of 120 tables. The allowance for few cells is generous: 98% and more are covered, 78–85% without it."""
    keys = np.arange(40)
    counts = np.floor(10_000 / (keys + 1.0)).astype(np.int64)
    held = []
    for seed in range(120):
        sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed)
        sketch.update(keys, counts=counts)
        with noise.seeded_noise_for_tests_only(seed):
            private = sketch.release(epsilon=1.0, delta=1e-6)
        found = private.estimate(keys, estimator=estimator)
        held.append(np.mean((found.low <= counts) & (counts <= found.high)))
    assert np.mean(held) >= 0.94
