"""The threshold part: entries get discrete Laplace noise, and those that reach a cutoff are kept, by key.

**Pure** (Cormode, Procopiuc, Srivastava and Tran 2012). All d entries of the domain get noise, the zeros too. With
a = e^(−ε/Δ) a zero reaches a cutoff τ ≥ 0 with probability a^τ/(1 + a). So the number of zeros that survive is
binomial, they are uniform among the zeros, and each exceeds τ by a geometric amount. All three are drawn exactly, and
nobody visits the domain. The cutoff serves size only: at τ = ⌈ln(d/(1 + a))·Δ/ε⌉ about one zero survives.

**Stability** (Korolova, Kenthapadi, Mishra and Ntoulas 2009), for δ > 0. Only entries that are present get noise. Let a
unit of privacy be alone on k keys, with at most w on each. Such a key reaches a cutoff T with probability at most
r = a^(T−w)/(1 + a). If none does, the loss is at most ε; so δ = 1 − (1 − r)^k, exactly, where the textbook's
T = 1 + ln(1/(2δ))/ε, made for continuous noise, overshoots δ up to twofold. Seen from a neighbour without those keys,
outputs that lack them are more likely by 1/(1 − r)^k. Those keys are among the K that may move in all and cost nothing
else, so that this stays within their shares of ε, which are ε/K = −w·ln a each, if r ≤ 1 − a^w. The cutoff is raised to
satisfy that too; it matters only where δ is near ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np

from dpsketch.arrays import Integers, Words
from dpsketch.core.codec import stored
from dpsketch.core.move import Distance, Move
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, random_below, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import ApproximateCost, Cost, PureCost

__all__ = ["AbsentKeys", "Survival", "draw_binomial", "stability_delta"]

Rule = Literal["pure", "stability"]


@stored
@dataclass(frozen=True, slots=True)
class Survival:
    """The public parameters of one threshold part.

    Attributes
    ----------
    rule : {"pure", "stability"}
        Whether absent keys get noise too.
    noise : DiscreteLaplace
        The noise, in units.
    cutoff : int
        Entries are kept where value plus noise is at least this.
    """

    rule: Rule
    noise: DiscreteLaplace
    cutoff: int

    def __post_init__(self) -> None:
        hold_whole(self, "cutoff", low=1, high=2**60)
        if self.rule not in ("pure", "stability") or not isinstance(self.noise, DiscreteLaplace):
            raise InvalidInput("this is no threshold part: its rule or its noise is none.")

    def cost(self, apart: Distance, move: Move) -> Cost:
        """Return what the survivors cost, for entries that lie so far apart and that one unit moves by ``move``."""
        pure = PureCost(self.rate * apart.l1)
        return pure if self.rule == "pure" else ApproximateCost(pure.epsilon, self.delta(move))

    def delta(self, move: Move) -> float:
        """Return δ under the stability rule: the probability that a key survives which one unit alone has."""
        return stability_delta(self.noise, self.cutoff, alone=move.cells, units=move.most)

    def odds(self, move: Move) -> float:
        """Return how likely a key of one unit may survive at most, for its absence to cost no more than its count."""
        return -math.expm1(-self.rate * move.most)

    def hides(self, move: Move) -> bool:
        """Say whether the cutoff is high enough for the stability rule's proof."""
        return self.cutoff >= move.most and (
            stability_delta(self.noise, self.cutoff, alone=1, units=move.most) <= self.odds(move)
        )

    @property
    def rate(self) -> float:
        """The noise's probabilities fall by e^−rate from one unit to the next."""
        return self.noise.epsilon / self.noise.sensitivity

    @property
    def words(self) -> str:
        """The rule in a phrase."""
        return f"keys kept where the value with {self.noise.words} reaches {self.cutoff}"


@dataclass(frozen=True, slots=True)
class AbsentKeys:
    """Draws which keys that nobody has survive under the pure rule, and with what values."""

    survival: Survival
    domain: int

    def draw(self, present: Words) -> tuple[Words, Integers]:
        """Return the survivors, positions and values, among all keys but those present, which increase."""
        noise, cutoff = self.survival.noise, self.survival.cutoff
        wanted = draw_binomial(noise, cutoff, self.domain - len(present))
        chosen: set[int] = set()
        while len(chosen) < wanted:
            candidate = random_below(self.domain, 1)
            place = int(np.searchsorted(present, candidate)[0])
            if place == len(present) or present[place] != candidate[0]:
                chosen.add(int(candidate[0]))
        # Survivors pass the cutoff by j with probability (1 − a)·a^j, as positive discrete Laplace noise passes 1.
        excesses = np.empty(0, np.int64)
        while len(excesses) < wanted:
            drawn = noise.sample(4 * wanted)
            excesses = np.concatenate([excesses, drawn[drawn > 0] - 1])
        return np.array(sorted(chosen), np.uint64), cutoff + excesses[:wanted]


def stability_delta(noise: DiscreteLaplace, cutoff: int, *, alone: int, units: int) -> float:
    """Return 1 − (1 − r)^k, r = a^(T−w)/(1 + a): the probability that one of k keys of w units reaches the cutoff T.

    Computed to 60 digits and rounded up.

    Examples
    --------
    >>> print(f"{stability_delta(DiscreteLaplace(1.0, 1), 15, alone=1, units=1):.4g}")
    6.079e-07
    """
    context = _sixty_digits()
    ratio = context.exp(-context.mpf(noise.epsilon) / noise.sensitivity)
    reached = ratio ** (cutoff - units) / (1 + ratio)
    delta = -context.expm1(alone * context.log1p(-reached))
    return math.nextafter(float(delta), math.inf)


# A context of mpmath takes longer to make than all that is computed in it here. None is changed once made.


@cache
def _sixty_digits() -> Any:
    from mpmath import MPContext

    context = MPContext()
    context.dps = 60
    return context


@lru_cache(maxsize=4)
def _intervals(precision: int) -> Any:
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()
    context.prec = precision
    return context


def draw_binomial(noise: DiscreteLaplace, cutoff: int, zeros: int) -> int:
    """Draw how many of so many zeros reach a cutoff: a binomial number, exactly.

    A uniform number, known to ever more bits, is compared with the law's distribution function in interval arithmetic
    until the comparison is certain.
    """
    prefix, bits = 0, 0
    while True:
        prefix, bits = prefix << 64 | int(random_words(1)[0]), bits + 64
        count = _settle_binomial(noise, cutoff, zeros, prefix, bits)
        if count is not None:
            return count


def _settle_binomial(noise: DiscreteLaplace, cutoff: int, zeros: int, prefix: int, bits: int) -> int | None:
    """Return the least j with U < P(N ≤ j), or None where the bits of U drawn so far do not tell."""
    context = _intervals(bits + 192)
    rate = context.mpf(noise.epsilon) / noise.sensitivity
    survives = context.exp(-rate * cutoff) / (1 + context.exp(-rate))
    low, high = context.mpf(prefix) / 2**bits, context.mpf(prefix + 1) / 2**bits
    term = context.exp(zeros * context.log(1 - survives))
    below = term
    for count in range(zeros):
        if high <= below:  # three-valued: True, False, or None where the intervals overlap
            return count
        if (low >= below) is not True:
            return None
        term = term * (zeros - count) / (count + 1) * survives / (1 - survives)
        below = below + term
    return zeros
