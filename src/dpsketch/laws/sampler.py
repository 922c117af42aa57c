"""The exponential mechanism over whole numbers, drawn exactly: no floating-point number decides anything.

Wanted is a place z of a finite set with probability proportional to e^(−γN(z)), where N(z) ≥ 0 is a whole number and γ
a fraction. There are too many places to look at each. *Level* j holds those with j/2 ≤ γN(z) < (j+1)/2.

1. A level is drawn in proportion to its number of places times e^(−j/2).
2. A place of it is drawn uniformly.
3. It is kept with probability e^(−(γN(z) − j/2)), which is more than 0.6; otherwise all is drawn again.

So a place is proposed with probability proportional to e^(−j/2), and kept in proportion to e^(−γN(z)): the law is exact
if each of the three is.

**The level** is found by inversion. The weights e^(−j/2) are enclosed between whole multiples of 2^−P, whence lower and
upper bounds on their running sums. What lies beyond the last level that is looked at weighs at most as much as all its
places at that level would. U, uniform in (0, 1), is known by its first bits to lie in an interval. A level is certain
if, for every U in that interval and all sums within their bounds, it is the one that U times the total falls into.
Where none is, P is doubled and bits are drawn *behind* those of U. They stay independent and uniform, as if U had been
drawn in all its infinite length, so that the law is exact.

**Keeping** is a coin of probability e^(−x), x in [0, ½), by Canonne, Kamath and Steinke (2020, Algorithm 1): of coins
with probability x/1, x/2, x/3, … the first that fails is an odd one with probability e^(−x).

**Time.** One draw takes about a millisecond, whatever the data. How often all is drawn again, and how far P grows,
depends on chance and a little on the data; whoever can time a release that finely may learn it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from dpsketch.noise import random_bytes

__all__ = ["draw_coin", "draw_level", "uniform_below"]

# Bits of the first attempt. With at most 2⁴⁴ places it fails less than once in 2⁴⁰ draws.
_FIRST_BITS = 96
# More bits than rounding can cost in as many products as there are levels.
_GUARD = 64


def draw_level(reached: Callable[[int], int]) -> int:
    """Draw j ≥ 0 in proportion to (reached(j) − reached(j+1))·e^(−j/2).

    Parameters
    ----------
    reached : callable
        How many places have level j or a higher one; it never rises, and reaches 0. Level 0 is not empty.
    """
    bits, drawn, places = _FIRST_BITS, 0, [reached(0)]
    prefix = 0
    while True:
        prefix = prefix << (bits - drawn) | _random_bits(bits - drawn)
        drawn = bits
        found = _settled(reached, places, prefix, bits)
        if found is not None:
            return found
        bits *= 2


def _settled(reached: Callable[[int], int], places: list[int], prefix: int, bits: int) -> int | None:
    """Return the level that U falls into, or None where its first bits do not tell.

    ``places`` remembers how many places reach each level.
    """
    weights = _weights(bits, 2 * (bits + places[0].bit_length()))
    lower, upper = [0], [0]
    rest = 0
    for level, (least, most) in enumerate(weights):
        if places[level] * most <= 1 or least == 0:
            rest = places[level] * most
            break
        if level + 1 == len(places):
            places.append(reached(level + 1))
        size = places[level] - places[level + 1]
        lower.append(lower[-1] + size * least)
        upper.append(upper[-1] + size * most)
    low, high = prefix * lower[-1], (prefix + 1) * (upper[-1] + rest)
    for level in range(len(lower) - 1):
        if high <= lower[level + 1] << bits:
            return level if upper[level] << bits <= low else None
    return None


@lru_cache(maxsize=16)
def _weights(bits: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return whole numbers below and above 2^bits·e^(−j/2), for j < count."""
    scale = bits + _GUARD
    one = 1 << scale
    # e^(−½) = Σ (−½)^i/i!, whose terms fall and alternate, so that the rest is less than the first term left out.
    low = high = 0
    least = most = one
    i = 0
    while most > 1:
        low, high = (low + least, high + most) if i % 2 == 0 else (low - most, high - least)
        i += 1
        least, most = least // (2 * i), -(-most // (2 * i))
    half = low - most, high + most
    found = [(one, one)]
    while len(found) < count:
        below, above = found[-1]
        found.append((below * half[0] >> scale, -(-above * half[1] >> scale)))
    return tuple((below >> _GUARD, -(-above >> _GUARD)) for below, above in found)


def draw_coin(exponent: Fraction) -> bool:
    """Return True with probability e^(−exponent), for an exponent from 0 to 1."""
    tries = 1
    while uniform_below(exponent.denominator * tries) < exponent.numerator:
        tries += 1
    return tries % 2 == 1


def uniform_below(bound: int) -> int:
    """Draw a whole number uniformly from [0, bound), by rejection; the bound may have any size."""
    bits = (bound - 1).bit_length()
    while True:
        number = _random_bits(bits)
        if number < bound:
            return number


def _random_bits(count: int) -> int:
    """Draw a whole number of so many random bits."""
    size = -(-count // 8)
    return int.from_bytes(random_bytes(size), "little") >> (8 * size - count)
