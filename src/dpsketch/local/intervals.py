"""Estimates and intervals for protocols that count *support*.

A report supports a key x with probability P if its sender holds x, and q if not. With C supporting reports among n,
f̂ = (C/n − q)/(P − q) is unbiased for the share f of senders who hold x, and

    Var(C/n) = [f·P(1−P) + (1−f)·q(1−q)]/n + τ,

where τ is what a limited pool of hash functions adds: people who share a hash function collide together.

The interval is the score interval: all f for which the count lies within z standard deviations *at that f*, and half a
report more, because counts are whole. Solving for f is a quadratic equation. Unlike f̂ ± z·(estimated deviation) it
keeps its coverage where C is a handful of reports; it is a little wide there. Far in the tail, where the intervals of
many keys are to hold at once, such counts are skewed: a key that nobody holds is supported by more reports than a
normal law allows. There the lower end is that of a binomial law with the same variance (Clopper and Pearson's, counts
taken in lots of as many as make the variances equal).

Where only a random part of the reports speaks about x, who they come from is random too, and Var(C/n) = p(1−p)/n + τ
with p = fP + (1−f)q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from dpsketch.arrays import Floats
from dpsketch.distributions import normal_quantile
from dpsketch.numbers import real_number, whole_number

__all__ = ["Frequencies", "from_sampled_support", "from_support", "share_of", "support_variance"]


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Estimated shares of people, with intervals."""

    value: Floats
    low: Floats
    high: Floats


def from_support(
    support: npt.NDArray[np.int64], users: int, p_true: float, p_false: float, spread: float, confidence: float
) -> Frequencies:
    """Turn counts of supporting reports into shares of people with score intervals.

    Parameters
    ----------
    support : numpy.ndarray
        C, one for each key.
    users : int
        n, the number of reports.
    p_true, p_false : float
        P and q.
    spread : float
        τ, the variance of C/n that shared hash functions add.
    confidence : float
        Coverage of each interval.
    """
    users = whole_number("users", users, low=1)
    z2 = normal_quantile(confidence) ** 2
    gap = p_true - p_false
    base = p_false * (1 - p_false) / users + spread
    slope = gap * (1 - p_true - p_false) / users  # of the variance, in f: P(1−P) − q(1−q) over n

    def end(count: Floats, side: int) -> Floats:
        excess = count / users - p_false
        # Not negative for any count from 0 to n: at C = 0 the variance is qP/n + τ, at C = n it is (1−q)(1−P)/n + τ.
        half = np.sqrt(z2 * (base + slope * excess / gap) + (z2 * slope / (2 * gap)) ** 2) / gap
        return excess / gap + z2 * slope / (2 * gap**2) + side * half

    value = (support / users - p_false) / gap
    low, high = end(np.maximum(support - 0.5, 0.0), -1), end(np.minimum(support + 0.5, users), 1)
    exact = _least_share(support, users, base + slope * np.clip(value, 0.0, 1.0), confidence)
    return Frequencies(value, np.minimum(low, (exact - p_false) / gap), high)


def from_sampled_support(
    support: npt.NDArray[np.int64],
    reports: npt.NDArray[np.int64] | int,
    p_true: float,
    p_false: float,
    spread: float,
    confidence: float,
) -> Frequencies:
    """Do the same where a random part of the reports, ``reports`` of them, speaks about a key; without any, [0, 1]."""
    z2 = normal_quantile(confidence) ** 2
    seen = np.maximum(reports, 1)
    scale = 1 + z2 / seen

    def end(count: Floats, side: int) -> Floats:
        share = count / seen
        centre = (share + z2 / (2 * seen)) / scale
        bound: Floats = centre + side * np.sqrt(np.maximum(0.0, centre**2 - (share**2 - z2 * spread) / scale))
        return bound

    share = support / seen
    low = end(np.maximum(support - 0.5, 0.0), -1)
    low = np.minimum(low, _least_share(support, seen, share * (1 - share) / seen + spread, confidence))
    ends = share, low, end(np.minimum(support + 0.5, seen), 1)
    value, low, high = ((each - p_false) / (p_true - p_false) for each in ends)
    unseen = np.broadcast_to(np.asarray(reports) == 0, support.shape)
    return Frequencies(np.where(unseen, 0.0, value), np.where(unseen, 0.0, low), np.where(unseen, 1.0, high))


def share_of(frequency: Any, users: Any) -> tuple[float, int]:
    """Return a share of people and their number, or refuse them."""
    return float(real_number("frequency", frequency)), whole_number("users", users, low=1)


def _least_share(
    support: npt.NDArray[np.int64], reports: npt.NDArray[np.int64] | int, variance: Floats, confidence: float
) -> Floats:
    """Return the lower end for the expected share of supporting reports, whose estimate has this variance."""
    share = np.clip(support / reports, 1 / (2 * reports), 1 - 1 / (2 * reports))
    lot = np.maximum(reports * variance / (share * (1 - share)), 1e-9)
    low = betaincinv(np.maximum(support, 1) / lot, (reports - support) / lot + 1, (1 - confidence) / 2)
    return np.where(support > 0, low, 0.0)


def support_variance(frequency: float, users: int, p_true: float, p_false: float) -> float:
    """Return the variance of the estimated share, for a fixed population and fresh hash functions."""
    frequency, users = share_of(frequency, users)
    noise = frequency * p_true * (1 - p_true) + (1 - frequency) * p_false * (1 - p_false)
    return noise / (users * (p_true - p_false) ** 2)
