"""The public specs of one moment and of several: exponents, size, unit and stream."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from dpsketch.accounting.stable import LARGEST_BELOW_ONE, SMALLEST_P
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.laws import Law
from dpsketch.core.move import Move
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.scales import ScaleEstimator, pivot_variance
from dpsketch.laws.stable import Floor, Weights
from dpsketch.numbers import hold_real, hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.moment.calibration import floors_for
from dpsketch.sketches.specs import ReleasePreview, Spec
from dpsketch.sketches.weights import WeightGrid

__all__ = ["DEFAULT_SEED", "MomentProfileSpec", "MomentSpec", "StreamForm", "size_for_error"]

DEFAULT_SEED = 1
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


def size_for_error(
    p: float,
    unit: Unit,
    *,
    moment: float,
    error: float,
    epsilon: float,
    delta: float,
    estimator: ScaleEstimator = "mle",
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
        (law,) = spec.laws(Budget(epsilon, delta))
        floor = law.height
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
