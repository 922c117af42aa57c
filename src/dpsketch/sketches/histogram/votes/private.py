"""The released histogram of bounded memory: names with counts and intervals, for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpsketch import files
from dpsketch.arrays import Floats, Integers
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.noise import DiscreteLaplace
from dpsketch.privacy import Guarantee
from dpsketch.release import DrawnRelease
from dpsketch.results import Estimates
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_document
from dpsketch.sketches.histogram.named import NamedCounts, name_of, name_order, places_of, read_names, stored_names
from dpsketch.sketches.histogram.votes.intervals import above_majority, between_loads
from dpsketch.sketches.histogram.votes.mechanism import Elected, VoteRelease
from dpsketch.sketches.histogram.votes.spec import VoteHistogramSpec
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = ["PrivateVoteHistogram"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateVoteHistogram(NamedCounts, DrawnRelease):
    """A released histogram of bounded memory: public, to be queried for ever.

    Every key here won the vote of its bucket. With f for the key's true count, c for the votes it won by and u for half
    of c and of the bucket's load together, c ≤ f ≤ u always, and f = u for a key that held its bucket throughout.

    *Accuracy.* Every interval covers f, also for keys that were listed because their noise carried them. Where both
    loads were published, a value is the noisy u. Where majorities alone were (``form`` "truncated" or "gaussian"), a
    value is the noisy c, and its interval has no upper limit: such a release says nothing of how much the bucket's
    other keys took off.

    Attributes
    ----------
    spec : VoteHistogramSpec
        The public spec.
    mechanism : VoteRelease
        The release's parameters: noise and cutoff.
    found : list
        The keys that were found, in their own order.
    values : numpy.ndarray of int64
        Their noisy u, or their noisy majorities where these alone were published.
    pairs : numpy.ndarray of int64
        Their noisy l: so many records of each bucket were paired off with others; empty where majorities alone were
        published.
    """

    kind: ClassVar[str] = "histogram-votes"

    spec: VoteHistogramSpec
    mechanism: VoteRelease
    found: list[Any]
    values: Integers
    pairs: Integers
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        self.pairs.flags.writeable = False
        object.__setattr__(self, "_places", places_of(self.found))

    @classmethod
    def of(
        cls,
        spec: VoteHistogramSpec,
        mechanism: VoteRelease,
        names: list[Any],
        elected: Elected,
        guarantee: Guarantee,
        charge: Charge | None,
    ) -> Self:
        """Return the release of what was drawn; ``names`` are those of the elected buckets, in their order."""
        order = sorted(range(len(names)), key=lambda i: names[i])
        pairs = elected.pairs[order] if mechanism.has_loads else elected.pairs
        found, values = [name_of(names[i]) for i in order], elected.values[order]
        return cls(spec, mechanism, found, values, pairs, guarantee=guarantee, charge=charge)

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
        values, threshold = self.values[places], self.mechanism.threshold
        high: Integers | Floats
        if isinstance(threshold.law, DiscreteLaplace):
            low, high = between_loads(values, self.pairs[places], threshold.law, threshold.cutoff, tail / 2)
        else:
            low, high = above_majority(values, threshold.law, threshold.cutoff, tail)
        low = np.maximum(low, 1)
        value, least, most = (each.astype(np.float64) for each in (values, low, np.maximum(high, low)))
        return Estimates(asked, value, least, most, confidence, self.counts)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        threshold = self.mechanism.threshold
        return {
            "keys": len(self.found),
            "form": threshold.name,
            "threshold": threshold.cutoff,
            "noise_scale": math.sqrt(threshold.law.variance),
        }

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        arrays: dict[str, files.Array] = {
            "found": stored_names(self.found), "values": self.values, "pairs": self.pairs
        }  # fmt: skip
        return release_document(self, self.spec, arrays, mechanism=self.mechanism.to_json())

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        spec, promise = VoteHistogramSpec.from_json(document.header["spec"]), read_guarantee(document)
        mechanism = VoteRelease.from_json(document.header["mechanism"], promise)
        found = read_names(document.arrays.get("found"), spec)
        values = integer_array(document, "values", (len(found),))
        pairs = integer_array(document, "pairs", (len(found) if mechanism.has_loads else 0,))
        reached = values - pairs if mechanism.has_loads else values
        good = found == sorted(set(found), key=name_order) and len(found) <= spec.max_counters
        if not good or np.any(reached < mechanism.threshold.cutoff):
            raise FileRefused("the file's keys are not those that a histogram publishes.")
        charge = read_charge(document)
        return cls(spec, mechanism, found, values, pairs, guarantee=promise, charge=charge)
