"""State the public specs of one moment and of several, and choose the lowest floors that a budget allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch._compiled.moment import aggregate
from dpsketch.accounting.moments import (
    LARGEST_BELOW_ONE,
    SMALLEST_P,
    exact_moment_epsilon,
    has_exact_loss,
    stable_information,
)
from dpsketch.bounding import CountedUsers, bound
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyBatch, KeyType
from dpsketch.laws.scales import ScaleEstimator, pivot_variance
from dpsketch.laws.stable import ROOM, Floor, Weights
from dpsketch.numbers import hold_real, hold_whole, real_number
from dpsketch.privacy import ApproximateCost, Budget, MomentCost, Neighbours, PureCost, Unit, ZcdpCost
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec
from dpsketch.sketches.weights import WeightGrid, checked_total, real_numbers, whole_counts


def floors_for(
    budget: Budget, neighbours: Neighbours, tables: Sequence[Weights], estimator: ScaleEstimator
) -> tuple[Floor, ...]:
    """Return the floors of moments of one stream that are released together.

    (ε, δ) with δ > 0 goes by the exact privacy loss, (ε, 0) by its largest value, ρ by its range. All get the same
    share: an equal part of ε or ρ where these add, and otherwise the same μ of the Gaussian mechanism that each is
    close to.
    """
    count = len(tables)
    match budget.cost:
        case PureCost(epsilon):
            ratios = [moment_ratio(each.p, each.sums, epsilon / count, 0.0) for each in tables]
        case ApproximateCost(epsilon, delta) if count == 1:
            ratios = [moment_ratio(tables[0].p, tables[0].sums, epsilon, delta)]
        case ApproximateCost(epsilon, delta):
            ratios = _common_share(tables, epsilon, delta)
        case ZcdpCost(rho):
            ratios = [1 + math.expm1(_shift_for_rho(each, rho / count)) for each in tables]
        case never:
            assert_never(never)
    return tuple(_least(table, neighbours, ratio, estimator) for table, ratio in zip(tables, ratios, strict=True))


@lru_cache(maxsize=256)
def moment_ratio(p: float, size: int, epsilon: float, delta: float) -> float:
    """Return the largest ratio of scales for which a moment sketch is (ε, δ)-private, to about 1e-6, rounded down.

    With δ = 0 it is the pure bound's. Where δ is too small for the exact loss (about ``size``·4e-15) it is that of the
    bounded range, by ρ + 2√(ρ·ln(1/δ)) ≤ ε (Bun and Steinke 2016).

    Examples
    --------
    >>> ratio = moment_ratio(0.5, 200, 1.0, 1e-6)
    >>> round(1 / (ratio - 1), 1)  # the floor in units of one record's largest effect
    51.4
    """
    pure = 1 + math.expm1(min(epsilon * p / size, 700.0)) * (1 - 2.0**-40)
    if delta == 0:
        return pure
    spare = -math.log(delta)
    rho = (epsilon / (math.sqrt(epsilon + spare) + math.sqrt(spare))) ** 2
    best = max(pure, 1 + math.expm1(math.sqrt(8 * rho / size) / (1 + 1 / p)) * (1 - 2.0**-40))
    if not has_exact_loss(p, best):
        return best
    # Many coordinates together lose nearly what a Gaussian mechanism with μ = s·√(size·information) loses.
    point = math.log(accounting.gaussian_mu(epsilon, delta) / math.sqrt(size * stable_information(p)))
    low, high = math.log(math.log(best)), math.log(20.0)
    slope = 1.0
    previous: tuple[float, float] | None = None
    while high - low > 1e-9:
        point = point if low < point < high else (low + high) / 2
        ratio = math.exp(math.exp(point))
        spent = exact_moment_epsilon(p, size, ratio, delta)
        excess = math.log(spent / epsilon) if 0 < spent < math.inf else math.nan
        if spent <= epsilon:
            low, best = point, max(best, ratio)
            if excess > -1e-6:
                break
        else:
            high = point
        # The secant method in logarithms, where ε is nearly a power of the shift; it aims a little below.
        if previous is not None and excess != previous[1]:
            slope = min(max((excess - previous[1]) / (point - previous[0]), 0.5), 20.0)
        previous = (point, excess)
        point -= (excess + 2e-7) / slope
    return best


def _least(table: Weights, neighbours: Neighbours, ratio: float, estimator: ScaleEstimator) -> Floor:
    """Return the lowest floor with which no ratio passes this one, rounded up."""
    # Without a floor the ratio is the stream's own, which may be below what the budget allows.
    found = Floor(table, neighbours, 0.0, estimator=estimator)
    if found.largest_ratio <= ratio:
        return found
    change = table.largest_change(neighbours)
    height = max(0.0, change / (ratio - 1) * (1 + 4 * ROOM) - table.least_moment)
    while (found := Floor(table, neighbours, height, ratio, estimator)).largest_ratio > ratio:
        height = height * (1 + 2.0**-40) + change * 2.0**-40
    return found


def _shift_for_rho(table: Weights, rho: float) -> float:
    return math.sqrt(8 * rho / table.sums) / (1 + 1 / table.p) * (1 - 2.0**-46)


def _common_share(tables: Sequence[Weights], epsilon: float, delta: float) -> list[float]:
    """Return ratios at a common μ whose composition stays within (ε, δ)."""

    def ratios(mu: float) -> list[float]:
        return [math.exp(mu / math.sqrt(each.sums * stable_information(each.p))) for each in tables]

    def spent(mu: float) -> float:
        costs = [MomentCost(each.p, each.sums, ratio) for each, ratio in zip(tables, ratios(mu), strict=True)]
        return accounting.compose(costs, delta=delta)

    high = accounting.gaussian_mu(epsilon, delta) / math.sqrt(len(tables))
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


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """A batch that was checked, bounded and summed by key, and what the sketch is to note with it. Sensitive."""

    fingerprints: npt.NDArray[np.uint64]
    weights: npt.NDArray[np.float64]
    total: int
    skipped: int
    counted: CountedUsers


def of_records(spec: MomentSpec, batch: KeyBatch, weights: Any, counts: Any, counted: CountedUsers) -> Prepared:
    """Check the weights of records, and sum those of equal keys."""
    n = len(batch.fingerprints) + batch.skipped
    units = _units(spec, weights, n)
    multiples = np.ones(1, np.int64) if counts is None else whole_counts(counts, n)
    if batch.kept is not None:
        units = units if len(units) == 1 else units[batch.kept]
        multiples = multiples if len(multiples) == 1 else multiples[batch.kept]
    kept = len(batch.fingerprints)
    checked_total(0, np.abs(units), multiples, kept)
    amounts = np.broadcast_to(units * multiples, (kept,))
    added = np.broadcast_to(np.where(units > 0, multiples, 0), (kept,)) if spec.stream == "insert" else amounts
    summed = _summed(spec, batch.fingerprints, units if weights is None and counts is None else amounts)
    return Prepared(*summed, int(np.sum(added, dtype=np.int64)), batch.skipped, counted)


def of_users(
    spec: MomentSpec, batch: KeyBatch, users: Any, weights: Any, counted: CountedUsers, *, disjoint_users: bool
) -> Prepared:
    """Bound users, and sum what is left of equal keys."""
    units = _units(spec, weights, len(batch.fingerprints) + batch.skipped)
    bounds = {"max_keys": spec.unit.max_keys, "max_units": spec.weight_grid.max_units}
    bounded = bound(users, batch, int(units[0]) if weights is None else units, **bounds, seed=spec.seed)
    counted = counted.extended(bounded, disjoint_users=disjoint_users)
    return Prepared(*_summed(spec, bounded.fingerprints, bounded.units), len(bounded.units), bounded.skipped, counted)


def _units(spec: MomentSpec, weights: Any, n: int) -> npt.NDArray[np.int64]:
    """Return the records' weights in grid units, clipped; one for all where none are given."""
    grid = spec.weight_grid
    if weights is None:
        return np.array([grid.one], np.int64)
    values = real_numbers("weights", weights, n)
    if spec.stream == "turnstile":
        return np.sign(values).astype(np.int64) * grid.units(np.abs(values), n)
    units = grid.units(values, n)
    if spec.public_total and np.any(units < grid.one):
        raise InvalidInput("public_total counts records of weight 1 or more, and a smaller weight was given.")
    return units


