"""The public spec of a CountSketch: its shape, its hash seed, its unit, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.countsketch.clipping import Clip
from dpsketch.sketches.guess import guessed_counts
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec, hold_common

if TYPE_CHECKING:
    from dpsketch.sketches.countsketch.prediction import CountPrediction

__all__ = ["COUNTERS", "DEFAULT_SEED", "CountSketchSpec"]

COUNTERS = "counters"


@stored
@dataclass(frozen=True, slots=True)
class CountSketchSpec(Spec):
    """All that two CountSketches must share to merge. Public.

    Attributes
    ----------
    rows : int
        Independent repetitions, odd.
    width : int
        Cells in a row.
    unit : Unit
        Whose presence a release hides.
    seed : int
        The seed of the hash functions; it protects nothing and is published.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it; None if neither does. It is never read off
        values: a published spec does not depend on whether there were records, or on what they held.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    rows: int
    width: int
    unit: Unit
    seed: int = DEFAULT_SEED
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hold_whole(self, "rows", low=1, high=1023)
        if self.rows % 2 == 0:
            raise InvalidInput(
                "rows must be odd, so that a median is one of them: "
                f"{self.rows - 1} or {self.rows + 1}, not {self.rows}."
            )
        hold_whole(self, "width", low=2, high=2**31)
        if self.rows * self.width > 2**31:
            raise InvalidInput("rows × width must not pass 2**31 counters.")
        hold_common(self)
        whole_number("max_keys", self.unit.max_keys, low=1, high=2**31)

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"{self.rows}×{self.width}"

    @property
    def clip(self) -> Clip | None:
        """The bound on one user's own sketch; None where the unit is a record."""
        return None if self.unit.level == "record" else self.user_clip

    @property
    def user_clip(self) -> Clip:
        """The bound on one user's own sketch, where the unit is a user."""
        return Clip(self.rows, self.width, self.unit.max_keys, self.weight_grid.max_units)

    def tables(self) -> tuple[Table]:
        """Return the counters.

        One record adds at most w to one cell of each of k rows. A user adds at most m keys of w, perhaps all to one
        cell of each row, but the L2 norm of the user's own sketch is clipped to c (see
        :mod:`~dpsketch.sketches.countsketch.clipping`; the clip does not bound L1 further).
        """
        weight = self.weight_grid.max_units
        move = Move.each(self.rows, weight, signed=True)
        if self.clip is not None:
            cells = self.rows * self.unit.max_keys
            move = Move(cells * weight, self.clip.squared, cells, self.unit.max_keys * weight, signed=True)
        return (Table(COUNTERS, (self.rows, self.width), move),)

    def daily(self) -> CountSketchSpec:
        """Return the spec of a stream's day, whose key type is stated: one read off keys would tell that some came."""
        if self.key_type is None:
            raise InvalidInput(
                "say key_type='text' or 'int': a day without records must not differ from others by its type."
            )
        return self

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far its noise alone would move an estimate."""
        budget = Budget(epsilon, delta, rho)
        (law,) = self.laws(budget)
        scale = self.grid * math.sqrt(law.noise.variance)
        # Huber's estimate has 95% of the mean's efficiency under Gaussian noise.
        return ReleasePreview(promise(self, Receipt(budget, (law,))), scale, scale / math.sqrt(0.95 * self.rows))

    def expect(self, *, records: float, keys: int, **budget: Any) -> dict[str, float]:
        """Say in a few numbers what a release is worth for so many records and keys, the i-th as frequent as 1/i."""
        found = self.predict(records=records, keys=keys, skew=1.0, **budget)
        return {"error_of_an_estimate": found.error, "half_width_of_its_interval": found.half_width}

    def predict(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        records: float | None = None,
        keys: int | None = None,
        skew: float | None = None,
        counts: Any = None,
    ) -> CountPrediction:
        """Predict the error of a release, collisions included, from a public guess at the data.

        Parameters
        ----------
        epsilon, delta, rho : float
            The budget; nothing is spent.
        records, keys, skew : float, int, float
            The guess: so many records over so many distinct keys, the i-th in proportion to i^-skew.
        counts : numbers
            All keys' counts instead of the three, as from last year's published release.
        """
        from dpsketch.sketches.countsketch.prediction import rehearse

        guess = guessed_counts(records, keys, skew, counts)
        return rehearse(self, guess, Budget(epsilon, delta, rho))
