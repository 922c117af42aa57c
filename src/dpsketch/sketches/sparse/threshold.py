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
else, so that this stays within their shares of ε if r ≤ 1 − e^(−ε/K). The cutoff is raised to satisfy that too; it
matters only where δ is near ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Integers, Words
from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, random_below, random_words
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import ApproximateCost, Cost, PureCost

__all__ = ["Survivors", "Threshold", "draw_binomial", "stability_delta"]

Rule = Literal["pure", "stability"]


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """Entries that reached the cutoff: positions, strictly increasing, and noisy values in units. Public."""

    positions: Words
    values: Integers

    def __post_init__(self) -> None:
        for array in (self.positions, self.values):
            array.flags.writeable = False

    def look_up(self, positions: Words) -> npt.NDArray[np.float64]:
        """Return the noisy value at each position, −1 where none survived."""
        found = np.full(len(positions), -1.0)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            hit = self.positions[places] == positions
            found[hit] = self.values[places[hit]]
        return found


@dataclass(frozen=True, slots=True)
class Threshold:
    """The public parameters of one threshold part.

    Attributes
    ----------
    rule : {"pure", "stability"}
        Whether absent keys get noise too.
    noise : DiscreteLaplace
        The noise, in units, with the budget and the L1 sensitivity it was made for.
    cutoff : int
        Entries are kept where value plus noise is at least this.
    delta : float
        The δ that was asked for; 0 for the pure rule.
    """

    rule: Rule
    noise: DiscreteLaplace
    cutoff: int
    delta: float

    def __post_init__(self) -> None:
        hold_whole(self, "cutoff", low=1, high=2**60)
        hold_real(self, "delta")
        if self.rule not in ("pure", "stability") or not 0 <= self.delta < 1:
            raise InvalidInput("this is no threshold part: its rule or delta is out of range.")

    @classmethod
    def pure(cls, epsilon: float, *, sensitivity: int, domain: int) -> Self:
        """Choose the cutoff that about one zero of the domain reaches."""
        noise = DiscreteLaplace(epsilon, sensitivity)
        cutoff = math.ceil((math.log(domain) - math.log1p(math.exp(-epsilon / sensitivity))) * sensitivity / epsilon)
        return cls("pure", noise, max(1, cutoff), 0.0)

    @classmethod
    def stability(cls, epsilon: float, delta: float, *, sensitivity: int, keys: int, alone: int, units: int) -> Self:
        """Choose the least cutoff whose exact δ is at most ``delta``.

        Parameters
        ----------
        epsilon, delta : float
            The budget.
        sensitivity : int
            L1 sensitivity, in units.
        keys : int
            How many entries may move in all.
        alone : int
            On how many keys one unit of privacy may be alone in either dataset.
        units : int
            Its largest value on one of them.
        """
        noise = DiscreteLaplace(epsilon, sensitivity)
        most = min(-math.expm1(math.log1p(-delta) / alone), -math.expm1(-epsilon / keys))
        guess = (-math.log(most) - math.log1p(math.exp(-epsilon / sensitivity))) * sensitivity / epsilon
        cutoff = units + max(0, math.ceil(guess) - 2)
        while stability_delta(noise, cutoff, alone=alone, units=units) > delta or (
            stability_delta(noise, cutoff, alone=1, units=units) > -math.expm1(-epsilon / keys)
        ):
            cutoff += 1
        return cls("stability", noise, cutoff, delta)

    @property
    def rate(self) -> float:
        """The noise's probabilities fall by e^−rate from one unit to the next."""
        return self.noise.epsilon / self.noise.sensitivity

    @property
    def false_rate(self) -> float:
        """The probability with which a zero of the domain survives under the pure rule."""
        return math.exp(-self.rate * self.cutoff) / (1 + math.exp(-self.rate))

    def half_width(self, tail: float) -> float:
        """Return the least h such that the noise passes ±h with probability at most ``tail``."""
        return max(0, math.ceil((math.log(2 / tail) - math.log1p(math.exp(-self.rate))) / self.rate) - 1)

    def dropped(self, units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probability with which entries of these values do not survive."""
        return self._above(units + (1 - self.cutoff))

    def kept(self, units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probability with which entries of these values survive."""
        return self._above(self.cutoff - units)

    def _above(self, gap: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probability that the noise reaches a gap: from above for positive ones, from below for others."""
        ratio = math.exp(-self.rate)
        above = np.exp(-self.rate * np.maximum(gap, 1)) / (1 + ratio)
        below = np.exp(-self.rate * np.maximum(1 - gap, 1)) / (1 + ratio)
        return np.where(gap >= 1, above, 1 - below)

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        budget = f"ε = {self.noise.epsilon:.4g}" + (f", δ = {self.delta:.3g}" if self.delta else "")
        return f"keys kept where the value with {self.noise.words} reaches {self.cutoff} ({budget})"

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing the survivors costs."""
        epsilon = self.noise.epsilon
        return (ApproximateCost(epsilon, self.delta) if self.delta else PureCost(epsilon),)

    def draw(self, positions: Words, units: Integers, domain: int) -> Survivors:
        """Draw the noise, and return which entries survive. The result may be published.

        Parameters
        ----------
        positions, units : numpy.ndarray
            The entries that are present, positions strictly increasing, values at least 1.
        domain : int
            The number of entries in all.
        """
        noisy = units + self.noise.sample(len(units))
        kept = noisy >= self.cutoff
        if self.rule == "stability":
            return Survivors(positions[kept], noisy[kept])
        false = self._false_positions(positions, domain)
        values = np.concatenate([noisy[kept], self.cutoff + self._excesses(len(false))])
        places = np.concatenate([positions[kept], np.array(false, np.uint64)])
        order = np.argsort(places)
        return Survivors(places[order], values[order])

    def _false_positions(self, present: Words, domain: int) -> list[int]:
        """Draw which zeros of the domain survive: a binomial number of them, uniform among the zeros."""
        wanted = draw_binomial(self.noise, self.cutoff, domain - len(present))
        chosen: set[int] = set()
        while len(chosen) < wanted:
            candidate = random_below(domain, 1)
            place = int(np.searchsorted(present, candidate)[0])
            if place == len(present) or present[place] != candidate[0]:
                chosen.add(int(candidate[0]))
        return sorted(chosen)

    def _excesses(self, count: int) -> Integers:
        """Draw by how much survivors among the zeros pass the cutoff: P(j) = (1 − a)·a^j."""
        excesses = np.empty(0, np.int64)
        while len(excesses) < count:
            # Given that it is positive, discrete Laplace noise is 1 plus such an amount.
            noise = self.noise.sample(4 * count)
            excesses = np.concatenate([excesses, noise[noise > 0] - 1])
        return excesses[:count]

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as JSON-ready values."""
        return {"rule": self.rule, "noise": self.noise.to_json(), "cutoff": self.cutoff, "delta": self.delta}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Rebuild from :meth:`to_json`."""
        noise = DiscreteLaplace(value["noise"]["epsilon"], value["noise"]["sensitivity"])
        return cls(value["rule"], noise, value["cutoff"], value["delta"])


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
