"""A history of costs, sorted by kind and counted: what every way of composing starts from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from dpsketch.accounting.moment import moment_epsilon
from dpsketch.errors import InvalidInput
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, MomentCost, PureCost, ZcdpCost

__all__ = ["Costs", "Tally", "check_cost"]

Costs = Iterable[Cost] | Mapping[Cost, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """Equal costs counted once, Gaussians summed exactly, costs of zero left out.

    Attributes
    ----------
    mu_squared : mpmath.mpf
        The sum of the Gaussians' μ², without rounding.
    rho : float
        The sum of the costs known only as ρ.
    pure : dict
        How often each ε occurs, for costs whose loss never exceeds it.
    approximate : dict
        How often each (ε, δ) with δ > 0 occurs.
    moments : dict
        How often each moment sketch's cost occurs.
    """

    mu_squared: Any
    rho: float
    pure: dict[float, int]
    approximate: dict[tuple[float, float], int]
    moments: dict[MomentCost, int]

    @classmethod
    def of(cls, costs: Costs) -> Tally:
        """Count a history; a mapping gives each cost with how often it occurs."""
        import mpmath

        pure: Counter[float] = Counter()
        approximate: Counter[tuple[float, float]] = Counter()
        moments: Counter[MomentCost] = Counter()
        rhos: list[float] = []
        with mpmath.workprec(400):
            mu_squared = mpmath.mpf(0)
            for cost, count in Counter(costs).items():
                check_cost(cost)
                match cost:
                    case PureCost(epsilon):
                        pure[epsilon] += count
                    case GaussianCost(mu):
                        mu_squared += count * mpmath.mpf(mu) ** 2
                    case ZcdpCost(rho):
                        rhos.append(count * rho)
                    case ApproximateCost(epsilon, delta) if delta > 0:
                        approximate[epsilon, delta] += count
                    case ApproximateCost(epsilon, _):
                        pure[epsilon] += count
                    case MomentCost(_, _, ratio):
                        moments[cost] += count if ratio > 1 else 0
                    case _:
                        assert_never(cost)
        pure.pop(0.0, None)
        return cls(mu_squared, math.fsum(rhos), dict(pure), dict(approximate), dict(+moments))

    @property
    def only_gaussian(self) -> bool:
        """Whether every cost is a Gaussian's (or there is none)."""
        return not (self.rho or self.pure or self.approximate or self.moments)

    @property
    def finite(self) -> bool:
        """Whether every cost is finite."""
        return math.isfinite(self.mu_squared + self.rho + self.bounded_epsilon)

    @property
    def concentrated(self) -> Tally:
        """The part without bounded losses: Gaussians, and costs known only as ρ."""
        return Tally(self.mu_squared, self.rho, {}, {}, {})

    @property
    def lone_moment(self) -> MomentCost | None:
        """The only cost, if it is one moment sketch's."""
        others = self.mu_squared or self.rho or self.pure or self.approximate
        return None if others or list(self.moments.values()) != [1] else next(iter(self.moments))

    @property
    def bounded(self) -> bool:
        """Whether every loss is bounded, but for the δ of approximate costs."""
        return not (self.mu_squared or self.rho)

    @property
    def bounded_epsilon(self) -> float:
        """The sum of the bounded losses, correctly rounded."""
        return math.fsum(
            [count * epsilon for epsilon, count in self.pure.items()]
            + [count * epsilon for (epsilon, _), count in self.approximate.items()]
            + [count * moment_epsilon(cost.p, cost.size, cost.ratio) for cost, count in self.moments.items()]
        )

    @property
    def failure(self) -> float:
        """The sum of the approximate costs' δ."""
        return math.fsum(count * delta for (_, delta), count in self.approximate.items())


def check_cost(cost: Cost) -> None:
    """Refuse a cost that no mechanism can have."""
    match cost:
        case PureCost(epsilon):
            good = epsilon >= 0
        case GaussianCost(mu):
            good = mu >= 0
        case ZcdpCost(rho):
            good = rho >= 0
        case ApproximateCost(epsilon, delta):
            good = epsilon >= 0 and 0 <= delta <= 1
        case MomentCost(p, size, ratio):
            good = 0 < p <= 1 and size >= 1 and ratio >= 1 and math.isfinite(ratio)
        case _:
            assert_never(cost)
    if not good:
        raise InvalidInput(f"{cost!r} is not the cost of any mechanism: its numbers are out of range.")
