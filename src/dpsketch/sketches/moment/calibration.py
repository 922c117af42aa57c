"""The lowest floors that a budget allows. A law computes its cost by itself, whatever is chosen here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from dpsketch import accounting
from dpsketch.accounting.momentloss import moment_ratio
from dpsketch.accounting.stable import stable_information
from dpsketch.errors import InvalidInput
from dpsketch.laws.scales import Estimator
from dpsketch.laws.stable import ROOM, Floor, Weights
from dpsketch.privacy import ApproximateCost, Budget, MomentCost, Neighbours, PureCost, ZcdpCost

__all__ = ["floors_for"]


def floors_for(
    budget: Budget, neighbours: Neighbours, tables: Sequence[Weights], estimator: Estimator
) -> tuple[Floor, ...]:
    """Return the floors of moments of one stream that are released together.

    (ε, δ) with δ > 0 goes by the exact privacy loss, (ε, 0) by its largest value, ρ by its range. All get the same
    share: an equal part of ε or ρ where these add, and otherwise the same μ of the Gaussian mechanism that each is
    close to.
    """
    count = len(tables)
    match budget.cost:
        case PureCost(epsilon):
            ratios = [moment_ratio(each.p, each.sums, epsilon / count, 0.0) for each in tables]
        case ApproximateCost(epsilon, delta) if count == 1:
            ratios = [moment_ratio(tables[0].p, tables[0].sums, epsilon, delta)]
        case ApproximateCost(epsilon, delta):
            ratios = _common_share(tables, epsilon, delta)
        case ZcdpCost(rho):
            ratios = [1 + math.expm1(_shift_for_rho(each, rho / count)) for each in tables]
        case never:
            assert_never(never)
    return tuple(_least(table, neighbours, ratio, estimator) for table, ratio in zip(tables, ratios, strict=True))


def _least(table: Weights, neighbours: Neighbours, ratio: float, estimator: Estimator) -> Floor:
    """Return the lowest floor with which no ratio passes this one, rounded up."""
    # Without a floor the ratio is the stream's own, which may be below what the budget allows.
    found = Floor(table, neighbours, 0.0, estimator=estimator)
    if found.largest_ratio <= ratio:
        return found
    change = table.largest_change(neighbours)
    height = max(0.0, change / (ratio - 1) * (1 + 4 * ROOM) - table.least_moment)
    while (found := Floor(table, neighbours, height, ratio, estimator)).largest_ratio > ratio:
        height = height * (1 + 2.0**-40) + change * 2.0**-40
    return found


def _shift_for_rho(table: Weights, rho: float) -> float:
    return math.sqrt(8 * rho / table.sums) / (1 + 1 / table.p) * (1 - 2.0**-46)


def _common_share(tables: Sequence[Weights], epsilon: float, delta: float) -> list[float]:
    """Return ratios at a common μ whose composition stays within (ε, δ)."""

    def ratios(mu: float) -> list[float]:
        return [math.exp(mu / math.sqrt(each.sums * stable_information(each.p))) for each in tables]

    def spent(mu: float) -> float:
        costs = [MomentCost(each.p, each.sums, ratio) for each, ratio in zip(tables, ratios(mu), strict=True)]
        return accounting.compose(costs, delta=delta)

    high = accounting.gaussian_mu(epsilon, delta) / math.sqrt(len(tables))
    low, point = 0.0, high
    high *= 2
    for _ in range(12):
        used = spent(point)
        if used <= epsilon:
            low = point
            if used > 0.999 * epsilon:
                break
        else:
            high = point
        # ε is nearly proportional to μ here; aim a little below.
        ahead = 0.9997 * point * epsilon / used
        point = ahead if low < ahead < high else (low + high) / 2
    if low == 0.0:
        raise InvalidInput("no floor was found for this budget and these exponents; release them one by one.")
    return ratios(low)
