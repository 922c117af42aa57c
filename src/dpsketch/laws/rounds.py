"""Finding names by weights: users with few keys speak louder for each, in one round or in several.

In a round every unit takes at most ``cap`` of its keys, d of them, and gives each the weight 1/√d, so that it moves
the sums by at most 1 in L2 whatever it holds. Sums get Gaussian noise, and keys from the cutoff on are found. The next
round leaves them out: every unit draws afresh from its keys that are not yet found. Counts, where they are wanted, are
a last stage on the found keys, which are public by then: each unit keeps at most ``counts_keys`` of them, and they get
noise of their own and no threshold.

Weights are whole numbers of 2⁻²⁰, rounded down; cutoffs and scales are in the same unit and rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Arrays
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.entries import NOTHING, CountingLaw, CountNoise, HistogramState
from dpsketch.laws.joint import joint_delta, log_hidden
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["WEIGHT_ONE", "WeightedRounds", "rounds_delta", "shift_of", "unit_weights", "weights_table", "worst_leak"]

# The weight of a unit's only key.
WEIGHT_ONE = 1 << 20
WEIGHTS = "weights"
LARGEST_CAP = 1024
MOST_ROUNDS = 16


def weights_table(cap: int) -> Table:
    """Return the weights of all keys: d ≤ ``cap`` of them move by ⌊2²⁰/√d⌋ each, by at most 2²⁰ in L2."""
    return Table(WEIGHTS, None, Move(math.isqrt(cap * WEIGHT_ONE**2), WEIGHT_ONE**2, cap, WEIGHT_ONE))


@stored
@dataclass(frozen=True, slots=True)
class WeightedRounds(CountingLaw):
    """Names found by weights, in one round or several, and counts of the found keys if they are wanted.

    Attributes
    ----------
    weights : Table
        The weights of all keys.
    epsilon : float
        The ε at which δ is computed, for all rounds and the counts together.
    noises : tuple of RoundedGaussian
        The noise of each round's sums, in units of 2⁻²⁰.
    cutoffs : tuple of int
        The least noisy sum of each round that is found, in units of 2⁻²⁰.
    counts : CountNoise or None
        The noise of the counts, in units of the counts; None if names only are published.
    choice : tuple of Additive
        The laws by which the bound of the counts is chosen; none if it is stated.

    Privacy
    -------
    The δ of all rounds and the counts together is that of :func:`rounds_delta`, for the bound on counts that shifts
    them most. A choice of the bound is added.
    """

    weights: Table
    epsilon: float
    noises: tuple[RoundedGaussian, ...]
    cutoffs: tuple[int, ...]
    counts: CountNoise | None = None
    choice: tuple[Additive, ...] = ()

    def __post_init__(self) -> None:
        CountingLaw.__post_init__(self)
        hold_real(self, "epsilon")
        good = 1 <= len(self.noises) == len(self.cutoffs) <= MOST_ROUNDS and min(self.cutoffs) >= 1
        good = good and 0 < self.epsilon < math.inf and self.cap <= LARGEST_CAP
        if not good or not all(isinstance(noise, RoundedGaussian) for noise in self._all_noises):
            raise InvalidInput("rounds have a positive ε, Gaussian noise and a cutoff each, and Gaussian counts.")

    @property
    def _all_noises(self) -> tuple[Any, ...]:
        return self.noises if self.counts is None else self.noises + self.counts.noises

    @property
    def cap(self) -> int:
        """The number of keys to which a unit gives weight in a round, at most."""
        return self.weights.move.cells

    @property
    def form(self) -> str:
        """The law by the name that forces it."""
        return "weighted" if len(self.noises) == 1 else "rounds"

    @property
    def words(self) -> str:
        """The law in a phrase."""
        times = "one round" if len(self.noises) == 1 else f"{len(self.noises)} rounds"
        sigmas = ", ".join(f"{noise.sigma / WEIGHT_ONE:.4g}" for noise in self.noises)
        names = f"weighted names in {times}, rounded Gaussian noise, σ = {sigmas}"
        if self.counts is None:
            return names
        plain = f"counts of found keys with {self.counts.noises[0].words}"
        return f"{names}; {self.count_words if self.choice else plain}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The weights, the counts, and the tables of a choice."""
        return (self.weights, *self._counted_tables())

    @property
    def delta(self) -> float:
        """The joint δ of all rounds and the counts, without that of the hash."""
        facts = {"epsilon": self.epsilon, "cap": self.cap, "replace": self.replaces}
        return rounds_delta(self.noises, self.cutoffs, counts=self.counts_shift, **facts)

    @property
    def counts_shift(self) -> float:
        """The most by which one unit shifts the counts, over all bounds: the square, in standard deviations."""
        if self.counts is None:
            return 0.0
        return max(shift_of(self.counts, bound, self.weight) for bound in self._bounds)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of each round, of the choice, and of the counts."""
        rounds = {f"round {place}": noise for place, noise in enumerate(self.noises, 1)}
        return {**rounds, **CountingLaw.slots(self)}

    def costs(self) -> tuple[Cost, ...]:
        """Return ε with the joint δ, and what the choice costs."""
        return (ApproximateCost(self.epsilon, self.delta), *self.choice_costs())

    def draw(self, state: HistogramState, handle: Handle) -> Arrays:
        """Return the names that weights find, and counts; listed or found keys take no more weight."""
        found, known = NOTHING, state.known
        for place, cutoff in enumerate(self.cutoffs, 1):
            add, blocks = handle.adder(f"round {place}"), state.content.weights(np.union1d(known, found), self.cap)
            passed = [block.places[add(block.sums) >= cutoff] for block in blocks]
            found = np.sort(np.concatenate([found, *passed]))
        return self.draw_counts(state, found, handle)


def shift_of(counts: CountNoise, bound: int, weight: int) -> float:
    """Return the square of what one unit shifts counts by under a bound, in standard deviations."""
    cost = counts.cost(bound, weight, "add_remove")
    assert isinstance(cost, GaussianCost)
    return cost.mu**2


def unit_weights(cap: int) -> npt.NDArray[np.int64]:
    """Return ⌊2²⁰/√d⌋ for d = 0 … ``cap``: the weight of each key of a unit that has d (0 for d = 0).

    Examples
    --------
    >>> unit_weights(4).tolist()
    [0, 1048576, 741455, 605395, 524288]
    """
    return np.array([0, *(math.isqrt(WEIGHT_ONE**2 // d) for d in range(1, cap + 1))], np.int64)


@lru_cache(maxsize=256)
def rounds_delta(
    noises: tuple[RoundedGaussian, ...],
    cutoffs: tuple[int, ...],
    *,
    epsilon: float,
    cap: int,
    replace: bool,
    counts: float = 0.0,
) -> float:
    """Return the joint δ at ``epsilon`` of such rounds and counts, rounded up.

    ``counts`` is the square of what one unit shifts the counts by, in standard deviations.

    Privacy
    -------
    *One round.* A unit with d keys, j of them novel, shows none of these with probability q^j, q = Φ((T − W − ½)/σ),
    where W is its weight on each, and shifts the others by W√(d−j)/σ and the counts by at most w√m/σ₂. δ is the largest
    over d ≤ ``cap`` and j ≤ d, or over both units' where one replaces another (:mod:`~dpsketch.laws.joint`).

    *Several.* In each round the joint pair of a unit that holds (λ, s) is passed, at every ε, by that of the round's
    largest λ and largest s: j ≤ ``cap`` novel keys weigh at most 1/√j each, so λ = max over j of −j·ln Φ((T − 1/√j)/σ),
    and s = 1/σ. Pairs that pass others compose, whatever a round makes of the earlier ones' outputs: λ = Σ λ_r,
    s² = Σ 1/σ_r² + m·w²/σ₂². Where one unit replaces another, both have λ at its worst, which leaves
    1 − q + q·H(ε; √2·s).
    """
    if len(noises) == 1:
        return _one_round(noises[0].sigma, cutoffs[0], epsilon, cap, counts, replace=replace)
    leak = math.fsum(worst_leak(noise.sigma, cutoff, cap) for noise, cutoff in zip(noises, cutoffs, strict=True))
    squares = math.fsum((WEIGHT_ONE / noise.sigma) ** 2 for noise in noises) + counts
    return joint_delta(epsilon, np.array([leak]), np.array([squares]), replace=replace)


def _one_round(sigma: float, cutoff: int, epsilon: float, cap: int, counts: float, *, replace: bool) -> float:
    """Return the joint δ of one round over all d ≤ ``cap`` and j ≤ d."""
    held, novel = np.tril_indices(cap + 1)
    held, novel = held[1:], novel[1:]
    weights = unit_weights(cap)
    leak = log_hidden((cutoff - weights - 0.5) / sigma)
    shifts: Floats = (held - novel) * (weights[held] / sigma) ** 2 + counts
    return joint_delta(epsilon, novel * leak[held], shifts, replace=replace)


def worst_leak(sigma: float, cutoff: int, cap: int) -> float:
    """Return the largest λ of a round."""
    novel = np.arange(1, cap + 1)
    return float((novel * log_hidden((cutoff - unit_weights(cap)[1:] - 0.5) / sigma)).max())
