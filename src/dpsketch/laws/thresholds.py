"""From which noisy count on a key is listed, so that no name shows who was there; all from public facts.

A key is listed where its count is at least 1 and count plus noise reaches the *cutoff*. A key that one unit alone holds
has a count of at most ``weight``, and is listed with a small probability only. :func:`delta_of` computes the exact δ of
names and counts together from the law's own fields, when a release is paid for and when a file is read. It is a maximum
over how many of a unit's keys are new; δ is not divided between names and counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, assert_never, get_args

import numpy as np

from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, additive_cost
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.entries import (
    COUNTS,
    NOTHING,
    OTHERS,
    TABLE,
    TOTAL,
    EntriesLaw,
    HistogramState,
)
from dpsketch.laws.joint import chance_of_any, joint_delta, log_hidden
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Cost
from dpsketch.truncated import Law, TruncatedLaplace

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["FORMS", "CountThreshold", "Form", "delta_of"]

stored(TruncatedLaplace)

Form = Literal["truncated", "laplace", "gaussian", "weighted", "rounds"]
FORMS: tuple[Form, ...] = get_args(Form)


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
    added.
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
        """The joint δ of names and counts."""
        facts = {"keys": self.keys, "weight": self.weight, "replace": self.replaces}
        return delta_of(self.noise, self.cutoff, epsilon=self.epsilon, **facts)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of the counts and of the total."""
        return {COUNTS: self.noise} if self.total is None else {COUNTS: self.noise, TOTAL: self.total}

    def costs(self) -> tuple[Cost, ...]:
        """Return ε with the joint δ, and the cost of the total."""
        found: tuple[Cost, ...] = (ApproximateCost(self.epsilon, self.delta),)
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


@lru_cache(maxsize=256)
def delta_of(law: Law, cutoff: int, *, epsilon: float, keys: int, weight: int, replace: bool) -> float:
    """Return the joint δ at ``epsilon`` of listing counts with such noise from such a cutoff on, rounded up.

    It is 1 where these values promise nothing at this ε.

    Privacy
    -------
    Let m be the ``keys`` that one unit moves, M = m, or 2m where one unit replaces another, w the weight and T the
    cutoff.

    *Truncated Laplace noise*, for w = 1, of rate ε/M within ±k. A count that moves by 1 has odds within e^(ε/M) at
    every value that both sides reach; each side reaches one value that the other does not, with probability P(z = k). A
    key of count 1 is listed with probability P(z ≥ T − 1), against 0. Let p be the larger of the two: they are equal at
    T = k + 1. Each key is (ε/M, p)-private, and M of them are (ε, 1 − (1 − p)^M)-private. All can leak at once (where
    counts are large: at the value that the other side does not reach), so that this δ is exact at T = k + 1.

    *Laplace noise.* Let a = exp(−ε/(M·w)): shared counts move by at most w each, and each has odds within e^(ε/M) at
    every output. A novel key has a count of at most w, and is listed with probability at most
    r = P(w + Z ≥ T) = a^(T−w)/(1+a). Say that the unit at hand has j novel keys, and the one whose place it takes j'
    (0 where it takes none). Outputs that show one of the j have probability 1 − (1−r)^j. On the others the odds are at
    most (1−r)^(j−j') from novel keys, times e^(ε/M) for each of the at most M − j − j' shared ones. So with
    c = e^(−ε/M) ≤ 1

        δ ≤ 1 − (1−r)^j + (1−r)^j·(1 − (1−r)^(j'−j)/c^(j+j'))⁺ ≤ 1 − (1−r)^max(j, j'),

    and δ = 1 − (1−r)^m, which m novel keys attain, is exact. Where a unit leaves, j = 0 and j' ≤ m: the same.

    *Gaussian noise.* A unit with j novel keys and m − j shared ones shows none of the former with probability q^j,
    q = Φ((T − w − ½)/σ) (the half is the rounding), and shifts the latter by w√(m−j)/σ. The joint δ is the largest
    over j, or over both units' j where one replaces another (:mod:`~dpsketch.laws.joint`).

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


def _truncated_delta(law: TruncatedLaplace, low: int, moved: int) -> float:
    """Return δ where a novel key is listed from noise of ``low`` on; never below that of the ends."""
    return chance_of_any(law.reaching(min(low, law.bound)), moved)


def _laplace_delta(law: DiscreteLaplace, gap: int, keys: int) -> float:
    """Return δ for a cutoff of ``gap`` beyond the weight."""
    rate = law.epsilon / law.sensitivity
    return chance_of_any(math.exp(-rate * gap - math.log1p(math.exp(-rate))), keys) if gap > 0 else 1.0
