"""Hold what units contribute to a table against the bounds of a move, in exact integers."""

from __future__ import annotations

import numpy as np

from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Integers

__all__ = ["CELLS", "FINE", "L1", "LIMB", "MOST", "NEGATIVE", "OUTSIDE", "SQUARED", "TWICE", "excess"]

FINE, OUTSIDE, TWICE, NEGATIVE, MOST, L1, SQUARED, CELLS = range(8)
# Squares are summed in limbs of so many bits, of which the product of two fits 64.
LIMB = 31
# Squares of amounts up to this are summed by themselves, in one word: 2³² of them fit.
SMALL = np.uint64((1 << 16) - 1)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
U0, U1, U2, BITS, MASK = (np.uint64(each) for each in (0, 1, 2, LIMB, (1 << LIMB) - 1))


@kernel
def excess(
    starts: Integers,
    cells: Integers,
    amounts: Integers,
    size: np.uint64,
    most: np.uint64,
    l1: np.uint64,
    squared: tuple[np.uint64, np.uint64, np.uint64],
    held: int,
    signed: bool,
) -> int:
    """Return what is wrong with the first unit whose contribution passes a bound, or FINE.

    Unit u adds ``amounts[i]`` to ``cells[i]`` for i from ``starts[u]`` to ``starts[u + 1]``. ``squared`` has three
    limbs, the highest first. Nothing wraps if ``most`` and the highest limb are at most 2⁶², and ``l1`` at most 2⁶³:
    each sum passes its bound by at most one term before it is refused.
    """
    longest = 1
    for u in range(len(starts) - 1):
        longest = max(longest, starts[u + 1] - starts[u])
    bits = 2
    while (1 << bits) < 4 * longest:
        bits += 1
    # A hash table of the unit's own cells: the place of an entry, which is another unit's if it lies before the first.
    places = np.full(1 << bits, -1, np.int64)
    shift, last = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    for u in range(len(starts) - 1):
        first, moved, least = starts[u], 0, np.int64(0)
        total, small, low, middle, high = U0, U0, U0, U0, U0
        for i in range(first, starts[u + 1]):
            cell, amount = np.uint64(cells[i]), amounts[i]
            if cell >= size:
                return OUTSIDE
            slot = (cell * GOLDEN) >> shift
            while places[slot] >= first:
                if np.uint64(cells[places[slot]]) == cell:
                    return TWICE
                slot = (slot + U1) & last
            places[slot] = i
            magnitude = np.uint64(abs(amount))
            if magnitude > most:
                return MOST
            least = min(least, amount)
            moved += amount != 0
            total += magnitude
            if total > l1:
                return L1
            if magnitude <= SMALL:
                small += magnitude * magnitude
                continue
            upper, lower = magnitude >> BITS, magnitude & MASK
            low += lower * lower
            middle += U2 * upper * lower + (low >> BITS)
            high += upper * upper + (middle >> BITS)
            low, middle = low & MASK, middle & MASK
            if high > squared[0]:
                return SQUARED
        low += small & MASK
        middle += (small >> BITS) + (low >> BITS)
        high, middle, low = high + (middle >> BITS), middle & MASK, low & MASK
        if (high, middle, low) > squared:
            return SQUARED
        if moved > held:
            return CELLS
        if least < 0 and not signed:
            return NEGATIVE
    return FINE
