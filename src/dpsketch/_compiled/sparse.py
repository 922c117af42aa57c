"""ALP: write values in unary through hashed columns of a bit table, flip bits, and read values back.

A table has m columns of s bits, s a multiple of 64, packed into m × s/64 words: bit b of a column is bit b mod 64 of
its word b div 64. Column j meets a key at position x in the domain in the bit

    ⌊s · u / 2³²⌋,   u the upper half of z = mix(mix(x) ⊕ column_keys[j]),

where mix is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014; Stafford's variant 13) without its last
shift. The first mix spreads keys that are small consecutive integers.

An entry of v units is scaled to v · R / 2⁴⁸ and rounded at random, all in integers; the whole number y that results
sets the key's bits in columns 0 to y − 1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.hashing import mix_upper
from dpsketch._compiled.kernel import kernel

__all__ = ["flip", "invert_fingerprints", "posterior", "project", "read", "reduce_range", "walk"]

U1 = np.uint64(1)
U6 = np.uint64(6)
U16 = np.uint64(16)
U27 = np.uint64(27)
U29 = np.uint64(29)
U31 = np.uint64(31)
U32 = np.uint64(32)
U33 = np.uint64(33)
U37 = np.uint64(37)
U48 = np.uint64(48)
U58 = np.uint64(58)
U63 = np.uint64(63)
LOW_32 = np.uint64(0xFFFFFFFF)
LOW_48 = np.uint64((1 << 48) - 1)

# XXH64 of eight bytes with seed 42, undone: the inverses of its odd multipliers modulo 2⁶⁴.
P1_INVERSE = np.uint64(pow(0x9E3779B185EBCA87, -1, 1 << 64))
P2_INVERSE = np.uint64(pow(0xC2B2AE3D27D4EB4F, -1, 1 << 64))
P3_INVERSE = np.uint64(pow(0x165667B19E3779F9, -1, 1 << 64))
P4 = np.uint64(0x85EBCA77C2B2AE63)
START = np.uint64(0x27D4EB2F165667C5 + 42 + 8)

# Keys whose posterior is computed side by side.
LANES = 16
# A likelihood changes by less than 2⁶ a column. Looked at so often, it stays within the range of a double if it is
# rescaled where it has passed LARGE; below SMALL, relative to the largest before, it counts as 0 from there on.
RESCALED = 64
LARGE = 2.0**256
SMALL = 2.0**-512


@kernel
def invert_fingerprints(fingerprints: npt.NDArray[np.uint64], patterns: npt.NDArray[np.uint64]) -> None:
    """Fill in the 64-bit integer keys that have these fingerprints; every step of the hash is a bijection."""
    for i in range(len(fingerprints)):
        h = fingerprints[i]
        h ^= h >> U32
        h *= P3_INVERSE
        h ^= (h >> U29) ^ (h >> U58)
        h *= P2_INVERSE
        h ^= h >> U33
        h = (h - P4) * P1_INVERSE
        h = ((h << U37) | (h >> U27)) ^ START
        h *= P1_INVERSE
        h = (h << U33) | (h >> U31)
        patterns[i] = h * P2_INVERSE


@kernel
def reduce_range(fingerprints: npt.NDArray[np.uint64], domain: np.uint64, positions: npt.NDArray[np.uint64]) -> None:
    """Fill in ⌊f · domain / 2⁶⁴⌋ for each fingerprint f: the upper half of a product of two words."""
    d_low = domain & LOW_32
    d_high = domain >> U32
    for i in range(len(fingerprints)):
        f_low = fingerprints[i] & LOW_32
        f_high = fingerprints[i] >> U32
        middle = f_high * d_low + ((f_low * d_low) >> U32)
        carried = f_low * d_high + (middle & LOW_32)
        positions[i] = f_high * d_high + (middle >> U32) + (carried >> U32)


@kernel
def project(
    table: npt.NDArray[np.uint64],
    positions: npt.NDArray[np.uint64],
    units: npt.NDArray[np.int64],
    scale: np.uint64,
    coins: npt.NDArray[np.uint64],
    column_keys: npt.NDArray[np.uint64],
) -> None:
    """Set the bits of every entry, in place.

    ``units[i] * scale`` must stay below 2⁶⁴. The upper 48 bits of ``coins[i]`` round entry i: up where they are below
    the fraction.
    """
    rows = np.uint64(64 * table.shape[1])
    for i in range(len(positions)):
        product = np.uint64(units[i]) * scale
        ones = int(product >> U48)
        if (coins[i] >> U16) < (product & LOW_48):
            ones += 1
        mixed = mix_upper(positions[i])
        for j in range(min(ones, len(column_keys))):
            bit = ((mix_upper(mixed ^ column_keys[j]) >> U32) * rows) >> U32
            table[j, bit >> U6] |= U1 << (bit & U63)


@kernel
def flip(words: npt.NDArray[np.uint64], numerator: int, random: npt.NDArray[np.uint64]) -> None:
    """Flip each bit of some words with probability numerator / 2^b, in place, given b random words for each word.

    The random words' bits, taken together, are compared with the numerator's from the lowest up: with probability q
    decided so far, an OR with a fair bit makes it (1 + q)/2 and an AND makes it q/2.
    """
    b = random.shape[1]
    for i in range(len(words)):
        flips = np.uint64(0)
        for k in range(b):
            if (numerator >> k) & 1:
                flips |= random[i, k]
            else:
                flips &= random[i, k]
        words[i] ^= flips


@kernel
def read(
    table: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64], column_keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint8]:
    """Return the bits of each key: an array of columns × keys of zeros and ones."""
    n = len(positions)
    rows = np.uint64(64 * table.shape[1])
    mixed = np.empty(n, np.uint64)
    for i in range(n):
        mixed[i] = mix_upper(positions[i])
    bits = np.empty((len(column_keys), n), np.uint8)
    places = np.empty(n, np.uint32)
    for j in range(len(column_keys)):
        # Two passes: the first has no scattered loads, so that it is vectorised.
        key = column_keys[j]
        for i in range(n):
            places[i] = np.uint32(((mix_upper(mixed[i] ^ key) >> U32) * rows) >> U32)
        column = table[j]
        for i in range(n):
            place = np.uint64(places[i])
            bits[j, i] = np.uint8((column[place >> U6] >> (place & U63)) & U1)
    return bits


@kernel
def walk(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return where each key's walk, up at a one and down at a zero, is highest; the average place of several."""
    columns, n = bits.shape
    peaks = np.empty(n)
    for i in range(n):
        height = 0
        best = 0
        places = 0
        count = 1
        for j in range(columns):
            height += 2 * int(bits[j, i]) - 1
            if height > best:
                best = height
                places = j + 1
                count = 1
            elif height == best:
                places += j + 1
                count += 1
        peaks[i] = places / count
    return peaks


