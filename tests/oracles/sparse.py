"""Slow, obvious versions of the ALP kernels on plain integers, and exact output laws of small mechanisms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from mpmath import mp, mpf

from oracles.hashing import stir


def place(position: int, column_key: int, rows: int) -> int:
    """The row of a key's bit in one column."""
    return (stir(stir(position) ^ column_key) >> 32) * rows >> 32


def project(rows: int, positions, units, scale: int, coins, column_keys) -> set[tuple[int, int]]:
    """The (column, row) pairs that are set before any flip."""
    ones = set()
    for position, unit, coin in zip(positions, units, coins, strict=True):
        whole, rest = divmod(unit * scale, 2**48)
        whole += (coin >> 16) < rest
        for j, key in enumerate(column_keys[:whole]):
            ones.add((j, place(position, key, rows)))
    return ones


def unpack(table: np.ndarray) -> set[tuple[int, int]]:
    """The (column, row) pairs that are set in a packed table."""
    return {
        (j, 64 * w + b)
        for j, row in enumerate(table.tolist())
        for w, word in enumerate(row)
        for b in range(64)
        if word >> b & 1
    }


def flips(random: Sequence[Sequence[int]], numerator: int) -> list[int]:
    """Words whose bits are set where the number that the random words spell there, lowest first, calls for a flip."""
    result = []
    for words in random:
        flipped = 0
        for bit in range(64):
            number = sum((word >> bit & 1) << k for k, word in enumerate(words))
            # All-ones is the smallest number here: an OR at a numerator's bit is "below" where the random bit is 1.
            complement = 2 ** len(words) - 1 - number
            flipped |= (complement < numerator) << bit
        result.append(flipped)
    return result


def walk(bits: Sequence[int]) -> float:
    heights = list(itertools.accumulate((1 if bit else -1 for bit in bits), initial=0))
    peaks = [n for n, height in enumerate(heights) if height == max(heights)]
    return sum(peaks) / len(peaks)


def posterior(bits, ratio, whole, fraction, value, prior, dropped, observed, rate, tail) -> list[float]:
    """Mean, median and ends of one key's posterior, with 50 digits and exponents of any size."""
    with mp.workdps(50):
        return _posterior(bits, ratio, whole, fraction, value, prior, dropped, observed, rate, tail)


def _posterior(bits, ratio, whole, fraction, value, prior, dropped, observed, rate, tail) -> list[float]:
    likelihood = [mpf(1)]
    for bit, pair in zip(bits, ratio, strict=True):
        likelihood.append(likelihood[-1] * mpf(float(pair[bit])))
    likelihood.append(mpf(0))
    weights = []
    for k in range(len(value)):
        share = mpf(float(fraction[k]))
        w = (1 - share) * likelihood[whole[k]] + share * likelihood[whole[k] + 1]
        if observed < 0:
            w *= mpf(float(dropped[k]))
        else:
            w *= mpf(float(prior[k])) * mpf(math.exp(-rate * abs(observed - value[k])))
        weights.append(w)
    total = sum(weights)
    mean = float(sum(w * mpf(float(v)) for w, v in zip(weights, value, strict=True)) / total)
    below = list(itertools.accumulate(weights))
    above = list(itertools.accumulate(weights[::-1]))[::-1]
    half = mpf(tail) / 2 * total
    low = next(v for v, b in zip(value, below, strict=True) if b > half)
    median = next(v for v, b in zip(value, below, strict=True) if b >= total / 2)
    high = next(v for v, b in zip(value[::-1], above[::-1], strict=True) if b > half)
    if rate > 0:
        shrink = math.exp(-rate * (value[-1] - value[-2]))
        beyond = float(weights[-1] / total) * shrink / (1 - shrink)
        if beyond > tail / 2:
            high = value[-1] + math.log(2 * beyond / tail) / rate
    return [mean, median, low, high]


def touched(projection, positions: Sequence[int]) -> list[list[tuple[int, int]]]:
    """For each key, the (column, row) pairs that it may set."""
    keys = projection.column_keys.tolist()
    return [[(j, place(position, key, projection.rows)) for j, key in enumerate(keys)] for position in positions]


def output_law(projection, cells: list[list[tuple[int, int]]], units: Sequence[int], flip: float) -> np.ndarray:
    """The exact law of the bits that any of the keys may set; all other bits are flips alone, whatever the data.

    Entry o of the result is the probability that bit b of that union reads bit b of o.
    """
    union = sorted({cell for own in cells for cell in own})
    index = {cell: b for b, cell in enumerate(union)}
    outputs = np.arange(2 ** len(union))
    law = np.zeros(len(outputs))
    for chance, ones in _roundings(projection, units):
        table = 0
        for own, count in zip(cells, ones, strict=True):
            for cell in own[:count]:
                table |= 1 << index[cell]
        flipped = np.bitwise_count(outputs ^ table).astype(float)
        law += chance * flip**flipped * (1 - flip) ** (len(union) - flipped)
    return law


def _roundings(projection, units: Sequence[int]) -> Iterator[tuple[float, list[int]]]:
    choices = []
    for unit in units:
        whole, rest = divmod(unit * projection.scale, 2**48)
        chance = rest / 2**48
        choices.append([(1 - chance, whole), (chance, whole + 1)] if rest else [(1.0, whole)])
    for combination in itertools.product(*choices):
        yield (
            math.prod(chance for chance, _ in combination),
            [min(count, projection.columns) for _, count in combination],
        )


def survival_law(threshold, unit: int | None, beyond: int) -> np.ndarray:
    """The law of one key's outcome: not kept, or kept at cutoff, cutoff + 1, …; ``unit`` None is a key that is absent.

    The last outcome stands for all larger values.
    """
    if unit is None:
        return np.array([1.0, *[0.0] * beyond])
    ratio = math.exp(-threshold.noise.epsilon / threshold.noise.sensitivity)
    noise = np.arange(threshold.cutoff - unit, threshold.cutoff - unit + beyond - 1)
    mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise.astype(float))
    last = noise[-1] + 1
    rest = ratio**last / (1 + ratio) if last >= 1 else 1 - ratio ** (1 - last) / (1 + ratio)
    return np.array([max(0.0, 1 - mass.sum() - rest), *mass, rest])


def product_law(laws: Sequence[np.ndarray]) -> np.ndarray:
    law = np.ones(1)
    for one in laws:
        law = np.multiply.outer(law, one).ravel()
    return law


def delta_at(epsilon: float, law: np.ndarray, neighbour: np.ndarray) -> float:
    """The exact δ at ε between two laws, in the worse direction."""
    return max(
        float(np.maximum(0, law - math.exp(epsilon) * neighbour).sum()),
        float(np.maximum(0, neighbour - math.exp(epsilon) * law).sum()),
    )