def _summed(
    spec: MomentSpec, fingerprints: npt.NDArray[np.uint64], units: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Sum the units of equal keys; return each key once, with its weight."""
    distinct, totals = np.empty_like(fingerprints), np.empty(len(fingerprints))
    count = aggregate(fingerprints, np.ascontiguousarray(units, np.float64), distinct, totals)
    return distinct[:count], totals[:count] * spec.weight_grid.step


SMALLEST_P_TURNSTILE = 0.25
StreamForm = Literal["insert", "turnstile"]

# So many moments of one stream may be released together.
_MOST = 64


@stored
@dataclass(frozen=True, slots=True)
class MomentSpec(Spec):
    """All that two moment sketches must share to merge, but for their secret. Public.

    Attributes
    ----------
    p : float
        The exponent: from 0.1 to 0.99, or 1. For turnstile streams at least 0.25.
    size : int
        Coordinates; the relative error falls as 1/√size.
    unit : Unit
        Whose presence a release hides.
    stream : {"insert", "turnstile"}
        Whether weights are positive, or may be negative and cancel earlier ones.
    public_total : float
        What is public about the stream's size: at least so many of its records count, with weight 1 or more (where
        users are replaced: so many users, each with such a record), or, for a turnstile stream, at least this net
        weight. A stream that falls short, because a record has no key, say, is padded at its release. 0, the default,
        assumes nothing.
    grid : float or None
        Weights are rounded to multiples of it. None: a power of two, about a millionth of the largest weight, and at
        most 1.
    seed : int
        Orders a user's keys where the unit is a user; it protects nothing.
    key_type : {"int", "text"} or None
        Fixed by the first update.
    """

    p: float
    size: int
    unit: Unit
    stream: StreamForm = "insert"
    public_total: float = 0
    grid: float | None = None
    seed: int = DEFAULT_SEED
    key_type: KeyType | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidInput("unit must be dps.per_record(…) or dps.per_user(…).")
        if self.stream not in ("insert", "turnstile"):
            raise InvalidInput(f"stream is 'insert' or 'turnstile', not {self.stream!r}.")
        if self.stream == "turnstile" and self.unit.level == "user":
            raise InvalidInput(
                "a turnstile sketch protects records: what a user adds and takes away again cannot be bounded key by "
                "key. Use unit=dps.per_record(…), or stream='insert'."
            )
        hold_real(self, "p", "public_total")
        hold_real(self, "grid", optional=True)
        _check_p(self.p, self.stream)
        hold_whole(self, "size", low=10, high=10**6)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        if not 0 <= self.public_total < 2**62:
            raise InvalidInput(f"public_total must be at least 0 and below 2**62, not {self.public_total!r}.")
        if self.stream == "insert" and self.public_total:
            if self.largest_weight < 1:
                raise InvalidInput("public_total counts records of weight 1 or more, and max_weight is below 1.")
            self.weight_grid.refuse_without_one()

    @property
    def weight_grid(self) -> WeightGrid:
        """How weights become whole units."""
        step = min(1.0, math.ldexp(1.0, math.frexp(self.unit.max_weight)[1] - 21)) if self.grid is None else self.grid
        return WeightGrid(step, self.unit.max_weight)

    @property
    def largest_weight(self) -> float:
        """The most that one record adds to one key, after rounding to the grid."""
        return self.weight_grid.max_units * self.weight_grid.step

    @property
    def memory(self) -> int:
        """Bytes of the sums while they count. Where the unit is a user, eight more for each user counted."""
        return 8 * self.size

    @property
    def weights(self) -> Weights:
        """The weights of keys, each of which a unit moves by one contribution, and the moment of them."""
        grid = self.weight_grid
        move = Move.each(self.unit.max_keys, grid.max_units, signed=self.stream == "turnstile")
        return Weights(
            f"F_{float(self.p)}".replace(".", "_"), None, move, self.p, self.size, grid.step, self.public_total
        )

    def tables(self) -> tuple[Weights, ...]:
        """Return the weights of keys."""
        return (self.weights,)

    def laws(self, budget: Budget, estimator: ScaleEstimator = "mle") -> tuple[Floor, ...]:
        """Return the floor that a budget needs."""
        return floors_for(budget, self.unit.neighbours, self.tables(), estimator)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return "; ".join(law.words for law in laws)

    def ratio(self, floor: float) -> float:
        """Return the largest ratio of F_p + ``floor`` between two neighbours, rounded up."""
        return Floor(self.weights, self.unit.neighbours, floor).largest_ratio

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        moment: float = 0.0,
        estimator: ScaleEstimator = "mle",
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and what its standard error would be.

        Accuracy
        --------
        ``noise_scale`` is the error that the floor alone leaves, ``predicted_error`` that at a guessed ``moment``.
        """
        moment, budget = real_number("moment", moment), Budget(epsilon, delta, rho)
        (law,) = self.laws(budget, estimator)
        spread = math.sqrt(pivot_variance(self.p, self.size, estimator))
        stated = promise(self, Receipt(budget, (law,)))
        return ReleasePreview(stated, law.height * spread, (moment + law.height) * spread)


