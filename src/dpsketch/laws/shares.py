"""Shares of Gaussian noise: how much each of several parties adds, and what the sum of their noises guarantees.

Of n parties at least h are honest: they add their noise and keep it to themselves. Each adds rounded Gaussian noise of
variance s² = σ²/h, so that the honest ones' sum hides a record as one rounded Gaussian of variance σ² would.

**The gap.** A sum of rounded Gaussians is not quite a rounded Gaussian. Let everything be in grid units, P the law of
the sum of h independent round(N(0, s²)), and Q the law of round(N(0, hs²) + U₂ + … + U_h) with U uniform on [−½, ½].
Adding independent noise and rounding are post-processing, so Q on integer counters is at least as private as the
Gaussian mechanism of variance hs². And P is all but equal to Q:

1. round(N(0, s²)) has at integers the density g of N(0, s²) + U, and Q that of the h-fold convolution of g. So, by
   Poisson's summation formula, their characteristic functions are (Σ_m ĝ(θ + 2πm))^h for P, and Σ_m ĝ(θ + 2πm)^h for Q,
   where |ĝ(t)| ≤ e^{−s²t²/2}. The difference D has the products of not all equal m only.
2. Every such product has two factors with different m. With a_m = e^{−s²(θ + 2πm)²/2},
   |D| ≤ h(h−1)/2 · Σ_{i≠j} a_i·a_j · (Σ_m a_m)^{h−2}.
3. x² + y² = (x + y)²/2 + (x − y)²/2 turns Σ_{i≠j} a_i·a_j into Σ_{d≠0} e^{−π²s²d²} times a sum of e^{−s²(θ + πe)²}
   over e of d's parity. Sums of this kind are largest where a term is 1, and then below 1.001 for s ≥ 1. So
   |D| ≤ M = 1.1·h²·e^{−π²s²}, as long as h·e^{−2π²s²} < 0.01.
4. Therefore |P(k) − Q(k)| ≤ M for each k. Beyond K = h/2 + s·√(2h·ln(1/M)) either law has at most 2M (both stray from
   N(0, hs²) by at most h/2). Hence the total variation η = ½·Σ|P − Q| ≤ (K + 2.5)·M.

Whoever replaces P by Q in each of the counters that one unit moves errs by η a counter on either side, so (ε, δ) for Q
is (ε, δ + (1 + e^ε)·η·counters) for P. With shares of s ≥ 4 grid units this is below 10⁻⁵⁰ for any number of parties
one can have; the grid is made finer until they are. The published sum is rounded back to the sketch's own grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, assert_never

from dpsketch import accounting
from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.drawn import DELTA_FOR_RHO
from dpsketch.core.laws import Arrays, OneTable, are_integers
from dpsketch.core.move import Distance
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Budget, Cost, GaussianCost, PureCost, Unit, ZcdpCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["MergedShares", "OneShare", "Share", "ShareState", "SharedNoise", "sum_gap"]

# A share's σ is at least so many grid units.
_LEAST_SIGMA = 4.0
# The gap that is charged to a ledger covers compositions up to this ε, or twice the release's own.
_COMPOSED_EPSILON = 30.0


@stored
@dataclass(frozen=True, slots=True)
class Share:
    """How several parties share the noise of one release.

    Attributes
    ----------
    parties : int
        How many parties release a share each.
    honest : float
        The fraction of them that is sure to be honest: to add its noise and to keep it to itself. 1.0 trusts all. The
        smaller it is, the more noise each party adds.
    party : int or None
        Which of them this one is, from 0 on. Two shares of one party are never merged. None draws a random name, which
        recognises the same file given twice but not a second release.
    """

    parties: int
    honest: float
    party: int | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "parties", low=1, high=10**6)
        hold_real(self, "honest")
        if not 0 < self.honest <= 1:
            raise InvalidInput("honest must be a fraction above 0 and at most 1: 0.8 if four parties in five are sure.")
        hold_whole(self, "party", low=0, high=self.parties - 1, optional=True)

    @property
    def honest_parties(self) -> int:
        """At least so many are honest: a whole number, so a fraction of a party is rounded up."""
        return max(1, math.ceil(self.parties * self.honest - 1e-9))


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """A budget turned into shares of noise.

    Attributes
    ----------
    mu : float
        The whole: L2 distance over the standard deviation of the honest parties' noise together.
    sigma : float
        Standard deviation of one share, in the sketch's grid units.
    finer : int
        A share is counted in grid units divided by this.
    gap : float
        What the sum of rounded shares adds to δ at any ε that a composition may reach.
    """

    mu: float
    sigma: float
    finer: int
    gap: float

    @classmethod
    def of(cls, budget: Budget, share: Share, distance: Distance) -> Self:
        """Calibrate shares to the budget of the whole; one unit moves at most as many counters as its L1 norm."""
        honest = share.honest_parties
        match budget.cost:
            case PureCost():
                raise InvalidInput("shares are Gaussian noise: give delta= above 0, or rho=.")
            case ApproximateCost(asked, stated):
                gap = _charged_gap(max(_COMPOSED_EPSILON, 2 * asked), honest, distance.l1)
                left = math.nextafter(stated - gap, 0.0)
                if left <= 0:
                    raise InvalidInput(f"delta must be above {gap:.1g}, by which a sum of shares may differ from one.")
                mu = accounting.gaussian_mu(asked, left)
            case ZcdpCost(asked):
                gap = _charged_gap(_COMPOSED_EPSILON, honest, distance.l1)
                mu = accounting.zcdp_mu(asked)
            case never:
                assert_never(never)
        # A trillionth more than needed outweighs every rounding, here and where shares are counted together.
        sigma = distance.l2 / (mu * math.sqrt(honest)) * (1 + 1e-12)
        finer = 1
        while sigma * finer < _LEAST_SIGMA:
            finer *= 2
        return cls(mu, sigma, finer, gap)


@dataclass(frozen=True, slots=True)
class _Shared(OneTable):
    """What a share and a sum of shares have in common."""

    share: Share
    whole: Budget

    def __post_init__(self) -> None:
        if self.share.party is not None:
            raise InvalidInput("the law of a share names no party.")
        _ = self.shared  # refuses a budget that cannot be shared

    @property
    def shared(self) -> SharedNoise:
        """The noise of one share."""
        return SharedNoise.of(self.whole, self.share, self.table.between(self.neighbours))

    @property
    def delta(self) -> float:
        """The δ of the promise."""
        return DELTA_FOR_RHO if self.whole.delta is None else float(self.whole.delta)


@stored
@dataclass(frozen=True, slots=True)
class OneShare(_Shared):
    """One party's share of the noise on the counters, which are counted in finer steps.

    A single share is one rounded Gaussian: nothing is lost to the gap, but its noise is less than the whole's.
    """

    @property
    def noise(self) -> RoundedGaussian:
        """The noise of one counter, in the finer steps."""
        return RoundedGaussian(self.shared.sigma * self.shared.finer)

    @property
    def words(self) -> str:
        """The noise in a phrase."""
        return self.noise.words

    def slots(self) -> Mapping[str, Any]:
        """Return the noise."""
        return {"noise": self.noise}

    def costs(self) -> tuple[Cost, ...]:
        """Return what this share costs by itself."""
        return (GaussianCost(math.nextafter(self.table.between(self.neighbours).l2 / self.shared.sigma, math.inf)),)

    @property
    def asked(self) -> Budget:
        """The budget that a share alone comes to."""
        (cost,) = self.costs()
        assert isinstance(cost, GaussianCost)
        return Budget(accounting.gaussian_epsilon(cost.mu, self.delta), self.delta)

    def caveat(self, unit: Unit) -> str:
        """Say that the promise is that of one share."""
        return f"This is one of {self.share.parties} shares, and the guarantee is that of this share by itself."

    def draw(self, state: ShareState, handle: Handle) -> Arrays:
        """Return the counters in finer steps with noise, the party's name, and the names of its partials."""
        if state.table.shape != self.table.shape:
            raise ReleaseRefused(f"{self.name}: the state has another shape than the table that was paid for.")
        table = handle.add(state.table * self.shared.finer, "noise")
        return {"table": table, "party": [state.party], "partials": list(state.partials)}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are counters, a party and partials."""
        if set(arrays) != {"table", "party", "partials"} or len(arrays["party"]) != 1:
            return False
        named = all(isinstance(arrays[name], list) for name in ("party", "partials"))
        texts = named and all(isinstance(each, str) for each in (*arrays["party"], *arrays["partials"]))
        return texts and are_integers(arrays, "table", self.table.shape)


@dataclass(frozen=True, slots=True, eq=False)
class ShareState:
    """What a share is drawn from. Sensitive."""

    table: Integers
    party: str
    partials: tuple[str, ...]


@stored
@dataclass(frozen=True, slots=True)
class MergedShares(_Shared):
    """The noise of all shares that are present together, in grid units; each was drawn by its own party.

    A share that is missing may have been an honest party's, so that it is taken off the honest ones. At least one
    honest party must be left.
    """

    present: int

    def __post_init__(self) -> None:
        _Shared.__post_init__(self)
        hold_whole(self, "present", low=1, high=self.share.parties)
        if self.share.parties - self.present >= self.share.honest_parties:
            raise InvalidInput("no honest party is sure to be left among these shares.")
        stated = self.asked.epsilon if self.present < self.share.parties else None
        if stated is not None and stated > max(_COMPOSED_EPSILON, 2 * (self.whole.epsilon or 0)):
            raise ReleaseRefused("too few shares are present: their sum would promise next to nothing.")

    @property
    def noise(self) -> RoundedGaussian:
        """The noise of one counter; each share's rounding adds a twelfth of its step squared, the law has the sum's."""
        shared = self.shared
        rounding = 1 / 12 if shared.finer == 1 else 0.0
        return RoundedGaussian(math.sqrt(self.present * (shared.sigma**2 + 1 / (12 * shared.finer**2)) - rounding))

    @property
    def words(self) -> str:
        """The shares in a phrase."""
        one = RoundedGaussian(self.shared.sigma * self.shared.finer)
        steps = "the grid" if self.shared.finer == 1 else f"1/{self.shared.finer} of the grid"
        return f"{self.present} shares of {one.words} each, in steps of {steps}"

    def slots(self) -> Mapping[str, Any]:
        """Return nothing: no permit draws this law."""
        return {}

    def costs(self) -> tuple[Cost, ...]:
        """Return what the shares cost together; the gap of their sum is a δ."""
        shared, honest = self.shared, self.share.honest_parties
        remaining = honest - (self.share.parties - self.present)
        mu = shared.mu if remaining == honest else shared.mu * math.sqrt(honest / remaining) * (1 + 1e-15)
        gap = (ApproximateCost(0.0, shared.gap),) if shared.gap else ()
        return (GaussianCost(mu), *gap)

    @property
    def asked(self) -> Budget:
        """The budget that the shares come to; if a sum of shares has to hide a unit, no ρ holds because of the gap."""
        cost, shared = self.costs()[0], self.shared
        assert isinstance(cost, GaussianCost)
        if self.present == self.share.parties and (self.whole.epsilon is not None or not shared.gap):
            return self.whole
        left = math.nextafter(self.delta - shared.gap, 0.0)
        return Budget(accounting.gaussian_epsilon(cost.mu, left), self.delta)

    def caveat(self, unit: Unit) -> str:
        """Return which parties must be honest, and what nobody checked."""
        honest = self.share.honest_parties - (self.share.parties - self.present)
        words = (
            f"It holds against whoever sees the merged release and no single share, if at least {honest} of the "
            f"{self.present} parties added their noise and keep it to themselves."
        )
        if unit.level == "user":
            words += " That no user is at two parties is the parties' statement; it was not checked."
        return words

    def draw(self, state: Any, handle: Handle) -> Arrays:
        """Refuse: the parties drew the shares."""
        raise ReleaseRefused("shares are drawn by their parties.")

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are counters."""
        return set(arrays) == {"table"} and are_integers(arrays, "table", self.table.shape)


