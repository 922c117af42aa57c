"""Retail baskets, the first 30 of each (Pagh and Thorup, Fig. 5), with each basket's sketch clipped.

Every test here states its false-positive rate. Noise and hash seeds are fixed, so a pass is a pass for ever.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps

BASKET = 30
SEEDS = 24
# |error| quantiles .5/.9/.99 of the median estimator at ε = 1, δ = 1e-6, 5 rows of 500.
CLIPPED = (195, 518, 935)


@pytest.fixture(scope="module")
def retail(real_data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Users and items."""
    with lzma.open(real_data / "sets" / "retail.dat.xz", "rt") as lines:
        baskets = [np.array(line.split(), np.int64)[:BASKET] for line in lines]
    users = np.repeat(np.arange(len(baskets)), [len(basket) for basket in baskets])
    items = np.concatenate(baskets)
    assert (len(baskets), len(items), len(np.unique(items))) == (88_162, 888_317, 16_243)
    return users, items


def quantiles(retail: tuple[np.ndarray, np.ndarray], epsilon: float) -> tuple[np.ndarray, float, float]:
    """Return the quantiles over all items and seeds, the share of clipped users, and the noise scale."""
    users, items = retail
    keys, counts = np.unique(items, return_counts=True)
    errors, clipped = [], 0
    for seed in range(SEEDS):
        sketch = dps.CountSketch(rows=5, width=500, unit=dps.per_user(max_keys=BASKET), seed=seed)
        sketch.update(items, users=users)
        clipped += sketch.clipped_users
        private = sketch.release(epsilon=epsilon, delta=1e-6)
        errors.append(np.abs(private.estimate(keys, estimator="median").value - counts))
    share = clipped / SEEDS / (users[-1] + 1)
    return np.quantile(np.concatenate(errors), [0.5, 0.9, 0.99]), share, private.noise_scale


@pytest.mark.full
@pytest.mark.statistical
def test_clipped_baskets(retail: tuple[np.ndarray, np.ndarray], seeded: None) -> None:
    """Within 5% of the published figures.

    From seed to seed the quantiles vary by 3%, hence by .6% over 24; they lie 2% from the figures at most, so that
    5% is about 5 standard errors away (false positives below 1e-6).
    """
    found, share, scale = quantiles(retail, 1.0)
    assert found == pytest.approx(CLIPPED, rel=0.05)
    assert 3e-5 < share < 1.2e-4
    assert scale == pytest.approx(53.9, rel=0.005)
