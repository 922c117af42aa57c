"""Named quantiles, on the neighbours that the exponential mechanism tells apart best.

Most places lie between two values, and are right before a record is added and wrong by half a rank after it.
Those beyond the second value come nearer by half a rank. So they gain, against the others, all that the claim allows.
Several quantiles are told apart less, as each level has its part of the budget; tests enumerate them.
"""

from __future__ import annotations

from typing import Any

from dpsketch.audit.core import Outputs, Scores
from dpsketch.audit.distinguishers import frequent_outcomes, known
from dpsketch.audit.mechanism import Budget, Mechanism, claim_of, repeated
from dpsketch.privacy import Unit, per_record, per_user
from dpsketch.sketches.quantiles import QuantileSketch

__all__ = ["median", "median_replaced", "median_user"]

# The end of a wide gap that begins at 0, and the values of the unit that is added, behind a narrower one.
_NEAR, _FAR = 23, [31, 30]


def _beyond(outputs: Outputs) -> Scores:
    """Look whether the answer lies beyond the second value."""
    found: Scores = (outputs[:, 0] > _NEAR).astype(float)
    return found


def _mechanism(name: str, neighbours: str, unit: Unit, data: list[int], other: list[int], noise: float) -> Mechanism:
    budget = Budget.pure(noise)

    def sketch(values: list[int]) -> QuantileSketch:
        built = QuantileSketch(unit=unit, bits=5, quantiles=[0.5])
        # The values of the unit that is added are one user's, all others those of a user each.
        users = [0 if value in _FAR else 1 + i for i, value in enumerate(values)] if unit.level == "user" else None
        built.update(values, users=users)
        return built

    def runs(built: QuantileSketch) -> Any:
        return repeated(lambda: built.release(**budget.spent).cells)

    without, within = sketch(data), sketch(other)
    claim = claim_of(without.release(**budget.claimed).guarantee)
    learners = {"beyond": known(_beyond), "outcomes": frequent_outcomes}
    return Mechanism(name, neighbours, claim, runs(without), runs(within), learners)


def median(noise: float = 1.0) -> Mechanism:
    """Ask for the median of two values, and of a third."""
    data = [0, _NEAR]
    return _mechanism("quantiles", "a record added", per_record(), data, [*data, _FAR[0]], noise)


def median_replaced(noise: float = 1.0) -> Mechanism:
    """Ask for the median of two values, the first of which becomes the last."""
    unit = per_record(neighbours="replace")
    words = "the first record replaced by a last one"
    return _mechanism("quantiles-replace", words, unit, [0, _NEAR], [_NEAR, _FAR[0]], noise)


def median_user(noise: float = 1.0) -> Mechanism:
    """Ask for the median of two values that two users have each, and of a user with two more."""
    data = [0, 0, _NEAR, _NEAR]
    return _mechanism("quantiles-user", "a user added, of two values", per_user(max_keys=2), data, data + _FAR, noise)
