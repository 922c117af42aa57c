"""Densities: kernel sums near the data and far from them, and the number of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from benchmarks.coverage.measuring import BUDGETS, RELEASES, Answer, Case

Floats = npt.NDArray[np.float64]

RECORDS = 2000
ASKED = 20
BOUNDS = [(-10, 10), (-10, 10)]

SHAPES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "two clusters": lambda rng: rng.normal(0, 1, (RECORDS, 2)) + np.where(np.arange(RECORDS) % 2, 3, -2)[:, np.newaxis],
    "a tight cluster": lambda rng: rng.normal(-3, 0.05, (RECORDS, 2)),
}


def density(shape: str, rows: int, budget: str) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        points = SHAPES[shape](rng)
        kernel = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
        sketch = dps.DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=seed, bounds=BOUNDS)
        sketch.update(points)
        private = sketch.release(**BUDGETS[budget])
        for where, asked in (("near", points[:ASKED]), ("far from", rng.uniform(7, 10, (ASKED, 2)))):
            truth = kernel.similarity(asked, points).sum(axis=1)
            for estimator in ("mean", "median_of_means"):
                found = private.estimate(asked, estimator=estimator)
                yield Answer.of(f"estimate {where} the data, {estimator}", truth, found)
            yield Answer.of(f"density {where} the data", truth / RECORDS, private.density(asked))
        yield Answer.of("count", RECORDS, private.count())

    yield Case("DensitySketch", f"{shape}, {rows} rows", budget, RELEASES, trial)


def featured(features: Any, budget: str) -> Iterator[Case]:
    """Make sums of features in place of cells."""
    near, asked_of = np.array([[-2.0, -2.0], [3.0, 3.0]]), np.array([[8.0, 8.0], [-8.0, 7.0]])
    kernels: dict[str, Any] = {
        "linear": dps.kernels.Linear(dim=2),
        "signs": dps.kernels.Angular(dim=2, power=1),
    }
    grid = np.stack(np.meshgrid(np.linspace(-6, 6, 13), np.linspace(-6, 6, 13)), axis=-1).reshape(-1, 2)

    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        points = SHAPES["two clusters"](rng)
        kernel = kernels.get(features, dps.kernels.Gaussian(dim=2, bandwidth=1.0))
        given: dict[str, Any] = {"rows": 300} if features in ("fourier", "signs") else {}
        given |= {"landmarks": grid} if features == "nystrom" else {}
        given |= {"bounds": BOUNDS} if features == "series" else {}
        sketch = dps.DensitySketch(kernel=kernel, unit=dps.per_record(), seed=seed, features=features, **given)
        sketch.update(points)
        private = sketch.release(**BUDGETS[budget])
        for where, centre in (("near", near), ("far from", asked_of)):
            asked = np.repeat(centre, 5, axis=0) + rng.uniform(-1, 1, (10, 2))
            truth = kernel.similarity(asked, points).sum(axis=1)
            yield Answer.of(f"estimate {where} the data", truth, private.estimate(asked))
            yield Answer.of(f"density {where} the data", truth / RECORDS, private.density(asked))
        yield Answer.of("count", RECORDS, private.count())

    yield Case("DensitySketch", f"two clusters, {features}", budget, RELEASES // 4, trial)


def pictures(budget: str) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        values = np.random.default_rng(seed).normal(0, 2, (RECORDS, 1)).clip(-10, 10)
        kernel = dps.kernels.Manhattan(dim=1, bandwidth=1.0)
        sketch = dps.DensitySketch(kernel=kernel, rows=100, unit=dps.per_record(), seed=seed, bounds=[(-10, 10)])
        sketch.update(values)
        curve = sketch.release(**BUDGETS[budget]).curve(size=60)
        yield Answer.of("curve", kernel.similarity(curve.x[:, np.newaxis], values).mean(axis=1), curve)

    yield Case("DensitySketch", "one coordinate, 100 rows", budget, RELEASES // 2, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for shape in SHAPES:
            for rows in (64, 300):
                yield from density(shape, rows, budget)
        for features in ("fourier", "series", "nystrom", "linear", "signs"):
            yield from featured(features, budget)
        yield from pictures(budget)
