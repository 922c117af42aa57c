"""The law of a sparse histogram: small values as flipped bits, large ones by key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import sparse as kernels
from dpsketch.arrays import Integers, Words
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, OneTable
from dpsketch.core.move import Distance, Move
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.noise import DiscreteLaplace, random_below, random_words
from dpsketch.numbers import hold_whole
from dpsketch.privacy import ApproximateCost, Cost, PureCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = [
    "ENTRIES", "LARGEST_SCALE", "LEAST_SCALE", "ROOM", "SCALE_BITS", "AbsentKeys", "Projection", "SparseLaw",
    "Survival", "are_entries", "draw_binomial", "flip_odds", "loss", "stability_delta",
]  # fmt: skip

SCALE_BITS = 48
MOST_COLUMNS = 1 << 13
MOST_BITS = 1 << 33
# A scale of at least 2¹⁶ loses at most 2⁻¹⁶ of ε' when it is rounded down; at most 2⁵⁴ keeps products in 64 bits.
LEAST_SCALE = 1 << 16
LARGEST_SCALE = 1 << 54
# Covers the rounding of a few double-precision operations many times over.
ROOM = 1 - 2.0**-40
# A flip probability that is no power of two is rounded up to so many bits.
_FLIP_BITS = 16
_CHUNK = 1 << 16


def loss(step: float, alpha: float) -> float:
    """Return g(t), the privacy loss of one entry that moves by ``step`` after scaling by ε'.

    Examples
    --------
    >>> round(loss(math.e - 1, 2), 12)
    1.0
    """
    whole = math.floor(step / alpha)
    return whole * math.log1p(alpha) + math.log1p(max(0.0, step - alpha * whole))


def flip_odds(alpha: int) -> tuple[int, int]:
    """Return the flip probability 1/(α + 2), rounded up to numerator/2^bits, as (numerator, bits).

    Examples
    --------
    >>> flip_odds(2), flip_odds(3)
    ((1, 2), (3277, 14))
    """
    numerator, bits = -((-1 << _FLIP_BITS) // (alpha + 2)), _FLIP_BITS
    while numerator % 2 == 0:
        numerator, bits = numerator // 2, bits - 1
    return numerator, bits


@stored
@dataclass(frozen=True, slots=True)
class Projection:
    """The public parameters of one ALP table: values in unary, hashed into a bit table, every bit flipped at random.

    **Privacy.** Write q = (1 − p)/p for the odds of an unflipped bit; p ≥ 1/(α + 2), so q ≤ 1 + α. Setting one bit more
    changes the probability of any output by a factor in [1/q, q]. Let one entry move by t after scaling by ε', which is
    t/α columns, all others fixed. Crossing a whole column costs at most ln q. Within one column the output's law is a
    mixture (1 − f)·A + f·B of two that differ in at most one bit, and moving f by h changes any probability by a factor
    of at most 1 + α·h. Hence a loss of at most

        g(t) = ⌊t/α⌋·ln(1 + α) + ln(1 + t − α·⌊t/α⌋),

    which is reached where the entry starts on a whole column. Given the other entries' bits the bound is the same,
    whether or not they share them, so the losses of several entries add. A value that passes the last column can only
    lose less.

    g is subadditive: for a, b < α with a + b ≥ α, (1+a)(1+b) − (1+α)(1+a+b−α) = (α−a)(α−b) ≥ 0. So if two keys of a
    unit share an entry, that costs no more than if they did not, and the worst that moves k entries by at most w each
    is to move all k by w: a loss of k·g(w·ε'). The hash functions are public. The coins are fresh and secret: known
    rounding coins would cost ln(1 + α) an entry.

    Attributes
    ----------
    alpha : int
        Large: fewer columns and fewer flips, but coarser steps.
    scale : int
        Columns a unit, times 2⁴⁸.
    top : int
        The largest value that the columns hold; larger ones read as this.
    rows : int
        Bits in a column, a multiple of 64.
    seed : int
        Seed of the hash functions.

    References
    ----------
    Aumüller, Lebeda and Pagh, *Differentially Private Sparse Vectors with Low Error, Optimal Space, and Fast Access*
    (2021), Algorithms 1 and 2. Changed here: ε' inverts g for the unit that is protected, which for one record is e^ε −
    1 instead of ε; α = 2, so that p = 1/4 exactly; scaling and rounding are exact, in integers.
    """

    alpha: int
    scale: int
    top: int
    rows: int
    seed: int

    def __post_init__(self) -> None:
        hold_whole(self, "alpha", low=1, high=62)
        hold_whole(self, "scale", low=LEAST_SCALE, high=LARGEST_SCALE)
        hold_whole(self, "top", low=1, high=2**62)
        hold_whole(self, "rows", low=64, high=MOST_BITS)
        hold_whole(self, "seed", low=0, high=2**64 - 1)
        if self.rows % 64:
            raise InvalidInput("rows must be a multiple of 64.")
        if self.columns > MOST_COLUMNS or self.columns * self.rows > MOST_BITS:
            raise InvalidInput(
                f"values up to the largest one asked for need a table of {self.columns} columns × {self.rows} bits; at "
                f"most {MOST_COLUMNS} columns and 2**33 bits are made. Leave max_value out, so that large values go to "
                "the threshold part, or lower max_value or expected_keys."
            )

    def cost(self, apart: Distance) -> PureCost:
        """Return k·g(w·ε') for neighbours that differ in k entries by at most w each, rounded up."""
        step = self.alpha * (apart.most * self.scale / 2**SCALE_BITS)
        return PureCost(apart.cells * loss(step, self.alpha) / ROOM)

    @property
    def columns(self) -> int:
        """The number of columns that values up to the top need."""
        return max(1, -(-self.top * self.scale >> SCALE_BITS))

    @property
    def columns_a_unit(self) -> float:
        """How many columns one unit takes."""
        return self.scale / float(1 << SCALE_BITS)

    @property
    def flip(self) -> float:
        """The probability with which a bit is flipped."""
        numerator, bits = flip_odds(self.alpha)
        return numerator / float(1 << bits)

    @property
    def column_keys(self) -> Words:
        """The keys of the columns' hash functions."""
        return row_keys(self.seed, self.columns, "sparse")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the table in words of 64 bits."""
        return self.columns, self.rows // 64

    def draw(self, positions: Words, units: npt.NDArray[np.int64]) -> Words:
        """Write entries into a fresh table, and flip its bits. The result may be published.

        Parameters
        ----------
        positions : numpy.ndarray of uint64
            The entries' places in the domain, each once.
        units : numpy.ndarray of int64
            Their values, at least 0.
        """
        table = np.zeros(self.shape, np.uint64)
        # From here on a value sets all columns; capping it keeps the product with the scale within 64 bits.
        full = -(-(self.columns << SCALE_BITS) // self.scale)
        coins = random_words(len(positions))
        kernels.project(table, positions, np.minimum(units, full), np.uint64(self.scale), coins, self.column_keys)
        numerator, bits = flip_odds(self.alpha)
        flat = table.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            part = flat[start : start + _CHUNK]
            kernels.flip(part, numerator, random_words(bits * len(part)).reshape(len(part), bits))
        return table


Rule = Literal["pure", "stability"]


@stored
@dataclass(frozen=True, slots=True)
class Survival:
    """The public parameters of one threshold part: entries get Laplace noise, and those that reach a cutoff are kept.

    **Pure** (Cormode, Procopiuc, Srivastava and Tran 2012). All d entries of the domain get noise, the zeros too. With
    a = e^(−ε/Δ) a zero reaches a cutoff τ ≥ 0 with probability a^τ/(1 + a). So the number of zeros that survive is
    binomial, they are uniform among the zeros, and each exceeds τ by a geometric amount. All three are drawn exactly,
    and nobody visits the domain. The cutoff serves size only: at τ = ⌈ln(d/(1 + a))·Δ/ε⌉ about one zero survives.

    **Stability** (Korolova, Kenthapadi, Mishra and Ntoulas 2009), for δ > 0. Only entries that are present get noise.
    Let a unit of privacy be alone on k keys, with at most w on each. Such a key reaches a cutoff T with probability at
    most r = a^(T−w)/(1 + a). If none does, the loss is at most ε; so δ = 1 − (1 − r)^k, exactly, where the textbook's T
    = 1 + ln(1/(2δ))/ε, made for continuous noise, overshoots δ up to twofold. Seen from a neighbour without those keys,
    outputs that lack them are more likely by 1/(1 − r)^k. Those keys are among the K that may move in all and cost
    nothing else, so that this stays within their shares of ε, which are ε/K = −w·ln a each, if r ≤ 1 − a^w. The cutoff
    is raised to satisfy that too; it matters only where δ is near ε.

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


ENTRIES = "entries"

# One scale of the threshold's noise takes at most so many columns, whatever the budget and the threshold's share.
_MOST_BEYOND = 1000


@stored
@dataclass(frozen=True, slots=True)
class SparseLaw(OneTable):
    """ALP on all entries, and noise with a cutoff on all entries if values may be large.

    Attributes
    ----------
    table : Table
        The entries: one cell for each key of the domain.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    projection : Projection
        The ALP part.
    survival : Survival or None
        The threshold part; None where all values are known to be small.

    Privacy
    -------
    The two parts compose: :class:`Projection` and :class:`Survival` prove
    what each costs.
    """

    projection: Projection
    survival: Survival | None

    def __post_init__(self) -> None:
        if self.table.move.signed or self.table.shape is None or len(self.table.shape) != 1:
            raise InvalidInput("a sparse histogram has one row of entries, which never decrease.")
        rule = self.survival
        if rule is None:
            return
        if rule.rule == "stability" and not rule.hides(self.table.move):
            raise InvalidInput("the cutoff is too low for keys that one unit alone has.")
        # A reader considers all values up to some scales past the top, and a file may have been written by anyone.
        if rule.cutoff > self.projection.top or self.projection.columns_a_unit / rule.rate > _MOST_BEYOND:
            raise InvalidInput("the parts of a sparse histogram do not fit each other.")

    @property
    def domain(self) -> int:
        """The number of keys that are possible."""
        return int(self.table.size or 0)

    @property
    def words(self) -> str:
        """The parts in a phrase each."""
        projection, (first, *rest) = self.projection, self.costs()
        words = [
            f"ALP, a table of {projection.columns} columns × {projection.rows:,} bits each flipped with probability "
            f"{projection.flip:.4g} ({_spent(first)})"
        ]
        if self.survival is not None:
            words.append(f"{self.survival.words} ({_spent(rest[0])})")
        return "; ".join(words)

    def slots(self) -> Mapping[str, Any]:
        """Return the bits, the noise of the entries that are present, and the absent ones under the pure rule."""
        found: dict[str, Any] = {"bits": self.projection}
        if self.survival is not None:
            found["noise"] = self.survival.noise
            if self.survival.rule == "pure":
                found["absent"] = AbsentKeys(self.survival, self.domain)
        return found

    def costs(self) -> tuple[Cost, ...]:
        """Return the cost of the bits and, where there is a threshold part, that of the survivors."""
        apart = self.table.between(self.neighbours)
        bits = self.projection.cost(apart)
        return (bits,) if self.survival is None else (bits, self.survival.cost(apart, self.table.move))

    def draw(self, state: tuple[Words, Integers], handle: Handle) -> Arrays:
        """Return the flipped bits and the survivors of entries: increasing positions, and values of at least 1."""
        positions, units = state
        bits = handle.draw("bits", positions, units)
        if self.survival is None:
            return {"bits": bits}
        noisy = handle.add(units, "noise")
        kept = noisy >= self.survival.cutoff
        places, values = positions[kept], noisy[kept]
        if self.survival.rule == "pure":
            absent, drawn = handle.draw("absent", positions)
            places, values = np.concatenate([places, absent]), np.concatenate([values, drawn])
            order = np.argsort(places)
            places, values = places[order], values[order]
        return {"bits": bits, "positions": places, "values": values}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether these are bits of the table's size, and survivors in increasing order from the cutoff on."""
        if set(arrays) != ({"bits"} if self.survival is None else {"bits", "positions", "values"}):
            return False
        bits = arrays["bits"]
        if not isinstance(bits, np.ndarray) or bits.dtype != np.uint64 or bits.shape != self.projection.shape:
            return False
        return self.survival is None or are_entries(
            arrays["positions"], arrays["values"], self.domain, self.survival.cutoff
        )


def are_entries(positions: Any, values: Any, domain: int, least: int) -> bool:
    """Say whether these are increasing positions in a domain, each with a value that is no less than ``least``."""
    if not (isinstance(positions, np.ndarray) and isinstance(values, np.ndarray)):
        return False
    if positions.dtype != np.uint64 or values.dtype != np.int64 or positions.ndim != 1:
        return False
    if positions.shape != values.shape or np.any(positions[1:] <= positions[:-1]):
        return False
    return not len(positions) or (int(positions[-1]) < domain and int(values.min()) >= least)


def _spent(cost: Any) -> str:
    delta = getattr(cost, "delta", 0.0)
    return f"ε = {cost.epsilon:.4g}" + (f", δ = {delta:.3g}" if delta else "")
