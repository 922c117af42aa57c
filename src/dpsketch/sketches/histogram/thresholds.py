"""From which noisy count on a key is listed, so that no name shows who was there; all from public facts.

A key is listed where its count is at least 1 and count plus noise reaches the *cutoff*. A key that one unit alone holds
has a count of at most ``weight``, and is listed with a small probability only, which is a part of δ. How likely that
is together with what the other counts tell is exact for each mechanism below, and :func:`delta_of` recomputes it from
what a file says, so that a claim can be checked.

Cutoffs and scales are rounded up. Nothing here may be chosen by looking at data.
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
from dpsketch.sketches.histogram.joint import chance_of_any, joint_delta, least_whole, log_hidden, part_of
from dpsketch.sketches.histogram.rounds import WeightedRounds, rounds, weighted
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = [
    "Discovery",
    "Mechanism",
    "Threshold",
    "choose",
    "delta_of",
    "gaussian",
    "plain_laplace",
    "single_counts",
    "truncated_laplace",
]

Mechanism = Literal["laplace", "truncated", "gaussian", "weighted", "rounds"]

# So much more Gaussian noise than the shared counts need alone leaves room in δ for the names.
_ROOM = 1 + 1e-5
# A user with at least so many keys has its names found by weights, and its counts in a second stage.
_MANY_KEYS = 10
# No user gives weight to more keys than this in a round: more finds fewer.
_CAP = 100
_COUNTS_SHARE = 0.3
# Below it the joint δ of Gaussian noise may have no digits left, and a budget is refused for that.
_LEAST_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Threshold:
    """One stage: every count gets noise, and is listed with it where it reaches the cutoff.

    Attributes
    ----------
    law : Law
        The noise of one count.
    cutoff : int
        The least noisy count that is listed.
    keys, weight : int
        A unit moves at most so many keys, each by at most so much.
    replace : bool
        Whether neighbours have one unit in place of another, rather than one more or less.
    epsilon, delta : float
        What is promised; δ is exact, up to rounding it up.
    """

    law: Law
    cutoff: int
    keys: int
    weight: int
    replace: bool
    epsilon: float
    delta: float

    @property
    def name(self) -> Mechanism:
        """The mechanism, by the name that forces it."""
        match self.law:
            case TruncatedLaplace():
                return "truncated"
            case DiscreteLaplace():
                return "laplace"
            case RoundedGaussian():
                return "gaussian"
            case never:
                assert_never(never)

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return f"{self.law.words}; keys listed from {self.cutoff} on"


Discovery = Threshold | WeightedRounds


def delta_of(law: Law, cutoff: int, *, epsilon: float, keys: int, weight: int, replace: bool) -> float:
    """Return the joint δ at ``epsilon`` of listing counts with such noise from such a cutoff on, rounded up.

    It is 1 where these values promise nothing at this ε. For the constructors' proofs see there.

    Examples
    --------
    >>> facts = {"epsilon": 1.0, "keys": 1, "weight": 1, "replace": False}
    >>> delta_of(TruncatedLaplace(1.0, 14), 15, **facts) <= 1e-6 < delta_of(TruncatedLaplace(1.0, 14), 14, **facts)
    True
    """
    moved = 2 * keys if replace else keys
    match law:
        case RoundedGaussian(sigma):
            novel = np.arange(keys + 1.0)
            leaks = novel * log_hidden((cutoff - weight - 0.5) / sigma)
            return joint_delta(epsilon, leaks, (keys - novel) * (weight / sigma) ** 2, replace=replace)
        case DiscreteLaplace(rate, sensitivity):
            if Fraction(rate) * moved * weight > Fraction(epsilon) * sensitivity:
                return 1.0
            return _laplace_delta(law, cutoff - weight, keys)
        case TruncatedLaplace(rate):
            if Fraction(rate) * moved > Fraction(epsilon) or weight != 1 or cutoff < 2:
                return 1.0
            return _truncated_delta(law, cutoff - 1, moved)
        case never:
            assert_never(never)


@lru_cache(maxsize=256)
def truncated_laplace(epsilon: float, delta: float, keys: int, replace: bool) -> Threshold:
    """Return the threshold of truncated discrete Laplace noise, for units that move each key by at most 1.

    Privacy
    -------
    Let M be the number of keys that move: ``keys``, or twice as many where one unit replaces another. The rate is
    ε/M, k the bound, and the cutoff k + 1. A count that moves by 1 has odds within e^(ε/M) at every value that both
    sides reach; each side reaches one value that the other does not, with probability P(k). A key of count 1 is listed
    at z = k only, with probability P(k), and hidden with 1 − P(k) against 1. So each key is (ε/M, P(k))-private, and
    M of them are (ε, 1 − (1 − P(k))^M)-private. All can leak at once (where counts are large: at the value that the
    other side does not reach), so that this δ is exact.

    Examples
    --------
    >>> truncated_laplace(1.0, 1e-6, 1, False).cutoff
    15
    """
    epsilon, delta, keys, _ = _facts(epsilon, delta, keys, 1)
    moved = 2 * keys if replace else keys
    rate = part_of(epsilon, moved)
    bound = least_whole(lambda k: _truncated_delta(TruncatedLaplace(rate, k), k, moved) <= delta, 1)
    return _threshold(TruncatedLaplace(rate, bound), bound + 1, epsilon, keys, 1, replace)


@lru_cache(maxsize=256)
def plain_laplace(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> Threshold:
    """Return the threshold of discrete Laplace noise, for units that move each key by at most ``weight``.

    Privacy
    -------
    Let a = exp(−ε/(M·w)), with M as in :func:`truncated_laplace` and w the weight: shared counts move by at most w
    each, and each has odds within e^(ε/M) at every output. A novel key has a count of at most w, and is listed with
    probability at most r = P(w + Z ≥ T) = a^(T−w)/(1+a).

    Say that the unit at hand has j novel keys, and the one whose place it takes j' (0 where it takes none). Outputs
    that show one of the j have probability 1 − (1−r)^j. On the others the odds are at most (1−r)^(j−j') from novel
    keys, times e^(ε/M) for each of the at most M − j − j' shared ones. So with c = e^(−ε/M) ≤ 1

        δ ≤ 1 − (1−r)^j + (1−r)^j·(1 − (1−r)^(j'−j)/c^(j+j'))⁺ ≤ 1 − (1−r)^max(j, j'),

    and δ = 1 − (1−r)^m, which m novel keys attain, is exact. Where a unit leaves, j = 0 and j' ≤ m: the same.

    Examples
    --------
    >>> plain_laplace(3.0, 1e-5, 1, 10, False).cutoff
    47
    """
    epsilon, delta, keys, weight = _facts(epsilon, delta, keys, weight)
    law = DiscreteLaplace(epsilon, (2 if replace else 1) * keys * weight)
    beyond = least_whole(lambda gap: _laplace_delta(law, gap, keys) <= delta, 1)
    return _threshold(law, weight + beyond, epsilon, keys, weight, replace)


@lru_cache(maxsize=256)
def gaussian(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> Threshold:
    """Return the threshold of rounded Gaussian noise, for units that move each key by at most ``weight``.

    Privacy
    -------
    A unit with j novel keys and m − j shared ones shows none of the former with probability q^j,
    q = Φ((T − w − ½)/σ) (the half is the rounding), and shifts the latter by w√(m−j)/σ. The joint δ is the largest
    over j, or over both units' j where one replaces another (:mod:`~dpsketch.sketches.histogram.joint`). Noise and
    names need not share δ: σ is what the counts need alone, a hundred-thousandth more, and T the least that then fits.

    Examples
    --------
    >>> gaussian(1.0, 1e-5, 10, 1, False).cutoff
    58
    """
    epsilon, delta, keys, weight = _facts(epsilon, delta, keys, weight)
    law = _gaussian_law(epsilon, delta, keys, weight, replace)

    def fits(cutoff: int) -> bool:
        return delta_of(law, cutoff, epsilon=epsilon, keys=keys, weight=weight, replace=replace) <= delta

    return _threshold(law, least_whole(fits, weight + 1), epsilon, keys, weight, replace)


def choose(
    epsilon: float,
    delta: float,
    keys: int,
    weight: int,
    replace: bool,
    *,
    names_only: bool = False,
    mechanism: Mechanism | None = None,
) -> Discovery:
    """Return the mechanism that should list the most keys with the best counts, by public facts alone.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    keys, weight : int
        A unit moves at most so many keys, each by at most so much.
    replace : bool
        Whether neighbours have one unit in place of another.
    names_only : bool
        Whether counts are not wanted: the names get the whole budget.
    mechanism : str, optional
        Take this one instead: "laplace", "truncated", "gaussian", "weighted" or "rounds".

    Notes
    -----
    The rule:

    1. Units with few keys (at most 2, or below 10 where counts are wanted): of truncated Laplace (where the weight
       is 1), Laplace and Gaussian noise the one with the least cutoff; of equal ones that with the least variance.
    2. Units with more: each gives weight 1/√d to at most 100 of its keys, in two rounds from ε = 1 on, in one below.
       Where counts are wanted, a second stage on the found keys gets 30 % of μ², for at most 30 keys of each unit at
       ε = 1, fewer below and more above.
    """
    epsilon, delta, keys, weight = _facts(epsilon, delta, keys, weight)
    if mechanism is None and keys >= (3 if names_only else _MANY_KEYS):
        mechanism = "rounds" if epsilon >= 1 else "weighted"
    match mechanism:
        case None:
            found = [plain_laplace(epsilon, delta, keys, weight, replace)]
            if weight == 1:
                found.append(truncated_laplace(epsilon, delta, keys, replace))
            if not _names_alone_pass(min(each.cutoff for each in found), epsilon, delta, keys, weight, replace):
                found.append(gaussian(epsilon, delta, keys, weight, replace))
            return min(found, key=lambda each: (each.cutoff, each.law.variance))
        case "truncated":
            if weight != 1:
                raise InvalidInput(
                    f"truncated noise is for units that move each key by at most 1, not by {weight}: "
                    "take 'laplace' or 'gaussian'."
                )
            return truncated_laplace(epsilon, delta, keys, replace)
        case "laplace":
            return plain_laplace(epsilon, delta, keys, weight, replace)
        case "gaussian":
            return gaussian(epsilon, delta, keys, weight, replace)
        case "weighted" | "rounds":
            make = weighted if mechanism == "weighted" else rounds
            cap = min(keys, _CAP)
            if names_only:
                return make(epsilon, delta, cap, replace)
            counted = min(keys, _counted(epsilon))
            return make(
                epsilon, delta, cap, replace, counts_keys=counted, counts_share=_COUNTS_SHARE, counts_weight=weight
            )
        case never:
            assert_never(never)


def _counted(epsilon: float) -> int:
    """Return the number of a unit's found keys that are counted, with about the least error on five data sets.

    More keys add noise in proportion to their square root, and fewer cut true counts. The smaller the noise is, the
    more of the error is the cut.
    """
    return max(10, round(30 * math.pow(epsilon, 1 / 2 if epsilon < 1 else 1 / 3)))


def _gaussian_law(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> RoundedGaussian:
    reach = weight * math.sqrt((2 if replace else 1) * keys)
    return RoundedGaussian(reach / accounting.gaussian_mu(epsilon, delta) * _ROOM)


def _names_alone_pass(cutoff: int, epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> bool:
    """Say whether Gaussian noise surely needs more than this cutoff: there a unit's novel keys alone show it too often.

    It spares most releases of records the joint δ, for which SciPy must be loaded. False says nothing.
    """
    if epsilon < _LEAST_EPSILON:
        return False
    sigma = _gaussian_law(epsilon, delta, keys, weight, replace).sigma
    beyond = math.erfc((cutoff - weight - 0.5) / (sigma * math.sqrt(2))) / 2
    return keys * math.log1p(-beyond) < math.log1p(-delta) * (1 + 1e-9)


def single_counts(epsilon: float, delta: float, weight: int, replace: bool, *, several: bool) -> WeightedRounds:
    """Return rounds whose counts carry the noise of a unit on one key, to be widened for a bound chosen later."""
    make = rounds if several else weighted
    return make(epsilon, delta, _CAP, replace, counts_keys=1, counts_share=_COUNTS_SHARE, counts_weight=weight)


def _facts(epsilon: float, delta: float, keys: int, weight: int) -> tuple[float, float, int, int]:
    epsilon = real_number("epsilon", epsilon)
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon must be positive and finite, not {epsilon!r}.")
    keys, weight = whole_number("keys", keys, low=1), whole_number("weight", weight, low=1)
    return float(epsilon), probability("delta", delta), keys, weight


def _threshold(law: Law, cutoff: int, epsilon: float, keys: int, weight: int, replace: bool) -> Threshold:
    delta = delta_of(law, cutoff, epsilon=epsilon, keys=keys, weight=weight, replace=replace)
    return Threshold(law, cutoff, keys, weight, replace, epsilon, delta)


def _truncated_delta(law: TruncatedLaplace, low: int, moved: int) -> float:
    """Return δ where a novel key is listed from noise of ``low`` on; never below that of the ends."""
    return chance_of_any(law.reaching(min(low, law.bound)), moved)


def _laplace_delta(law: DiscreteLaplace, gap: int, keys: int) -> float:
    """Return δ for a cutoff of ``gap`` beyond the weight."""
    rate = law.epsilon / law.sensitivity
    return chance_of_any(math.exp(-rate * gap - math.log1p(math.exp(-rate))), keys) if gap > 0 else 1.0
