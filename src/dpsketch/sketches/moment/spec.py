"""The public spec of a moment sketch: its exponent, size and unit, and how far one unit changes what it measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, assert_never

from dpsketch.accounting.stable import LARGEST_BELOW_ONE, SMALLEST_P
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.numbers import hold_real, hold_whole, real_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.moment.estimators import Estimator, pivot_variance
from dpsketch.sketches.permit import ReleasePreview
from dpsketch.sketches.specs import StoredSpec
from dpsketch.sketches.weights import WeightGrid

__all__ = ["DEFAULT_SEED", "MomentSpec", "Stream"]

DEFAULT_SEED = 1
SMALLEST_P_TURNSTILE = 0.25
Stream = Literal["insert", "turnstile"]

# More than the rounding of a few products, powers and quotients.
_ROOM = 2.0**-46


@dataclass(frozen=True, slots=True)
class MomentSpec(StoredSpec):
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
    stream: Stream = "insert"
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
    def largest_change(self) -> float:
        """How far one unit moves F_p, rounded up.

        As |x+v|^p differs from |x|^p by at most |v|^p, a record of weight ≤ M moves F_p by at most M^p and a user with
        C keys by C·M^p. Replacing in an insert-only stream is no worse, since both sides have at least the moment of
        what they share. In a turnstile stream the removed and the added record may pull the same way: 2·M^p. There a
        negative record may also move the padding up to ``public_total`` the same way as F_p, by as much as it moves the
        net weight; its p-th power is added. (In an insert-only stream the two pull apart.)
        """
        moved = self._times * self.unit.max_keys * math.pow(self.largest_weight, self.p)
        if self.stream == "turnstile" and self.public_total:
            moved += math.pow(self._times * self.largest_weight, self.p)
        return moved * (1 + _ROOM)

    @property
    def _times(self) -> int:
        match self.stream:
            case "insert":
                return 1
            case "turnstile":
                return 2 if self.unit.neighbours == "replace" else 1
            case _:
                assert_never(self.stream)

    @property
    def least_moment(self) -> float:
        """What F_p is at least, by ``public_total`` n alone, rounded down: n^p, since Σx^p ≥ (Σx)^p."""
        return math.pow(self.public_total, self.p) * (1 - _ROOM)

    def ratio(self, floor: float) -> float:
        """Return the largest ratio of F_p + ``floor`` between two neighbours, rounded up.

        1 + Δ/(floor + L) with the :attr:`largest_change` Δ and the :attr:`least_moment` L, under either relation: a
        record that is replaced may have counted for nothing, so that its replacement is an addition.
        """
        least = floor + self.least_moment
        return math.inf if least == 0 else 1 + self.largest_change / least * (1 + _ROOM)

    def floor_for(self, ratio: float) -> float:
        """Return the smallest floor with which no ratio passes this one, rounded up."""
        if self.ratio(0.0) <= ratio:
            return 0.0
        floor = max(0.0, self.largest_change / (ratio - 1) * (1 + 4 * _ROOM) - self.least_moment)
        while self.ratio(floor) > ratio:
            floor = floor * (1 + 2.0**-40) + self.largest_change * 2.0**-40
        return floor

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        moment: float = 0.0,
        estimator: Estimator = "mle",
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and what its standard error would be.

        Accuracy
        --------
        ``noise_scale`` is the error that the floor alone leaves, ``predicted_error`` that at a guessed ``moment``.
        """
        from dpsketch.sketches.moment.calibration import calibrate, caveat_of, floors_of

        moment = real_number("moment", moment)
        calibrated = calibrate([self], Budget(epsilon, delta, rho), estimator)
        spread = math.sqrt(pivot_variance(self.p, self.size, estimator))
        promise = calibrated.guarantee(self.unit, caveat=caveat_of(None))
        floor = floors_of(calibrated)[0].height
        return ReleasePreview(promise, floor * spread, (moment + floor) * spread)

    def digits(self, estimator: Estimator) -> int:
        """Return to how many significant digits an estimate is rounded: as few as its own error leaves of use."""
        return 3 if pivot_variance(self.p, self.size, estimator) > 0.03**2 else 4


def _check_p(p: float, stream: Stream) -> None:
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
