"""From which vote on a bucket's key is listed: thresholds for histograms in bounded memory.

A bucket holds a key, its majority count c and its load n (Boyer and Moore's vote: an equal key adds one to c, another
takes one off, and at c = 0 the bucket has no key). A record more or less moves c by one, up or down, and never changes
the key but through c = 0; merging keeps that. So a unit may bring a bucket's key to light, with c = 1, or wipe one out.
Published is either the noisy c alone, or u = (n + c)/2 and l = (n − c)/2, of which a record moves exactly one by 1,
each with noise; the key is then listed where the noisy u − l reaches the cutoff.

Where one unit takes another's place, both may fall into one bucket, and c moves by 2: {y, y} against {y, x}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, assert_never

import numpy as np

from dpsketch import accounting
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.sketches.histogram.joint import chance_of_any, gaussian_excess, least_whole, log_hidden, part_of
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = ["MOST_KEYS", "VoteMechanism", "VoteThreshold", "vote", "vote_delta"]

VoteMechanism = Literal["loads", "truncated", "gaussian"]

_ROOM = 1 + 1e-5
# The pairs of leaks that one unit, or two, may have are looked at one by one.
MOST_KEYS = 512


@dataclass(frozen=True, slots=True)
class VoteThreshold:
    """How the buckets of a vote are published.

    Attributes
    ----------
    law : Law
        The noise of c, or of u and of l each where it is :class:`~dpsketch.noise.DiscreteLaplace`.
    cutoff : int
        The least noisy c, or u − l, that is listed.
    keys : int
        A unit votes in at most so many buckets, once in each.
    replace : bool
        Whether neighbours have one unit in place of another.
    epsilon, delta : float
        What is promised.
    """

    law: Law
    cutoff: int
    keys: int
    replace: bool
    epsilon: float
    delta: float

    @property
    def name(self) -> VoteMechanism:
        """The mechanism, by the name that forces it."""
        match self.law:
            case DiscreteLaplace():
                return "loads"
            case TruncatedLaplace():
                return "truncated"
            case RoundedGaussian():
                return "gaussian"
            case never:
                assert_never(never)


def vote_delta(law: Law, cutoff: int, *, epsilon: float, keys: int, replace: bool) -> float:
    """Return the joint δ at ``epsilon`` of publishing buckets so, rounded up; 1 where they promise nothing.

    Privacy
    -------
    Let m be ``keys``, and M = m, or 2m where one unit replaces another; let P_i be the probability that a key with
    c = i, whose neighbour has no key, is listed.

    *Laplace and truncated noise*, of rate ε/M. A bucket that moves by 1 is (ε/M, P₁)-private: where both sides have
    the key, odds are within e^(ε/M), and truncated noise reaches one value on one side only, of probability P₁; where
    one side has none, the key shows with P₁. So δ = 1 − (1 − P₁)^m. Under replacement a bucket that both units share
    moves by 2 and is (2ε/M, P₂)-private, two that they do not share (2ε/M, 1 − (1 − P₁)²)-private:
    δ = 1 − (1 − max of the two)^m.

    *Gaussian noise.* With λ_i = −ln(1 − P_i): a unit brings j keys to light, wipes out j', and shifts the others by
    √(m − j − j')/σ. δ is the largest of 1 − e^(−jλ₁) + e^(−jλ₁)·H(ε + (j − j')λ₁; √(m − j − j')/σ). Under replacement
    each of m places is a bucket that moves by 2, or two that move by 1; halves of places either leak Λ/2, where Λ =
    max(λ₂, 2λ₁), on one of the sides, or add 2/σ² to the squared shift. Every case is passed by one of these.
    """
    moved = 2 * keys if replace else keys
    match law:
        case RoundedGaussian(sigma):
            points = (cutoff - np.array([1, 2]) - 0.5) / sigma
            one, two = log_hidden(points).tolist()
            if replace:
                return _votes_delta(epsilon, max(two / 2, one), 2 / sigma**2, 2 * keys)
            return _votes_delta(epsilon, one, 1 / sigma**2, keys)
        case DiscreteLaplace(rate, sensitivity):
            if Fraction(rate) * moved > Fraction(epsilon) * sensitivity or cutoff < 3:
                return 1.0
            shown = [_difference_reaching(law, cutoff - c) for c in (1, 2)]
        case TruncatedLaplace(rate, bound):
            if Fraction(rate) * moved > Fraction(epsilon) or cutoff < bound + 1 or bound < 2:
                return 1.0
            shown = [law.reaching(bound), law.reaching(bound - 1)]
        case never:
            assert_never(never)
    if not replace:
        return chance_of_any(shown[0], keys)
    return chance_of_any(max(shown[1], chance_of_any(shown[0], 2)), keys)


@lru_cache(maxsize=256)
def vote(
    epsilon: float, delta: float, keys: int, replace: bool, *, mechanism: VoteMechanism | None = None
) -> VoteThreshold:
    """Return how to publish the buckets of a vote.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    keys : int
        A unit votes in at most so many buckets, once in each.
    replace : bool
        Whether neighbours have one unit in place of another.
    mechanism : str, optional
        "loads" publishes u and l, which bound the true count from above; "truncated" and "gaussian" publish c alone.
        By default that of the last two with the least cutoff, which lists the most keys.

    Examples
    --------
    >>> vote(1.0, 1e-6, 1, False, mechanism="loads").cutoff, vote(1.0, 1e-6, 1, False).cutoff
    (17, 15)
    """
    epsilon, delta = real_number("epsilon", epsilon), probability("delta", delta)
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon must be positive and finite, not {epsilon!r}.")
    keys = whole_number("keys", keys, low=1, high=MOST_KEYS)
    moved = 2 * keys if replace else keys

    def found(law: Law, cutoff: int) -> VoteThreshold:
        exact = vote_delta(law, cutoff, epsilon=epsilon, keys=keys, replace=replace)
        return VoteThreshold(law, cutoff, keys, replace, epsilon, exact)

    def truncated() -> VoteThreshold:
        rate = part_of(epsilon, moved)
        bound = least_whole(lambda k: found(TruncatedLaplace(rate, k), k + 1).delta <= delta, 2)
        return found(TruncatedLaplace(rate, bound), bound + 1)

    def searched(law: Law) -> VoteThreshold:
        return found(law, least_whole(lambda cutoff: found(law, cutoff).delta <= delta, 3))

    def gaussian() -> VoteThreshold:
        reach = math.sqrt(keys) * (2 if replace else 1)
        return searched(RoundedGaussian(reach / accounting.gaussian_mu(epsilon, delta) * _ROOM))

    match mechanism:
        case "loads":
            return searched(DiscreteLaplace(epsilon, moved))
        case "truncated":
            return truncated()
        case "gaussian":
            return gaussian()
        case None:
            return min(truncated(), gaussian(), key=lambda each: each.cutoff)
        case never:
            assert_never(never)


def _difference_reaching(law: DiscreteLaplace, low: int) -> float:
    """Return P(Z − Z' ≥ t) for t ≥ 1.

    P(Z − Z' = d) = ((1−a)/(1+a))²·a^d·(d + C) for d ≥ 0, with C = (1+a²)/(1−a²); summed from t on.
    """
    rate = law.epsilon / law.sensitivity
    a, gap = math.exp(-rate), -math.expm1(-rate)
    middle = (1 + a * a) / -math.expm1(-2 * rate)
    return gap * math.exp(-rate * low) * (low + middle + a / gap) / (1 + a) ** 2


def _votes_delta(epsilon: float, leak: float, square: float, places: int) -> float:
    """Return the largest δ over places that each leak on one side, leak on the other, or shift."""
    here, there = np.meshgrid(np.arange(places + 1), np.arange(places + 1), indexing="ij")
    held = here + there <= places
    here, there = here[held], there[held]
    shifts = np.sqrt(square * (places - here - there))
    values = -np.expm1(-leak * here) + np.exp(-leak * here) * gaussian_excess(epsilon + (here - there) * leak, shifts)
    return min(1.0, float(values.max()) * (1 + 1e-12))
