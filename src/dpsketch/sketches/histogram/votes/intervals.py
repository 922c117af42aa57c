"""What a listed bucket's noisy loads say about its key's true count."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.noise import DiscreteLaplace
from dpsketch.sketches.histogram.intervals import either_side, highest, least_listed, log_reaching, lowest
from dpsketch.truncated import Law

__all__ = ["above_majority", "between_loads", "log_difference_reaching"]


def between_loads(
    upper: Integers, lower: Integers, law: DiscreteLaplace, cutoff: int, tail: float
) -> tuple[Integers, Integers]:
    """Return an interval for each key's true count, from the noisy u and l of its bucket, given that it was listed.

    Parameters
    ----------
    upper, lower : array of int
        Noisy u and l, which differ by at least ``cutoff``.
    law : DiscreteLaplace
        The noise of each.
    cutoff : int
        The least noisy u − l that is listed.
    tail : float
        How often each of the two limits may miss.

    Accuracy
    --------
    The true count f lies in its interval with probability at least 1 − 2·tail, given that the key is listed, because
    c ≤ f ≤ u. The lower limit is one of c = u − l: its noise is the difference of two, a log-concave law, and what is
    listed is what reaches the cutoff. The upper limit is one of u. Given the noisy l, which is independent of u's
    noise, what is listed is what reaches the cutoff and that l.
    """
    low = lowest(upper - lower, partial(log_difference_reaching, law), cutoff, tail)
    return low, highest(upper, law, cutoff + lower, tail)


def above_majority(majority: Integers, law: Law, cutoff: int, tail: float) -> tuple[Integers, Floats]:
    """Return a one-sided interval for each key's true count, from the noisy c of its bucket, given that it was listed.

    Parameters
    ----------
    majority : array of int
        Noisy c, all at least ``cutoff``.
    law : Law
        The noise of c.
    cutoff : int
        The least noisy c that is listed.
    tail : float
        How often the lower limit may miss.

    Accuracy
    --------
    The true count f lies in its interval with probability at least 1 − tail, given that the key is listed. The lower
    limit exceeds c with probability at most ``tail`` (:func:`~dpsketch.sketches.histogram.intervals.lowest`), and
    c ≤ f. There is no upper limit: f may be as large as c + l, where l counts the pairs of the bucket, and a release of
    majorities alone depends on l in no way. Two streams with one c and any two l give the same release.
    """
    low = lowest(majority, partial(log_reaching, law), cutoff, tail, least_listed(law, cutoff))
    return low, np.full(len(majority), np.inf)


def log_difference_reaching(law: DiscreteLaplace, values: npt.ArrayLike) -> Floats:
    """Return ln P(Z − Z' ≥ z) for whole numbers z and two independent draws.

    P(Z − Z' ≥ t) = (1−a)·a^t·(t + (1+a²)/(1−a²) + a/(1−a))/(1+a)² for t ≥ 1, with a = e^(−rate).

    Examples
    --------
    >>> log_difference_reaching(DiscreteLaplace(1.0, 1), [0, 1]).round(4).tolist()
    [-0.446, -1.0222]
    """
    rate = law.epsilon / law.sensitivity
    a, gap = math.exp(-rate), -math.expm1(-rate)
    more = (1 + a * a) / -math.expm1(-2 * rate) + a / gap
    scale = math.log(gap) - 2 * math.log1p(a)
    return either_side(np.asarray(values, np.float64), lambda t: scale - rate * t + np.log(t + more))
