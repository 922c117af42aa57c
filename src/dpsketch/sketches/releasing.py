"""The one step from sensitive to public: charge the ledger, then draw the noise.

Every kind of sketch releases through the functions here, so that no release can draw noise before its budget is
charged, and none can state a guarantee that its noise was not calibrated for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, assert_never

from dpsketch import accounting
from dpsketch.changes import Changeable
from dpsketch.errors import InvalidInput, SensitiveData
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian, noise_is_for_tests
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, Guarantee, PureCost, Unit, ZcdpCost, requested
from dpsketch.sketches.specs import Sensitivity

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger

__all__ = [
    "AdditiveNoise",
    "ReleasePreview",
    "Sensitive",
    "additive_noise",
    "charge_ledger",
    "combined_guarantee",
    "guarantee",
    "pays_for",
]

# At this δ a release made with ρ also states its (ε, δ).
DELTA_FOR_RHO = 1e-6
_IN_BOTH = "Stated for someone who may be in both releases."


class Sensitive(Changeable):
    """What every sensitive sketch refuses: to be pickled, copied or printed, and to go on when interrupted."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SensitiveData(
            f"a {type(self).__name__} cannot be pickled or copied. release() it to publish, or "
            "to_sensitive_bytes() to ship a partial."
        )


@dataclass(frozen=True, slots=True)
class AdditiveNoise:
    """Noise calibrated to a budget, with the cost and the (ε, δ) it stands for."""

    noise: Noise
    cost: Cost
    epsilon: float
    delta: float
    rho: float | None


@dataclass(frozen=True, slots=True)
class ReleasePreview:
    """What a release would promise and be worth, known before anything is read or spent."""

    guarantee: Guarantee
    noise_scale: float
    predicted_error: float


def additive_noise(
    epsilon: float | None, delta: float | None, rho: float | None, *, l1: int, l2: float
) -> AdditiveNoise:
    """Calibrate integer noise to a budget.

    Parameters
    ----------
    epsilon, delta, rho : float or None
        (ε, δ) with δ > 0 gives rounded Gaussian noise by the analytic calibration; (ε, 0) discrete Laplace noise;
        ρ rounded Gaussian noise.
    l1, l2 : int, float
        Sensitivities of the integer table; ``l2`` must be an upper bound (rounded up where it was computed).

    Privacy
    -------
    A rounded Gaussian on integers is a rounding of the continuous Gaussian mechanism's output, so the analytic
    calibration of Balle and Wang (2018) holds for it without a gap. σ is rounded up.
    """
    match requested(epsilon, delta, rho):
        case PureCost(asked) as cost:
            return AdditiveNoise(DiscreteLaplace(asked, l1), cost, asked, 0.0, None)
        case ApproximateCost(asked, asked_delta):
            mu = accounting.gaussian_mu(asked, asked_delta)
            return AdditiveNoise(_gaussian(l2, mu), GaussianCost(mu), asked, asked_delta, None)
        case ZcdpCost(asked_rho):
            mu = accounting.zcdp_mu(asked_rho)
            stated = accounting.gaussian_epsilon(mu, DELTA_FOR_RHO)
            return AdditiveNoise(_gaussian(l2, mu), GaussianCost(mu), stated, DELTA_FOR_RHO, asked_rho)
        case never:
            assert_never(never)


def _gaussian(l2: float, mu: float) -> RoundedGaussian:
    return RoundedGaussian(math.nextafter(l2 / mu, math.inf))


def pays_for(law: Noise, cost: Cost, bound: Sensitivity) -> bool:
    """Say whether noise of this law costs no more than stated, up to rounding."""
    match law, cost:
        case RoundedGaussian(sigma), GaussianCost(mu):
            return sigma * mu >= bound.l2 * (1 - 1e-12)
        case DiscreteLaplace(epsilon, sensitivity), PureCost(stated):
            return epsilon <= stated and sensitivity >= bound.l1
        case _:
            return False


def charge_ledger(
    ledger: Ledger | str | None, dataset: str | None, costs: tuple[Cost, ...], unit: Unit, note: str
) -> Charge | None:
    """Charge a release to a dataset's budget; must be called before any noise is drawn.

    Without a ledger and a dataset nothing is charged. A dataset alone is charged to the default ledger.
    """
    if ledger is None and dataset is None:
        return None
    if dataset is None:
        raise InvalidInput("a ledger charges a dataset: say dataset='name' as well.")
    from dpsketch.ledger import Ledger

    if ledger is None:
        ledger = Ledger.default()
    elif isinstance(ledger, str):
        ledger = Ledger(ledger)
    return ledger.charge(dataset, costs, unit=unit, note=note)


def guarantee(
    calibrated: AdditiveNoise, unit: Unit, *, caveat: str | None = None, for_tests: bool = False
) -> Guarantee:
    """State what a release with this noise promises; ``for_tests`` if some of it was drawn from a seed before."""
    holds = not (for_tests or noise_is_for_tests())
    if not holds:
        caveat = "the noise came from a seeded source that exists for tests only"
    return Guarantee(
        epsilon=calibrated.epsilon,
        delta=calibrated.delta,
        unit=unit,
        costs=(calibrated.cost,),
        mechanism=calibrated.noise.words,
        rho=calibrated.rho,
        caveat=caveat,
        holds=holds,
    )


def combined_guarantee(first: Guarantee, second: Guarantee, unit: Unit) -> Guarantee:
    """State what two releases promise together to someone who may be in both.

    Each stays under the conditions it was made under: whatever caveat either has, the combination has too.
    """
    costs = first.costs + second.costs
    delta = max(first.delta, second.delta)
    holds = first.holds and second.holds
    # Where one of them promises nothing, only its reason matters.
    parts = [each.caveat for each in (first, second) if holds or not each.holds]
    inherited = [part.replace(_IN_BOTH, "").strip() for part in parts if part]
    caveats = dict.fromkeys(filter(None, [_IN_BOTH, *inherited] if holds else inherited))
    return Guarantee(
        epsilon=accounting.compose(costs, delta=delta),
        delta=delta,
        unit=unit,
        costs=costs,
        mechanism=f"{first.mechanism}; {second.mechanism}",
        caveat=" ".join(caveats) or None,
        holds=holds,
    )
