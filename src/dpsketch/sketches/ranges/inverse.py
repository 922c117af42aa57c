"""From how many records lie at or below a value to the value that a share of them lies at or below.

Let R(x) = (records ≤ x) − share·(all records), which never falls. A value v is a quantile where R(v − 1) ≤ 0 ≤ R(v).
R is estimated at any value without bias and with a known error, so the release speaks against the quantile being v or
less where R(v) + reach·error < 0, and against its being v or more where R(v − 1) − reach·error ≥ 0.

Halving finds where that begins if R̂ rises as R does. But R̂ is noisy, and halving can be misled at each value it passes.
That matters where R hardly changes over a long stretch, as between two values that many records share. If instead the
values are gone through from outside, one is misled by the error at the quantile itself or not at all. So from where
halving ended values at distances 1, 2, 4 … are looked at, and again from the farthest that may be the quantile. Over
smooth data many values lie near the end of an interval, each with some noise of its own, and going through all of them
would make it half as wide again. So it is done in steps of a sixteenth of the interval, at nodes that the tree has;
within the last step the end is where the release speaks against all beyond it by a wide margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from dpsketch.arrays import Floats
from dpsketch.sketches.ranges.chain import Nodes

__all__ = ["Balance", "first_reached", "outer_ends"]

# R and its standard errors at values, for the share that belongs to each of them.
Balance = Callable[[Nodes, Floats], tuple[Floats, Floats]]

_ONE = np.uint64(1)
# An interval has at least so many steps, as a power of two.
_STEPS = 4
# What counts as a wide margin, in standard errors beyond those of the interval.
_MARGIN = 2.0
# How often an end is moved at most; a few times are enough.
_ROUNDS = 64


def first_reached(balance: Balance, shares: Floats, lean: float, low: Nodes, high: Nodes) -> Nodes:
    """Search by halving, between two values, for the first where R with ``lean`` of its errors added reaches 0."""
    for _ in range(int(np.max(high - low, initial=0)).bit_length()):
        middle = low + ((high - low) >> _ONE)
        values, errors = balance(middle, shares)
        reached = values + lean * errors >= 0
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + _ONE, high))
    return high


def outer_ends(
    balance: Balance, shares: Floats, low: Nodes, high: Nodes, reach: float, last: int
) -> tuple[Nodes, Nodes]:
    """Move the ends of intervals that halving found outwards, until the release speaks against all beyond them.

    Parameters
    ----------
    balance : Balance
        R and its errors.
    shares : numpy.ndarray
        The shares asked for.
    low, high : numpy.ndarray
        The first values where R with ``reach`` of its errors added, or subtracted, reaches 0.
    reach : float
        The interval's quantile of the normal law.
    last : int
        The largest value; the smallest is 0.
    """
    width = (high - low) >> np.uint64(_STEPS)
    step = _ONE << np.floor(np.log2(np.maximum(width, _ONE).astype(np.float64))).astype(np.uint64)
    rest = step - _ONE
    # Whole steps end where a node of the tree does, so that few counters are in R there.
    lower = _walk(balance, shares, np.minimum(low | rest, np.uint64(last)), step, reach, last, "down")
    upper = _walk(balance, shares, high & ~rest, step, reach, last, "up")
    sure = reach + _MARGIN
    lower = first_reached(balance, shares, sure, lower - np.minimum(rest, lower), lower)
    upper = first_reached(balance, shares, -sure, upper, upper + np.minimum(rest, np.uint64(last) - upper))
    return np.minimum(low, lower), np.maximum(high, upper)


def _walk(
    balance: Balance, shares: Floats, ends: Nodes, step: Nodes, reach: float, last: int, way: Literal["down", "up"]
) -> Nodes:
    """Go from an end to the farthest value met that may be the quantile, until there is none."""
    ends = ends.copy()
    powers = np.arange(last.bit_length(), dtype=np.uint64)
    moving = np.arange(len(ends))
    for _ in range(_ROUNDS):
        here, stride = ends[moving, np.newaxis], step[moving, np.newaxis]
        room = here if way == "down" else np.uint64(last) - here
        inside = room // stride >= _ONE << powers
        jumps = np.where(inside, stride << powers, np.uint64(0))
        at = here - jumps if way == "down" else here + np.maximum(jumps, _ONE) - _ONE
        values, errors = balance(at.ravel(), np.repeat(shares[moving], len(powers)))
        may_be = values + reach * errors >= 0 if way == "down" else values - reach * errors < 0
        farthest = np.max(np.where(may_be.reshape(at.shape) & inside, jumps, np.uint64(0)), axis=1)
        ends[moving] = ends[moving] - farthest if way == "down" else ends[moving] + farthest
        moving = moving[farthest > 0]
        if len(moving) == 0:
            break
    return ends
