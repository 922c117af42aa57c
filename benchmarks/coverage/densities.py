"""Densities: kernel sums near the data and far from them, and the number of records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import dpsketch as dps
from benchmarks.coverage.measuring import BUDGETS, Answer, Case

RECORDS = 5000
BANDWIDTH = 2.0


def density(rows: int, budget: str, releases: int) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        points = np.concatenate([rng.normal(-2, 0.7, (RECORDS // 2, 2)), rng.normal(3, 1.5, (RECORDS // 2, 2))])
        points = points.clip(-10, 10)
        kernel = dps.kernels.Euclidean(dim=2, bandwidth=BANDWIDTH)
        sketch = dps.DensitySketch(
            kernel=kernel, rows=rows, unit=dps.per_record(), seed=seed, bounds=[(-10, 10), (-10, 10)]
        )
        sketch.update(points)
        private = sketch.release(**BUDGETS[budget])
        for where, asked in (("near", points[:: RECORDS // 50]), ("far", rng.uniform(7, 10, (50, 2)))):
            truth = kernel.similarity(asked, points).sum(axis=1)
            for estimator in ("mean", "median_of_means"):
                found = private.estimate(asked, estimator=estimator)
                yield Answer.of(f"estimate {where} the data, {estimator}", truth, found)
            if where == "near":
                yield Answer.of("density", truth / RECORDS, private.density(asked))
        yield Answer.of("count", RECORDS, private.count())

    yield Case("DensitySketch", f"two clusters, {rows} rows", budget, releases, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for rows in (64, 300):
            yield from density(rows, budget, 200)
