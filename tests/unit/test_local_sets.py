"""What people hold: every container gives the same sets, and bad ones are refused without a word about the keys."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.hashing import fingerprint
from dpsketch.local import group_by_person
from dpsketch.local.protocol import read_people, read_single_items

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
