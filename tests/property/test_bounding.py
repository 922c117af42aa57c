"""For every dataset of users: the table is the oracle's, partitions by user agree, and the clip bounds a user."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from oracles import bounding as oracle
from oracles import hashing as hashing_oracle
from sensitive import everything

Records = list[tuple[int, int, int]]
Shape = tuple[int, int, int, int]

# Few users and few keys, so that users repeat keys, lose some to the bound, and keys share the cells of narrow tables.
records = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 25), st.integers(0, 4)), max_size=60)
shapes = st.tuples(st.sampled_from([1, 3, 5]), st.integers(2, 12), st.integers(1, 12), st.integers(0, 2**64 - 1))
# Tables with keys that share every cell, which no random dataset would find.


def add(sketch: dps.CountSketch, stream: Records) -> dps.CountSketch:
    users, keys, weights = ([record[i] for record in stream] for i in range(3))
    sketch.update(keys, users=users, weights=weights)
    return sketch


def build(shape: Shape, stream: Records) -> dps.CountSketch:
    rows, width, max_keys, seed = shape
    unit = dps.per_user(max_keys, max_weight=3)
    return add(dps.CountSketch(rows=rows, width=width, unit=unit, seed=seed, key_type="int"), stream)


def content(sketch: dps.CountSketch) -> np.ndarray:
    return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


@settings(max_examples=30)
@given(shapes, records, st.lists(st.integers(0, 3), min_size=7, max_size=7), st.randoms(use_true_random=False))
def test_any_order_and_any_partition_by_user_give_the_same_sketch(shape, stream, part_of, random) -> None:
    """Shuffled, merged from partials, or updated part by part."""
    whole = everything(build(shape, stream))
    parts = [[record for record in stream if part_of[record[0]] == part] for part in range(4)]
    for part in (stream, parts):
        random.shuffle(part)
    assert everything(build(shape, stream)) == whole
    merged, grown = build(shape, parts[0]), build(shape, [])
    for part in parts[1:]:
        merged.merge(build(shape, part))
    for part in parts:
        add(grown, part)
    assert everything(merged) == everything(grown) == whole


@settings(max_examples=50)
@given(shapes, records)
def test_the_table_is_the_oracles(shape, stream) -> None:
    rows, width, max_keys, seed = shape
    users, keys, weights = ([record[i] for record in stream] for i in range(3))
    prints = [hashing_oracle.fingerprint(key) for key in keys]
    runs = oracle.bound(users, prints, [min(weight, 3) for weight in weights], max_keys, 3, seed)
    limit = oracle.clip_squared(rows, width, max_keys, 3)
    wanted, clipped = oracle.table(runs.values(), hashing_oracle.row_keys(seed, rows), width, limit)
    found = build(shape, stream)
    assert content(found).tolist() == wanted
    assert found.clipped_users == clipped
