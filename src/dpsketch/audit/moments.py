"""Frequency moments: the released number, on the worst pair there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.audit.distinguishers import known, linear_discriminant
from dpsketch.audit.mechanism import Asked, Budget, Mechanism, claim_of, repeated
from dpsketch.privacy import per_record
from dpsketch.sketches.moment import MomentProfile, MomentSketch

__all__ = ["moment", "profile"]

_WEIGHT = 3.0
_UNIT = per_record(max_weight=_WEIGHT)


def moment(p: float, delta: float, noise: float = 1.0) -> Mechanism:
    """Tell an empty stream from one record of the largest weight, by the estimate that is published.

    A mutant has the floor of a budget ``1/noise`` times as large.
    """
    asked = Budget(6.0 if delta else 5.0, delta)
    spent = Asked(epsilon=asked.epsilon / noise, delta=asked.delta)

    def sketch(keys: list[int]) -> MomentSketch:
        built = MomentSketch(p=p, size=10, unit=_UNIT, key_type="int")
        built.update(keys, weights=[_WEIGHT] * len(keys))
        return built

    def runs(keys: list[int]) -> Any:
        return repeated(lambda: np.array([np.log(sketch(keys).release(**spent).scale)]))

    return Mechanism(
        f"moment-{p:g}-{'approximate' if delta else 'pure'}",
        "an empty stream, and one record of the largest weight",
        claim_of(sketch([]).release(**asked.claimed).guarantee),
        runs([]),
        runs([5]),
        {"threshold": known(lambda scales: scales[:, 0])},
    )


def profile(noise: float = 1.0) -> Mechanism:
    """Several moments from one budget."""
    asked = Budget(10.0, 0.0)
    spent = Asked(epsilon=asked.epsilon / noise, delta=asked.delta)

    def sketch(keys: list[int]) -> MomentProfile:
        built = MomentProfile(p=[0.5, 1.0], size=10, unit=_UNIT, key_type="int")
        built.update(keys, weights=[_WEIGHT] * len(keys))
        return built

    def runs(keys: list[int]) -> Any:
        def run() -> npt.NDArray[np.float64]:
            return np.log([one.scale for one in sketch(keys).release(**spent).moments])

        return repeated(run)

    return Mechanism(
        "moment-profile",
        "an empty stream, and one record of the largest weight",
        claim_of(sketch([]).release(**asked.claimed).guarantee),
        runs([]),
        runs([5]),
        {"threshold": known(lambda scales: scales.sum(axis=1)), "learned": linear_discriminant},
    )
