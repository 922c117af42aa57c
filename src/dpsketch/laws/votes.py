"""How the buckets of a vote are published, and from which vote on a bucket's key is listed.

A bucket holds a key, its majority count c and its load n (Boyer and Moore's vote: an equal key adds one to c, another
takes one off, and at c = 0 the bucket has no key). A record more or less moves c by one, up or down, and never changes
the key but through c = 0; merging keeps that. So a unit may bring a bucket's key to light, with c = 1, or wipe one out.
Published is either the noisy c alone, or u = (n + c)/2 and l = (n − c)/2, of which a record moves exactly one by 1,
each with noise; the key is then listed where the noisy u − l reaches the cutoff.

Where one unit takes another's place, both may fall into one bucket, and c moves by 2: {y, y} against {y, x}.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, assert_never, get_args

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable, are_integers
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput
from dpsketch.files import Array
from dpsketch.laws.joint import chance_of_any, gaussian_excess, log_hidden
from dpsketch.laws.names import stored_names
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Cost, Neighbours, Unit
from dpsketch.truncated import Law as NoiseOfNames
from dpsketch.truncated import TruncatedLaplace

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle
    from dpsketch.hashing import KeyType
    from dpsketch.sketches.histogram.votes import VoteTable

__all__ = ["BUCKETS", "MOST_KEYS", "VOTE_FORMS", "VoteForm", "Votes", "vote_delta"]

BUCKETS = "buckets"
VoteForm = Literal["loads", "truncated", "gaussian"]
VOTE_FORMS: tuple[VoteForm, ...] = get_args(VoteForm)
# The pairs of leaks that one unit, or two, may have are looked at one by one.
MOST_KEYS = 512
# A name may always show: a δ that no float holds is not 0, and the law is never pure.
_LEAST_DELTA = sys.float_info.min


@stored
@dataclass(frozen=True, slots=True)
class Votes(OneTable):
    """Noise on the votes of every bucket, and a cutoff from which its key is listed.

    Attributes
    ----------
    table : Table
        The buckets' majority counts.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    noise : DiscreteLaplace, TruncatedLaplace or RoundedGaussian
        The noise of u and of l if it is discrete Laplace noise, else that of c, which alone is published.
    cutoff : int
        The least noisy u − l, or c, that is listed.
    epsilon, delta : float
        The ε at which the joint δ is computed, and the δ that is paid if the joint δ is below it.

    Privacy
    -------
    (ε, δ) by :func:`vote_delta`. A bucket at c = 0 has no key, and nothing of it is published. That is no second leak:
    a unit that brings its key to light makes c = 1, and what is paid for is that this is listed.
    """

    noise: NoiseOfNames
    cutoff: int
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hold_whole(self, "cutoff", low=1)
        hold_real(self, "epsilon", "delta")
        if not 0 < self.epsilon < math.inf:
            raise InvalidInput(f"epsilon must be positive and finite, not {self.epsilon!r}.")

    @property
    def form(self) -> VoteForm:
        """What is published of a bucket, by the name that forces it."""
        match self.noise:
            case DiscreteLaplace():
                return "loads"
            case TruncatedLaplace():
                return "truncated"
            case RoundedGaussian():
                return "gaussian"
            case never:
                assert_never(never)

    @property
    def has_loads(self) -> bool:
        """Whether u and l are published, and not c alone."""
        return self.form == "loads"

    @property
    def words(self) -> str:
        """The law in a phrase."""
        if self.has_loads:
            return f"votes in buckets; both loads with {self.noise.words}; keys whose difference reaches {self.cutoff}"
        return f"votes in buckets; majorities with {self.noise.words}; keys that reach {self.cutoff}"

    def caveat(self, unit: Unit) -> str:
        """Return that neighbours are streams: what votes leave depends on the order of the records, and on partials."""
        return "Neighbours are streams: all other records keep their order, and the partial that they are counted in."

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of both loads, or of the majorities."""
        return {"upper": self.noise, "lower": self.noise} if self.has_loads else {"majorities": self.noise}

    @property
    def joint_delta(self) -> float:
        """The δ of all that is published, at ``epsilon``."""
        return vote_delta(self.noise, self.cutoff, self.epsilon, self.table, self.neighbours)

    def costs(self) -> tuple[Cost, ...]:
        """Return ε, and the joint δ or the δ that was asked for, if it is larger."""
        return (ApproximateCost(self.epsilon, max(self.delta, self.joint_delta, _LEAST_DELTA)),)

    def draw(self, state: tuple[VoteTable, KeyType | None], handle: Handle) -> Arrays:
        """Return the listed keys in their order, with noisy c, or with noisy u and l as ``values`` and ``pairs``."""
        table, key_type = state
        held = np.flatnonzero(table.votes >= 1)
        c = table.votes[held]
        shown: dict[str, Integers]
        if self.has_loads:
            pairs = (table.loads[held] - c) // 2
            upper, lower = handle.add(pairs + c, "upper"), handle.add(pairs, "lower")
            listed = upper - lower >= self.cutoff
            shown = {"values": upper[listed], "pairs": lower[listed]}
        else:
            noisy = handle.add(c, "majorities")
            listed = noisy >= self.cutoff
            shown = {"values": noisy[listed]}
        names = table.names(held[listed], key_type)
        order = sorted(range(len(names)), key=names.__getitem__)
        found: dict[str, Array] = {name: array[order] for name, array in shown.items()}
        return {"found": stored_names([names[i] for i in order]), **found}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there are keys in order, as many as there are buckets at most, that reach the cutoff."""
        numbers = ("values", "pairs") if self.has_loads else ("values",)
        if set(arrays) != {"found", *numbers} or self.table.shape is None:
            return False
        found: Any = arrays["found"]
        names = found.tolist() if isinstance(found, np.ndarray) else found
        good = isinstance(found, list) or (are_integers(arrays, "found", None) and found.ndim == 1)
        good = good and len(names) <= self.table.shape[0] and all(a < b for a, b in pairwise(names))
        if not good or not all(are_integers(arrays, name, (len(names),)) for name in numbers):
            return False
        first, *others = (np.asarray(arrays[name], np.int64) for name in numbers)
        return bool(np.all(first - sum(others) >= self.cutoff))


@lru_cache(maxsize=256)
def vote_delta(noise: NoiseOfNames, cutoff: int, epsilon: float, table: Table, neighbours: Neighbours) -> float:
    """Return the joint δ at ``epsilon`` of publishing buckets so, rounded up; 1 where they promise nothing.

    Privacy
    -------
    Let m be the number of buckets that one unit moves, and M = m, or 2m where one unit replaces another; let P_i be the
    probability that a key with c = i, whose neighbour has no key, is listed.

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
    keys, moved, replace = table.move.cells, table.between(neighbours).l1, neighbours == "replace"
    match noise:
        case RoundedGaussian(sigma):
            points = (cutoff - np.array([1, 2]) - 0.5) / sigma
            one, two = log_hidden(points).tolist()
            if replace:
                return _votes_delta(epsilon, max(two / 2, one), 2 / sigma**2, 2 * keys)
            return _votes_delta(epsilon, one, 1 / sigma**2, keys)
        case DiscreteLaplace(rate, sensitivity):
            if Fraction(rate) * moved > Fraction(epsilon) * sensitivity or cutoff < 3:
                return 1.0
            shown = [_difference_reaching(noise, cutoff - c) for c in (1, 2)]
        case TruncatedLaplace(rate, bound):
            if Fraction(rate) * moved > Fraction(epsilon) or cutoff < bound + 1 or bound < 2:
                return 1.0
            shown = [noise.reaching(bound), noise.reaching(bound - 1)]
        case never:
            assert_never(never)
    if not replace:
        return chance_of_any(shown[0], keys)
    return chance_of_any(max(shown[1], chance_of_any(shown[0], 2)), keys)


def _difference_reaching(noise: DiscreteLaplace, low: int) -> float:
    """Return P(Z − Z' ≥ t) for t ≥ 1.

    P(Z − Z' = d) = ((1−a)/(1+a))²·a^d·(d + C) for d ≥ 0, with C = (1+a²)/(1−a²); summed from t on.
    """
    rate = noise.epsilon / noise.sensitivity
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
