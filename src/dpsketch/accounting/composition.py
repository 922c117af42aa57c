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

**Rényi divergences** take every kind of cost, generic ρ included. At each order α > 1 the divergences of the releases
add. The sum is turned into (ε, δ) by

    ε = R(α) + ln(1 − 1/α) − (ln δ + ln α)/(α − 1)

(Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy", Proposition 12). Every order gives
a valid bound, so the search over orders needs no care to be right.

**Privacy loss distributions**, the laws of ln(P/Q) under P, add when releases compose. Bounded losses are replaced by
their two-point pair (:mod:`dpsketch.accounting.twopoint`). Where these have few enough atoms together, the sum is
exact. Everything else is put on a grid, pessimistically, and composed by dp-accounting.

Two habits of that library are avoided. Its accountant ignores how often randomised response is used: losses are
composed here count by count, and never through its events. It doubles a Gaussian's sensitivity when records are
replaced: our μ already says what the relation does, so each is built as the library's add/remove pair.

Privacy
-------
A mechanism may depend on what was released before it. Whether the *amount* spent next may depend on it as well is
another question. It may, where the whole history is compared in ρ, is Gaussian only, or is a plain sum of ε (Rogers et
al. 2016; Feldman and Zrnic 2021; Smith and Thakurta 2022). For the other bounds the sequence of costs must not depend
on what was released.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, assert_never

import numpy as np

from dpsketch.accounting.gaussian import exact_root, round_up, smallest_epsilon
from dpsketch.accounting.moments import exact_moment_epsilon, has_exact_loss, moment_epsilon, moment_pld, moment_rho
from dpsketch.accounting.twopoint import GridLoss, on_grid, pure_rho, two_point_atoms, two_point_renyi
from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number
from dpsketch.privacy import (
    ApproximateCost,
    Budget,
    Cost,
    GaussianCost,
    MomentCost,
    PureCost,
    Unit,
    ZcdpCost,
    best_guess,
    percentage,
)

__all__ = [
    "ROOM", "Atoms", "Costs", "Tally", "check_cost", "compose", "composed_loss", "fits", "grid_epsilon", "posterior",
    "renyi_epsilon", "rho_of", "tally_rho", "transform_error", "words",
]  # fmt: skip

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


# Covers rounding in the sums over orders, with room to spare.
_ROOM = 1e-9


def tally_rho(tally: Tally) -> float | None:
    """Return the total ρ; None where a cost has none, because its loss is unbounded with some δ."""
    if tally.approximate:
        return None
    return math.fsum(
        [float(tally.mu_squared / 2), tally.rho]
        + [count * pure_rho(epsilon) for epsilon, count in tally.pure.items()]
        + [count * moment_rho(cost.p, cost.size, cost.ratio) for cost, count in tally.moments.items()]
    )


def renyi_epsilon(tally: Tally, delta: float) -> float:
    """Return an ε that holds at δ; infinite where the approximate costs' own δ leave nothing."""
    rest = delta - tally.failure
    if rest <= 0:
        return math.inf

    def bound(alpha: Floats) -> Floats:
        return _curve(tally, alpha) + np.log1p(-1 / alpha) - (math.log(rest) + np.log(alpha)) / (alpha - 1)

    return max(0.0, _least(bound) * (1 + _ROOM))


def _least(bound: Callable[[Floats], Floats]) -> float:
    """Return the smallest value of a bound over orders: a wide grid first, then a fine one around its best point."""
    grid = np.linspace(math.log(1e-6), math.log(1e9), 400)
    best = math.inf
    for _ in range(3):
        with np.errstate(over="ignore"):  # a forged file may state any ε: its bound is infinite, and the file refused
            values = bound(1 + np.exp(grid))
        index = int(np.nanargmin(values))
        best = min(best, float(values[index]))
        grid = np.linspace(grid[max(index - 1, 0)], grid[min(index + 1, len(grid) - 1)], 60)
    return best


def _curve(tally: Tally, alpha: Floats) -> Floats:
    """Return the summed Rényi divergence at each order."""
    total = alpha * (float(tally.mu_squared / 2) + tally.rho)
    for epsilon, count in tally.pure.items():
        total = total + count * two_point_renyi(alpha, epsilon, epsilon)
    for (epsilon, _), count in tally.approximate.items():
        total = total + count * two_point_renyi(alpha, epsilon, epsilon)
    for cost, count in tally.moments.items():
        shift = math.log(cost.ratio)
        worst = np.maximum(two_point_renyi(alpha, shift / cost.p, shift), two_point_renyi(alpha, shift, shift / cost.p))
        total = total + count * cost.size * worst
    return total


# Exact sums are made of at most so many atoms, and used down to this δ.
_MOST_ATOMS = 50_000
_LEAST_EXACT = 1e-250
# Covers the rounding of probabilities, which is relative and far smaller.
ROOM = 1e-9
_LEAST_ON_GRID = 1e-9
# The grid has so many steps in one standard deviation of the composed loss.
_STEPS = 1000
# Below the first deviation the library's differences of normal probabilities lose their digits; above the second, where
# ε is in the hundreds, its exponentials overflow.
_LEAST_DEVIATION = 1e-4
_MOST_DEVIATION = 25.0
# A Gaussian part below this, far below that of any release, has a standard deviation whose square overflows.
_LEAST_MU_SQUARED = 1e-200


@dataclass(frozen=True, slots=True)
class Atoms:
    """The exact loss distribution of pure and approximate costs.

    Attributes
    ----------
    loss, mass : numpy.ndarray
        The positive losses, and their probabilities under P where no cost fails.
    infinity : float
        The probability that an approximate cost fails.
    """

    loss: Floats
    mass: Floats
    infinity: float

    @classmethod
    def of(cls, tally: Tally) -> Atoms | None:
        """Build the distribution; None where it has too many atoms or other kinds of cost are present."""
        pairs = _pairs(tally)
        if not tally.bounded or tally.moments or math.prod(count + 1 for count in pairs.values()) > _MOST_ATOMS:
            return None
        loss, mass = np.zeros(1), np.ones(1)
        for epsilon, count in pairs.items():
            losses, masses = two_point_atoms(epsilon, epsilon, count)
            loss = np.add.outer(loss, losses).ravel()
            mass = np.multiply.outer(mass, masses).ravel()
        # Only losses above ε ≥ 0 count towards δ(ε).
        return cls(loss[loss > 0], mass[loss > 0], _failure(tally))

    def delta(self, epsilon: float) -> float:
        """Return δ(ε), a billionth above its value."""
        above = self.loss > epsilon
        gap = -np.expm1(epsilon - self.loss[above])
        return self.infinity + (1 - self.infinity) * float(gap @ self.mass[above]) * (1 + ROOM)

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε with δ(ε) ≤ ``delta``; infinite where there is none or δ is too small to tell."""
        if delta < max(self.infinity, _LEAST_EXACT):
            return math.inf
        low, high = 0.0, float(self.loss.max(initial=0.0))
        if self.delta(low) <= delta:
            return low
        while (middle := (low + high) / 2) not in (low, high):
            if self.delta(middle) <= delta:
                high = middle
            else:
                low = middle
        return high


def grid_epsilon(tally: Tally, delta: float) -> float:
    """Return ε at δ by dp-accounting; infinite where a grid cannot tell."""
    rest = (delta - transform_error(tally)) / (1 + ROOM)
    pld = composed_loss(tally) if delta >= _LEAST_ON_GRID and rest > 0 else None
    return math.inf if pld is None else float(pld.get_epsilon_for_delta(rest)) * (1 + ROOM)


def transform_error(tally: Tally) -> float:
    """Return more than the convolutions by FFT can be wrong by: each by about 1e-15, over all its points together."""
    return 1e-12 + 1e-14 * (len(tally.pure) + len(tally.approximate) + len(tally.moments))


def _pairs(tally: Tally) -> dict[float, int]:
    """Return how often each randomised response occurs, those inside approximate costs included."""
    pairs = Counter(tally.pure)
    for (epsilon, _), count in tally.approximate.items():
        pairs[epsilon] += count
    pairs.pop(0.0, None)
    return dict(pairs)


def _failure(tally: Tally) -> float:
    """Return the probability that at least one approximate cost fails."""
    if any(delta == 1 for _, delta in tally.approximate):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-delta) for (_, delta), count in tally.approximate.items()))


def _deviation(tally: Tally) -> float:
    """Return roughly the standard deviation of the composed loss."""
    pairs = _pairs(tally)
    rest = Tally(tally.mu_squared, tally.rho, pairs, {}, tally.moments)
    return math.sqrt(2 * (tally_rho(rest) or 0.0))


def composed_loss(tally: Tally) -> Any:
    """Return dp-accounting's distribution of the whole history, or None where a grid is of no use."""
    deviation = _deviation(tally)
    if tally.rho or not _LEAST_DEVIATION < deviation < _MOST_DEVIATION or 0 < tally.mu_squared < _LEAST_MU_SQUARED:
        return None
    from dp_accounting.pld import privacy_loss_distribution as library

    interval = deviation / _STEPS
    parts = [
        _library(on_grid(*two_point_atoms(epsilon, epsilon, count), interval))
        for epsilon, count in _pairs(tally).items()
    ]
    for cost, count in tally.moments.items():
        parts.append(_either_way(*moment_pld(cost.p, cost.size, cost.ratio, interval)).self_compose(count))
    if tally.mu_squared:
        deviation = math.nextafter(1 / round_up(exact_root(tally.mu_squared)), 0.0)
        parts.append(library.from_gaussian_mechanism(deviation, value_discretization_interval=interval))
    failure = _failure(tally)
    if failure:
        parts.append(_library(GridLoss(interval, 0, np.full(1, 1 - failure), failure)))
    while len(parts) > 1:
        # Pairwise, so that many small distributions stay small for as long as they can.
        joined = [one.compose(other, 1e-16) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[2 * len(joined) :]
    return parts[0]


def _library(loss: GridLoss) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as library

    points = range(loss.start, loss.start + len(loss.mass))
    return library.PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(points, loss.mass.tolist(), strict=True)), loss.infinity, loss.interval
    )


