"""The law of a released moment: how far one unit moves it, the floor that hides this, and what that costs.

Its variates come from a secret that is drawn once, used for one release, and overwritten after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.moment import LANES, chacha20_blocks, project
from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable
from dpsketch.core.move import Table
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.scales import ScaleEstimator, check_estimator, estimate_scale, pivot_variance
from dpsketch.noise import noise_is_for_tests, random_words
from dpsketch.numbers import hold_real
from dpsketch.privacy import Cost, MomentCost, Neighbours, Unit
from dpsketch.processes import OneProcess

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["ROOM", "Floor", "Lift", "Secret", "Weights", "significant"]

# Nonces of the projection begin with 0 (see the kernel), that of the check with 1.
_CHECK_DOMAIN = 1


class Secret(OneProcess):
    """A 256-bit key of ChaCha20.

    Never printed, pickled or written by itself. :meth:`destroy` overwrites it; copies that the interpreter made on the
    way from the operating system are freed, but cannot be overwritten.
    """

    def __init__(self, words: npt.NDArray[np.uint32], *, for_tests: bool) -> None:
        self._words: npt.NDArray[np.uint32] | None = words
        self._for_tests = for_tests

    @classmethod
    def draw(cls) -> Self:
        """Draw a new secret from the operating system."""
        return cls(random_words(4).view(np.uint32), for_tests=noise_is_for_tests())

    @classmethod
    def from_stored(cls, words: object, *, for_tests: bool) -> Self:
        """Rebuild a secret from :meth:`reveal_for_sensitive_file`."""
        if not isinstance(words, np.ndarray) or words.dtype != np.uint32 or words.shape != (8,):
            raise FileRefused("the file's secret is not one that dpsketch writes.")
        return cls(words.copy(), for_tests=for_tests)

    @property
    def for_tests(self) -> bool:
        """Whether it came from a seeded source, so that it hides nothing."""
        return self._for_tests

    def __repr__(self) -> str:
        return "<Secret, destroyed>" if self._words is None else "<Secret>"

    def reveal_for_sensitive_file(self) -> npt.NDArray[np.uint32]:
        """Return a copy of the key, for a file inside the trust boundary."""
        return self._key().copy()

    def check(self) -> str:
        """Return 16 hexadecimal digits that tell whether two secrets are the same, and nothing else about them."""
        inputs, words = np.zeros(4 * LANES, np.uint32), np.empty(16 * LANES, np.uint32)
        inputs[LANES : 2 * LANES] = _CHECK_DOMAIN
        chacha20_blocks(self._key(), inputs, words)
        return f"{int(words[0]):08x}{int(words[LANES]):08x}"

    def add(
        self,
        sums: npt.NDArray[np.float64],
        fingerprints: npt.NDArray[np.uint64],
        weights: npt.NDArray[np.float64],
        p: float,
    ) -> None:
        """Add each key's variates, times its weight, to the sums."""
        project(sums, self._key(), fingerprints, weights, p)

    def destroy(self) -> None:
        """Overwrite the key."""
        if self._words is not None:
            self._words[:] = 0
            self._words = None

    def _key(self) -> npt.NDArray[np.uint32]:
        self._refuse_copy()
        if self._words is None:
            raise ReleaseRefused("this sketch's secret has been destroyed. Start a new sketch.")
        return self._words


# More than the rounding of a few products, powers and quotients.
ROOM = 2.0**-46

_COMPUTATIONAL = (
    "The guarantee is computational: the projection comes from ChaCha20 under a secret key that was drawn for this "
    "release and destroyed with it. The sums were kept in floating point, and only their rounded estimate is released."
)


