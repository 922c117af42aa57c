"""The lowest floors that a budget allows. A law computes its cost by itself, whatever is chosen here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import assert_never

from dpsketch import accounting
from dpsketch.accounting.momentloss import exact_moment_epsilon, has_exact_loss
from dpsketch.accounting.stable import stable_information
from dpsketch.errors import InvalidInput
from dpsketch.laws.scales import ScaleEstimator
from dpsketch.laws.stable import ROOM, Floor, Weights
from dpsketch.privacy import ApproximateCost, Budget, MomentCost, Neighbours, PureCost, ZcdpCost

__all__ = ["floors_for", "moment_ratio"]


def floors_for(
    budget: Budget, neighbours: Neighbours, tables: Sequence[Weights], estimator: ScaleEstimator
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


@lru_cache(maxsize=256)
def moment_ratio(p: float, size: int, epsilon: float, delta: float) -> float:
    """Return the largest ratio of scales for which a moment sketch is (ε, δ)-private, to about 1e-6, rounded down.

    With δ = 0 it is the pure bound's. Where δ is too small for the exact loss (about ``size``·4e-15) it is that of the
    bounded range, by ρ + 2√(ρ·ln(1/δ)) ≤ ε (Bun and Steinke 2016).

    Examples
    --------
    >>> ratio = moment_ratio(0.5, 200, 1.0, 1e-6)
    >>> round(1 / (ratio - 1), 1)  # the floor in units of one record's largest effect
    51.4
    """
    pure = 1 + math.expm1(min(epsilon * p / size, 700.0)) * (1 - 2.0**-40)
    if delta == 0:
        return pure
    spare = -math.log(delta)
    rho = (epsilon / (math.sqrt(epsilon + spare) + math.sqrt(spare))) ** 2
    best = max(pure, 1 + math.expm1(math.sqrt(8 * rho / size) / (1 + 1 / p)) * (1 - 2.0**-40))
    if not has_exact_loss(p, best):
        return best
    # Many coordinates together lose nearly what a Gaussian mechanism with μ = s·√(size·information) loses.
    point = math.log(accounting.gaussian_mu(epsilon, delta) / math.sqrt(size * stable_information(p)))
    low, high = math.log(math.log(best)), math.log(20.0)
    slope = 1.0
    previous: tuple[float, float] | None = None
    while high - low > 1e-9:
        point = point if low < point < high else (low + high) / 2
        ratio = math.exp(math.exp(point))
        spent = exact_moment_epsilon(p, size, ratio, delta)
        excess = math.log(spent / epsilon) if 0 < spent < math.inf else math.nan
        if spent <= epsilon:
            low, best = point, max(best, ratio)
            if excess > -1e-6:
                break
        else:
            high = point
        # The secant method in logarithms, where ε is nearly a power of the shift; it aims a little below.
        if previous is not None and excess != previous[1]:
            slope = min(max((excess - previous[1]) / (point - previous[0]), 0.5), 20.0)
        previous = (point, excess)
        point -= (excess + 2e-7) / slope
    return best


def _least(table: Weights, neighbours: Neighbours, ratio: float, estimator: ScaleEstimator) -> Floor:
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
