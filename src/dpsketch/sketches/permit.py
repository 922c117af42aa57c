"""The only door to noise: what a release draws is declared and paid for before anything is drawn.

A release is made in three steps, and no kind can take them in another order:

1. A spec makes of a budget a :class:`Calibration`: the *parts* that will be drawn, each with its law and with how far
   one unit moves it, and what they cost together.
2. :func:`obtain` checks that the parts cost no more than that, charges a ledger, and returns a :class:`Permit`.
3. The permit draws. Each part is drawn once, now or days later; a part that was drawn, or was never declared, is
   refused. Its :meth:`~Permit.guarantee` is worked out from the laws that were drawn, and refused as long as a part
   is missing, for what carries no noise yet is no release.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, assert_never

from dpsketch import accounting
from dpsketch.arrays import Integers
from dpsketch.core.account import Account
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian, noise_is_for_tests
from dpsketch.privacy import (
    CARELESS_DELTA,
    ApproximateCost,
    Budget,
    Cost,
    GaussianCost,
    Guarantee,
    PureCost,
    Unit,
    ZcdpCost,
)
from dpsketch.processes import OneProcess
from dpsketch.sketches.specs import ReleasePreview, Sensitivity

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = [
    "Calibration",
    "Mechanism",
    "Part",
    "Permit",
    "ReleasePreview",
    "Share",
    "additive",
    "obtain",
]

# At this δ a release made with ρ also states its (ε, δ).
DELTA_FOR_RHO = 1e-6
SEEDED = "the noise came from a seeded source that exists for tests only"

# A trillionth more noise than needed outweighs every rounding here and in the sum of the shares.
_MARGIN = 1 + 1e-12
# What a sum of costs may pass another by, for the rounding of the two.
_SLACK = 1e-11


class Mechanism(Protocol):
    """A part that is not additive noise: a selection, flipped bits, a projection under a secret."""

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing it costs."""

    def draw(self, *data: Any) -> Any:
        """Return what may be published of the data. Called by a permit only."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a release draws as one: additive noise on a table, or a mechanism of its own.

    Attributes
    ----------
    name : str
        What it is, as in "the counters".
    law : Noise or Mechanism
        How it is drawn.
    bound : Sensitivity or None
        For additive noise: how far one unit moves the table.
    copies : int
        So many tables in one, each of which one unit moves by that bound.
    pieces : int
        In so many pieces, each drawn once under a name of its own. The bound is for all of them together.
    """

    name: str
    law: Noise | Mechanism
    bound: Sensitivity | None = None
    copies: int = 1
    pieces: int = 1

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing it costs, for each copy: Δ₂/σ for Gaussian noise, Δ₁/scale for Laplace noise."""
        match self.law:
            case RoundedGaussian(sigma):
                return (GaussianCost(self._bound.l2 / sigma),) * self.copies
            case DiscreteLaplace(epsilon, sensitivity):
                return (PureCost(epsilon * self._bound.l1 / sensitivity),) * self.copies
            case _:
                return self.law.costs

    @property
    def _bound(self) -> Sensitivity:
        if self.bound is None:
            raise InvalidInput(f"{self.name}: additive noise needs a bound on how far one unit moves the table.")
        return self.bound


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a spec makes of a budget.

    Attributes
    ----------
    parts : tuple of Part
        All that the release draws.
    costs : tuple of Cost
        What is charged for them together.
    epsilon, delta, rho
        What is promised.
    words : str
        The mechanism in words.
    either : bool
        Whether one unit moves one of the parts only, so that the dearest of them is the price of all.
    chooses : bool
        Whether parts of it choose the bound on a user's keys, of which a unit can then say that it is chosen.
    """

    parts: tuple[Part, ...]
    costs: tuple[Cost, ...]
    epsilon: float
    delta: float
    rho: float | None
    words: str
    either: bool = False
    chooses: bool = False

    @classmethod
    def stated(cls, promise: Guarantee, *parts: Part) -> Self:
        """Return the calibration that a written guarantee claims for these parts; whether it pays is to be checked."""
        return cls(parts, promise.costs, promise.epsilon, promise.delta, promise.rho, promise.mechanism)

    def part(self, name: str) -> Part:
        """Return the part of this name."""
        for part in self.parts:
            if part.name == name:
                return part
        raise ReleaseRefused(f"{name} is no part that was declared for this release, and must not be drawn.")

    def law(self, name: str) -> Noise:
        """Return the additive noise of the part of this name."""
        law = self.part(name).law
        if not isinstance(law, RoundedGaussian | DiscreteLaplace):
            raise InvalidInput(f"{name} is no part with additive noise.")
        return law

    def guarantee(self, unit: Unit, *, caveat: str | None = None, for_tests: bool | None = None) -> Guarantee:
        """State what a release of all parts promises; ``for_tests`` says whether some of it came from a seed."""
        holds = not (noise_is_for_tests() if for_tests is None else for_tests)
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=unit,
            costs=self.costs,
            mechanism=self.words,
            rho=self.rho,
            caveat=caveat if holds else SEEDED,
            holds=holds,
        )

    @property
    def sound(self) -> bool:
        """Whether the parts cost no more than the costs, and these no more than what is promised."""
        return self.pays_for(self.parts) and self.promised

    @property
    def promised(self) -> bool:
        """Whether the costs come to no more than what is promised."""
        return _promised(self.costs, self.epsilon, self.delta, self.rho)

    def pays_for(self, parts: Iterable[Part]) -> bool:
        """Say whether the costs cover these parts, up to rounding."""
        if self.either:
            return all(_covers(self.costs, part.costs) for part in parts)
        return _covers(self.costs, [cost for part in parts for cost in part.costs])