def sum_gap(sigma: float, parties: int) -> float:
    """Bound the total variation between a sum of rounded Gaussians and a law that is as private as a Gaussian.

    Parameters
    ----------
    sigma : float
        Standard deviation of each, in grid units, at least 1.
    parties : int
        How many are summed.

    Returns
    -------
    float
        The bound η of the module's docstring; 0 for a single one.

    Examples
    --------
    >>> sum_gap(4.0, 10) < 1e-64
    True
    """
    if parties == 1:
        return 0.0
    exponent = math.pi**2 * sigma**2
    if sigma < 1 or parties * math.exp(-2 * exponent) >= 0.01:
        raise InvalidInput("the bound on a sum of shares needs a sigma of at least 1 grid unit.")
    logarithm = math.log(1.1 * parties**2) - exponent
    if logarithm >= 0:
        return 1.0
    reach = parties / 2 + sigma * math.sqrt(-2 * parties * logarithm)
    return min(1.0, (reach + 2.5) * math.exp(logarithm) * (1 + 1e-9))


def _charged_gap(epsilon: float, honest: int, cells: int) -> float:
    """Return what replacing the law of the sum costs in δ, at any ε up to the one given.

    The gap shrinks with σ, faster than its own factors grow, so the least σ gives a bound for all.
    """
    return (1 + math.exp(min(epsilon, 700.0))) * cells * sum_gap(_LEAST_SIGMA, honest)
