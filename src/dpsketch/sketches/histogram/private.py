"""The released histogram: names with counts and intervals, and what several of them count together.

Counts that had to pass a threshold are too high on average, and so is their sum. What the threshold added is worked out
from the listed counts themselves, under the assumption that true counts follow a power law; where they do not look
like that, no such sum is offered. The interval trusts no law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.drawn import Part
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.chosen import Choice, ShareCut
from dpsketch.laws.entries import BOUND, ENTRIES, FOUND, LISTED, OTHERS, CountingLaw, EntriesLaw
from dpsketch.laws.rounds import WeightedRounds, unit_weights
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.numbers import probability
from dpsketch.release import SketchRelease
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.histogram import intervals
from dpsketch.sketches.histogram.named import NamedCounts, of_one_type, places_of, read_names
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.specs import fingerprint_of
from dpsketch.truncated import Law

__all__ = ["Passed", "PrivateHistogram", "Sum"]

# A power law that is further from the listed counts than this is not taken. The limit was chosen on the data of the
# documentation's table and on equal, Poisson, uniform and geometric counts: beyond it posterior means were further off
# than noisy counts in most cases, and within it in none of them.
_LARGEST_MISFIT = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class PrivateHistogram(NamedCounts, SketchRelease):
    """A released histogram.

    Attributes
    ----------
    spec : HistogramSpec
        The public spec.
    drawn : Drawn
        The entries, with the law that they were drawn by.
    listed, found : list
        The keys of the public list, in its order, and those that were found, in their own.
    """

    kind: ClassVar[str] = "histogram"
    spec_type: ClassVar[Any] = HistogramSpec

    spec: HistogramSpec
    listed: list[Any] = field(init=False, repr=False)
    found: list[Any] = field(init=False, repr=False)
    _places: dict[Any, int] = field(init=False, repr=False)

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        return parts.keys() == {ENTRIES} and isinstance(parts[ENTRIES].law, EntriesLaw)

    def __post_init__(self) -> None:
        arrays = self.drawn.parts[ENTRIES].arrays
        object.__setattr__(self, "listed", read_names(arrays[LISTED], self.spec))
        object.__setattr__(self, "found", read_names(arrays[FOUND], self.spec))
        object.__setattr__(self, "_places", places_of(self.keys))
        if not of_one_type(self.keys, self.spec.key_type):
            raise FileRefused("the file's keys are not of the type that it states.")
        self.values.flags.writeable = False

    def __repr__(self) -> str:
        return f"<PrivateHistogram of {len(self.keys):,} keys, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """All keys of the release: the public list, then those that were found, each in an order that says nothing."""
        return [*self.listed, *self.found]

    @property
    def law(self) -> EntriesLaw:
        """The law of the entries: noise, cutoff, rounds."""
        return cast("EntriesLaw", self.drawn.parts[ENTRIES].law)

    @property
    def bound(self) -> int:
        """The number of keys on which a unit of privacy counts at most in the published counts."""
        return self.law.bound(self.drawn.parts[ENTRIES].arrays)

    @property
    def noise(self) -> Law | None:
        """The noise of one count, in steps of ``spec.grid``; None if names only were published."""
        return self.law.noise_under(self.bound)

    @property
    def values(self) -> Integers:
        """The noisy counts in steps of ``spec.grid``, those of the list first; empty if names only were published."""
        found = self.law.counts_in(self.drawn.parts[ENTRIES].arrays) if self.has_counts else np.empty(0, np.int64)
        return cast("Integers", found)

    @property
    def rest(self) -> int | None:
        """The noisy count of all other keys, or of all keys if the law has a total."""
        arrays = self.drawn.parts[ENTRIES].arrays
        return int(np.asarray(arrays[OTHERS])[0]) if OTHERS in arrays else None

    @property
    def has_counts(self) -> bool:
        """Whether counts were published, and not names only."""
        return self.noise is not None

    @property
    def bare_names(self) -> list[Any] | None:
        """The names, where names only were published."""
        return None if self.has_counts else self.keys

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        unit, m = self.spec.unit, self.bound
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
        part = self.drawn.parts[ENTRIES]
        if BOUND not in part.arrays or not isinstance(part.law, CountingLaw):
            return None
        return Choice.of(part.law.choice, part.arrays).cut(self.bound)

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
        beside = self.law.others_under(self.bound)
        if beside is not None:
            low, high = intervals.ordinary(np.array([self.rest]), beside, (1 - confidence) / 2)
            return self._estimate(self.rest, float(low[0]), float(high[0]), confidence)
        assert self.law.total is not None
        named, posterior, added = self._summed(np.arange(len(self.values)), confidence)
        reach = intervals.sum_width(
            self._count_law, len(self.values), (1 - confidence) / 2, beside=self.law.total.variance
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
        :class:`Sum`.
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
        shared = (len(places) ** 2 - len(places)) * self.law.shared_variance
        reach = intervals.sum_width(law, len(places), (1 - confidence) / 2, beside=shared)
        found = self._estimate(named, named - added - reach, named + reach, confidence)
        grid = self.spec.grid
        expected = None if posterior is None else min(max(grid * posterior, found.low), found.high)
        return Sum(found.value, found.low, found.high, confidence, self.counts, expected)

    def _summed(self, places: Integers, confidence: float) -> tuple[float, float | None, float]:
        """Return the sum of noisy counts, that of posterior means, and the most that a threshold added to the first."""
        cutoff, first = self.law.cutoff, len(self.listed)
        named = float(self.values[places].sum())
        if cutoff is None:
            return named, None, 0.0
        passed = Passed(self.values[first:], self._count_law, cutoff)
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
        law, noise = self.law, self.noise
        others, cut = self.others, self.cut
        chosen = {} if cut is None else {"max_keys": self.bound, "cut": cut.to_json()}
        return {
            "keys": len(self.keys),
            "listed": len(self.listed),
            "form": law.form,
            "threshold": None if law.cutoff is None else self.spec.grid * law.cutoff,
            "noise_scale": None if noise is None else self.spec.grid * math.sqrt(noise.variance),
            "others": None if others is None else others.to_json(),
            **chosen,
        }

    @property
    def _count_law(self) -> Law:
        """What counts carry; refused where names only were published."""
        if (noise := self.noise) is None:
            raise InvalidInput(
                "this release has names only, which `dpsketch top` lists. Release with counts to ask for counts."
            )
        return noise

    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        law, cutoff = self._count_law, self.law.cutoff
        missing = places < 0
        if missing.any() and not self.law.finds:
            raise InvalidInput("a key that was asked for is not on this release's public list, and it knows no other.")
        value = np.zeros(len(places))
        low, high = np.zeros(len(places)), np.full(len(places), self._ceiling(tail / 2))
        there = np.flatnonzero(~missing)
        noisy = self.values[places[there]]
        value[there] = noisy
        low[there], high[there] = intervals.ordinary(noisy, law, tail / 2)
        if cutoff is not None:
            chosen = there[places[there] >= len(self.listed)]
            low[chosen], high[chosen] = intervals.selective(self.values[places[chosen]], law, cutoff, tail / 2)
        grid = self.spec.grid
        low = np.maximum(low, 0)
        return Estimates(asked, grid * value, grid * low, grid * np.maximum(high, low), confidence, self.counts)

    def _ceiling(self, tail: float) -> float:
        """Return what a key that was not found may count, but for a chance of ``tail``."""
        match self.law:
            case CountThreshold(noise=noise, cutoff=cutoff):
                return float(cutoff + intervals.half_width(noise, tail))
            case WeightedRounds(noises=noises, cutoffs=cutoffs, cap=cap, weight=weight):
                # Whoever counts on it gives it the least weight at least, and what the last round summed did not pass.
                # A user with more keys than the cap gives it its weight with a chance of 1 over ``left_out`` at least.
                # Where μ are expected to, fewer than μ − √(2μ·ln(1/p)) do with probability p at most (Chernoff).
                holders = (cutoffs[-1] + intervals.half_width(noises[-1], tail / 2)) / int(unit_weights(cap)[-1])
                left_out = max(1.0, self.spec.unit.max_keys / cap)
                rare = 0.0 if left_out == 1 else math.log(2 / tail)
                spare = rare + math.sqrt(rare * (rare + 2 * holders))
                return (holders + spare) * left_out * weight
            case _:
                return 0.0


@dataclass(frozen=True, slots=True)
class Sum(Estimate):
    """The sum of several counts.

    Attributes
    ----------
    value, low, high, confidence : float
        The sum of the published, noisy counts, and an interval for the sum of the true ones.
    posterior : float or None
        The sum of what each count is expected to be, given that it passed the threshold, if true counts follow a power
        law; None where published counts do not look like one, or had no threshold to pass: ``value`` is best then.

    Accuracy
    --------
    The interval covers the sum of the true counts with the stated confidence, whatever law they follow; of keys that
    had to pass a threshold it reaches down to the most that the threshold may have added. ``posterior`` lies in it
    and is closer to the truth than ``value`` where a power law holds; see the page on histograms for how much.
    """

    posterior: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the sum as JSON-ready values; ``posterior`` where there is one."""
        found = Estimate(self.value, self.low, self.high, self.confidence).to_json()
        return found if self.posterior is None else {**found, "posterior": self.posterior}


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """All counts of a release that passed its threshold."""

    counts: Integers
    law: Law
    cutoff: int

    def posterior(self, places: Integers) -> float | None:
        """Return the sum of the posterior means of the counts at these places, where a power law fits them all."""
        if not len(self.counts) or not intervals.posterior_is_cheap(self.law, self.cutoff):
            return None
        if intervals.misfit(self.counts, self.law, self.cutoff) > _LARGEST_MISFIT:
            return None
        return float(intervals.posterior_means(self.counts, self.law, self.cutoff)[places].sum())

    def added(self, places: Integers, confidence: float) -> float:
        """Return the most that passing may have added to the counts at these places, on average over the noise."""
        tail = (1 - confidence) / 4
        lowest, _ = intervals.selective(self.counts[places], self.law, self.cutoff, tail)
        added = np.sort(intervals.mean_beyond(self.law, self.cutoff - lowest))
        # Each limit misses with that probability, so that of many some do. They are no more than this, but for the
        # same probability once more, and whichever they are, no more was added to them than to the lowest of counts.
        missed = intervals.most_missed(len(added), tail)
        most = float(intervals.mean_beyond(self.law, self.cutoff - intervals.least_listed(self.law, self.cutoff)))
        return float(added.sum() + np.maximum(0.0, most - added[:missed]).sum())
