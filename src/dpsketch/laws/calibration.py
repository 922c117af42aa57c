"""The least additive noise that a budget allows. A law computes its cost by itself, whatever is chosen here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import assert_never

from dpsketch import accounting
from dpsketch.core.laws import Additive
from dpsketch.core.move import Distance, Sensitivity, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.designs import Design, Filter
from dpsketch.laws.streams import MARGIN, Found, Published, Vector
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.privacy import ApproximateCost, Budget, Neighbours, PureCost, ZcdpCost

__all__ = ["additive", "noise_for", "published", "quietest"]

# A trillionth more noise than needed outweighs every rounding here and in the sum of the shares.
_MARGIN = 1 + 1e-12
# The part of δ for names of a stream; the rest is for counts.
_NAMES_SHARE = 0.1


def additive(budget: Budget, neighbours: Neighbours, shares: Mapping[Table, float]) -> tuple[Additive, ...]:
    """Return the least noise on tables that are released together, each with a share of one budget.

    Parameters
    ----------
    budget : Budget
        (ε, δ) with δ > 0 gives rounded Gaussian noise by the analytic calibration (Balle and Wang 2018), (ε, 0)
        discrete Laplace noise, ρ rounded Gaussian noise.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    shares : mapping of Table to float
        Each table's share of μ² for Gaussian noise, of ε for Laplace noise; together at most 1.
    """
    return tuple(
        Additive(table, neighbours, noise_for(budget, table.between(neighbours), share))
        for table, share in shares.items()
    )


def quietest(budget: Budget, neighbours: Neighbours, table: Table) -> Additive:
    """Return noise on one table: of Laplace and Gaussian noise the one with the smaller variance."""
    found = additive(budget, neighbours, {table: 1.0})
    if isinstance(budget.cost, ApproximateCost):
        found += additive(Budget(budget.cost.epsilon, 0.0), neighbours, {table: 1.0})
    return min(reversed(found), key=lambda law: law.noise.variance)


def noise_for(budget: Budget, distance: Distance | Sensitivity, share: float = 1.0) -> Noise:
    """Return the least noise that a share of a budget allows on tables that lie so far apart; σ is rounded up."""
    match budget.cost:
        case PureCost(epsilon):
            return DiscreteLaplace(epsilon if share == 1 else epsilon * share / _MARGIN, distance.l1)
        case ApproximateCost(epsilon, delta):
            mu = accounting.gaussian_mu(epsilon, delta)
        case ZcdpCost(rho):
            mu = accounting.zcdp_mu(rho)
        case never:
            assert_never(never)
    if share == 1:
        return RoundedGaussian(math.nextafter(distance.l2 / mu, math.inf))
    return RoundedGaussian(distance.l2 / (mu * math.sqrt(share)) * _MARGIN)


def published(form: type[Published], budget: Budget, vector: Vector, design: Design, horizon: int) -> Published:
    """Return the law of a stream's publications with the least noise that a budget allows."""
    distance = design.sensitivity(vector.contribution, horizon)
    stated = vector.tables, vector.scales, vector.neighbours
    if not issubclass(form, Found):
        return form(*stated, noise_for(budget, distance), design, horizon, vector.days, vector.apart)
    cost = budget.cost
    if not isinstance(cost, ApproximateCost) or not isinstance(design, Filter) or design.keeps_noise:
        raise InvalidInput(
            "names that are on no public list need epsilon= with delta > 0, and no design of blocks, nor one whose "
            "state may be seized, which would show them. Else give a public list: keys=[…]."
        )
    names = cost.delta * _NAMES_SHARE
    mu = accounting.gaussian_mu(cost.epsilon, (cost.delta - names) / MARGIN)
    noise = RoundedGaussian(distance.l2 / mu * MARGIN)
    return form(*stated, noise, design, horizon, vector.days, vector.apart, epsilon=cost.epsilon, names=names)