def _either_way(one: GridLoss, other: GridLoss) -> Any:
    """Return a distribution that dominates both.

    Which of the two moments is the larger one may differ from release to release (a value can be taken away, or
    replaced), so that composing each direction with itself would not do. The larger of two δ(ε) is convex, hence the
    δ(ε) of some pair of laws.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library

    start = min(one.start, other.start)
    stop = max(one.start + len(one.mass), other.start + len(other.mass))
    deltas = np.maximum(_profile(one, start, stop), _profile(other, start, stop))
    return library.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(one.interval, start, stop - 1, np.minimum(deltas, 1.0))
    )


def _profile(loss: GridLoss, start: int, stop: int) -> Floats:
    """Return δ(ε) at the grid points from ``start`` to ``stop`` − 1, as a sum of positive terms only."""
    from scipy.signal import lfilter

    mass = np.zeros(stop - start)
    mass[loss.start - start : loss.start - start + len(loss.mass)] = loss.mass
    # From right to left: what lies above a point, each part shrunk by e^−(its distance), times 1 − e^−step, adds to δ.
    shrink = math.exp(-loss.interval)
    above = lfilter([1.0], [1.0, -shrink], mass[::-1])
    sums = np.concatenate([[0.0], np.cumsum(above[:-1])])
    return np.asarray(loss.infinity - math.expm1(-loss.interval) * sums[::-1])


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


def posterior(prior: float, epsilon: float) -> float:
    """Return the most an attacker's belief can become from ``prior`` under pure ε, when the odds grow by e^ε.

    Examples
    --------
    >>> round(posterior(0.01, 1.0), 4)
    0.0267
    """
    prior, epsilon = real_number("prior", prior), real_number("epsilon", epsilon)
    if epsilon < 0:
        raise InvalidInput(f"epsilon must be at least 0, not {epsilon!r}.")
    if not 0 <= prior <= 1:
        raise InvalidInput(f"a prior is a probability between 0 and 1, not {prior!r}.")
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def words(epsilon: float, delta: float = 0.0, unit: Unit | None = None) -> str:
    """Say what (ε, δ) means as how often an attacker is right, before and after.

    Parameters
    ----------
    epsilon, delta : float
        What was spent.
    unit : Unit, optional
        Whose presence is hidden. Without it the sentence speaks of two datasets that are one unit apart.

    Examples
    --------
    >>> import textwrap
    >>> from dpsketch.privacy import per_record
    >>> print(textwrap.fill(words(1.0, 1e-6, per_record()), width=115))
    An attacker who knows everything else and guesses whether any one record is in the data is right 50% of the time
    before, and at most 73.2% of the time after seeing every release.
    """
    secret = "which of two datasets, one unit apart, is the true one" if unit is None else unit.secret
    # Rounded up, so that the sentence promises no more than the number.
    sentence = (
        f"An attacker who knows everything else and guesses {secret} is right 50% of the time before, and at most "
        f"{percentage(best_guess(epsilon, delta))} of the time after seeing every release."
    )
    if delta == 0:
        sentence += f" A belief of 1% becomes at most {percentage(posterior(0.01, epsilon))}."
    return sentence
