"""Sampled bit: one cell of a person's own sketch, through randomised response. No cap on the size of a set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.local.bits import OneBit, RowTable
from dpsketch.local.intervals import Frequencies, from_sampled_support, share_of
from dpsketch.local.odds import odds_below, privacy_parameter
from dpsketch.local.sets import People
from dpsketch.numbers import real_number, whole_number

__all__ = ["SampledBit", "best_width"]

# Where nearly every cell is occupied, absent keys look like present ones; estimates are not stretched further.
_LEAST_EMPTY = 0.01


def best_width(epsilon: float, mean_items: float) -> int:
    """Return the width with the least variance for rare keys, for sets of about ``mean_items`` items.

    Examples
    --------
    >>> best_width(1.0, 20)
    43
    """
    epsilon, mean_items = privacy_parameter(epsilon), real_number("mean_items", mean_items)
    if not (math.isfinite(mean_items) and mean_items > 0):
        raise InvalidInput("mean_items must be positive.")
    odds = float(odds_below(epsilon))
    noise = odds / (odds - 1) ** 2

    def variance(width: int) -> float:
        empty = math.exp(-mean_items / width)
        return width * (noise + empty * (1 - empty)) / empty**2

    return min(range(2, max(4, math.ceil(8 * mean_items))), key=variance)


@dataclass(frozen=True)
class SampledBit(RowTable, OneBit):
    """People report whether a random cell of a random row of their own bit sketch is occupied.

    This is PrivSketch without its ordering matrix, hence private, with many rows and calibrated for collisions.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    width : int
        Cells in a row; :func:`best_width` chooses it from the usual size of a set, about twice of which is good.
    rows : int, optional
        Size of the public pool of hash functions, at most 65536; below 1024 collisions add much to the error.
    seed : int, optional
        Which pool. Public.

    Privacy
    -------
    ε-locally differentially private for sets of *any* size: row and column are drawn without looking at the set, and
    the one bit is kept with probability T/2⁶⁴, T = ⌊2⁶⁴·E/(E+1)⌋, so that kept/flipped is at most E ≤ e^ε.

    Accuracy
    --------
    f̂ = (θ̂ − π̂)/(1 − π̂), θ̂ the share of occupied cells among reports about the key's own cells, π̂ among all.
    Variance near M(v₁ + θ(1−θ))/(n(1−π)²), v₁ = E/(E−1)². *Biased* by about −f(1−f)(π₁−π₀)/(1−π) for a key whose
    holders fill a share π₁ of cells with their other items and the others π₀: where holders of a key have larger sets
    than others it is underestimated, by a tenth to two fifths for skewed set sizes. Best for ε below 1, and where no
    cap is known.

    Examples
    --------
    >>> SampledBit(epsilon=0.5, width=40).report([["a", "b"], []]).column_names
    ['id', 'row', 'column', 'bit']
    """

    name: ClassVar[str] = "sampled-bit"
    ranges: ClassVar = {**RowTable.ranges, "width": (2, 2**16)}
    purpose: ClassVar[str] = "sampled-bit"

    width: int
    rows: int = 4096
    seed: int = 1

    @property
    def places(self) -> dict[str, int]:
        """The cells."""
        return {"row": self.rows, "column": self.width}

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"randomised response on one of {self.width} cells of a random row; a record is one person's whole set"

    def decide(
        self, people: People, place: tuple[npt.NDArray[Any], ...], words: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint8]:
        """Turn random words into reported bits."""
        bits = np.empty(len(people), np.uint8)
        rows, columns = (each.astype(np.uint32) for each in place)
        threshold = np.uint64(self.threshold)
        kernels.sampled_bits(
            people.offsets, people.prints, self.keys, rows, columns, self.width, threshold, words, bits
        )
        return bits

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        users = whole_number("users", users, low=1)
        keep, keys = self.keep, self.keys
        flip, gap = 1 - keep, 2 * keep - 1
        reports, ones = tally.tables["reports"], tally.tables["ones"]
        about = kernels.sum_over_rows(reports, keys, fingerprints)
        support = kernels.sum_over_rows(ones, keys, fingerprints)
        overall = (int(ones.sum()) / users - flip) / gap
        occupied = from_sampled_support(support, about, keep, flip, self._spread(reports, ones, users), confidence)
        empty = max(1 - overall, _LEAST_EMPTY)
        value, low, high = ((end - overall) / empty for end in (occupied.value, occupied.low, occupied.high))
        return Frequencies(value, low, high)

    def _spread(self, reports: npt.NDArray[np.int64], ones: npt.NDArray[np.int64], users: int) -> float:
        """Estimate the variance of a key's share of ones that sharing rows adds, from pairs of reports in one cell."""
        together = float(np.sum(ones * (ones - 1.0)))
        pairs = float(np.sum(reports * (reports - 1.0)))
        by_chance = (int(ones.sum()) / users) ** 2 * pairs
        return max(0.0, together - by_chance) * self.width / users**2

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate for sets that occupy half of the cells, without what the pool adds."""
        return self.variance_at(frequency, users, occupied=0.5)

    def variance_at(self, frequency: float, users: int, *, occupied: float) -> float:
        """Predict the variance where a share ``occupied`` of the cells of people's sketches is taken."""
        frequency, users = share_of(frequency, users)
        occupied = real_number("occupied", occupied)
        keep = self.keep
        noise = keep * (1 - keep) / (2 * keep - 1) ** 2
        rest = 1 - frequency
        theta = frequency + rest * occupied
        own, others = noise + theta * (1 - theta), noise + occupied * (1 - occupied)
        return ((self.width - 2 * rest) * own + rest**2 * others) / (users * (1 - occupied) ** 2)
