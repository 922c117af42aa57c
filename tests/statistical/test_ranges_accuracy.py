"""Quantiles of a RangeSketch: within the rank error that was predicted, and covered at ties.

The seeds are fixed, so that a test passes always or never; docstrings say how often other seeds would fail. Coverage of
ranges and quantiles is held in ``test_coverage_table.py``, of small trees exactly in ``test_exact_coverage.py``.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.ranges import PrivateRanges, RangeSketch
from oracles import ranges as oracle

RELEASES, RECORDS, BITS = 20, 20_000, 14
SHARES = np.linspace(0.05, 0.95, 10)
BUDGETS = {"gaussian": {"epsilon": 1.0, "delta": 1e-6}, "pure": {"epsilon": 2.0, "delta": 0.0}}


@cache
def data() -> np.ndarray:
    rng = np.random.default_rng(BITS)
    return np.sort(np.minimum(np.exp(rng.normal(0.5 * BITS, 1.2, RECORDS)), 2**BITS - 1).astype(np.int64))


@cache
def releases(budget: str) -> list[PrivateRanges]:
    made = []
    for seed in range(RELEASES):
        sketch = RangeSketch(unit=dps.per_record(), bits=BITS, rows=5, width=1024, seed=seed)
        sketch.update(data())
        with seeded_noise_for_tests_only(seed):
            made.append(sketch.release(**BUDGETS[budget]))
    return made


@pytest.mark.parametrize("budget", BUDGETS)
def test_quantiles_are_covered_and_as_far_off_as_predicted(budget: str) -> None:
    """Of 200 quantiles, those of one release alike; intervals of half the width do not hold."""
    truth = data()[np.ceil(SHARES * RECORDS).astype(int) - 1]
    found = [private.quantiles(SHARES) for private in releases(budget)]
    pairs = [(one, true) for each in found for one, true in zip(each, truth, strict=True)]
    assert np.mean([one.low <= true <= one.high for one, true in pairs]) >= 0.92
    halved = [(one.value + one.low) / 2 <= true <= (one.value + one.high) / 2 for one, true in pairs]
    assert np.mean(halved) < 0.92
    gaps = np.array([oracle.rank_gap(data(), one.value, one.share) for each in found for one in each])
    stated = np.array([one.rank_error for each in found for one in each])
    predicted = releases(budget)[0].spec.predict_rank_error(records=RECORDS, **BUDGETS[budget])
    # A quantile's value is picked where its error is small, so its rank strays less than a rank asked for.
    assert 0.4 * predicted.noise < math.sqrt(np.mean(np.square(gaps))) < predicted.typical
    assert np.mean(gaps > predicted.largest) < 0.05
    assert np.mean(gaps > stated) < 0.05


@pytest.mark.parametrize(("seed", "share"), [(1, 0.3), (4, 0.1), (15, 0.9), (41, 0.9)])
def test_an_interval_allows_for_what_its_search_misses_at_ties(seed: int, share: float) -> None:
    """Releases of ten spikes whose intervals, searched for with the errors as they are, miss an end of a tie although
    the release speaks against neither. Each is covered with probability 0.95, and the seeds are fixed."""
    places = list(range(50, 1024, 100))
    sketch = RangeSketch(unit=dps.per_record(), bits=10, rows=5, width=256, seed=seed)
    sketch.update(np.repeat(places, 100))
    with seeded_noise_for_tests_only(seed):
        found = sketch.release(epsilon=1.0, delta=0.0).quantile(share)
    below = round(10 * share)
    assert found.low <= places[below - 1]
    assert places[below] <= found.high
