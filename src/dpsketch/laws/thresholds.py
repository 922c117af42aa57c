"""From which noisy count on a key is listed, so that no name shows who was there; all from public facts.

A key is listed where its count is at least 1 and count plus noise reaches the *cutoff*. A key that one unit alone holds
has a count of at most ``weight``, and is listed with a small probability only, which is a part of δ. How likely that
is together with what the other counts tell is exact for each mechanism below, and :func:`delta_of` recomputes it from
what a file says, so that a claim can be checked.

Cutoffs and scales are rounded up. Nothing here may be chosen by looking at data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, assert_never, get_args

import numpy as np

from dpsketch import accounting
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, additive_cost
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.choice import LARGEST
from dpsketch.laws.entries import (
    COLLISION,
    COUNTS,
    NOTHING,
    OTHERS,
    TABLE,
    TOTAL,
    EntriesLaw,
    HistogramState,
)
from dpsketch.laws.joint import chance_of_any, joint_delta, least_whole, log_hidden, part_of
from dpsketch.laws.rounds import WeightedRounds, rounds, weighted
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole, probability, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Cost
from dpsketch.truncated import Law, TruncatedLaplace

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = [
    "FORMS",
    "CountThreshold",
    "Discovery",
    "Form",
    "choose",
    "delta_of",
    "gaussian",
    "plain_laplace",
    "single_counts",
    "truncated_laplace",
]

stored(TruncatedLaplace)

Form = Literal["truncated", "laplace", "gaussian", "weighted", "rounds"]
FORMS: tuple[Form, ...] = get_args(Form)

# A hair more Gaussian noise than the shared counts need alone leaves room in δ for the names.
_ROOM = 1 + 1e-5
# A user with at least this number of keys has its names found by weights, and its counts in a second stage.
_MANY_KEYS = 10
# No user gives weight to more keys than this in a round: more finds fewer.
LARGEST_CAP = 100
_COUNTS_SHARE = 0.3
# Below it the joint δ of Gaussian noise may have no digits left, and a budget is refused for that.
_LEAST_EPSILON = 1e-6


@stored
@dataclass(frozen=True, slots=True)
class CountThreshold(EntriesLaw):
    """One stage: every count gets noise, and is listed with it if it reaches the cutoff.

    Keys of a public list get the same noise, and are listed whatever it is.

    Attributes
    ----------
    epsilon : float
        The ε at which δ is computed.
    noise : Law
        The noise of one count.
    cutoff : int
        The least noisy count that is listed.
    total : DiscreteLaplace or None
        The noise of the total of all keys, if all other keys are to be computed from it.
    names_only : bool
        Whether counts are not published.

    Privacy
    -------
    The δ of names and counts together is exact, see :func:`delta_of`. The total is a table of its own, whose cost is
    added. That a secret hash takes two keys for one is a part of δ.
    """

    epsilon: float
    noise: Law
    cutoff: int
    total: DiscreteLaplace | None = None
    names_only: bool = False

    def __post_init__(self) -> None:
        hold_real(self, "epsilon")
        hold_whole(self, "cutoff", low=1)
        if not 0 < self.epsilon < math.inf or (self.names_only and self.total is not None):
            raise InvalidInput("a threshold has a positive ε, and a total only beside counts.")

    @property
    def form(self) -> Form:
        """The law by the name that forces it."""
        match self.noise:
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
        """The law in a phrase."""
        total = "" if self.total is None else f"; {self.total.words}"
        return f"{self.noise.words}; keys listed from {self.cutoff} on{total}"

    def noise_under(self, bound: int) -> Law | None:
        """Return the noise of a count."""
        return None if self.names_only else self.noise

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counts, and the total."""
        return (self.table,) if self.total is None else (self.table, self._total_table)

    @property
    def _total_table(self) -> Table:
        return Table(TOTAL, (1,), Move.heaped(1, self.table.move.l1))

    @property
    def delta(self) -> float:
        """The joint δ of names and counts, without that of the hash."""
        facts = {"keys": self.keys, "weight": self.weight, "replace": self.replaces}
        return delta_of(self.noise, self.cutoff, epsilon=self.epsilon, **facts)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the counts and of the total."""
        return {COUNTS: self.noise} if self.total is None else {COUNTS: self.noise, TOTAL: self.total}

    def costs(self) -> tuple[Cost, ...]:
        """Return ε with the joint δ and that of the hash, and the cost of the total."""
        found: tuple[Cost, ...] = (ApproximateCost(self.epsilon, self.delta + COLLISION),)
        if self.total is None:
            return found
        return (*found, additive_cost(self.total, self._total_table.between(self.neighbours)))

    def draw(self, state: HistogramState, handle: Handle) -> Arrays:
        """Return the keys that reach the cutoff, and noisy counts.

        A key that nobody has is not found, whatever its noise. The total is that of the counts drawn here: total and
        named counts must bound each user by the same choice of keys, or their difference is not the other keys.
        """
        known, add = state.known, handle.adder(COUNTS)
        found, values, total = [NOTHING], [NOTHING], 0
        sums = np.zeros(len(known), np.int64)
        for block in state.content.counts(self.keys):
            total += int(block.sums.sum())
            on_list = np.isin(block.places, known, assume_unique=True)
            sums[np.searchsorted(known, block.places[on_list])] = block.sums[on_list]
            noisy = add(block.sums[~on_list])
            passed = noisy >= self.cutoff
            found.append(block.places[~on_list][passed])
            values.append(noisy[passed])
        arrays = state.published(np.concatenate(found))
        if self.total is not None:
            arrays[OTHERS] = handle.add(np.array([total]), TOTAL)
        if not self.names_only:
            arrays[TABLE] = np.concatenate([add(state.on_list(known, sums)), *values])
        return arrays

    def fits(self, arrays: Arrays) -> bool:
        """Say whether names and counts fit each other, and no count that was found is below the cutoff."""
        if not EntriesLaw.fits(self, arrays):
            return False
        found = np.asarray(arrays[TABLE])[len(arrays["listed"]) :] if not self.names_only else NOTHING
        return not len(found) or int(found.min()) >= self.cutoff


Discovery = CountThreshold | WeightedRounds


@lru_cache(maxsize=256)
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
def truncated_laplace(epsilon: float, delta: float, keys: int, replace: bool) -> CountThreshold:
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
def plain_laplace(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> CountThreshold:
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
def gaussian(epsilon: float, delta: float, keys: int, weight: int, replace: bool) -> CountThreshold:
    """Return the threshold of rounded Gaussian noise, for units that move each key by at most ``weight``.

    Privacy
    -------
    A unit with j novel keys and m − j shared ones shows none of the former with probability q^j,
    q = Φ((T − w − ½)/σ) (the half is the rounding), and shifts the latter by w√(m−j)/σ. The joint δ is the largest
    over j, or over both units' j where one replaces another (:mod:`~dpsketch.laws.joint`). Noise and
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
    form: Form | None = None,
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