@stored
@dataclass(frozen=True, slots=True)
class Weights(Table):
    """The weights of all keys, in steps of a grid, and the moment F_p = Σ |weight|^p that is measured of them.

    Attributes
    ----------
    p : float
        The exponent.
    sums : int
        The number of secret sums.
    step : float
        The grid.
    public_total : float
        See :class:`~dpsketch.sketches.moment.spec.MomentSpec`.
    """

    p: float
    sums: int
    step: float
    public_total: float

    def covers(self, other: Table) -> bool:
        """Say whether this is the other: all fields decide how far a unit moves the moment."""
        return self == other

    def largest_change(self, neighbours: Neighbours) -> float:
        """Return how far one unit moves F_p, rounded up.

        As |x + v|^p differs from |x|^p by at most |v|^p, neighbours whose weights lie a vector v apart have moments
        that lie at most Σ|v|^p apart: by concavity, the number of its entries times the p-th power of their mean.
        Replacing in an insert-only stream is no worse than adding, since both sides have at least the moment of what
        they share. In a turnstile stream the removed and the added record may pull the same way. There a negative
        record may also move the padding up to ``public_total`` the same way as F_p, by as much as it moves the net
        weight; its p-th power is added. (In an insert-only stream the two pull apart.)
        """
        apart = self.move.between(neighbours if self.move.signed else "add_remove")
        moved = apart.cells * math.pow(-(-apart.l1 // apart.cells) * self.step, self.p)
        if self.move.signed and self.public_total:
            moved += math.pow(apart.l1 * self.step, self.p)
        return moved * (1 + ROOM)

    @property
    def least_moment(self) -> float:
        """What F_p is at least, by ``public_total`` n alone, rounded down: n^p, since Σx^p ≥ (Σx)^p."""
        return math.pow(self.public_total, self.p) * (1 - ROOM)


@stored
@dataclass(frozen=True, slots=True)
class Floor(OneTable):
    """Secret sums with a floor, of which the rounded estimate of their scale is published.

    Attributes
    ----------
    table : Weights
        What is measured.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    height : float
        The floor, in units of F_p: it is added to the scale before the release, and subtracted from the estimate.
    ratio : float
        The ratio of scales that the floor was found for. It is paid if :attr:`largest_ratio` is below it.
    estimator : str
        How the scale is estimated.

    Privacy
    -------
    The sums are p-stable with scale F_p + floor, under a secret that was drawn before the data and is used for one
    release. Between neighbours that scale changes by at most :attr:`largest_ratio`; the loss of all sums follows.
    """

    table: Weights
    neighbours: Neighbours
    height: float
    ratio: float = 1.0
    estimator: ScaleEstimator = "mle"

    def __post_init__(self) -> None:
        hold_real(self, "height", "ratio")
        if not 0 <= self.height < math.inf:
            raise InvalidInput(f"a floor is at least 0 and finite, not {self.height!r}.")
        check_estimator(self.estimator, self.table.p)

    @property
    def digits(self) -> int:
        """To how many significant digits the estimate is rounded: as few as its own error leaves of use."""
        return 3 if pivot_variance(self.table.p, self.table.sums, self.estimator) > 0.03**2 else 4

    @property
    def words(self) -> str:
        """The law in a phrase."""
        return (
            f"{self.table.sums} sums of secret {self.table.p:g}-stable variates with a floor of {self.height:.4g}, "
            f"their scale rounded to {self.digits} digits"
        )

    @property
    def largest_ratio(self) -> float:
        """The largest ratio of F_p + floor between two neighbours, rounded up.

        1 + Δ/(floor + L) with the largest change Δ and the least moment L, under either relation: a record that is
        replaced may have counted for nothing, so that its replacement is an addition.
        """
        least = self.height + self.table.least_moment
        return math.inf if least == 0 else 1 + self.table.largest_change(self.neighbours) / least * (1 + ROOM)

    def caveat(self, unit: Unit) -> str:
        """Return that the guarantee relies on a cipher."""
        return _COMPUTATIONAL

    def slots(self) -> Mapping[str, Any]:
        """Return the secret draw of the floor."""
        return {"floor": Lift(self.table.p, self.height)}

    def costs(self) -> tuple[Cost, ...]:
        """Return the loss of so many sums whose scale changes by a ratio."""
        return (MomentCost(self.table.p, self.table.sums, max(self.ratio, self.largest_ratio)),)

    def draw(self, state: tuple[Floats, float], handle: Handle) -> Arrays:
        """Return the rounded scale of secret sums that are lifted by the floor and by a padding."""
        lifted = handle.draw("floor", *state)
        try:
            return {"scale": np.array([significant(self.scale_of(lifted), self.digits)])}
        finally:
            lifted[:] = 0

    def scale_of(self, sums: Floats) -> float:
        """Return the estimated scale of sums. Sensitive as long as it is not rounded, and without a floor."""
        return estimate_scale(sums[: self.table.sums], self.table.p, self.estimator)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is one number, which is not negative."""
        scale: Any = arrays.get("scale")
        good = set(arrays) == {"scale"} and isinstance(scale, np.ndarray) and scale.dtype == np.float64
        return good and scale.shape == (1,) and 0 <= scale[0] < math.inf


@dataclass(frozen=True, slots=True)
class Lift:
    """The draw of floor and padding: two keys that nobody has, under a secret of their own."""

    p: float
    height: float

    def draw(self, sums: Floats, padding: float) -> Floats:
        """Return the sums with both."""
        lifted = sums.copy()
        fresh = Secret.draw()
        try:
            weights = np.array([self.height ** (1 / self.p), padding])
            fresh.add(lifted, np.arange(2, dtype=np.uint64), weights, self.p)
        finally:
            fresh.destroy()
        return lifted


def significant(value: float, digits: int) -> float:
    """Round to significant digits.

    Examples
    --------
    >>> significant(123456.0, 3), significant(-0.0012345, 4)
    (123000.0, -0.001234)
    """
    return float(f"{value:.{digits - 1}e}")
