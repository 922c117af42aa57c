"""From a budget to the floor that a release adds, and from a wanted error to the size of the sketch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from dpsketch import accounting
from dpsketch.accounting.momentloss import moment_ratio
from dpsketch.accounting.stable import stable_information
from dpsketch.errors import InvalidInput
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import ApproximateCost, Guarantee, MomentCost, PureCost, Unit, ZcdpCost, requested
from dpsketch.sketches.moment.estimators import Estimator, pivot_variance
from dpsketch.sketches.moment.spec import MomentSpec

__all__ = ["Calibration", "calibrate", "calibrate_together", "size_for_error"]

# At this δ a release made with ρ also states its (ε, δ).
DELTA_FOR_RHO = 1e-6
_CAVEAT = (
    "The guarantee is computational: the projection comes from ChaCha20 under a secret key that was drawn for this "
    "release and destroyed with it. The sums were kept in floating point, and only their rounded estimate is released."
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The floors of one release, what it costs and what it promises.

    Attributes
    ----------
    floors : tuple of float
        What is added to each sketch's scale, and subtracted again from its estimate.
    costs : tuple of MomentCost
        What a ledger composes: one entry a sketch.
    epsilon, delta, rho
        The promise.
    """

    floors: tuple[float, ...]
    costs: tuple[MomentCost, ...]
    epsilon: float
    delta: float
    rho: float | None

    def guarantee(
        self, spec: MomentSpec, estimator: Estimator, *, for_tests: bool | None = None, caveat: str | None = None
    ) -> Guarantee:
        """State the promise; ``spec`` is that of one of the sketches, which differ in p alone."""
        parts = "; ".join(
            f"{cost.size} sums of secret {cost.p:g}-stable variates with a floor of {floor:.4g}, their scale rounded "
            f"to {replace(spec, p=cost.p).digits(estimator)} digits"
            for cost, floor in zip(self.costs, self.floors, strict=True)
        )
        holds = not (noise_is_for_tests() if for_tests is None else for_tests)
        words = _CAVEAT if caveat is None else f"{_CAVEAT} {caveat}"
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=spec.unit,
            costs=self.costs,
            mechanism=parts,
            rho=self.rho,
            caveat=words if holds else "the secret or the floor came from a seeded source that exists for tests only",
            holds=holds,
        )


def calibrate(spec: MomentSpec, epsilon: float | None, delta: float | None, rho: float | None) -> Calibration:
    """Find the floor for one sketch.

    (ε, δ) with δ > 0 goes by the exact privacy loss, (ε, 0) by its largest value, ρ by its range.
    """
    return calibrate_together([spec], epsilon, delta, rho)


def calibrate_together(
    specs: Sequence[MomentSpec], epsilon: float | None, delta: float | None, rho: float | None
) -> Calibration:
    """Find the floors of several sketches over one stream that are released with one composed charge.

    All get the same share: an equal part of ε or ρ where these add, and otherwise the same μ of the Gaussian mechanism
    that each is close to.
    """
    count = len(specs)
    match requested(epsilon, delta, rho):
        case PureCost(asked):
            return _from_ratios(specs, [moment_ratio(s.p, s.size, asked / count, 0.0) for s in specs], asked, 0.0, None)
        case ApproximateCost(asked, asked_delta):
            if count == 1:
                ratios = [moment_ratio(specs[0].p, specs[0].size, asked, asked_delta)]
            else:
                ratios = _common_share(specs, asked, asked_delta)
            return _from_ratios(specs, ratios, asked, asked_delta, None)
        case ZcdpCost(asked_rho):
            ratios = [1 + math.expm1(_shift_for_rho(s, asked_rho / count)) for s in specs]
            found = _from_ratios(specs, ratios, math.inf, DELTA_FOR_RHO, asked_rho)
            return replace(found, epsilon=accounting.compose(found.costs, delta=DELTA_FOR_RHO))
        case never:
            assert_never(never)


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
        floor = calibrate(spec, epsilon, delta, None).floors[0]
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


def _from_ratios(
    specs: Sequence[MomentSpec], ratios: Sequence[float], epsilon: float, delta: float, rho: float | None
) -> Calibration:
    floors = tuple(spec.floor_for(ratio) for spec, ratio in zip(specs, ratios, strict=True))
    # Without a floor the ratio is the stream's own, which may be below what the budget allows.
    costs = tuple(
        MomentCost(spec.p, spec.size, ratio if floor else spec.ratio(0.0))
        for spec, floor, ratio in zip(specs, floors, ratios, strict=True)
    )
    return Calibration(floors, costs, epsilon, delta, rho)


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
