"""The part of a histogram's release that draws: names that pass, and counts with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self, assert_never

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.errors import InvalidInput
from dpsketch.noise import Noise
from dpsketch.privacy import Cost
from dpsketch.sketches.histogram.content import Content
from dpsketch.sketches.histogram.rounds import WeightedRounds
from dpsketch.sketches.histogram.thresholds import Threshold
from dpsketch.truncated import Law

__all__ = ["Entries", "Found"]


_NOTHING = np.empty(0, np.int64)


class Found(NamedTuple):
    """What a mechanism publishes.

    Attributes
    ----------
    places : numpy.ndarray of int64
        The keys that were found, by their numbers in the content, increasing.
    values : numpy.ndarray of int64
        Their noisy counts; empty where names only are published.
    listed : numpy.ndarray of int64
        The noisy counts of the public list, in its order.
    others : int or None
        The noisy count of all other keys, or of all keys where the mechanism has a total; None where neither is drawn.
    """

    places: Integers
    values: Integers
    listed: Integers
    others: int | None


@dataclass(frozen=True, slots=True)
class Entries:
    """The law of a release's entries.

    Attributes
    ----------
    finding, noise, counted, others
        As in :class:`~dpsketch.sketches.histogram.mechanism.Mechanism`.
    words : str
        The mechanism in a phrase.
    costs : tuple of Cost
        What drawing costs.
    """

    finding: Threshold | WeightedRounds | None
    noise: Law | None
    counted: int
    others: Noise | None
    words: str
    costs: tuple[Cost, ...]

    def draw(
        self,
        content: Content,
        listed: Integers,
        choose: Callable[[Integers, int], Self] | None = None,
        add_noise_to_total: Callable[[int], int] | None = None,
    ) -> Found:
        """Return what may be published of the content; ``listed`` are the places of a public list's keys, −1 for none.

        A key that nobody has is not found, whatever its noise: only those of the list are published at zero. Where a
        bound is chosen, ``choose`` returns the law of the counts once it is known which keys are counted, and how many.
        Where a total is published, ``add_noise_to_total`` draws it from the exact total of the counts drawn here: total
        and named counts must bound each user by the same choice of keys, or their difference is not the other keys.
        """
        known = np.unique(listed[listed >= 0])
        match self.finding:
            case None:
                found = _NOTHING
            case Threshold() as threshold:
                return self._one_stage(content, listed, known, threshold, add_noise_to_total)
            case WeightedRounds() as rounds:
                found = _in_rounds(content, known, rounds)
            case never:
                assert_never(never)
        if choose is not None:
            return choose(np.union1d(known, found), len(listed) + len(found))._counts(content, listed, known, found)
        return self._counts(content, listed, known, found)

    def _counts(self, content: Content, listed: Integers, known: Integers, found: Integers) -> Found:
        """Return the noisy counts of keys that are public by now."""
        if self.noise is None:
            return Found(found, _NOTHING, _NOTHING, None)
        asked = np.union1d(known, found)
        sums, rest = content.sums(asked, self.counted)
        values = sums[np.searchsorted(asked, found)] + self.noise.sample(len(found))
        others = None
        if self.others is not None:
            others = rest + int(self.others.sample(1)[0])
        return Found(found, values, self._listed(asked, sums, listed), others)

    def _one_stage(
        self,
        content: Content,
        listed: Integers,
        known: Integers,
        threshold: Threshold,
        add_noise_to_total: Callable[[int], int] | None,
    ) -> Found:
        found, values, total = [_NOTHING], [_NOTHING], 0
        sums = np.zeros(len(known), np.int64)
        for block in content.counts(self.counted):
            total += int(block.sums.sum())
            on_list = np.isin(block.places, known, assume_unique=True)
            sums[np.searchsorted(known, block.places[on_list])] = block.sums[on_list]
            there = block.places[~on_list]
            noisy = block.sums[~on_list] + threshold.law.sample(len(there))
            passed = noisy >= threshold.cutoff
            found.append(there[passed])
            values.append(noisy[passed])
        if self.noise is None:
            return Found(np.concatenate(found), _NOTHING, _NOTHING, None)
        noisy_total = None if add_noise_to_total is None else add_noise_to_total(total)
        return Found(np.concatenate(found), np.concatenate(values), self._listed(known, sums, listed), noisy_total)

    def _listed(self, asked: Integers, sums: Integers, listed: Integers) -> Integers:
        """Return the noisy counts of a public list; keys that nobody has count 0, and get noise as all others."""
        if self.noise is None:
            raise InvalidInput("names only are published: there are no counts to draw.")
        counts = np.zeros(len(listed), np.int64)
        counts[listed >= 0] = sums[np.searchsorted(asked, listed[listed >= 0])]
        return counts + self.noise.sample(len(listed))


def _in_rounds(content: Content, known: Integers, rounds: WeightedRounds) -> Integers:
    """Find names by weights; what is known, from a list or an earlier round, takes no more weight."""
    found = _NOTHING
    for law, cutoff in zip(rounds.laws, rounds.cutoffs, strict=True):
        passed = [found]
        for block in content.weights(np.union1d(known, found), rounds.cap):
            noisy = block.sums + law.sample(len(block.places))
            passed.append(block.places[noisy >= cutoff])
        found = np.sort(np.concatenate(passed))
    return found
