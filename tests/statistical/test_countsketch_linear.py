"""Inner products, the second moment and differences: unbiased, and covered as stated.

Each test pools ``RELEASES`` hash seeds. Coverage of 95% intervals is asked to lie in 92–98% once pooled over laws; the
standard error of the pool is 0.5–0.8%, so a right interval fails with probability below 1e-3 for other seeds, and never
for these.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise

KEYS = np.arange(5_000)
LAWS = {
    "skewed": np.floor(1e5 / (KEYS + 1.0) ** 1.1).astype(np.int64),
    "flat": np.full(len(KEYS), 40, dtype=np.int64),
}
VECTORS = {
    "all ones": np.ones(len(KEYS)),
    "every 40th": (KEYS % 40 == 7).astype(float),
    "signs": np.where(KEYS * 2654435761 % 1009 < 505, 1.0, -1.0),
    "ramp": KEYS / len(KEYS),
}
RELEASES = 100


def release(law: str, seed: int, *, rows: int = 7, factor: float = 1.0) -> dps.PrivateCountSketch:
    sketch = dps.CountSketch(rows=rows, width=1000, unit=dps.per_record(), seed=seed)
    sketch.update(KEYS, counts=LAWS[law])
    with noise.seeded_noise_for_tests_only(seed):
        return sketch.release(rho=1 / (2 * (20 * factor) ** 2))


def check(errors: list[float], covered: list[bool]) -> None:
    assert abs(np.mean(errors)) < 5 * np.std(errors) / math.sqrt(len(errors))
    assert 0.92 <= np.mean(covered) <= 0.98, np.mean(covered)


@pytest.mark.parametrize("law", LAWS)
def test_differences_of_two_days(law: str) -> None:
    """What changed between two releases that share most of their records: its intervals cover 92–98%."""
    changed = np.arange(0, len(KEYS), 50)
    truth = np.zeros(len(KEYS))
    truth[changed] = 3000
    asked = np.concatenate([changed, KEYS[1::53]])
    errors: list[float] = []
    covered: list[bool] = []
    for seed in range(12):
        days = []
        for day in (0, 1):
            sketch = dps.CountSketch(rows=7, width=4000, unit=dps.per_record(), seed=seed)
            sketch.update(KEYS, counts=LAWS[law] + (truth.astype(np.int64) if day else 0))
            with noise.seeded_noise_for_tests_only(2 * seed + day):
                days.append(sketch.release(rho=1 / 800))
        found = (days[1] - days[0]).estimate(asked)
        errors += list(found.value - truth[asked])
        covered += list((found.low <= truth[asked]) & (truth[asked] <= found.high))
    check(errors, covered)
