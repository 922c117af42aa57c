"""The public spec of a histogram: its unit, its grid, and what its keys are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.histogram.mechanism import Form, Mechanism, Reach
from dpsketch.sketches.permit import ReleasePreview
from dpsketch.sketches.specs import StoredSpec, check_key_type, hold_key_columns
from dpsketch.sketches.weights import GridSpec

__all__ = ["HistogramSpec"]

# What a histogram takes is as long as its list of keys, which nobody knows before: a guess for the plan's line.
_BYTES_A_KEY = 96
_GUESSED_KEYS = 10_000


@stored
@dataclass(frozen=True, slots=True)
class HistogramSpec(GridSpec, StoredSpec):
    """All that two histograms must share to merge. Public.

    Attributes
    ----------
    unit : Unit
        Whose presence a release hides.
    grid : float
        Weights are rounded to multiples of it.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it; None if neither does.
    key_columns : tuple of str
        The columns of compound keys (see :mod:`dpsketch.compound`); empty where a key is one column.
    """

    unit: Unit
    grid: float = 1
    key_type: KeyType | None = None
    key_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidInput("unit must be dps.per_record(…) or dps.per_user(…).")
        check_key_type(self.key_type)
        hold_key_columns(self)
        object.__setattr__(self, "grid", self.weight_grid.step)

    @property
    def seed(self) -> int:
        """What orders a user's keys where they are bounded as they come, day after day; the same everywhere."""
        return 1

    @property
    def memory(self) -> int:
        """About so many bytes for ten thousand keys; it grows with the keys, or the pairs of users and keys."""
        return _BYTES_A_KEY * _GUESSED_KEYS

    @property
    def reach(self) -> Reach:
        """What one unit of privacy can change."""
        return Reach(
            keys=self.unit.max_keys,
            units=self.weight_grid.max_units,
            replace=self.unit.neighbours == "replace",
            users=self.unit.level == "user",
            chosen=self.unit.chosen,
        )

    def mechanism(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        keys: Sequence[Any] | None = None,
        unknown: bool | None = None,
        others: bool = False,
        names_only: bool = False,
        form: Form | None = None,
        hashed: bool = False,
    ) -> Mechanism:
        """Choose the parameters of a release at this budget, from the spec and the options alone."""
        return Mechanism.for_budget(
            Budget(epsilon, delta, rho),
            self.reach,
            listed=keys is not None,
            unknown=unknown,
            others=others,
            names_only=names_only,
            form=form,
            hashed=hashed and self.key_type != "int",
        )

    def expect(self, *, records: float, keys: int, **budget: Any) -> dict[str, float]:
        """Say in a few numbers what a release is worth for so many records and keys, the i-th as frequent as 1/i.

        Without δ > 0 that is for a public list of all of them.
        """
        from dpsketch.sketches.guess import guessed_counts
        from dpsketch.sketches.histogram.predict import Holdings, predict

        mechanism = self.mechanism(**budget, keys=None if budget.get("delta") or budget.get("rho") else ())
        found = predict(mechanism, Holdings.of(guessed_counts(records, keys, 1.0, None), self.unit, None))
        names = (
            {} if mechanism.cutoff is None else {"names_found": found.found, "threshold": self.grid * mechanism.cutoff}
        )
        return {"error_of_a_count": self.grid * found.error, **names}

    def preview(self, **options: Any) -> ReleasePreview:
        """Say what a release at this budget, with these options, would promise, and how far off a listed count is."""
        mechanism = self.mechanism(**options)
        error = self.grid * mechanism.count_error
        return ReleasePreview(mechanism.calibration.guarantee(self.unit), error, error)
