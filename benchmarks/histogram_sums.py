"""What the named keys of a histogram count together: noisy sums against posterior ones, where these are offered.

Records of four data sets (Zipf(1.1) and those that ``DPSKETCH_DATA`` has), and counts that follow no power law: equal,
Poisson and uniform ones. δ = 1e-6; root mean square errors of 24 releases. Ours is the posterior sum where a release
offers one and else the noisy one, theirs the noisy one: a ratio of 1 says that none was offered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.histogram import data_sets
from benchmarks.histogram_rivals import SEEDS, Integers
from dpsketch.privacy import per_record
from dpsketch.sketches.histogram import Histogram

RELEASES = 24


def sizes() -> dict[str, Integers]:
    """Return how often each key occurs, by data set."""
    rng = np.random.default_rng(3)
    found = {name: np.bincount(keys) for name, (_, keys) in data_sets().items()}
    return found | {
        "equal counts": np.full(5_000, 20),
        "Poisson(25)": rng.poisson(25, 5_000),
        "uniform below 100": rng.integers(1, 100, 5_000),
    }


def run() -> list[dict[str, Any]]:
    """Return a row for each data set, ε and kind of noise that named at least thirty keys."""
    rows = []
    for name, counts in sizes().items():
        keys = np.flatnonzero(counts)
        sketch = Histogram(unit=per_record(), key_type="int")
        sketch.update(keys, counts=counts[keys])
        for epsilon in SEEDS:
            for form in ("truncated", "gaussian"):
                noisy, best, offered, named = [], [], 0, 0
                for _ in range(RELEASES):
                    private = sketch.release(epsilon=epsilon, delta=1e-6, form=form)
                    found, truth = private.sum(), counts[private.keys].sum()
                    noisy.append(found.value - truth)
                    best.append((found.value if found.posterior is None else found.posterior) - truth)
                    offered += found.posterior is not None
                    named += len(private.keys)
                if named < 30 * RELEASES:
                    continue
                ours, theirs = (float(np.sqrt(np.mean(np.square(errors)))) for errors in (best, noisy))
                shape = f"{name}, ε = {epsilon:g}, {form}: posterior in {offered} of {RELEASES}"
                row = {"name": shape, "ours": ours, "theirs": theirs, "ratio": theirs / ours, "draws": RELEASES}
                rows.append(row | {"unit": "rms of the sum"})
    return rows