def _covers(charged: Iterable[Cost], drawn: Iterable[Cost]) -> bool:
    """Say whether costs cover others: Gaussians by the sum of μ², pure ones by their sum, the rest one by one."""
    left = list(charged)
    squares, pure = 0.0, 0.0
    for cost in drawn:
        match cost:
            case _ if cost in left and not isinstance(cost, GaussianCost | PureCost):
                left.remove(cost)
            case GaussianCost(mu):
                squares += mu**2
            case PureCost(epsilon):
                pure += epsilon
            case _:
                return False
    paid_squares = math.fsum(cost.mu**2 for cost in left if isinstance(cost, GaussianCost))
    paid = math.fsum(cost.epsilon for cost in left if isinstance(cost, PureCost))
    return squares <= paid_squares * (1 + _SLACK) and pure <= paid * (1 + _SLACK)


class Share(NamedTuple):
    """How much of a budget additive noise on a table gets.

    Attributes
    ----------
    name, bound
        The table, and how far one unit moves it; an upper bound.
    part : float
        Its part of μ² for Gaussian noise, of ε for Laplace noise. All parts, times their copies, sum to at most 1.
    copies, pieces : int
        As for :class:`Part`; each copy gets that much.
    """

    name: str
    bound: Sensitivity
    part: float = 1.0
    copies: int = 1
    pieces: int = 1


def additive(budget: Budget, *shares: Share, words: str | None = None) -> Calibration:
    """Calibrate integer noise on tables that are released together, each with a share of one budget.

    Parameters
    ----------
    budget : Budget
        (ε, δ) with δ > 0 gives rounded Gaussian noise by the analytic calibration; (ε, 0) discrete Laplace noise;
        ρ rounded Gaussian noise.
    *shares : Share
        The parts, and how much of the budget each gets.
    words : str, optional
        The mechanism in words; the only part's law by default.

    Privacy
    -------
    A rounded Gaussian on integers is a rounding of the continuous Gaussian mechanism's output, so the analytic
    calibration of Balle and Wang (2018) holds for it without a gap; σ is rounded up. Gaussian noise of scale σⱼ on
    parts of L2 sensitivity Δⱼ is one Gaussian mechanism with μ² = Σ Δⱼ²/σⱼ², also where a part depends on what was
    drawn of another (Dong, Roth and Su 2022). Laplace noise on parts costs the sum of their εs.

    Examples
    --------
    >>> found = additive(Budget(1.0, 0), Share("the counters", Sensitivity(5, 3.0)))
    >>> found.law("the counters")
    DiscreteLaplace(epsilon=1.0, sensitivity=5)
    """
    match budget.cost:
        case PureCost(asked) as cost:
            epsilon, delta = asked, 0.0
            laws: list[Noise] = [_laplace(asked, share) for share in shares]
            costs: tuple[Cost, ...] = (cost,)
        case ApproximateCost(asked, asked_delta):
            epsilon, delta = asked, asked_delta
            mu = accounting.gaussian_mu(asked, asked_delta)
            laws = [_gaussian(mu, share) for share in shares]
            costs = (GaussianCost(mu),)
        case ZcdpCost(asked_rho):
            mu = accounting.zcdp_mu(asked_rho)
            epsilon, delta = accounting.gaussian_epsilon(mu, DELTA_FOR_RHO), DELTA_FOR_RHO
            laws = [_gaussian(mu, share) for share in shares]
            costs = (GaussianCost(mu),)
        case never:
            assert_never(never)
    parts = tuple(
        Part(share.name, law, share.bound, share.copies, share.pieces) for share, law in zip(shares, laws, strict=True)
    )
    return Calibration(parts, costs, epsilon, delta, budget.rho, words or parts[0].law.words)


def _gaussian(mu: float, share: Share) -> RoundedGaussian:
    if share.part == 1:
        return RoundedGaussian(math.nextafter(share.bound.l2 / mu, math.inf))
    return RoundedGaussian(share.bound.l2 / (mu * math.sqrt(share.part)) * _MARGIN)


def _laplace(epsilon: float, share: Share) -> DiscreteLaplace:
    return DiscreteLaplace(epsilon if share.part == 1 else epsilon * share.part / _MARGIN, share.bound.l1)


