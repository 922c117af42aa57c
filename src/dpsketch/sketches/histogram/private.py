"""The released histogram: names with counts and intervals, for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, assert_never

import numpy as np

from dpsketch import files
from dpsketch.arrays import Integers
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.numbers import probability
from dpsketch.privacy import Guarantee
from dpsketch.release import DrawnRelease
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.bounds import ShareCut
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_document
from dpsketch.sketches.histogram import intervals
from dpsketch.sketches.histogram.entries import Found
from dpsketch.sketches.histogram.mechanism import Mechanism
from dpsketch.sketches.histogram.named import NamedCounts, name_order, of_one_type, places_of, read_names, stored_names
from dpsketch.sketches.histogram.rounds import WeightedRounds, unit_weights
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.stored import read_mechanism, stored_mechanism
from dpsketch.sketches.histogram.sums import Passed, Sum
from dpsketch.sketches.histogram.thresholds import Threshold
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.truncated import Law

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = ["PrivateHistogram"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateHistogram(NamedCounts, DrawnRelease):
    """A released histogram: public, to be queried for ever.

    Attributes
    ----------
    spec : HistogramSpec
        The public spec.
    mechanism : Mechanism
        The release's parameters: noise, cutoff, rounds.
    listed, found : list
        The keys of the public list, in its order, and those that were found, in their own.
    values : numpy.ndarray of int64
        Their noisy counts in steps of ``spec.grid``, those of the list first; empty where names only were published.
    rest : int or None
        The noisy count of all other keys, or of all keys where ``mechanism.total`` is there.
    """

    kind: ClassVar[str] = "histogram"

    spec: HistogramSpec
    mechanism: Mechanism
    listed: list[Any]
    found: list[Any]
    values: Integers
    rest: int | None
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        object.__setattr__(self, "_places", places_of(self.keys))

    @classmethod
    def of(
        cls,
        spec: HistogramSpec,
        mechanism: Mechanism,
        listed: list[Any],
        names: list[Any],
        found: Found,
        guarantee: Guarantee,
        charge: Charge | None,
    ) -> Self:
        """Return the release of what was drawn; ``names`` are those of the places that were found, in their order."""
        values = np.concatenate([found.listed, found.values])
        return cls(spec, mechanism, listed, names, values, found.others, guarantee=guarantee, charge=charge)

    def __repr__(self) -> str:
        return f"<PrivateHistogram of {len(self.keys):,} keys, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """All keys of the release: the public list, then those that were found, each in an order that says nothing."""
        return [*self.listed, *self.found]

    @property
    def has_counts(self) -> bool:
        """Whether counts were published, and not names only."""
        return self.mechanism.noise is not None

    @property
    def bare_names(self) -> list[Any] | None:
        """The names, where names only were published."""
        return None if self.has_counts else self.keys

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        unit, m = self.spec.unit, self.mechanism.counted
        keys = "1 published key" if m == 1 else f"{m} published keys"
        if (cut := self.cut) is not None:
            return f"{unit.users_counted(keys=keys)}; {cut.words}"
        if unit.level == "record" or m == unit.max_keys:
            return self.guarantee.counts
        return unit.users_counted(keys=keys)

    @property
    def cut(self) -> ShareCut | None:
        """How much the bound on a user's keys cut of what users hold of the published keys, where it was chosen.

        What is cut is in no interval of a count. It is known privately, by what was paid for to choose the bound.
        """
        bound = self.mechanism.bound
        return None if bound is None or bound.choice is None else bound.choice.cut(self.mechanism.counted)

    @property
    def others(self) -> Estimate | None:
        """All keys that the release does not name, counted together, where that was asked for; with 95% confidence.

        Of a user it counts on what the named keys leave of the bound: where names were found in rounds, that is
        :attr:`counts`' bound, and whoever reaches it with named keys adds nothing here.
        """
        return self.other_keys()

    def other_keys(self, *, confidence: float = 0.95) -> Estimate | None:
        """Return :attr:`others` with another confidence."""
        if self.rest is None:
            return None
        confidence = probability("confidence", confidence)
        mechanism = self.mechanism
        if mechanism.others is not None:
            low, high = intervals.ordinary(np.array([self.rest]), mechanism.others, (1 - confidence) / 2)
            return self._estimate(self.rest, float(low[0]), float(high[0]), confidence)
        if mechanism.total is None or mechanism.noise is None or mechanism.cutoff is None:
            raise FileRefused("the file has a count of other keys without the law of its noise.")
        named, posterior, added = self._summed(np.arange(len(self.values)), confidence)
        reach = intervals.sum_width(
            mechanism.noise, len(self.values), (1 - confidence) / 2, beside=mechanism.total.variance
        )
        least = self.rest - named
        value = least if posterior is None else self.rest - posterior
        bottom, top = float(least - reach), float(least + added + reach)
        return self._estimate(min(max(float(value), bottom), top), bottom, top, confidence)

    def sum(self, keys: Any = None, *, confidence: float = 0.95) -> Sum:
        """Return what several named keys count together.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column, optional
            Keys that the release names, each counted once; by default all of them. All keys that it does not name are
            :attr:`others`.
        confidence : float
            The probability with which the interval covers the sum of the true counts.

        Accuracy
        --------
        The value is the sum of the published counts. Where these had to pass a threshold it is too high on average, and
        ``posterior`` takes that back, where counts look like a power law: see
        :class:`~dpsketch.sketches.histogram.sums.Sum`.
        """
        confidence = probability("confidence", confidence)
        law = self._count_law
        if keys is None:
            places = np.arange(len(self.values))
        else:
            places = np.array([self._places.get(key, -1) for key in dict.fromkeys(self._asked(keys))], np.int64)
        if (places < 0).any():
            raise InvalidInput(
                "a key that was asked for is not named by this release. Sums are over named keys; release with "
                "others=True to count all other keys together."
            )
        named, posterior, added = self._summed(places, confidence)
        reach = intervals.sum_width(law, len(places), (1 - confidence) / 2)
        found = self._estimate(named, named - added - reach, named + reach, confidence)
        grid = self.spec.grid
        expected = None if posterior is None else min(max(grid * posterior, found.low), found.high)
        return Sum(found.value, found.low, found.high, confidence, self.counts, expected)

    def _summed(self, places: Integers, confidence: float) -> tuple[float, float | None, float]:
        """Return the sum of noisy counts, that of posterior means, and the most that a threshold added to the first."""
        mechanism, first = self.mechanism, len(self.listed)
        named = float(self.values[places].sum())
        if mechanism.cutoff is None or mechanism.noise is None:
            return named, None, 0.0
        passed = Passed(self.values[first:], mechanism.noise, mechanism.cutoff)
        listed, chosen = places[places < first], places[places >= first] - first
        posterior = passed.posterior(chosen)
        if posterior is not None:
            posterior += float(self.values[listed].sum())
        return named, posterior, passed.added(chosen, confidence)

    def _estimate(self, value: float, low: float, high: float, confidence: float) -> Estimate:
        """Return a number of units as an estimate; no count is below 0."""
        value, low, high = (self.spec.grid * max(0.0, each) for each in (value, low, high))
        return Estimate(value, low, high, confidence, self.counts)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        mechanism = self.mechanism
        cutoff = None if mechanism.cutoff is None else self.spec.grid * mechanism.cutoff
        others, cut = self.others, self.cut
        chosen = {} if cut is None else {"max_keys": mechanism.counted, "cut": cut.to_json()}
        return {
            "keys": len(self.keys),
            "listed": len(self.listed),
            "form": mechanism.form,
            "threshold": cutoff,
            "noise_scale": self.spec.grid * mechanism.count_error if self.has_counts else None,
            "others": None if others is None else others.to_json(),
            **chosen,
        }

    @property
    def _count_law(self) -> Law:
        """What counts carry; refused where names only were published."""
        if self.mechanism.noise is None:
            raise InvalidInput(
                "this release has names only, which `dpsketch top` lists. Release with counts to ask for counts."
            )
        return self.mechanism.noise

    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        mechanism, law = self.mechanism, self._count_law
        missing = places < 0
        if missing.any() and not mechanism.finds:
            raise InvalidInput("a key that was asked for is not on this release's public list, and it knows no other.")
        value = np.zeros(len(places))
        low, high = np.zeros(len(places)), np.full(len(places), self._ceiling(tail / 2))
        there = np.flatnonzero(~missing)
        noisy = self.values[places[there]]
        value[there] = noisy
        low[there], high[there] = intervals.ordinary(noisy, law, tail / 2)
        if mechanism.cutoff is not None:
            chosen = there[places[there] >= len(self.listed)]
            low[chosen], high[chosen] = intervals.selective(
                self.values[places[chosen]], law, mechanism.cutoff, tail / 2
            )
        grid = self.spec.grid
        low = np.maximum(low, 0)
        return Estimates(asked, grid * value, grid * low, grid * np.maximum(high, low), confidence, self.counts)

    def _ceiling(self, tail: float) -> float:
        """Return what a key that was not found may count, but for a chance of ``tail``."""
        mechanism = self.mechanism
        match mechanism.finding:
            case None:
                return 0.0
            case Threshold(law, cutoff):
                return float(cutoff + intervals.half_width(law, tail))
            case WeightedRounds(laws, cutoffs, cap):
                # Whoever counts on it gives it the least weight at least, and what the last round summed did not pass.
                # A user with more keys than the cap gives it its weight with a chance of 1 over ``left_out`` at least.
                # Where μ are expected to, fewer than μ − √(2μ·ln(1/p)) do with probability p at most (Chernoff).
                holders = (cutoffs[-1] + intervals.half_width(laws[-1], tail / 2)) / int(unit_weights(cap)[-1])
                left_out = max(1.0, self.spec.unit.max_keys / cap)
                rare = 0.0 if left_out == 1 else math.log(2 / tail)
                spare = rare + math.sqrt(rare * (rare + 2 * holders))
                return (holders + spare) * left_out * mechanism.reach.units
            case never:
                assert_never(never)

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        arrays: dict[str, files.Array] = {
            "listed": stored_names(self.listed), "found": stored_names(self.found), "values": self.values
        }  # fmt: skip
        mechanism = stored_mechanism(self.mechanism)
        return release_document(self, self.spec, arrays, mechanism=mechanism, rest=self.rest)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        spec, promise = HistogramSpec.from_json(document.header["spec"]), read_guarantee(document)
        mechanism = read_mechanism(document.header["mechanism"], promise, spec.reach)
        listed, found = (read_names(document.arrays.get(name), spec) for name in ("listed", "found"))
        keys = len(listed) + len(found)
        values = integer_array(document, "values", (keys if mechanism.noise is not None else 0,))
        rest = document.header["rest"]
        good = len(set(listed) | set(found)) == keys and isinstance(rest, int | None) and not isinstance(rest, bool)
        good = good and (mechanism.finds or not found) and found == sorted(found, key=name_order)
        good = good and (rest is None) == (mechanism.others is None and mechanism.total is None)
        good = good and of_one_type([*listed, *found], spec.key_type)
        if good and mechanism.cutoff is not None and found:
            good = int(values[len(listed) :].min()) >= mechanism.cutoff
        if not good:
            raise FileRefused("the file's keys are not those that a histogram publishes.")
        charge = read_charge(document)
        return cls(spec, mechanism, listed, found, values, rest, guarantee=promise, charge=charge)
