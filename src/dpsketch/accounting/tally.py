"""A history of costs, sorted by kind and counted: what every way of composing starts from."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, assert_never

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
        """The sum of the bounded losses, correctly rounded; infinite where no float holds it."""
        losses = [count * epsilon for epsilon, count in self.pure.items()]
        losses += [count * epsilon for (epsilon, _), count in self.approximate.items()]
        if self.moments:
            from dpsketch.accounting.moment import moment_epsilon

            losses += [count * moment_epsilon(cost.p, cost.size, cost.ratio) for cost, count in self.moments.items()]
        try:
            return math.fsum(losses)
        except OverflowError:
            return math.inf

    @property
    def failure(self) -> float:
        """The sum of the approximate costs' δ."""
        return math.fsum(count * delta for (_, delta), count in self.approximate.items())


def check_cost(cost: Cost) -> None:
    """Refuse a cost that no mechanism can have: a number out of range, or past what a float holds."""
    match cost:
        case PureCost(epsilon):
            good = _in_range(epsilon, 0, math.inf)
        case GaussianCost(mu):
            good = _in_range(mu, 0, math.inf)
        case ZcdpCost(rho):
            good = _in_range(rho, 0, math.inf)
        case ApproximateCost(epsilon, delta):
            good = _in_range(epsilon, 0, math.inf) and _in_range(delta, 0, 1)
        case MomentCost(p, size, ratio):
            good = _in_range(p, 0, 1) and p > 0 and isinstance(size, Integral) and _in_range(size, 1, 1 << 62)
            good = good and _in_range(ratio, 1, sys.float_info.max)
        case _:
            assert_never(cost)
    if not good:
        raise InvalidInput(f"a {type(cost).__name__} of this size is no mechanism's: its numbers are out of range.")


def _in_range(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    # Python compares integers of any length with infinity.
    return number and bool(low <= value <= high) and not (isinstance(value, int) and value > sys.float_info.max)
