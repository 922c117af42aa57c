"""Density sketches: every row, or one row drawn for each record."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from dpsketch import kernels
from dpsketch.audit.core import Outputs, Scores
from dpsketch.audit.distinguishers import known, linear_discriminant
from dpsketch.audit.mechanism import Budget, Claim, Mechanism, Parts, additive, repeated
from dpsketch.privacy import per_record
from dpsketch.sketches.density import DensitySketch, PrivateDensity

__all__ = ["ROWS", "every_row", "one_row", "sketch_of"]

ROWS = 3
_POINTS = [0.0, 1.0]
_ADDED = 500.3


def sketch_of(points: list[float], placement: Literal["every_row", "one_row"] = "every_row") -> DensitySketch:
    """Build a small sketch of points on a line."""
    kernel = kernels.Euclidean(dim=1, bandwidth=2.0)
    sketch = DensitySketch(kernel=kernel, rows=ROWS, width=8, unit=per_record(), placement=placement)
    sketch.update(points)
    return sketch


def every_row(law: Literal["gaussian", "laplace"], noise: float = 1.0) -> Mechanism:
    """One point added: the table and the number of records together."""

    def parts(release: PrivateDensity) -> Parts:
        counted = [] if release.count_noise is None else [(np.array([release.noisy_count]), release.count_noise)]
        return [(release.table, release.noise), *counted]

    sketches = sketch_of(_POINTS), sketch_of([*_POINTS, _ADDED])
    budget = Budget.gaussian(noise) if law == "gaussian" else Budget.pure(noise)
    return additive(f"density-{law}", "a point added", sketches, budget, parts)


def one_row(noise: float = 1.0) -> Mechanism:
    """One point added, to one row drawn at random: the likelihood is a mixture over the rows."""
    budget = Budget.pure(noise)
    spent = budget.spent["epsilon"]
    spec = sketch_of([], "one_row").spec
    cells = np.arange(ROWS) * spec.width + spec.cells(spec.read([_ADDED]))[0]

    def runs(points: list[float]) -> Any:
        # The row is drawn when the point is read: each run reads the points anew.
        return repeated(
            lambda: sketch_of(points, "one_row").release(epsilon=spent, delta=0, count_share=0).table.ravel()
        )

    def score(tables: Outputs) -> Scores:
        seen = tables[:, cells]
        gains = (np.abs(seen) - np.abs(seen - 1)) * spent
        mixed: Scores = logsumexp(gains, axis=1)
        return mixed

    return Mechanism(
        "density-one-row",
        "a point added",
        Claim(budget.epsilon),
        runs(_POINTS),
        runs([*_POINTS, _ADDED]),
        {"likelihood ratio": known(score), "learned": linear_discriminant},
    )
