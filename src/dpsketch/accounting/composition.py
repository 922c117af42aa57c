"""What several releases cost together.

Every function takes a history of costs (a sequence, or a mapping from each cost to how often it occurs). Its numbers
already hold for the unit and the neighbour relation of the releases, so no relation is asked for here: replacing a
record doubles the μ that a release reports, not what is done with it.

Which bounds are used, the smallest of those that apply:

- Gaussians only: the exact closed form, for the μ² add.
- Bounded losses add, at δ = 0 too; (ε, δ) costs add in both; a Gaussian or ρ part adds its own ε at the δ that is left.
- Pure and (ε, δ) costs, few different ones: the exact optimal composition (Kairouz, Oh and Viswanath 2015).
- Rényi composition, for every kind; the only one besides addition for costs known by their ρ alone.
- One moment sketch alone: its exact law. Mixtures: privacy loss distributions on a grid, by dp-accounting.

Privacy
-------
A mechanism may depend on what was released before it. Whether the *amount* spent next may depend on it as well is
another question. It may, where the whole history is compared in ρ, is Gaussian only, or is a plain sum of ε (Rogers et
al. 2016; Feldman and Zrnic 2021; Smith and Thakurta 2022). For the other bounds the sequence of costs must not depend
on what was released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from dpsketch.accounting.gaussian import exact_root, smallest_epsilon
from dpsketch.accounting.loss import Atoms, grid_epsilon
from dpsketch.accounting.momentloss import exact_moment_epsilon, has_exact_loss
from dpsketch.accounting.renyi import renyi_epsilon, tally_rho
from dpsketch.accounting.tally import Costs, Tally
from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number
from dpsketch.privacy import ApproximateCost, Budget, PureCost, ZcdpCost

__all__ = ["compose", "fits", "rho_of"]

# Ten times 0.1 is a little more than 1 in binary. A budget is held to a millionth of a millionth.
_SLACK = 1e-12


def compose(costs: Costs, *, delta: float) -> float:
    """Return the total ε of a history at this δ, rounded up; infinite where no ε holds.

    Examples
    --------
    >>> from dpsketch.privacy import GaussianCost, PureCost
    >>> compose([PureCost(0.5), PureCost(0.5)], delta=0)
    1.0
    >>> round(compose([GaussianCost(0.1)] * 4, delta=1e-6), 3)
    0.834
    """
    delta = real_number("delta", delta)
    if not 0 <= delta < 1:
        raise InvalidInput(f"delta must be at least 0 and below 1, not {delta!r}.")
    return min(_epsilons(Tally.of(costs), delta), default=math.inf)


def rho_of(costs: Costs) -> float | None:
    """Return the total zero-concentrated ρ of a history; None where a cost has none.

    A Gaussian has μ²/2, a pure cost ε·tanh(ε/2). A cost known only as (ε, δ) with δ > 0 has none.

    Examples
    --------
    >>> from dpsketch.privacy import ApproximateCost, GaussianCost
    >>> rho_of([GaussianCost(0.5), GaussianCost(0.5)])
    0.25
    >>> rho_of([ApproximateCost(1.0, 1e-6)]) is None
    True
    """
    return tally_rho(Tally.of(costs))


def fits(costs: Costs, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> bool:
    """Say whether a history stays within a total of (ε, δ) or ρ.

    A total counts as kept up to one part in 10¹², because decimal numbers are not exact in binary.

    Examples
    --------
    >>> from dpsketch.privacy import PureCost
    >>> fits([PureCost(0.1)] * 10, epsilon=1.0, delta=0), fits([PureCost(0.1)] * 11, epsilon=1.0, delta=0)
    (True, False)
    """
    tally = Tally.of(costs)
    match Budget(epsilon, delta, rho).cost:
        case ZcdpCost(limit):
            total = tally_rho(tally)
            return total is not None and total <= limit * (1 + _SLACK)
        case PureCost(limit):
            failure = 0.0
        case ApproximateCost(limit, failure):
            pass
        case never:
            assert_never(never)
    # The cheap bounds come first: most histories are settled before a grid is built.
    return any(bound <= limit * (1 + _SLACK) for bound in _epsilons(tally, failure))


def _epsilons(tally: Tally, delta: float) -> Iterator[float]:
    """Yield every bound on ε at δ that applies, the cheap ones first."""
    if not tally.finite:
        return
    if tally.only_gaussian:
        yield _gaussian_epsilon(tally, delta)
        return
    rest = delta * (1 + _SLACK) - tally.failure
    if tally.bounded:
        yield tally.bounded_epsilon if rest >= 0 else math.inf
    elif not tally.rho:
        yield tally.bounded_epsilon + _gaussian_epsilon(tally, rest)
    elif rest > 0:
        yield tally.bounded_epsilon + renyi_epsilon(tally.concentrated, rest)
    if delta == 0:
        return
    yield renyi_epsilon(tally, delta)
    if (lone := tally.lone_moment) is not None and has_exact_loss(lone.p, lone.ratio):
        yield exact_moment_epsilon(lone.p, lone.size, lone.ratio, delta)
        return
    atoms = Atoms.of(tally)
    yield grid_epsilon(tally, delta) if atoms is None else atoms.epsilon(delta)


def _gaussian_epsilon(tally: Tally, delta: float) -> float:
    if not tally.mu_squared:
        return 0.0
    return smallest_epsilon(exact_root(tally.mu_squared), delta) if delta > 0 else math.inf
