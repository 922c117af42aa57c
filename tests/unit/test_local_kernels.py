"""The local model's kernels against slow, obvious versions of them."""

from __future__ import annotations

import numpy as np

from dpsketch._compiled import local as kernels
from dpsketch.local import SubsetHashing
from dpsketch.local.protocol import People
from oracles import local as oracle

RNG = np.random.default_rng(7)
LAST = 2**64 - 1


def test_a_choice_that_would_be_biased_is_drawn_again_and_nothing_else(seeded: None) -> None:
    """One occupied bucket of eight leaves seven alternatives: the last 2⁶⁴ mod 7 words would favour the first ones."""
    hashing = SubsetHashing(1.0, 2, width=8, seeds=4)
    people = People(np.array([0, 1, 2], np.int64), np.array([11, 12], np.uint64))
    words = np.array([[LAST, LAST, 0], [LAST, LAST - 2**64 % 7, 0]], np.uint64)
    seeds = np.zeros(2, np.uint32)
    buckets = np.empty(2, np.uint32)
    keys, thresholds = hashing.keys, hashing.thresholds()
    kernels.subset_hashing(np.arange(2), people.offsets, people.prints, keys, seeds, 8, thresholds, words, buckets)
    assert buckets[0] == 8
    assert buckets[1] < 8
    redrawn = hashing.decide(people, seeds, words)
    assert redrawn[0] < 8
    assert redrawn[0] != oracle.bucket(11, int(keys[0]), 8)  # still an empty bucket
    assert redrawn[1] == buckets[1]
    assert words[0, 0] == LAST
    assert words[0, 1] != LAST
