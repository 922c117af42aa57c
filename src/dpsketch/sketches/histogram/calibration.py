"""How the laws of names are calibrated: the least noise and the least cutoffs that a budget allows.

A law computes what it costs by itself, so that nothing here can make a guarantee false. Cutoffs and scales are rounded
up, and follow from public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, assert_never

import numpy as np

from dpsketch import accounting
from dpsketch.core.laws import Additive
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.choice import CHOICE_TABLES, LARGEST
from dpsketch.laws.entries import COUNTS, CountNoise
from dpsketch.laws.joint import joint_delta
from dpsketch.laws.rounds import WEIGHT_ONE, WeightedRounds, rounds_delta, shift_of, weights_table, worst_leak
from dpsketch.laws.thresholds import CountThreshold, Form, delta_of
from dpsketch.laws.votes import VOTE_FORMS, VoteForm, Votes
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Budget, Neighbours, PureCost, ZcdpCost
from dpsketch.truncated import Law, TruncatedLaplace

__all__ = [
    "LARGEST_CAP",
    "SHARE",
    "choice_laws",
    "choose",
    "gaussian",
    "largest_leak",
    "least_cutoff",
    "least_whole",
    "plain_laplace",
    "rounds",
    "single_counts",
    "truncated_laplace",
    "votes_for",
    "weighted",
]

# The joint δ is a maximum over how many keys are new, rounded up. Without this factor on σ the counts alone would take
# all of δ, and rounding would leave no cutoff that fits. One round needs little; for several the best is searched.
_ROOM = 1 + 1e-5
_ROOM_OF_COUNTS = 1 + 1e-4
# A user with at least this number of keys has its names found by weights, and its counts in a second stage.
_MANY_KEYS = 10
# No user gives weight to more keys than this in a round: more finds fewer.
LARGEST_CAP = 100
_LARGEST_CAP = 1024
_COUNTS_SHARE = 0.3
# Below it the joint δ of Gaussian noise may have no digits left, and a budget is refused for that.
_LEAST_EPSILON = 1e-6
_LARGEST = 1 << 62
# The part of ε for the choice of a bound, and of that the part for the table of users.
SHARE = 0.05
_USERS_SHARE = 0.6
# Two numbers that are rounded down so never sum to more than their share.
_LESS = 1 - 1e-12


def choose(
    epsilon: float,
    delta: float,
    keys: int,
    weight: int,
    replace: bool,
    *,
    names_only: bool = False,
    form: Form | None = None,
) -> CountThreshold | WeightedRounds:
    """Return the mechanism that should list the most keys with the best counts, by public facts alone.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    keys, weight : int
        The number of keys that a unit moves, and by how much at most.
    replace : bool
        Whether neighbours have one unit in place of another.
    names_only : bool
        Whether counts are not wanted: the names get the whole budget.
    form : str, optional
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
    if form is None and keys >= (3 if names_only else _MANY_KEYS):
        form = "rounds" if epsilon >= 1 else "weighted"
    match form:
        case None:
            found = [plain_laplace(epsilon, delta, keys, weight, replace)]
            if weight == 1:
                found.append(truncated_laplace(epsilon, delta, keys, replace))
            if not _names_alone_pass(min(each.cutoff for each in found), epsilon, delta, keys, weight, replace):
                found.append(gaussian(epsilon, delta, keys, weight, replace))
            return min(found, key=lambda each: (each.cutoff, each.noise.variance))
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
            make = weighted if form == "weighted" else rounds
            facts = {"max_keys": keys, "counts_weight": weight}
            if not names_only:
                facts["counts_keys"] = min(keys, _counted(epsilon))
            share = 0.0 if names_only else _COUNTS_SHARE
            return make(epsilon, delta, min(keys, LARGEST_CAP), replace, counts_share=share, **facts)
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


def choice_laws(epsilon: float, neighbours: Neighbours) -> tuple[Additive, ...]:
    """Return the laws of the two tables, at this ε together."""
    shares = _USERS_SHARE, 1 - _USERS_SHARE
    return tuple(
        Additive(table, neighbours, DiscreteLaplace(epsilon * share * _LESS, table.between(neighbours).l1))
        for table, share in zip(CHOICE_TABLES, shares, strict=True)
    )


