"""Mechanisms as their papers or authors published them, whose claims an audit must find violated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsketch import local
from dpsketch.audit.core import Outputs
from dpsketch.audit.densities import ROWS, sketch_of
from dpsketch.audit.distinguishers import known, linear_discriminant
from dpsketch.audit.mechanism import Claim, Mechanism, repeated
from dpsketch.privacy import per_record
from dpsketch.sketches.moment import MomentSketchAsPublished

__all__ = ["moments", "privsketch", "race"]


def privsketch() -> Mechanism:
    """PrivSketch's ordering matrix, which goes along with each report, for a person of one item or of another."""
    protocol = local.PrivSketchAsPublished(epsilon=1.0)

    def runs(item: int) -> Callable[[int], Outputs]:
        return lambda trials: local.order_scores(protocol, protocol.report([[item]] * trials), 0)[:, None]

    return Mechanism(
        "privsketch-as-published",
        "a person who holds another item",
        Claim(protocol.epsilon),
        runs(0),
        runs(1),
        {"threshold": known(lambda ranks: ranks[:, 0])},
        shipped=False,
    )


def race() -> Mechanism:
    """RACE with the noise of its authors' code, Laplace of scale R/(Nε) on raw counts: N times too little."""
    points = [float(i) for i in range(20)]
    epsilon = 1.0
    # Discrete Laplace noise of scale R/ε' with ε' = Nε.
    spent = epsilon * len(points)
    added = 500.3
    spec = sketch_of([]).spec
    cells = np.arange(ROWS) * spec.width + spec.cells(spec.read([added]))[0]

    def runs(points: list[float]) -> Callable[[int], Outputs]:
        sketch = sketch_of(points)
        return repeated(lambda: sketch.release(epsilon=spent, delta=0, count_share=0).table.ravel())

    return Mechanism(
        "race-as-published",
        "a point added",
        Claim(epsilon),
        runs(points),
        runs([*points, added]),
        {"threshold": known(lambda tables: tables[:, cells].sum(axis=1)), "learned": linear_discriminant},
        shipped=False,
    )


def moments() -> Mechanism:
    """Sub-sampled moments with Theorem 4's ε: ten records of which the last may weigh 16 instead of 1."""
    records, weight = 10, 16.0
    unit = per_record(max_weight=weight, neighbours="replace")

    def sketch(last: tuple[int, float]) -> MomentSketchAsPublished:
        built = MomentSketchAsPublished(p=1.0, size=10, unit=unit, records=records, keys=100, rate=0.1)
        built.update([1] * (records - 1) + [last[0]], weights=[1.0] * (records - 1) + [last[1]])
        return built

    def runs(last: tuple[int, float]) -> Any:
        return repeated(lambda: np.array([sketch(last).release_as_published(estimator="mle").scale]))

    claimed = sketch((1, 1.0)).release_as_published().guarantee.epsilon
    return Mechanism(
        "moments-as-published",
        "the last of ten records replaced by one of weight 16",
        Claim(claimed),
        runs((1, 1.0)),
        runs((2, weight)),
        {"threshold": known(lambda scales: scales[:, 0])},
        shipped=False,
    )
