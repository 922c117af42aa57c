"""What a dataset's charges come to, what one more would do, and what still fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from dpsketch import accounting
from dpsketch.ledger.chain import State, fits
from dpsketch.ledger.values import Preview, Spent, Total
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, PureCost, ZcdpCost

__all__ = ["preview_of", "spent_of"]

# The δ that ε is stated at where no total names one.
_DELTA = 1e-6
# What still fits is found to one part in a thousand.
_HALVINGS = 10


def preview_of(dataset: str, state: State, costs: Sequence[Cost], part: str | None) -> Preview:
    """Say what a charge would do."""
    after = state.charged(costs, part)
    before, reached = spent_of(dataset, state), spent_of(dataset, after)
    if state.total is None or fits(after, state.total):
        return Preview(before, reached, True)
    return Preview(before, reached, False, _fitting(state, state.total, costs, part))


def _fitting(state: State, total: Total, costs: Sequence[Cost], part: str | None) -> str:
    """Say how large a release of the same mechanism may be; empty where its costs have no size."""
    if any(isinstance(cost, MomentCost) for cost in costs):
        return ""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fitting = fits(state.charged([_scaled(cost, middle) for cost in costs], part), total)
        low, high = (middle, high) if fitting else (low, middle)
    small = [_scaled(cost, low) for cost in costs]
    if total.rho is not None:
        name, size, at = "ρ", accounting.rho_of(small) or 0.0, ""
    else:
        name, size, at = "ε", accounting.compose(small, delta=total.delta or 0.0), " at that δ"
    if low == 0 and total.delta and any(_failures(each) > total.delta for each in state.charged(small, part).histories):
        return "There is not so much δ left: one with a smaller δ may fit."
    if low == 0 or size == 0:
        return "Not even a thousandth of it would fit."
    return f"A release of its kind fits with {name} up to {_rounded_down(size)}{at}."


def _scaled(cost: Cost, factor: float) -> Cost:
    match cost:
        case PureCost(epsilon):
            return PureCost(epsilon * factor)
        case GaussianCost(mu):
            return GaussianCost(mu * factor)
        case ZcdpCost(rho):
            return ZcdpCost(rho * factor**2)
        case ApproximateCost(epsilon, delta):
            return ApproximateCost(epsilon * factor, delta)
        case MomentCost():
            return cost
        case _:
            assert_never(cost)


def _rounded_down(value: float) -> str:
    """Write a positive number by two significant digits, none of them too many."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / step) * step:.2g}"


def spent_of(dataset: str, state: State) -> Spent:
    """Return what the charges come to for the unit that is worst off."""
    histories = state.histories
    if state.total is not None and state.total.delta is not None:
        delta = state.total.delta
    elif all(isinstance(cost, PureCost) for costs in histories for cost in costs):
        delta = 0.0
    else:
        delta = min(max(_DELTA, 2 * max(map(_failures, histories))), 0.5)
    rhos = [accounting.rho_of(costs) for costs in histories]
    known = [rho for rho in rhos if rho is not None]
    return Spent(
        dataset,
        state.unit,
        max(accounting.compose(costs, delta=delta) for costs in histories),
        delta,
        max(known) if len(known) == len(rhos) else None,
        state.releases,
        state.total,
        len(state.parts),
        state.division,
    )


def _failures(costs: Counter[Cost]) -> float:
    return sum(cost.delta * count for cost, count in costs.items() if isinstance(cost, ApproximateCost))