def single_counts(epsilon: float, delta: float, weight: int, replace: bool, *, several: bool) -> WeightedRounds:
    """Return rounds whose counts carry the noise of a unit on one key, to be widened for a bound chosen later."""
    make = rounds if several else weighted
    facts = {"max_keys": LARGEST, "counts_keys": 1, "counts_weight": weight}
    return make(epsilon, delta, LARGEST_CAP, replace, counts_share=_COUNTS_SHARE, **facts)


@lru_cache(maxsize=256)
def truncated_laplace(epsilon: float, delta: float, keys: int, replace: bool) -> CountThreshold:
    """Return the threshold of truncated discrete Laplace noise, for units that move each key by at most 1.

    Examples
    --------
    >>> truncated_laplace(1.0, 1e-6, 1, False).cutoff
    15
    """
    epsilon, delta, keys, _ = _facts(epsilon, delta, keys, 1)
    moved = 2 * keys if replace else keys
    rate = part_of(epsilon, moved)
    facts: dict[str, Any] = {"epsilon": epsilon, "keys": keys, "weight": 1, "replace": replace}
    bound = least_whole(lambda k: delta_of(TruncatedLaplace(rate, k), k + 1, **facts) <= delta, 1)
    return _threshold(TruncatedLaplace(rate, bound), bound + 1, epsilon, keys, 1, replace)