@stored
@dataclass(frozen=True, slots=True)
class MomentProfileSpec(Spec):
    """The public spec of several moments of one stream, which differ in p alone.

    Attributes
    ----------
    first : MomentSpec
        The spec of the first moment.
    others : tuple of float
        The exponents of the other moments.
    """

    first: MomentSpec
    others: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", tuple(float(real_number("p", p)) for p in self.others))
        exponents = [spec.p for spec in self.specs]
        if len(exponents) > _MOST or len(set(exponents)) != len(exponents):
            raise InvalidInput(f"p must name between 1 and {_MOST} exponents, all different.")

    @property
    def specs(self) -> tuple[MomentSpec, ...]:
        """The spec of each moment."""
        return (self.first, *(replace(self.first, p=p) for p in self.others))

    @property
    def unit(self) -> Unit:
        """Whose presence a release hides."""
        return self.first.unit

    def tables(self) -> tuple[Weights, ...]:
        """Return the weights of keys, once for each exponent."""
        return tuple(spec.weights for spec in self.specs)

    def laws(self, budget: Budget, estimator: ScaleEstimator = "mle") -> tuple[Floor, ...]:
        """Return the floors that a budget needs."""
        return floors_for(budget, self.unit.neighbours, self.tables(), estimator)

    def words(self, laws: tuple[Law, ...]) -> str:
        """Return the mechanism in words."""
        return self.first.words(laws)


def _check_p(p: float, stream: StreamForm) -> None:
    least = SMALLEST_P if stream == "insert" else SMALLEST_P_TURNSTILE
    if 0 < p < least:
        raise InvalidInput(
            f"p must be at least {least:g} for {'an insert-only' if stream == 'insert' else 'a turnstile'} stream, not "
            f"{p:g}: below it 64-bit floats lose the small variates beside the large ones, and with them both accuracy "
            "and the guarantee. To count distinct keys (p → 0) use dps.DistinctSketch."
        )
    if LARGEST_BELOW_ONE < p < 1:
        raise InvalidInput(f"p must be at most {LARGEST_BELOW_ONE:g}, or exactly 1, not {p!r}.")
    if not 0 < p <= 1:
        raise InvalidInput(f"p must lie in (0, 1], not {p!r}: for p above 1 the sketch is not private.")