class Permit(OneProcess):
    """A release that is paid for: noise may be drawn from here on. Made by :func:`obtain`."""

    __slots__ = ("_calibration", "_charge", "_drawn", "_for_tests", "_unit")

    def __init__(
        self,
        calibration: Calibration,
        unit: Unit,
        charge: Charge | None,
        *,
        drawn: Iterable[tuple[str, Hashable]] = (),
        for_tests: bool = False,
    ) -> None:
        self._calibration = calibration
        self._unit = unit
        self._charge = charge
        self._drawn: dict[str, set[Hashable]] = {}
        for name, piece in drawn:
            self._drawn.setdefault(name, set()).add(piece)
        self._for_tests = for_tests

    @property
    def calibration(self) -> Calibration:
        """What was paid for."""
        return self._calibration

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, where a ledger was charged."""
        return self._charge

    @property
    def for_tests(self) -> bool:
        """Whether something was drawn from a seeded source."""
        return self._for_tests

    def add_noise(self, table: Integers, part: str, piece: Hashable = None) -> Integers:
        """Return a table with fresh noise of a part's law. Each part, or each piece of it, is drawn once."""
        law = self._calibration.law(part)
        self._take(part, piece)
        noisy: Integers = table + law.sample(table.size).reshape(table.shape)
        return noisy

    def draw(self, part: str, *data: Any, piece: Hashable = None) -> Any:
        """Return what a part's mechanism publishes of the data. Each part, or each piece of it, is drawn once."""
        law = self._calibration.part(part).law
        if isinstance(law, RoundedGaussian | DiscreteLaplace):
            raise InvalidInput(f"{part} is additive noise: use add_noise.")
        self._take(part, piece)
        return law.draw(*data)

    def _take(self, name: str, piece: Hashable) -> None:
        """Mark a piece as drawn, before it is: an interrupted draw may have been seen, and is not drawn again."""
        self._refuse_copy()
        part, drawn = self._calibration.part(name), self._drawn.setdefault(name, set())
        if piece in drawn or len(drawn) >= part.pieces:
            raise ReleaseRefused(f"{name}: its noise was drawn before. It was paid for once, and is drawn once.")
        drawn.add(piece)
        self._for_tests |= noise_is_for_tests()

    def guarantee(self, *, caveat: str | None = None) -> Guarantee:
        """State what was promised, by the laws that were drawn; refused as long as a part was not drawn at all."""
        missing = [part.name for part in self._calibration.parts if part.copies and not self._drawn.get(part.name)]
        if missing:
            raise ReleaseRefused(f"{missing[0]}: no noise was drawn for it, and nothing can be promised without.")
        return self._calibration.guarantee(self._unit, caveat=caveat, for_tests=self._for_tests)


def obtain(
    calibration: Calibration,
    unit: Unit,
    account: Account,
    *,
    note: str,
    once: Sequence[str] = (),
    for_tests: bool = False,
) -> Permit:
    """Charge a release to a dataset's budget, and return the permit to draw its parts.

    Parameters
    ----------
    calibration : Calibration
        What will be drawn, and what it costs.
    unit : Unit
        Whose presence the release hides.
    account : Account
        Where to charge.
    note : str
        What the ledger's row says of the release; public.
    once : sequence of str
        Names of what only one release may be made of, such as a secret. A ledger refuses to pay for it again.
    for_tests : bool
        Whether a secret that was drawn before came from a seeded source.
    """
    if not calibration.pays_for(calibration.parts):
        raise ReleaseRefused("the parts of this release cost more than it would be charged for; nothing was charged.")
    if not calibration.promised:
        raise ReleaseRefused("this release would promise more than its costs come to; nothing was charged.")
    if unit.chosen is not calibration.chooses:
        raise ReleaseRefused(
            "a bound on a user's keys is chosen by parts of a release made for it; nothing was charged."
        )
    names = [part.name for part in calibration.parts]
    if len(set(names)) < len(names):
        raise ReleaseRefused("two parts of this release have one name; nothing was charged.")
    if calibration.delta >= CARELESS_DELTA:
        # Audits and tests draw at a large δ to see rare events, so Python warns where the command line refuses.
        warnings.warn(
            f"δ = {calibration.delta:g} protects hardly anyone: a release that shows each unit whole with this "
            "probability would keep the promise. Choose one far below one over the number of units, such as 1e-6.",
            stacklevel=2,
        )
    charge = account.charge(calibration.costs, unit, note, once)
    return Permit(calibration, unit, charge, for_tests=for_tests)


@lru_cache(maxsize=1024)
def _promised(costs: tuple[Cost, ...], epsilon: float, delta: float, rho: float | None) -> bool:
    """Say whether costs come to no more than what is promised."""
    if rho is not None and not accounting.fits(costs, rho=rho):
        return False
    return accounting.fits(costs, epsilon=epsilon, delta=delta)
