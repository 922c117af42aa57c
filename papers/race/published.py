"""RACE as published: continuous Laplace noise of scale R/ε, rounded down, on rows with independent directions.

Its noise is drawn in floating point from a seeded generator, and added to public data: this is for comparison, and
nothing made here may be released.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.core.drawn import Part
from dpsketch.sketches.density import PrivateDensity
from dpsketch.sketches.density.spec import COUNTERS

Floats = npt.NDArray[np.float64]


def sketch_of(points: Any, kernel: dps.kernels.Kernel, rows: int, *, seed: int, **more: Any) -> dps.DensitySketch:
    """Return a sketch that has counted the points; the unit is a record."""
    sketch = dps.DensitySketch(kernel=kernel, rows=rows, unit=dps.per_record(), seed=seed, **more)
    sketch.update(points)
    return sketch


def nonprivate(sketch: dps.DensitySketch) -> PrivateDensity:
    """Release without noise: at this ε a counter is moved with a probability below 10⁻⁴⁰⁰."""
    return sketch.release(epsilon=1000.0 * sketch.spec.rows, delta=0, count_share=0)


def as_published(sketch: dps.DensitySketch, epsilon: float, rng: np.random.Generator) -> PrivateDensity:
    """Return Algorithm 1's sketch: ⌊S + Z⌋ with Z of the Laplace law of scale R/ε."""
    exact = nonprivate(sketch)
    noise = rng.laplace(scale=exact.spec.rows / epsilon, size=exact.table.shape)
    law, _ = exact.drawn.parts[COUNTERS]
    table = np.floor(exact.table + noise).astype(np.int64)
    return replace(exact, drawn=replace(exact.drawn, parts={COUNTERS: Part(law, {"table": table})}))


def classify(
    train: Floats,
    labels: npt.NDArray[np.int64],
    test: Floats,
    *,
    rows: int,
    epsilon: float,
    delta: float = 0.0,
    seed: int,
) -> npt.NDArray[np.intp]:
    """Return the class of the largest density (Algorithm 2), one angular sketch a class; an infinite ε has no noise.

    With a δ above 0 the noise is Gaussian, and kernel sums are compared as they are, without their noisy class sizes.
    """
    rng = np.random.default_rng(seed)
    kernel = dps.kernels.Angular(train.shape[1], power=4, directions="independent")
    scores = []
    for label in range(int(labels.max()) + 1):
        sketch = sketch_of(train[labels == label], kernel, rows, seed=seed)
        if np.isinf(epsilon):
            scores.append(nonprivate(sketch).density(test).value)
        elif delta:
            scores.append(sketch.release(epsilon=epsilon, delta=delta, count_share=0).estimate(test).value)
        else:
            scores.append(as_published(sketch, epsilon, rng).density(test).value)
    return np.argmax(scores, axis=0)
