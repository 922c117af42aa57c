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
def test_inner_products(law: str) -> None:
    releases = [release(law, seed) for seed in range(RELEASES // 2)]
    everything: list[bool] = []
    for vector in VECTORS.values():
        keys = np.flatnonzero(vector)
        truth = float(vector @ LAWS[law])
        found = [private.inner_product(keys, vector[keys]) for private in releases]
        errors = [one.value - truth for one in found]
        assert abs(np.mean(errors)) < 5 * np.std(errors) / math.sqrt(len(errors))
        everything += [one.low <= truth <= one.high for one in found]
    assert 0.92 <= np.mean(everything) <= 0.98


@pytest.mark.parametrize("law", LAWS)
def test_the_second_moment(law: str) -> None:
    truth = float(np.sum(LAWS[law].astype(float) ** 2))
    found = [release(law, seed).second_moment() for seed in range(2 * RELEASES)]
    check([one.value - truth for one in found], [one.low <= truth <= one.high for one in found])


def test_the_second_moment_of_one_row() -> None:
    truth = float(np.sum(LAWS["flat"].astype(float) ** 2))
    found = [release("flat", seed, rows=1).second_moment() for seed in range(2 * RELEASES)]
    errors = [one.value - truth for one in found]
    assert abs(np.mean(errors)) < 5 * np.std(errors) / math.sqrt(len(errors))
    # A single row's spread is bounded, not seen: Chebyshev's interval covers more than it says.
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.95


def test_the_second_moment_would_show_forgotten_noise() -> None:
    """The twin: without the noise's share the estimate on an empty stream is far from 0."""
    empty = dps.CountSketch(rows=7, width=1000, unit=dps.per_record()).release(rho=1 / 800)
    found = empty.second_moment()
    assert found.low <= 0 <= found.high
    assert float(np.mean(np.sum(empty.table.astype(float) ** 2, axis=1))) > 10 * (found.high - found.value)


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


def test_public_values_are_checked() -> None:
    private = release("flat", 0)
    for keys, values in (([1, 2], [1.0]), ([1], [math.nan]), ([1], ["a"])):
        with pytest.raises(dps.DpsketchError):
            private.inner_product(keys, values)
    assert private.inner_product([1, 1], [1.0, 2.0]).value == pytest.approx(private.inner_product([1], [3.0]).value)
