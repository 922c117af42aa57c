"""The local model's kernels against slow, obvious versions of them."""

from __future__ import annotations

import numpy as np

from dpsketch._compiled import local as kernels
from dpsketch.local import SubsetHashing
from dpsketch.local.protocol import People
from dpsketch.local.tallies import Identifiers, in_order
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


def test_identifiers_are_a_set_and_a_refused_batch_leaves_no_trace() -> None:
    """Crowded on purpose: 500 identifiers in 1024 slots share probe sequences."""
    ids = RNG.integers(1, 2**63, (800, 2)).astype(np.uint64)
    held_ids = Identifiers()
    assert held_ids.insert_all(ids[:300])
    before = in_order(held_ids.rows())
    assert not held_ids.insert_all(np.concatenate([ids[300:500], ids[299:300], ids[500:510]]))
    assert not held_ids.insert_all(np.concatenate([ids[300:350], ids[300:301]]))
    assert (in_order(held_ids.rows()) == before).all()
    assert held_ids.insert_all(ids[300:])
    assert not held_ids.insert(ids[::-1]).any()
    assert len(held_ids) == 800
    assert {tuple(row) for row in held_ids.rows().tolist()} == {tuple(row) for row in ids.tolist()}
    twice = np.array([[1, 0], [0, 1], [1, 0]], np.uint64)
    assert Identifiers().insert(twice).tolist() == [True, True, False]