@lru_cache(maxsize=256)
def plain_laplace(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> CountThreshold:
    """Return the threshold of discrete Laplace noise, for units that move each key by at most ``weight``.

    Examples
    --------
    >>> plain_laplace(3.0, 1e-5, 1, 10, False).cutoff
    47
    """
    epsilon, delta, keys, weight = _facts(epsilon, delta, keys, weight)
    law = DiscreteLaplace(epsilon, (2 if replace else 1) * keys * weight)
    facts: dict[str, Any] = {"epsilon": epsilon, "keys": keys, "weight": weight, "replace": replace}
    cutoff = least_whole(lambda cutoff: delta_of(law, cutoff, **facts) <= delta, weight + 1)
    return _threshold(law, cutoff, epsilon, keys, weight, replace)


@lru_cache(maxsize=256)
def gaussian(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> CountThreshold:
    """Return the threshold of rounded Gaussian noise, for units that move each key by at most ``weight``.

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


def _facts(epsilon: float, delta: float, keys: int, weight: int) -> tuple[float, float, int, int]:
    epsilon = real_number("epsilon", epsilon)
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon must be positive and finite, not {epsilon!r}.")
    keys, weight = whole_number("keys", keys, low=1), whole_number("weight", weight, low=1)
    return float(epsilon), probability("delta", delta), keys, weight


def _threshold(law: Law, cutoff: int, epsilon: float, keys: int, weight: int, replace: bool) -> CountThreshold:
    table = Table(COUNTS, None, Move.each(keys, weight))
    return CountThreshold(table, "replace" if replace else "add_remove", epsilon, law, cutoff)


@lru_cache(maxsize=64)
def weighted(
    epsilon: float,
    delta: float,
    cap: int,
    replace: bool,
    *,
    counts_keys: int = 0,
    counts_share: float = 0.0,
    counts_weight: int = 1,
    max_keys: int | None = None,
) -> WeightedRounds:
    """Return one round of weights, and counts if they get a share.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    cap : int
        No unit gives weight to more keys; at most 1024.
    replace : bool
        Whether neighbours have one unit in place of another.
    counts_keys, counts_weight : int
        No unit counts for more of the found keys, nor by more for each.
    counts_share : float
        The counts' part of μ²; 0 for names alone.
    max_keys : int, optional
        The number of keys that one unit has at most, if it is more than ``cap`` and ``counts_keys``.

    Examples
    --------
    >>> found = weighted(1.0, 1e-5, 10, False)
    >>> round(found.cutoffs[0] / WEIGHT_ONE, 2), round(found.noises[0].sigma / WEIGHT_ONE, 3)
    (18.05, 3.731)
    """
    mu = _round_facts(epsilon, delta, cap, counts_keys, counts_share, counts_weight)
    room = _ROOM_OF_COUNTS if counts_share else _ROOM
    counted = counts_keys, counts_share, counts_weight, max_keys
    return _calibrated(epsilon, delta, mu / room, cap, replace, (1.0,), *counted)


@lru_cache(maxsize=64)
def rounds(
    epsilon: float,
    delta: float,
    cap: int,
    replace: bool,
    *,
    shares: tuple[float, ...] = (0.1, 0.9),
    counts_keys: int = 0,
    counts_share: float = 0.0,
    counts_weight: int = 1,
    max_keys: int | None = None,
) -> WeightedRounds:
    """Return several rounds of weights, and counts if they get a share; parameters as for :func:`weighted`.

    ``shares`` are the rounds' parts of what the counts leave of μ², and of the probability that a name shows. How much
    of δ goes to names is chosen so that the last round's cutoff, which finds the most, is the least.

    Examples
    --------
    >>> [round(cutoff / WEIGHT_ONE, 1) for cutoff in rounds(1.0, 1e-5, 100, False).cutoffs]
    [70.2, 21.9]
    """
    mu = _round_facts(epsilon, delta, cap, counts_keys, counts_share, counts_weight)
    if len(shares) < 2 or min(shares) <= 0 or not math.isclose(math.fsum(shares), 1):
        raise InvalidInput(f"the shares of at least two rounds must be positive and sum to 1, not {shares}.")

    def made(room: float) -> WeightedRounds:
        counted = counts_keys, counts_share, counts_weight, max_keys
        return _calibrated(epsilon, delta, mu / room, cap, replace, shares, *counted)

    rooms = _search(lambda log_room: made(1 + math.exp(log_room)).cutoffs[-1], math.log(1e-4), math.log(0.5))
    return made(1 + math.exp(rooms))


def _round_facts(
    epsilon: float, delta: float, cap: int, counts_keys: int, counts_share: float, counts_weight: int
) -> float:
    """Check what was asked, and return the μ that names and counts have together."""
    epsilon, delta = real_number("epsilon", epsilon), probability("delta", delta)
    if not 0 < epsilon <= 1e6:
        raise InvalidInput(f"epsilon must be above 0 and at most 1e6, not {epsilon!r}.")
    whole_number("cap", cap, low=1, high=_LARGEST_CAP)
    whole_number("counts_weight", counts_weight, low=1)
    if not 0 <= real_number("counts_share", counts_share) < 1:
        raise InvalidInput(f"counts_share must be at least 0 and below 1, not {counts_share!r}.")
    whole_number("counts_keys", counts_keys, low=1 if counts_share else 0, high=None if counts_share else 0)
    return accounting.gaussian_mu(epsilon, delta)


def _calibrated(
    epsilon: float,
    delta: float,
    mu: float,
    cap: int,
    replace: bool,
    shares: tuple[float, ...],
    counts_keys: int,
    counts_share: float,
    counts_weight: int,
    max_keys: int | None,
) -> WeightedRounds:
    """Return the rounds with this μ in all, and the least cutoffs that then fit δ."""
    single = mu / math.sqrt(2) if replace else mu  # what one unit may shift
    noises = tuple(
        RoundedGaussian(math.nextafter(WEIGHT_ONE / (single * math.sqrt(share * (1 - counts_share))), math.inf))
        for share in shares
    )
    counts, shift = None, 0.0
    if counts_share:
        noise = RoundedGaussian(counts_weight * math.sqrt(counts_keys / counts_share) / single)
        counts = CountNoise(counts_keys, (noise,))
        shift = shift_of(counts, counts_keys, counts_weight)
    if len(shares) == 1:
        cutoffs: tuple[int, ...] = (
            least_whole(
                lambda cutoff: (
                    rounds_delta(noises, (cutoff,), epsilon=epsilon, cap=cap, replace=replace, counts=shift) <= delta
                ),
                WEIGHT_ONE,
                step=int(4 * noises[0].sigma),
            ),
        )
    else:
        squares = math.fsum((WEIGHT_ONE / noise.sigma) ** 2 for noise in noises) + shift
        leak = largest_leak(epsilon, delta, squares, replace=replace)
        cutoffs = tuple(least_cutoff(noise, leak * share, cap) for noise, share in zip(noises, shares, strict=True))
    table = Table(COUNTS, None, Move.each(max(cap, counts_keys, max_keys or 1), counts_weight))
    neighbours: Neighbours = "replace" if replace else "add_remove"
    return WeightedRounds(table, neighbours, weights_table(cap), epsilon, noises, cutoffs, counts)


def least_cutoff(law: RoundedGaussian, leak: float, cap: int) -> int:
    """Return the least cutoff of a round whose λ is at most ``leak``."""
    return least_whole(lambda cutoff: worst_leak(law.sigma, cutoff, cap) <= leak, WEIGHT_ONE, step=int(4 * law.sigma))


def largest_leak(epsilon: float, delta: float, squares: float, *, replace: bool) -> float:
    """Return the largest λ, to a billionth and rounded down, for which the joint δ fits."""
    low, high, shift = 0.0, -math.log1p(-delta), np.array([squares])
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if joint_delta(epsilon, np.array([middle]), shift, replace=replace) <= delta
            else (low, middle)
        )
    return low


def _search(cost: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one valley is least, to a thousandth, by golden section."""
    golden = (math.sqrt(5) - 1) / 2
    inner, outer = high - golden * (high - low), low + golden * (high - low)
    at_inner, at_outer = cost(inner), cost(outer)
    while high - low > 1e-3:
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - golden * (high - low)
            at_inner = cost(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + golden * (high - low)
            at_outer = cost(outer)
    return (low + high) / 2


@lru_cache(maxsize=256)
def votes_for(budget: Budget, table: Table, neighbours: Neighbours, form: VoteForm | None = None) -> Votes:
    """Return how to publish the buckets of a vote.

    Parameters
    ----------
    budget : Budget
        (ε, δ) with δ > 0.
    table : Table
        The buckets.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    form : {"loads", "truncated", "gaussian"}, optional
        "loads" publishes u and l, which bound the true count from above; "truncated" and "gaussian" publish c alone.
        By default that of the last two with the least cutoff, which lists the most keys.
    """
    if form not in (None, *VOTE_FORMS):
        raise InvalidInput(f"form of a vote is one of {', '.join(VOTE_FORMS)}.")
    match budget.cost:
        case ApproximateCost(epsilon, delta):
            pass
        case PureCost() | ZcdpCost():
            raise InvalidInput(
                "names that are on no public list need epsilon= with delta > 0 (1e-6, say: well below 1 over the "
                "number of records)."
            )
        case never:
            assert_never(never)
    apart = table.between(neighbours)

    def found(noise: Law, cutoff: int) -> Votes:
        return Votes(table, neighbours, noise, cutoff, epsilon, delta)

    def truncated() -> Votes:
        rate = part_of(epsilon, apart.l1)
        bound = least_whole(lambda k: found(TruncatedLaplace(rate, k), k + 1).joint_delta <= delta, 2)
        return found(TruncatedLaplace(rate, bound), bound + 1)

    def searched(noise: Law) -> Votes:
        return found(noise, least_whole(lambda cutoff: found(noise, cutoff).joint_delta <= delta, 3))

    def gaussian() -> Votes:
        return searched(RoundedGaussian(apart.l2 / accounting.gaussian_mu(epsilon, delta) * _ROOM))

    match form:
        case "loads":
            return searched(DiscreteLaplace(epsilon, apart.l1))
        case "truncated":
            return truncated()
        case "gaussian":
            return gaussian()
        case None:
            return min(truncated(), gaussian(), key=lambda each: each.cutoff)
        case other:
            assert_never(other)


def least_whole(holds: Callable[[int], bool], low: int, *, step: int = 1) -> int:
    """Return the least whole number from ``low`` on for which something holds that holds for all larger ones.

    ``step`` is where to look first, beyond ``low``.
    """
    if holds(low):
        return low
    while not holds(low + step):
        low, step = low + step, 2 * step
        if low > _LARGEST:
            raise InvalidInput("no cutoff below 2**62 keeps this promise: state a larger epsilon or delta.")
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def part_of(epsilon: float, count: int) -> float:
    """Return ε/count, rounded down: so many of them never pass ε."""
    part = epsilon / count
    while Fraction(part) * count > Fraction(epsilon):
        part = math.nextafter(part, 0.0)
    return part
