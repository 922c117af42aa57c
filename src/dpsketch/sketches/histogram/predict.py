"""What a release will list, predicted from a guess at the data before anything is read or spent.

The model: records are drawn one by one by the guessed law, and users are alike, each with the same number of records.
A key's count is then close to a Poisson number, and so is the number of a user's other keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, pdtrik

from dpsketch.arrays import Floats
from dpsketch.laws.entries import EntriesLaw
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds, unit_weights
from dpsketch.laws.thresholds import CountThreshold
from dpsketch.privacy import Unit
from dpsketch.sketches.histogram.intervals import log_reaching
from dpsketch.truncated import Law

__all__ = ["HistogramPrediction", "Holdings", "kept", "listed", "predict"]


# Counts at which a chance is worked out, and values of a Poisson number that stand for all.
_GRID = 256
_VALUES = 200
# Noise beyond so many standard deviations does not happen; its law is tabulated at no more points than this.
_FAR = 14
_POINTS = 20_000
# Bytes of a key with a name of some 30 and a count, of a user, and of a pair of both while they are grouped; measured.
_KEY_BYTES, _USER_BYTES, _PAIR_BYTES = 150, 120, 180


@dataclass(frozen=True, slots=True)
class HistogramPrediction:
    """What a release would list.

    Attributes
    ----------
    found : float
        How many keys on no list it is expected to name.
    error : float
        Root mean square of the difference between a published count and what was counted; infinite without counts.
    present : float
        How many keys are expected to occur at all.
    """

    found: float
    error: float
    present: float


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Who may have what, as a guess.

    Attributes
    ----------
    counts : numpy.ndarray
        What each key is expected to count, before a bound on the keys of a user.
    chances : numpy.ndarray or None
        How likely a user is to have each key; None where the unit is a record.
    users : float
        How many users there are; 0 where the unit is a record.
    """

    counts: Floats
    chances: Floats | None
    users: float

    @classmethod
    def of(cls, counts: Floats, unit: Unit, users: float | None) -> Holdings:
        """Spread the guessed counts of records over users; over so many that each fills its bound, if none are said."""
        if unit.level == "record":
            return cls(counts, None, 0.0)
        records = float(counts.sum())
        people = users or records / unit.max_keys
        each = records / people * counts / records
        chances: Floats = -np.expm1(-each)
        return cls(people * np.minimum(each, unit.max_weight * chances), chances, people)

    @property
    def held(self) -> float:
        """How many keys a user has, on average."""
        return 1.0 if self.chances is None else float(self.chances.sum())

    @property
    def memory(self) -> int:
        """About so many bytes for a histogram of them."""
        keys = float(-np.expm1(-self.counts).sum())
        return math.ceil(_KEY_BYTES * keys + self.users * (_USER_BYTES + _PAIR_BYTES * self.held))


def predict(law: EntriesLaw, holdings: Holdings) -> HistogramPrediction:
    """Predict what a release by this law would list of data like these."""
    present = float(-np.expm1(-holdings.counts).sum())
    match law:
        case CountThreshold(noise=noise, cutoff=cutoff):
            counts = holdings.counts
            if holdings.chances is not None:
                counts = counts * kept(holdings.chances, law.keys)
            found, square = listed(counts, noise, cutoff)
            return HistogramPrediction(found, math.sqrt(square), present)
        case WeightedRounds():
            return HistogramPrediction(_in_rounds(law, holdings), law.count_error, present)
        case _:
            return HistogramPrediction(0.0, law.count_error, present)


def listed(counts: Floats, law: Law, cutoff: int) -> tuple[float, float]:
    """Return how many of the keys a threshold lists, and the mean square of the noise in their counts.

    Parameters
    ----------
    counts : array of float
        What each key is expected to count.
    law, cutoff
        The noise, and the least noisy count that is listed.

    Examples
    --------
    >>> from dpsketch.noise import DiscreteLaplace
    >>> found, square = listed(np.array([1000.0, 900.0]), DiscreteLaplace(1.0, 1), 15)
    >>> round(found, 6), round(square, 2)
    (2.0, 1.84)
    """
    deviation = math.sqrt(law.variance)
    step = max(1, round(2 * _FAR * deviation / _POINTS))
    places = step * np.arange(math.ceil(_FAR * deviation / step), -math.ceil(_FAR * deviation / step) - 1, -1)
    reaching = np.exp(log_reaching(law, places))
    # E[Z²; Z ≥ z] for the same z, from the largest down.
    squares = np.cumsum(np.diff(reaching, prepend=0.0) * places.astype(np.float64) ** 2)
    far = cutoff + _FAR * deviation
    near = counts[counts < far + 8 * math.sqrt(far)]
    sure = len(counts) - len(near)
    near = near[near > 0]
    if len(near) == 0:
        return float(sure), law.variance
    grid = np.geomspace(near.min(), near.max(), _GRID) if near.max() > near.min() else near[:1]
    values = pdtrik((np.arange(_VALUES) + 0.5) / _VALUES, grid[:, np.newaxis])
    values = np.floor(np.nan_to_num(values) + 1)  # the least whole number that is reached
    needed = np.clip(cutoff - values, places[-1], places[0] + step)
    at = np.clip((places[0] - needed) // step, -1, len(places) - 1).astype(np.int64)
    there = (values >= 1) & (at >= 0)
    chance = np.where(there, reaching[at], 0.0).mean(axis=1)
    square = np.where(there, squares[at], 0.0).mean(axis=1)
    found = sure + float(np.interp(np.log(near), np.log(grid), chance).sum())
    total = sure * law.variance + float(np.interp(np.log(near), np.log(grid), square).sum())
    return found, total / found if found else law.variance


def _in_rounds(rounds: WeightedRounds, holdings: Holdings) -> float:
    """Return how many keys rounds of weights find; sums of many weights are taken as Gaussian."""
    chances = np.ones(1) if holdings.chances is None else holdings.chances
    holders = holdings.users * chances
    steps = unit_weights(rounds.cap) / WEIGHT_ONE
    left = -np.expm1(-holders)  # the chance that a key is there and not yet found
    found = 0.0
    for noise, cutoff in zip(rounds.noises, rounds.cutoffs, strict=True):
        open_ = chances * left
        many = _numbers(open_)
        part = np.minimum(1.0, rounds.cap / many)
        weights = steps[np.minimum(many, rounds.cap).astype(np.int64)]
        mean, square = float((part * weights).mean()), float((part * weights**2).mean())
        spread = np.sqrt((noise.sigma / WEIGHT_ONE) ** 2 + holders * square)
        passing = ndtr((holders * mean - cutoff / WEIGHT_ONE) / spread)
        found += float((left * passing).sum())
        left = left * (1 - passing)
    return found


def _numbers(chances: Floats) -> Floats:
    """Return how many keys a user may have who has one of them: values that stand for all."""
    total = float(chances.sum())
    others = max(0.0, total - float(chances @ chances) / total) if total else 0.0
    if others == 0:
        return np.ones(1)
    numbers: Floats = 1 + np.floor(np.nan_to_num(pdtrik((np.arange(_VALUES) + 0.5) / _VALUES, others)) + 1)
    return numbers


def kept(chances: Floats, cap: int) -> float:
    """Return how likely a user's key is to stay within the bound."""
    return float(np.minimum(1.0, cap / _numbers(chances)).mean())