@kernel
def posterior(
    bits: npt.NDArray[np.uint8],
    ratio: npt.NDArray[np.float64],
    whole: npt.NDArray[np.int32],
    fraction: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    prior: npt.NDArray[np.float64],
    dropped: npt.NDArray[np.float64],
    observed: npt.NDArray[np.float64],
    rate: float,
    tail: float,
) -> npt.NDArray[np.float64]:
    """Return for each key the mean, the median, and the lower and upper ends of its posterior: an array of n × 4.

    Parameters
    ----------
    bits : columns × n
        Each key's bits.
    ratio : columns × 2
        The likelihood ratio of a bit that reads 0, and of one that reads 1, between "this column belongs to the value"
        and "it does not".
    whole, fraction, value, prior, dropped : points
        The values considered, in increasing order: where each lies among the columns, what it is, its prior weight, and
        that weight times the probability that the threshold part drops it.
    observed : n
        The threshold part's value of each key; negative where it was dropped.
    rate : float
        The threshold part's noise falls by e^−rate a unit; 0 where there is no threshold part.
    tail : float
        Probability outside the interval, half on either side.
    """
    columns, n = bits.shape
    points = len(value)
    result = np.empty((n, 4))
    # One place more than can be read with a fraction above 0.
    likelihood = np.zeros((columns + 2, LANES))
    current = np.empty(LANES)
    weight = np.empty((points, LANES))
    below = np.empty((points, LANES))
    above = np.empty((points, LANES))
    for start in range(0, n, LANES):
        # Several keys at a time, which the compiler vectorises.
        lanes = min(LANES, n - start)
        _likelihoods(bits[:, start : start + lanes], ratio, likelihood, current)
        for k in range(points):
            at = whole[k]
            f = fraction[k]
            d = dropped[k]
            for i in range(lanes):
                weight[k, i] = (likelihood[at, i] + f * (likelihood[at + 1, i] - likelihood[at, i])) * d
        for i in range(lanes):
            seen = observed[start + i]
            if seen >= 0.0:
                for k in range(points):
                    at = whole[k]
                    w = likelihood[at, i] + fraction[k] * (likelihood[at + 1, i] - likelihood[at, i])
                    weight[k, i] = w * prior[k] * math.exp(-rate * abs(seen - value[k]))
        for i in range(lanes):
            below[0, i] = weight[0, i]
            above[points - 1, i] = weight[points - 1, i]
            current[i] = weight[0, i] * value[0]
        for k in range(1, points):
            v = value[k]
            for i in range(lanes):
                below[k, i] = below[k - 1, i] + weight[k, i]
                current[i] += weight[k, i] * v
        for k in range(points - 2, -1, -1):
            for i in range(lanes):
                above[k, i] = above[k + 1, i] + weight[k, i]
        for i in range(lanes):
            total = below[points - 1, i]
            half = 0.5 * tail * total
            result[start + i, 0] = current[i] / total
            result[start + i, 1] = value[_first_above(below, i, np.nextafter(0.5 * total, 0.0))]
            result[start + i, 2] = value[_first_above(below, i, half)]
            result[start + i, 3] = value[_last_above(above, i, half)]
            if rate > 0.0:
                # Beyond the last point all weights fall by the same factor from each point to the next.
                shrink = math.exp(-rate * (value[points - 1] - value[points - 2]))
                beyond = weight[points - 1, i] * shrink / (1.0 - shrink)
                if beyond > half:
                    result[start + i, 3] = value[points - 1] + math.log(beyond / half) / rate
    return result


