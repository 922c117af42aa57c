"""The public spec of a histogram in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.histogram.vote_thresholds import MOST_KEYS, VoteMechanism
from dpsketch.sketches.histogram.votes.mechanism import VoteRelease
from dpsketch.sketches.permit import ReleasePreview
from dpsketch.sketches.specs import StoredSpec, check_key_type
from dpsketch.sketches.weights import OnceSpec

__all__ = ["DEFAULT_SEED", "VoteHistogramSpec"]

DEFAULT_SEED = 1
# Two counters, a fingerprint, where the name lies, and a name of usual length.
_BYTES_A_BUCKET = 64


@stored
@dataclass(frozen=True, slots=True)
class VoteHistogramSpec(OnceSpec, StoredSpec):
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

    max_counters: int
    unit: Unit
    seed: int = DEFAULT_SEED
    key_type: KeyType | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "max_counters", low=1, high=2**24)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        if not isinstance(self.unit, Unit):
            raise InvalidInput("unit must be dps.per_record(…) or dps.per_user(…).")
        check_key_type(self.key_type)
        if self.unit.max_weight != 1:
            raise InvalidInput(
                "with max_counters= a key counts once for a record or user, and max_weight is 1. For weights use a "
                "histogram without max_counters=, or a CountSketch."
            )
        if self.unit.max_keys > MOST_KEYS:
            raise InvalidInput(f"with max_counters= at most {MOST_KEYS} keys of a user count: lower max_keys.")

    @property
    def memory(self) -> int:
        """About so many bytes, for names of 32. Where the unit is a user, eight more for each user counted."""
        return _BYTES_A_BUCKET * self.max_counters

    def mechanism(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        form: VoteMechanism | None = None,
    ) -> VoteRelease:
        """Choose the parameters of a release at this budget, from the spec and the options alone."""
        return VoteRelease.for_budget(Budget(epsilon, delta, rho), self.unit, form)

    def preview(self, **options: Any) -> ReleasePreview:
        """Say what a release at this budget would promise, and how far off a listed value is by noise."""
        mechanism = self.mechanism(**options)
        error = math.sqrt(mechanism.threshold.law.variance)
        return ReleasePreview(mechanism.calibration.guarantee(self.unit), error, error)
