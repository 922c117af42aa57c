"""What several named keys of a histogram count together: the sum of their noisy counts, and of their posterior means.

Counts that had to pass a threshold are too high on average, and so is their sum. What the threshold added is worked out
from the listed counts themselves, under the assumption that true counts follow a power law; where they do not look
like that, no such sum is offered. The interval trusts no law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.results import Estimate
from dpsketch.sketches.histogram import intervals
from dpsketch.truncated import Law

__all__ = ["Passed", "Sum"]


# A power law that is further from the listed counts than this is not taken. The limit was chosen on the data of the
# documentation's table and on equal, Poisson, uniform and geometric counts: beyond it posterior means were further off
# than noisy counts in most cases, and within it in none of them.
_LARGEST_MISFIT = 0.1


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
