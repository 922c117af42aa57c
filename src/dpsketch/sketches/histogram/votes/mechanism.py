"""One release of a vote's buckets: which are listed, and with what noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self, assert_never, get_args

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number, whole_number
from dpsketch.privacy import ApproximateCost, Budget, Cost, Guarantee, PureCost, Unit, ZcdpCost
from dpsketch.sketches.histogram.vote_thresholds import VoteMechanism, VoteThreshold, vote, vote_delta
from dpsketch.sketches.permit import Calibration, Part
from dpsketch.truncated import law_from_json

__all__ = ["BUCKETS", "VOTE_FORMS", "Elected", "VoteRelease"]


BUCKETS = "the buckets"
VOTE_FORMS: tuple[VoteMechanism, ...] = get_args(VoteMechanism)


class Elected(NamedTuple):
    """What is published of the buckets.

    Attributes
    ----------
    buckets : numpy.ndarray of int64
        Those whose keys are listed, increasing.
    values : numpy.ndarray of int64
        Their noisy u, or their noisy c where c alone is published.
    pairs : numpy.ndarray of int64
        Their noisy l; empty where c alone is published.
    """

    buckets: Integers
    values: Integers
    pairs: Integers


@dataclass(frozen=True, slots=True)
class VoteRelease:
    """The public parameters of one release, and the law of its buckets.

    Attributes
    ----------
    threshold : VoteThreshold
        Noise and cutoff.
    epsilon, delta : float
        What is charged and promised.
    """

    threshold: VoteThreshold
    epsilon: float
    delta: float

    @classmethod
    def for_budget(cls, budget: Budget, unit: Unit, form: VoteMechanism | None) -> Self:
        """Choose the parameters, by public facts alone.

        Records get both loads, whose counts are near the true ones. A user's ε is divided by its keys there, where
        Gaussian noise on c takes the root of their number: users get c alone.
        """
        if form not in (None, *VOTE_FORMS):
            raise InvalidInput(f"form of a vote is one of {', '.join(VOTE_FORMS)}.")
        match budget.cost:
            case ApproximateCost(epsilon, delta):
                pass
            case PureCost() | ZcdpCost():
                raise InvalidInput(
                    "names that are on no public list need epsilon= with delta > 0 (1e-6, say: well below 1 over the "
                    "number of records)."
                )
            case never:
                assert_never(never)
        chosen = form or ("loads" if unit.level == "record" else None)
        threshold = vote(epsilon, delta, unit.max_keys, unit.neighbours == "replace", mechanism=chosen)
        return cls(threshold, epsilon, delta)

    @property
    def has_loads(self) -> bool:
        """Whether u and l are published, and not c alone."""
        return self.threshold.name == "loads"

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        law, cutoff = self.threshold.law, self.threshold.cutoff
        if self.has_loads:
            return f"votes in buckets; both loads with {law.words}; keys whose difference reaches {cutoff}"
        return f"votes in buckets; majorities with {law.words}; keys that reach {cutoff}"

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing costs."""
        return (ApproximateCost(self.epsilon, self.delta),)

    def draw(self, votes: Integers, loads: Integers) -> Elected:
        """Return what may be published of the buckets' majority counts c and loads n.

        A bucket at c = 0 has no key, and nothing of it is published. That is no second leak: a unit that brings its
        key to light makes c = 1, and what is paid for is that this is listed.
        """
        held = np.flatnonzero(votes >= 1)
        c, law = votes[held], self.threshold.law
        if self.has_loads:
            pairs = (loads[held] - c) // 2
            upper = pairs + c + law.sample(len(held))
            lower = pairs + law.sample(len(held))
            listed = upper - lower >= self.threshold.cutoff
            return Elected(held[listed], upper[listed], lower[listed])
        noisy = c + law.sample(len(held))
        listed = noisy >= self.threshold.cutoff
        return Elected(held[listed], noisy[listed], np.empty(0, np.int64))

    @property
    def calibration(self) -> Calibration:
        """The one part of a release."""
        return Calibration((Part(BUCKETS, self),), self.costs, self.epsilon, self.delta, None, self.words)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as JSON-ready values; the unit's are in the spec, what is promised in the guarantee."""
        return {"law": self.threshold.law.to_json(), "cutoff": self.threshold.cutoff}

    @classmethod
    def from_json(cls, value: dict[str, Any], promise: Guarantee) -> Self:
        """Rebuild from :meth:`to_json`; refuse what the guarantee beside it does not cover."""
        law, cutoff = law_from_json(value["law"]), whole_number("cutoff", value["cutoff"], low=1)
        unit, epsilon = promise.unit, real_number("epsilon", promise.epsilon)
        facts: dict[str, Any] = {"keys": unit.max_keys, "replace": unit.neighbours == "replace", "epsilon": epsilon}
        delta = vote_delta(law, cutoff, **facts)
        if delta > promise.delta:
            raise InvalidInput("these buckets' noise and cutoff do not keep what the guarantee beside them promises.")
        return cls(VoteThreshold(law, cutoff, delta=delta, **facts), epsilon, promise.delta)
