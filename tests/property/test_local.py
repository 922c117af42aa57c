"""What a report draws is what the oracle draws from the same words, for any set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch import local
from dpsketch.local.protocol import People
from oracles import local as oracle

words = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("cap", [1, 3])
@given(held=st.lists(words, max_size=7), word=st.tuples(words, words, words), width=st.integers(4, 9))
@settings(max_examples=40)
def test_a_report_is_the_oracles(cap: int, held: list[int], word: tuple[int, int, int], width: int) -> None:
    hashing = local.SubsetHashing(1.5, cap, width=width, seeds=1)
    people = People(np.array([0, len(held)], np.int64), np.array(held, np.uint64))
    thresholds = [int(threshold) for threshold in hashing.thresholds()]
    expected = oracle.subset_hashing(held, int(hashing.keys[0]), width, thresholds, word)
    [bucket] = hashing.decide(people, np.zeros(1, np.uint32), np.array([word], np.uint64))
    assert expected is None or bucket == expected
