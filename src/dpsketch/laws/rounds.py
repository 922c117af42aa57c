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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.laws import Additive, Arrays
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput
from dpsketch.laws.entries import COLLISION, COUNTS, NOTHING, CountingLaw, CountNoise, HistogramState
from dpsketch.laws.joint import joint_delta, least_whole, log_hidden
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import hold_real, probability, real_number, whole_number
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, Neighbours

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["WEIGHT_ONE", "WeightedRounds", "rounds", "rounds_delta", "unit_weights", "weighted", "weights_table"]

# The weight of a unit's only key.
WEIGHT_ONE = 1 << 20
WEIGHTS = "weights"
_LARGEST_CAP = 1024
_MOST_ROUNDS = 16
# More noise than the sums need alone leaves room in δ for the names: one round looks at what is novel and what is
# shared together and needs little; several are bounded by both at their worst, and the best room is searched for.
_ROOM = 1 + 1e-5
_ROOM_WITH_COUNTS = 1 + 1e-4


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
    them most. That a secret hash takes two keys for one is a part of δ. A choice of the bound is added.
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
        good = 1 <= len(self.noises) == len(self.cutoffs) <= _MOST_ROUNDS and min(self.cutoffs) >= 1
        good = good and 0 < self.epsilon < math.inf and self.cap <= _LARGEST_CAP
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
        return max(_counts_shift(self.counts, bound, self.weight) for bound in self._bounds)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of each round, of the choice, and of the counts."""
        rounds = {f"round {place}": noise for place, noise in enumerate(self.noises, 1)}
        return {**rounds, **CountingLaw.slots(self)}

    def costs(self) -> tuple[Cost, ...]:
        """Return ε with the joint δ and that of the hash, and what the choice costs."""
        return (ApproximateCost(self.epsilon, self.delta + COLLISION), *self.choice_costs())

    def draw(self, state: HistogramState, handle: Handle) -> Arrays:
        """Return the names that weights find, and counts; listed or found keys take no more weight."""
        found, known = NOTHING, state.known
        for place, cutoff in enumerate(self.cutoffs, 1):
            add, blocks = handle.adder(f"round {place}"), state.content.weights(np.union1d(known, found), self.cap)
            passed = [block.places[add(block.sums) >= cutoff] for block in blocks]
            found = np.sort(np.concatenate([found, *passed]))
        return self.draw_counts(state, found, handle)


def _counts_shift(counts: CountNoise, bound: int, weight: int) -> float:
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
    """Return the joint δ at ``epsilon`` of such rounds and counts, rounded up; for the proofs see the constructors.

    ``counts`` is the square of what one unit shifts the counts by, in standard deviations.
    """
    if len(noises) == 1:
        return _one_round(noises[0].sigma, cutoffs[0], epsilon, cap, counts, replace=replace)
    leak = math.fsum(_worst_leak(noise.sigma, cutoff, cap) for noise, cutoff in zip(noises, cutoffs, strict=True))
    squares = math.fsum((WEIGHT_ONE / noise.sigma) ** 2 for noise in noises) + counts
    return _composed(epsilon, leak, squares, replace=replace)


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

    Privacy
    -------
    A unit with d keys, j of them novel, shows none of these with probability q^j, q = Φ((T − W − ½)/σ), where W is
    its weight on each, and shifts the others by W√(d−j)/σ and the counts by at most w√m/σ₂. δ is the largest over d ≤
    ``cap`` and j ≤ d, or over both units' where one replaces another (:mod:`~dpsketch.laws.joint`).

    Examples
    --------
    >>> found = weighted(1.0, 1e-5, 10, False)
    >>> round(found.cutoffs[0] / WEIGHT_ONE, 2), round(found.noises[0].sigma / WEIGHT_ONE, 3)
    (18.05, 3.731)
    """
    mu = _facts(epsilon, delta, cap, counts_keys, counts_share, counts_weight)
    room = _ROOM_WITH_COUNTS if counts_share else _ROOM
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

    Privacy
    -------
    In each round the joint pair of a unit that holds (λ, s) is passed, at every ε, by that of the round's largest λ and
    largest s: j ≤ ``cap`` novel keys weigh at most 1/√j each, so λ = max over j of −j·ln Φ((T − 1/√j)/σ), and s = 1/σ.
    Pairs that pass others compose, whatever a round makes of the earlier ones' outputs: λ = Σ λ_r, s² = Σ 1/σ_r² +
    m·w²/σ₂². Where one unit replaces another, both have λ at its worst, which leaves 1 − q + q·H(ε; √2·s).

    Examples
    --------
    >>> [round(cutoff / WEIGHT_ONE, 1) for cutoff in rounds(1.0, 1e-5, 100, False).cutoffs]
    [70.2, 21.9]
    """
    mu = _facts(epsilon, delta, cap, counts_keys, counts_share, counts_weight)
    if len(shares) < 2 or min(shares) <= 0 or not math.isclose(math.fsum(shares), 1):
        raise InvalidInput(f"the shares of at least two rounds must be positive and sum to 1, not {shares}.")

    def made(room: float) -> WeightedRounds:
        counted = counts_keys, counts_share, counts_weight, max_keys
        return _calibrated(epsilon, delta, mu / room, cap, replace, shares, *counted)

    rooms = _search(lambda log_room: made(1 + math.exp(log_room)).cutoffs[-1], math.log(1e-4), math.log(0.5))
    return made(1 + math.exp(rooms))


def _facts(epsilon: float, delta: float, cap: int, counts_keys: int, counts_share: float, counts_weight: int) -> float:
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
        shift = _counts_shift(counts, counts_keys, counts_weight)
    if len(shares) == 1:
        cutoffs: tuple[int, ...] = (
            least_whole(
                lambda cutoff: _one_round(noises[0].sigma, cutoff, epsilon, cap, shift, replace=replace) <= delta,
                WEIGHT_ONE,
                step=int(4 * noises[0].sigma),
            ),
        )
    else:
        squares = math.fsum((WEIGHT_ONE / noise.sigma) ** 2 for noise in noises) + shift
        leak = _largest_leak(epsilon, delta, squares, replace=replace)
        cutoffs = tuple(_least_cutoff(noise, leak * share, cap) for noise, share in zip(noises, shares, strict=True))
    table = Table(COUNTS, None, Move.each(max(cap, counts_keys, max_keys or 1), counts_weight))
    neighbours: Neighbours = "replace" if replace else "add_remove"
    return WeightedRounds(table, neighbours, weights_table(cap), epsilon, noises, cutoffs, counts)


def _one_round(sigma: float, cutoff: int, epsilon: float, cap: int, counts: float, *, replace: bool) -> float:
    """Return the joint δ of one round over all d ≤ ``cap`` and j ≤ d."""
    held, novel = np.tril_indices(cap + 1)
    held, novel = held[1:], novel[1:]
    weights = unit_weights(cap)
    leak = log_hidden((cutoff - weights - 0.5) / sigma)
    shifts: Floats = (held - novel) * (weights[held] / sigma) ** 2 + counts
    return joint_delta(epsilon, novel * leak[held], shifts, replace=replace)


def _worst_leak(sigma: float, cutoff: int, cap: int) -> float:
    """Return the largest λ of a round."""
    novel = np.arange(1, cap + 1)
    return float((novel * log_hidden((cutoff - unit_weights(cap)[1:] - 0.5) / sigma)).max())


def _least_cutoff(law: RoundedGaussian, leak: float, cap: int) -> int:
    """Return the least cutoff of a round whose λ is at most ``leak``."""
    return least_whole(lambda cutoff: _worst_leak(law.sigma, cutoff, cap) <= leak, WEIGHT_ONE, step=int(4 * law.sigma))


def _composed(epsilon: float, leak: float, squares: float, *, replace: bool) -> float:
    """Return the joint δ of one pair (λ, s²) on each side."""
    return joint_delta(epsilon, np.array([leak]), np.array([squares]), replace=replace)


def _largest_leak(epsilon: float, delta: float, squares: float, *, replace: bool) -> float:
    """Return the largest λ, to a billionth and rounded down, for which the joint δ fits."""
    low, high = 0.0, -math.log1p(-delta)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _composed(epsilon, middle, squares, replace=replace) <= delta else (low, middle)
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
