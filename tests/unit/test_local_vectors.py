"""Published reports: with the random words given, this client draws the same bytes as any other must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import local
from dpsketch._compiled import local as kernels
from dpsketch.local.protocol import People, odds_below, read_people
from oracles import local as oracle

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "local.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["odds"], ids=lambda vector: str(vector["epsilon"]))
def test_odds(vector: dict[str, Any]) -> None:
    assert odds_below(vector["epsilon"]) * 2**48 == int(vector["odds_times_2_to_48"])


@pytest.mark.parametrize("vector", VECTORS["reports"])
def test_reports(vector: dict[str, Any]) -> None:
    protocol = local.protocol_from_json(vector["spec"])
    assert isinstance(protocol, local.SubsetHashing)
    people = read_people([vector["items"]], protocol.key_type)
    words = [int(vector[name]) for name in ("inside", "choice", "order")]
    seeds = np.array([vector["seed"]], np.uint32)
    [bucket] = protocol.decide(people, seeds, np.array([words], np.uint64))
    assert bucket == vector["bucket"]
    thresholds = [int(threshold) for threshold in protocol.thresholds()]
    prints = [int(print_) for print_ in people.prints]
    assert bucket == oracle.subset_hashing(prints, int(protocol.keys[seeds[0]]), protocol.buckets, thresholds, words)
    columns = {
        "id": np.frombuffer(bytes.fromhex(vector["id"]), "<u8").reshape(1, 2),
        "seed": seeds.astype(np.uint16),
        "bucket": np.array([bucket]),
    }
    assert protocol.form.to_bytes(columns).hex() == vector["bytes"]
    assert protocol.form.to_json(columns) == [vector["object"]]
    collector = protocol.collector()
    assert collector.receive([bytes.fromhex(vector["bytes"])]).accepted == 1
    assert collector.receive([vector["object"]]).repeated == 1


LAST = 2**64 - 1


def test_a_choice_that_would_be_biased_is_drawn_again_and_nothing_else(seeded: None) -> None:
    """One occupied bucket of eight leaves seven alternatives: the last 2⁶⁴ mod 7 words would favour the first ones."""
    hashing = local.SubsetHashing(1.0, 2, width=8, seeds=4)
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
