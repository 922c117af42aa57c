"""Slow, obvious versions of the local model's kernels, in plain Python integers; and exact laws, found by probing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from oracles.hashing import mix


def bucket(print_: int, key: int, width: int) -> int:
    return ((mix(print_ ^ key) >> 32) * width) >> 32


def cut(prints: Sequence[int], cap: int, word: int) -> list[int]:
    """The keys that a set above the cap keeps."""
    if len(prints) <= cap:
        return list(prints)
    return sorted(set(prints), key=lambda print_: mix(print_ ^ word))[:cap]


def choose(alternatives: Sequence[int], word: int) -> int | None:
    """One of the alternatives, or None where the word would favour the first ones."""
    m = len(alternatives)
    return None if word >= 2**64 - 2**64 % m else alternatives[word % m]


def subset_hashing(
    prints: Sequence[int], key: int, width: int, thresholds: Sequence[int], words: Sequence[int]
) -> int | None:
    kept = cut(prints, len(thresholds) - 1, words[2])
    occupied = list(dict.fromkeys(bucket(print_, key, width) for print_ in kept))
    if words[0] < thresholds[len(occupied)]:
        return choose(occupied, words[1])
    return choose([b for b in range(width) if b not in occupied], words[1])


def support(seeds: Sequence[int], buckets: Sequence[int], keys: Sequence[int], width: int, print_: int) -> int:
    return sum(bucket(print_, keys[s], width) == b for s, b in zip(seeds, buckets, strict=True))


def boundary(keeps: Callable[[np.ndarray], np.ndarray], cases: int, bits: int = 64) -> list[int]:
    """Find, for each case, how many of all words the program treats as below its threshold.

    ``keeps`` runs the program on one word a case and says for which of them the word counts as below.
    """
    low = [0] * cases
    high = [2**bits] * cases  # below holds for words < low; fails for words >= high
    for _ in range(bits + 1):
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        below = keeps(np.array(middle, np.uint64))
        for i, is_below in enumerate(below):
            if low[i] < high[i]:
                if is_below:
                    low[i] = middle[i] + 1
                else:
                    high[i] = middle[i]
    assert low == high
    return low


Law = dict[object, Fraction]


def worst_ratio(laws: Sequence[Law]) -> Fraction:
    """The largest ratio of the probabilities of one output under two inputs; every output must be possible always."""
    worst = Fraction(1)
    for output in set().union(*laws):
        chances = [law.get(output, Fraction(0)) for law in laws]
        assert min(chances) > 0, "an output is impossible for one input and possible for another"
        worst = max(worst, max(chances) / min(chances))
    return worst
