"""Consistency: make raw estimates look like shares, at the price of a bias.

A raw estimate is unbiased and may be negative. Two ways to mend it, both post-processing:

*non_negative* replaces negative values by 0. It lowers the error of rare keys and raises their mean: a key that nobody
holds is estimated at σ/√(2π) ≈ 0.4σ on average, so sums over many rare keys are far too large.

*base_cut* replaces by 0 whatever does not stand out of the noise of all the keys asked: values below σ·z, where
P(N(0, 1) > z) = 0.05 over the number of keys. Most absent keys become exactly 0, and so do the rarer ones that are
present: their mean is too low.

Intervals keep their coverage: a share is never negative, so cutting them at 0 loses nothing.

References
----------
Wang, Lopuhaä-Zwakenberg, Li, Skoric and Li, *Locally differentially private frequency estimation with consistency*
(NDSS 2020), sections 4 and 5 ("Base-Pos", "Base-Cut").
"""

from __future__ import annotations

import math
from typing import Literal, assert_never

import numpy as np
from scipy.special import ndtr, ndtri

from dpsketch.errors import InvalidInput
from dpsketch.local.intervals import Frequencies, normal_quantile
from dpsketch.numbers import real_number, whole_number

__all__ = ["Consistency", "cut_threshold", "expected_bias", "make_consistent"]

Consistency = Literal["none", "non_negative", "base_cut"]

FALSE_SURVIVORS = 0.05
"""With this probability *any* absent key survives the cut."""


def cut_threshold(deviation: float, keys: int) -> float:
    """Return the value below which ``base_cut`` reports 0."""
    return float(-ndtri(FALSE_SURVIVORS / max(1, keys)) * deviation)


def make_consistent(found: Frequencies, method: Consistency, confidence: float) -> Frequencies:
    """Apply a method to estimates with intervals of the given confidence.

    The noise's standard deviation is read off the intervals: most keys asked for are rare, so the median one is theirs.
    """
    match method:
        case "none":
            return found
        case "non_negative":
            value = np.maximum(found.value, 0.0)
        case "base_cut":
            widths = (found.high - found.low) / (2 * normal_quantile(confidence))
            deviation = float(np.median(widths)) if len(widths) else 0.0
            value = np.where(found.value < cut_threshold(deviation, len(widths)), 0.0, found.value)
        case _:
            raise InvalidInput(f"consistency is 'none', 'non_negative' or 'base_cut', not {method!r}.")
    return Frequencies(value, np.maximum(found.low, 0.0), np.maximum(found.high, 0.0))


def expected_bias(method: Consistency, frequency: float, deviation: float, keys: int = 1) -> float:
    """Return the mean error that a method adds to a key of the given share, for normal noise.

    Examples
    --------
    >>> round(expected_bias("non_negative", 0.0, 0.01), 5)
    0.00399
    >>> round(expected_bias("base_cut", 0.02, 0.01, keys=10_000), 4)
    -0.0196
    """
    frequency, deviation = real_number("frequency", frequency), real_number("deviation", deviation)
    keys = whole_number("keys", keys, low=0)
    match method:
        case "none":
            return 0.0
        case "non_negative":
            threshold = 0.0
        case "base_cut":
            threshold = cut_threshold(deviation, keys)
        case _:
            assert_never(method)
    # E[X·1(X > t)] − f for X ~ N(f, σ²)
    standard = (threshold - frequency) / deviation
    density = math.exp(-(standard**2) / 2) / math.sqrt(2 * math.pi)
    return float(deviation * density - frequency * ndtr(standard))
