"""From a budget to the floor that a release adds, and from a wanted error to the size of the sketch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.accounting.momentloss import moment_ratio
from dpsketch.accounting.stable import stable_information
from dpsketch.errors import InvalidInput
from dpsketch.privacy import ApproximateCost, Budget, Cost, MomentCost, PureCost, Unit, ZcdpCost
from dpsketch.sketches.moment.estimators import Estimator, pivot_variance
from dpsketch.sketches.moment.secret import Secret
from dpsketch.sketches.moment.spec import MomentSpec
from dpsketch.sketches.permit import DELTA_FOR_RHO, Calibration, Part

__all__ = ["Floor", "calibrate", "caveat_of", "floors_of", "part_name", "size_for_error"]

_COMPUTATIONAL = (
    "The guarantee is computational: the projection comes from ChaCha20 under a secret key that was drawn for this "
    "release and destroyed with it. The sums were kept in floating point, and only their rounded estimate is released."
)


@dataclass(frozen=True, slots=True)
class Floor:
    """What is added to a sketch's scale before its release, and subtracted again from the estimate.

    Attributes
    ----------
    cost : MomentCost
        What the release costs with this floor.
    height : float
        The floor, in units of F_p.
    digits : int
        To how many digits the scale is rounded.
    """

    cost: MomentCost
    height: float
    digits: int

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return (
            f"{self.cost.size} sums of secret {self.cost.p:g}-stable variates with a floor of {self.height:.4g}, their "
            f"scale rounded to {self.digits} digits"
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing it costs."""
        return (self.cost,)

    def draw(self, sums: npt.NDArray[np.float64], padding: float) -> npt.NDArray[np.float64]:
        """Return the sums with floor and padding, two keys that nobody has, under a secret of their own."""
        raised, p = sums.copy(), self.cost.p
        fresh = Secret.draw()
        try:
            fresh.add(raised, np.arange(2, dtype=np.uint64), np.array([self.height ** (1 / p), padding]), p)
        finally:
            fresh.destroy()
        return raised


def floors_of(calibrated: Calibration) -> list[Floor]:
    """Return the floors of a calibrated release, one for each sketch."""
    return [part.law for part in calibrated.parts if isinstance(part.law, Floor)]


def part_name(p: float) -> str:
    """Return the name of the part of a release that has this moment."""
    return f"F_{p:g}"


def caveat_of(users: str | None) -> str:
    """Return what every release of moments must say, and what this one must of its users."""
    return _COMPUTATIONAL if users is None else f"{_COMPUTATIONAL} {users}"


def calibrate(specs: Sequence[MomentSpec], budget: Budget, estimator: Estimator = "mle") -> Calibration:
    """Find the floors of sketches over one stream that are released together, with one composed charge.

    (ε, δ) with δ > 0 goes by the exact privacy loss, (ε, 0) by its largest value, ρ by its range. All get the same
    share: an equal part of ε or ρ where these add, and otherwise the same μ of the Gaussian mechanism that each is
    close to.
    """
    count = len(specs)
    match budget.cost:
        case PureCost(epsilon):
            delta = 0.0
            ratios = [moment_ratio(s.p, s.size, epsilon / count, 0.0) for s in specs]
        case ApproximateCost(epsilon, delta):
            if count == 1:
                ratios = [moment_ratio(specs[0].p, specs[0].size, epsilon, delta)]
            else:
                ratios = _common_share(specs, epsilon, delta)
        case ZcdpCost(rho):
            epsilon, delta = math.inf, DELTA_FOR_RHO
            ratios = [1 + math.expm1(_shift_for_rho(s, rho / count)) for s in specs]
        case never:
            assert_never(never)
    floors = [_floor(spec, ratio, estimator) for spec, ratio in zip(specs, ratios, strict=True)]
    parts = tuple(Part(part_name(floor.cost.p), floor) for floor in floors)
    costs = tuple(floor.cost for floor in floors)
    if budget.rho is not None:
        epsilon = accounting.compose(costs, delta=DELTA_FOR_RHO)
    return Calibration(parts, costs, epsilon, delta, budget.rho, "; ".join(floor.words for floor in floors))


def size_for_error(
    p: float, unit: Unit, *, moment: float, error: float, epsilon: float, delta: float, estimator: Estimator = "mle"
) -> int:
    """Return the smallest size, to 2%, at which F_p near ``moment`` is estimated with this standard error.

    The error is (F_p + floor)·√variance. As the floor grows with √size, no size brings it below about the error of an
    empty stream; a smaller one is refused, with that limit.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> size_for_error(0.5, per_record(), moment=10_000, error=800, epsilon=1.0, delta=1e-6)
    226
    """
    if not (moment >= 0 and error > 0):
        raise InvalidInput("moment must be at least 0 and error positive.")
    spec = MomentSpec(p, 10, unit)
    while True:
        (found,) = floors_of(calibrate([spec], Budget(epsilon, delta)))
        floor = found.height
        spread = math.sqrt(pivot_variance(p, spec.size, estimator))
        if (moment + floor) * spread <= error:
            return spec.size
        if floor * spread >= error and spec.size >= 100:
            raise InvalidInput(
                f"no size reaches an error of {error:g}: at this budget the floor alone leaves {floor * spread:.3g}. "
                "Allow a larger error or budget."
            )
        # The floor's share of the error hardly depends on the size; the moment's shrinks with it.
        left = error - floor * spread
        wanted = spec.size * (moment * spread / left) ** 2 if left > 0 else 100.0
        spec = MomentSpec(p, math.ceil(min(max(wanted, spec.size * 1.02), 1e6)), unit)
        if spec.size >= 10**6:
            raise InvalidInput("no size up to a million reaches this error. Allow a larger error or budget.")


def _floor(spec: MomentSpec, ratio: float, estimator: Estimator) -> Floor:
    height = spec.floor_for(ratio)
    # Without a floor the ratio is the stream's own, which may be below what the budget allows.
    return Floor(MomentCost(spec.p, spec.size, ratio if height else spec.ratio(0.0)), height, spec.digits(estimator))


def _shift_for_rho(spec: MomentSpec, rho: float) -> float:
    return math.sqrt(8 * rho / spec.size) / (1 + 1 / spec.p) * (1 - 2.0**-46)


def _common_share(specs: Sequence[MomentSpec], epsilon: float, delta: float) -> list[float]:
    """Return ratios at a common μ whose composition stays within (ε, δ)."""

    def ratios(mu: float) -> list[float]:
        return [math.exp(mu / math.sqrt(spec.size * stable_information(spec.p))) for spec in specs]

    def spent(mu: float) -> float:
        costs = [MomentCost(spec.p, spec.size, ratio) for spec, ratio in zip(specs, ratios(mu), strict=True)]
        return accounting.compose(costs, delta=delta)

    high = accounting.gaussian_mu(epsilon, delta) / math.sqrt(len(specs))
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
