"""The public spec of a histogram in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from dpsketch.core.codec import stored
from dpsketch.core.drawn import Receipt, promise
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.laws.votes import BUCKETS, MOST_KEYS, VoteForm, Votes
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.histogram.calibration import votes_for
from dpsketch.sketches.specs import DEFAULT_SEED, ReleasePreview, Spec, hold_common

__all__ = ["DEFAULT_SEED", "VoteHistogramSpec"]

# Two counters, a fingerprint, where the name lies, and a name of usual length.
_BYTES_A_BUCKET = 64


@stored
@dataclass(frozen=True, slots=True)
class VoteHistogramSpec(Spec):
    """All that two histograms in bounded memory must share to merge. Public.

    Attributes
    ----------
    max_counters : int
        How many buckets there are; each holds one key.
    unit : Unit
        Whose presence a release hides. A key counts once for a record, and once for a user.
    seed : int
        Of the hash that gives each key its bucket, and of the order in which a user's keys are kept; it protects
        nothing and is published.
    key_type : {"int", "text"} or None
        What the keys are, as the caller or a column's own type states it.
    """

    weighs: ClassVar[bool] = False

    max_counters: int
    unit: Unit
    seed: int = DEFAULT_SEED
    key_type: KeyType | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "max_counters", low=1, high=2**24)
        hold_common(self)
        if self.unit.max_weight != 1:
            raise InvalidInput(
                "with max_counters= a key counts once for a record or user, and max_weight is 1. For weights use a "
                "Histogram or a CountSketch."
            )
        if self.unit.max_keys > MOST_KEYS:
            raise InvalidInput(f"with max_counters= at most {MOST_KEYS} keys of a user count: lower max_keys.")

    @property
    def summary(self) -> str:
        """A few words for the sketch's printed form."""
        return f"of {self.max_counters} buckets"

    def arrays(self) -> dict[str, Any]:
        """Return no arrays: the sketch keeps a state of its own."""
        return {}

    @property
    def memory(self) -> int:
        """About so many bytes, for names of 32. Where the unit is a user, eight more for each user counted."""
        return _BYTES_A_BUCKET * self.max_counters

    def tables(self) -> tuple[Table, ...]:
        """Return the majority counts: a unit votes once in each of ``max_keys`` buckets, for a key or against it."""
        return (Table(BUCKETS, (self.max_counters,), Move.each(self.unit.max_keys, 1, signed=True)),)

    def laws(self, budget: Budget, form: VoteForm | None = None) -> tuple[Votes]:
        """Return how the buckets are published; by default both loads for records, and majorities for users.

        Counts by both loads are near the true ones. But ε is divided by the number of a user's keys there, while
        Gaussian noise on majorities grows with the root of that number.
        """
        chosen = form or ("loads" if self.unit.level == "record" else None)
        return (votes_for(budget, *self.tables(), self.unit.neighbours, chosen),)

    def preview(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        form: VoteForm | None = None,
    ) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far off a listed value is by noise."""
        budget = Budget(epsilon, delta, rho)
        (law,) = self.laws(budget, form)
        error = math.sqrt(law.noise.variance)
        return ReleasePreview(promise(self, Receipt(budget, (law,))), error, error)
