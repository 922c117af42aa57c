"""For any report: a mutated one is counted or refused, and what is drawn is the oracle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch import local
from dpsketch.local.protocol import People
from oracles import local as oracle

PROTOCOLS: list[Any] = [
    local.SubsetHashing(1.0, max_items=3, seeds=8),
    local.SubsetDirect(2.0, max_items=2, domain=6),
    local.SampledBit(1.0, width=4, rows=8),
    local.MultiPCMS(3.0, rows=2, width=9),
    local.PadAndSample(1.0, length=3, seeds=8),
    local.PrivSketchAsPublished(1.0, rows=2, width=3),
]
protocols = st.sampled_from(PROTOCOLS)


@given(protocols, st.data())
@settings(max_examples=60)
def test_a_mutated_report_is_counted_or_refused(protocol: Any, data: Any) -> None:
    [message] = protocol.to_bytes(protocol.report([[1, 2]]))
    place = data.draw(st.integers(0, len(message) - 1))
    mutated = message[:place] + bytes([data.draw(st.integers(0, 255))]) + message[place + 1 :]
    collector = protocol.collector()
    received = collector.receive([mutated])
    assert received.accepted + received.refused == 1
    assert collector.receive([message]).accepted == (0 if mutated[9:25] == message[9:25] and received.accepted else 1)


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
