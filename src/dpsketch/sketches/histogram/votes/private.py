"""The released histogram of bounded memory: names with counts and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.drawn import Part
from dpsketch.errors import InvalidInput
from dpsketch.laws.votes import BUCKETS, Votes
from dpsketch.noise import DiscreteLaplace
from dpsketch.release import SketchRelease
from dpsketch.results import Estimates
from dpsketch.sketches.histogram.named import NamedCounts, places_of, read_names
from dpsketch.sketches.histogram.votes.intervals import above_majority, between_loads
from dpsketch.sketches.histogram.votes.spec import VoteHistogramSpec
from dpsketch.sketches.specs import fingerprint_of

__all__ = ["PrivateVoteHistogram"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateVoteHistogram(NamedCounts, SketchRelease):
    """A released histogram of bounded memory.

    Every key here won the vote of its bucket. With f for the key's true count, c for the votes it won by and u for half
    of c and of the bucket's load together, c ≤ f ≤ u always, and f = u for a key that held its bucket throughout.

    *Accuracy.* Every interval covers f, also for keys that were listed because their noise carried them. Where both
    loads were published, a value is the noisy u. Where majorities alone were (``form`` "truncated" or "gaussian"), a
    value is the noisy c, and its interval has no upper limit: such a release says nothing of how much the bucket's
    other keys took off.

    Attributes
    ----------
    found : list
        The keys that were found, in their own order.
    """

    kind: ClassVar[str] = "histogram-votes"
    spec_type: ClassVar[Any] = VoteHistogramSpec

    spec: VoteHistogramSpec
    found: list[Any] = field(init=False, repr=False)
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = read_names(self._part.arrays["found"], self.spec)
        object.__setattr__(self, "found", found)
        object.__setattr__(self, "_places", places_of(found))

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {BUCKETS} and isinstance(parts[BUCKETS].law, Votes)

    @property
    def _part(self) -> Part:
        return self.drawn.parts[BUCKETS]

    @property
    def mechanism(self) -> Votes:
        """How the buckets were published: noise and cutoff."""
        return cast(Votes, self._part.law)

    @property
    def values(self) -> Integers:
        """The keys' noisy u, or their noisy majorities if these alone were published."""
        return cast(Integers, self._part.arrays["values"])

    @property
    def pairs(self) -> Integers:
        """The keys' noisy l, the number of pairs of their bucket; empty if majorities alone were published."""
        none = np.empty(0, np.int64)
        return cast(Integers, self._part.arrays.get("pairs", none))

    def __repr__(self) -> str:
        return f"<PrivateVoteHistogram of {len(self.found):,} keys, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """The keys that were found, in an order that says nothing."""
        return list(self.found)

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        counted = self.guarantee.counts + (", one in each bucket" if self.spec.unit.level == "user" else "")
        if self.mechanism.has_loads:
            return f"{counted}; the value is an upper bound's estimate"
        return f"{counted}; the value is a lower bound's estimate, and there is no upper limit"

    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        if np.any(places < 0):
            raise InvalidInput(
                "a key that was asked for was not found, and a bucket says nothing of keys that lost its vote: ask for "
                "those of `keys`."
            )
        values, law = self.values[places], self.mechanism
        high: Integers | Floats
        if isinstance(law.noise, DiscreteLaplace):
            low, high = between_loads(values, self.pairs[places], law.noise, law.cutoff, tail / 2)
        else:
            low, high = above_majority(values, law.noise, law.cutoff, tail)
        low = np.maximum(low, 1)
        value, least, most = (each.astype(np.float64) for each in (values, low, np.maximum(high, low)))
        return Estimates(asked, value, least, most, confidence, self.counts)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        law = self.mechanism
        return {
            "keys": len(self.found),
            "form": law.form,
            "threshold": law.cutoff,
            "noise_scale": math.sqrt(law.noise.variance),
        }
