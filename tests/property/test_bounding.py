"""For every dataset of users: the table is the oracle's, partitions by user agree, and the clip bounds a user."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from oracles import bounding as oracle
from oracles import hashing as hashing_oracle
from parts import bound_of
from sensitive import everything

Records = list[tuple[int, int, int]]
Shape = tuple[int, int, int, int]

# Few users and few keys, so that users repeat keys, lose some to the bound, and keys share the cells of narrow tables.
records = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 25), st.integers(0, 4)), max_size=60)
shapes = st.tuples(st.sampled_from([1, 3, 5]), st.integers(2, 12), st.integers(1, 12), st.integers(0, 2**64 - 1))
NEW = 99
# Tables with keys that share every cell, which no random dataset would find.
COLLIDING = {
    shape: oracle.keys_that_share_cells(30, shape[2], *shape[:2]) for shape in [(1, 7, 1), (3, 2, 2), (3, 4, 3)]
}


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


def length(table: np.ndarray) -> float:
    return math.sqrt(sum(value * value for value in table.ravel().tolist()))


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


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(COLLIDING)),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 4)), min_size=10, max_size=40),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 4)), max_size=40),
    records,
)
def test_a_user_of_colliding_keys_moves_the_table_by_no_more(table, max_keys, colliding, others, stream) -> None:
    """Keys that share cells, mixed with others: here the clip is what holds the bound."""
    rows, width, seed = table
    shape = (rows, width, max_keys, seed)
    mine = [(NEW, COLLIDING[table][key], weight) for key, weight in colliding]
    mine += [(NEW, key, weight) for key, weight in others]
    one, two = build(shape, stream), build(shape, stream + mine)
    moved, bound = content(one) - content(two), bound_of(one.spec)
    assert np.abs(moved).sum() <= bound.l1
    assert length(moved) <= bound.l2


def test_without_the_clip_and_in_two_partials_a_user_passes_the_bound() -> None:
    """The twins of the tests above: what the clip cuts, and why a user who is in two partials is refused."""
    shape = rows, width, max_keys, seed = 3, 4, 9, 5
    worst = oracle.keys_that_share_cells(2 * max_keys, seed, rows, width)
    first, second = ([(NEW, key, 3) for key in part] for part in (worst[:max_keys], worst[max_keys:]))
    free = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(max_weight=3), seed=seed, key_type="int")
    free.update(worst[:max_keys], weights=[3] * max_keys)
    clipped = build(shape, first)
    bound = bound_of(clipped.spec).l2
    assert 0.75 * bound <= length(content(clipped)) <= bound < length(content(free))
    assert clipped.clipped_users == 1
    clipped.merge(build(shape, second), disjoint_users=True)  # which is not so
    assert length(content(clipped)) > 1.5 * bound