def single_counts(epsilon: float, delta: float, weight: int, replace: bool, *, several: bool) -> WeightedRounds:
    """Return rounds whose counts carry the noise of a unit on one key, to be widened for a bound chosen later."""
    make = rounds if several else weighted
    facts = {"max_keys": LARGEST, "counts_keys": 1, "counts_weight": weight}
    return make(epsilon, delta, LARGEST_CAP, replace, counts_share=_COUNTS_SHARE, **facts)


def _facts(epsilon: float, delta: float, keys: int, weight: int) -> tuple[float, float, int, int]:
    epsilon = real_number("epsilon", epsilon)
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon must be positive and finite, not {epsilon!r}.")
    keys, weight = whole_number("keys", keys, low=1), whole_number("weight", weight, low=1)
    return float(epsilon), probability("delta", delta), keys, weight


def _threshold(law: Law, cutoff: int, epsilon: float, keys: int, weight: int, replace: bool) -> CountThreshold:
    table = Table(COUNTS, None, Move.each(keys, weight))
    return CountThreshold(table, "replace" if replace else "add_remove", epsilon, law, cutoff)


def _truncated_delta(law: TruncatedLaplace, low: int, moved: int) -> float:
    """Return δ where a novel key is listed from noise of ``low`` on; never below that of the ends."""
    return chance_of_any(law.reaching(min(low, law.bound)), moved)


def _laplace_delta(law: DiscreteLaplace, gap: int, keys: int) -> float:
    """Return δ for a cutoff of ``gap`` beyond the weight."""
    rate = law.epsilon / law.sensitivity
    return chance_of_any(math.exp(-rate * gap - math.log1p(math.exp(-rate))), keys) if gap > 0 else 1.0
