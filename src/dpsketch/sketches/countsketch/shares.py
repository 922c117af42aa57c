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
from dataclasses import dataclass
from typing import Any, Self

from dpsketch import accounting
from dpsketch.errors import InvalidInput
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Budget, GaussianCost, PureCost, ZcdpCost
from dpsketch.sketches.countsketch.spec import COUNTERS
from dpsketch.sketches.permit import DELTA_FOR_RHO, Calibration, Part
from dpsketch.sketches.specs import Sensitivity

__all__ = ["Share", "ShareTerms", "SharedNoise", "sum_gap"]

# A share's σ is at least so many grid units.
_LEAST_SIGMA = 4.0
# The gap that is charged to a ledger covers compositions up to this ε, or twice the release's own.
_COMPOSED_EPSILON = 30.0


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
class ShareTerms:
    """What a share says of the whole that it belongs to: equal in all shares that may be merged, but for the name.

    Attributes
    ----------
    parties, honest : int, float
        As in :class:`Share`.
    epsilon, delta, rho : float or None
        The budget of the whole.
    finer : int
        A share is counted in the sketch's grid divided by this power of two.
    name : str
        The party's number, or a random name.
    names : tuple of str
        Public names of the partials in the sketch (:func:`~dpsketch.sketches.partials.public_names`): two shares that
        have one in common hold the same records. Empty in files from before there were any.
    """

    parties: int
    honest: float
    epsilon: float | None
    delta: float | None
    rho: float | None
    finer: int
    name: str
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        share = self.share  # refuses parties and fractions that there cannot be
        object.__setattr__(self, "parties", share.parties)
        object.__setattr__(self, "honest", share.honest)
        hold_real(self, "epsilon", "delta", "rho", optional=True)
        Budget(self.epsilon, self.delta, self.rho)
        hold_whole(self, "finer", low=1, high=2**40)
        if not isinstance(self.name, str):
            raise InvalidInput("a share's name is text.")
        if not all(isinstance(each, str) for each in self.names):
            raise InvalidInput("the names of a share's partials are text.")
        object.__setattr__(self, "names", tuple(self.names))

    @property
    def share(self) -> Share:
        """The share that was asked for, without its party."""
        return Share(self.parties, self.honest)

    @property
    def budget(self) -> Budget:
        """The budget of the whole."""
        return Budget(self.epsilon, self.delta, self.rho)

    @property
    def common(self) -> tuple[object, ...]:
        """All but the names."""
        return (self.parties, self.honest, self.epsilon, self.delta, self.rho, self.finer)

    def to_json(self) -> dict[str, Any]:
        """Return the terms as JSON-ready values."""
        terms = {name: getattr(self, name) for name in self.__slots__}
        names = terms.pop("names")
        return {**terms, "names": list(names)} if names else terms

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild terms from :meth:`to_json`."""
        return cls(**value)


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """A budget turned into shares of noise.

    Attributes
    ----------
    share : Share
        Among whom.
    bound : Sensitivity
        How far one unit moves the integer table.
    mu : float
        The whole: L2 sensitivity over the standard deviation of the honest parties' noise together.
    sigma : float
        Standard deviation of one share, in the sketch's grid units.
    finer : int
        A share is counted in grid units divided by this.
    delta : float
        The δ of the promise.
    gap : float
        What the sum of rounded shares adds to δ at any ε that a composition may reach.
    rho : float or None
        The budget, where it was a ρ.
    """

    share: Share
    bound: Sensitivity
    mu: float
    sigma: float
    finer: int
    delta: float
    gap: float
    rho: float | None

    @classmethod
    def of(cls, budget: Budget, share: Share, bound: Sensitivity) -> Self:
        """Calibrate shares to a budget.

        Parameters
        ----------
        budget : Budget
            That of the whole.
        share : Share
            Among whom.
        bound : Sensitivity
            How far one unit moves the integer table; it moves at most as many counters as its L1 norm.
        """
        honest = share.honest_parties
        match budget.cost:
            case PureCost():
                raise InvalidInput("shares are Gaussian noise: give delta= above 0, or rho=.")
            case ApproximateCost(asked, stated):
                gap = _charged_gap(max(_COMPOSED_EPSILON, 2 * asked), honest, bound.l1)
                left = math.nextafter(stated - gap, 0.0)
                if left <= 0:
                    raise InvalidInput(f"delta must be above {gap:.1g}, by which a sum of shares may differ from one.")
                mu = accounting.gaussian_mu(asked, left)
            case ZcdpCost(asked):
                gap, stated = _charged_gap(_COMPOSED_EPSILON, honest, bound.l1), DELTA_FOR_RHO
                mu = accounting.zcdp_mu(asked)
        # A trillionth more than needed outweighs every rounding, here and where shares are counted together.
        sigma = bound.l2 / (mu * math.sqrt(honest)) * (1 + 1e-12)
        finer = 1
        while sigma * finer < _LEAST_SIGMA:
            finer *= 2
        return cls(share, bound, mu, sigma, finer, stated, gap, budget.rho)

    def alone(self) -> Calibration:
        """Return a share's noise, in its finer units, with what it costs and promises by itself.

        A single share is one rounded Gaussian: nothing is lost to the gap, but its noise is less than the whole's.
        """
        mu = math.nextafter(self.bound.l2 / self.sigma, math.inf)
        law = RoundedGaussian(self.sigma * self.finer)
        part = Part(COUNTERS, law, Sensitivity(self.bound.l1 * self.finer, self.bound.l2 * self.finer))
        epsilon = accounting.gaussian_epsilon(mu, self.delta)
        return Calibration((part,), (GaussianCost(mu),), epsilon, self.delta, None, law.words)

    def together(self, present: int) -> Calibration:
        """Return the noise of so many shares, in grid units, with what they cost and promise together.

        Each share that is missing may have been an honest party's, so it is taken off the honest ones. At least one
        honest party must be left.
        """
        honest = self.share.honest_parties
        remaining = honest - (self.share.parties - present)
        mu = self.mu
        if remaining < honest:
            mu *= math.sqrt(honest / remaining) * (1 + 1e-15)
        # The gap is a δ, and ρ-zCDP has none: of a sum of shares no ρ holds exactly.
        rho = None if self.gap else self.rho
        epsilon = accounting.gaussian_epsilon(mu, math.nextafter(self.delta - self.gap, 0.0))
        # A share's own rounding adds a twelfth of its unit squared; that of the sum is in the law already.
        variance = present * (self.sigma**2 + 1 / (12 * self.finer**2)) - (1 / 12 if self.finer == 1 else 0.0)
        law = RoundedGaussian(math.sqrt(variance))
        return Calibration((Part(COUNTERS, law),), (GaussianCost(mu),), epsilon, self.delta, rho, law.words)


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