@kernel
def _likelihoods(
    bits: npt.NDArray[np.uint8],
    ratio: npt.NDArray[np.float64],
    likelihood: npt.NDArray[np.float64],
    current: npt.NDArray[np.float64],
) -> None:
    """Fill in ``likelihood[y, i]``: that of key i filling y columns, up to a factor of its own."""
    columns, lanes = bits.shape
    for i in range(lanes):
        current[i] = 1.0
        likelihood[0, i] = 1.0
    for j in range(columns):
        zero = ratio[j, 0]
        more = ratio[j, 1] - zero
        for i in range(lanes):
            current[i] *= zero + more * bits[j, i]
            likelihood[j + 1, i] = current[i]
        if j % RESCALED == RESCALED - 1:
            for i in range(lanes):
                while current[i] > LARGE:
                    current[i] /= LARGE
                    for before in range(j + 2):
                        likelihood[before, i] /= LARGE
                if current[i] < SMALL:
                    current[i] = 0.0


@kernel
def _first_above(sums: npt.NDArray[np.float64], i: int, target: float) -> int:
    """Return the first place where increasing sums pass a target, or the last place."""
    low = 0
    high = len(sums) - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle, i] > target:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _last_above(sums: npt.NDArray[np.float64], i: int, target: float) -> int:
    """Return the last place where decreasing sums pass a target, or the first place."""
    low = 0
    high = len(sums) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if sums[middle, i] > target:
            low = middle
        else:
            high = middle - 1
    return low
