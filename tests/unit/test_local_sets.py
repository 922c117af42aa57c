"""What people hold and what is drawn for it: sets in any container, and the published reports of other clients."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsketch import local
from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint
from dpsketch.local import group_by_person
from dpsketch.local.protocol import People, odds_below, read_people, read_single_items
from oracles import local as oracle

SETS = [["a", "b"], [], ["c"], ["a", "c", "d"]]
FLAT = ["a", "b", "c", "a", "c", "d"]
OFFSETS = np.array([0, 2, 2, 3, 6])
sliced = pa.array([["x"], *SETS, ["y", "z"]]).slice(1, 4)


@pytest.mark.parametrize(
    "sets",
    [
        [["a", None, "b"], None, ("c", None), np.array(["a", "c", "d"], dtype=object)],
        sliced,
        pa.chunked_array([pa.array(SETS[:1]), pa.array(SETS[1:])]),
        pa.array(SETS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pd.Series(SETS),
        pl.Series(SETS),
        (OFFSETS.astype(np.uint32), FLAT),
    ],
)
def test_every_container_gives_the_same_people(sets: Any) -> None:
    people = read_people(sets)
    assert people.offsets.tolist() == OFFSETS.tolist()
    assert (people.prints == fingerprint(FLAT).fingerprints).all()
    with pytest.raises(SpecMismatch):
        read_people(sets, "int")


@pytest.mark.parametrize("bad", ["ab", ["ab", "cd"], [["a"], 3], [[1.5]], pa.array(["a"]), (np.array([0, 4, 3]), FLAT)])
def test_bad_sets_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_people(bad)
    assert "ab" not in str(refusal.value).replace("table", "")


def test_people_are_told_apart_as_users_of_a_sketch_are() -> None:
    """Two people in one group would share the budget of one, and a group of all who have no id would be nobody's."""
    for users in (pa.array([2.0**24, 2.0**24 + 1], pa.float32()), pa.array([0.5, 1.5]), [-1, 2**64 - 1]):
        with pytest.raises(InvalidInput, match="users are read as keys are"):
            group_by_person(users, ["a", "b"])
    offsets, values = group_by_person(pa.array([float("nan"), float("nan"), 7.0]), ["a", "b", "c"])
    assert (offsets.tolist(), values.to_pylist()) == ([0, 1], ["c"])
    for users in (pa.array([5, None, 7, 5]).dictionary_encode(), ["u", None, "v", "u"]):
        offsets, values = group_by_person(users, ["a", "b", "c", "a"])
        assert sorted(tuple(values[a:b].to_pylist()) for a, b in itertools.pairwise(offsets)) == [("a", "a"), ("c",)]
    with pytest.raises(InvalidInput, match="null"):
        read_single_items(["a", None])
    with pytest.raises(InvalidInput, match="another length"):
        group_by_person([1, 2, 3], ["a", "b"])


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
