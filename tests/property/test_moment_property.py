"""Moment sketches and distinct counts merge like sets of records, and neighbours stay within the stated ratio."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.moment import MomentSketch, MomentSpec
from oracles import moment as oracle

batches = st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 8)), max_size=8), min_size=3, max_size=3)
totals = st.lists(st.integers(0, 40), min_size=1, max_size=6)
exponents = st.sampled_from([0.1, 0.25, 0.5, 0.77, 1.0])


def filled(root: MomentSketch, *parts: list[tuple[int, float]]) -> MomentSketch:
    sketch = root.empty_like()
    for part in parts:
        sketch.update([key for key, _ in part], weights=[weight for _, weight in part])
    return sketch


@settings(deadline=None, max_examples=40)
@given(batches, exponents)
def test_merging_commutes_associates_and_equals_one_pass(parts: list[list[tuple[int, float]]], p: float) -> None:
    root = MomentSketch(p=p, size=16, unit=per_record(max_weight=5), key_type="int")
    one_pass = filled(root, *parts)
    left, right = filled(root, parts[0]), filled(root, parts[2])
    left.merge(filled(root, parts[1]))
    left.merge(filled(root, parts[2]))
    right.merge(filled(root, parts[1]))
    right.merge(filled(root, parts[0]))
    scale = np.abs(one_pass._sums).max() + 1
    for merged in (left, right):
        np.testing.assert_allclose(merged._sums, one_pass._sums, rtol=1e-9, atol=1e-12 * scale)
        assert merged._total == one_pass._total


@settings(deadline=None, max_examples=200)
@given(totals, st.integers(0, 5), st.floats(0.01, 7), st.floats(0, 50), exponents)
def test_a_record_more_stays_within_the_ratio(x: list[int], key: int, weight: float, floor: float, p: float) -> None:
    spec = MomentSpec(p, 10, per_record(max_weight=7), public_total=0)
    y = [*x, 0] if key >= len(x) else list(x)
    y[min(key, len(x))] += weight  # type: ignore[call-overload]
    a, b = oracle.moment(x, p) + floor, oracle.moment(y, p) + floor
    if floor > 0:
        assert b / a <= spec.ratio(floor)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(-30, 30), min_size=2, max_size=5),
    st.tuples(st.integers(0, 4), st.integers(-6, 6)),
    st.tuples(st.integers(0, 4), st.integers(-6, 6)),
    st.floats(0.1, 50),
    st.sampled_from([0.25, 0.5, 1.0]),
)
def test_a_replaced_signed_record_stays_within_the_ratio(
    shared: list[int], old: tuple[int, int], new: tuple[int, int], floor: float, p: float
) -> None:
    spec = MomentSpec(p, 10, per_record(max_weight=6, neighbours="replace"), stream="turnstile")
    x, y = list(shared), list(shared)
    x[old[0] % len(x)] += old[1]
    y[new[0] % len(y)] += new[1]
    a, b = oracle.moment(x, p) + floor, oracle.moment(y, p) + floor
    assert max(a / b, b / a) <= spec.ratio(floor)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 200), max_size=60), st.lists(st.integers(0, 200), max_size=60), st.integers(0, 200))
def test_distinct_bitmaps_merge_and_move_by_one_bit(a: list[int], b: list[int], extra: int) -> None:
    def sketch(*keys: int) -> DistinctSketch:
        built = DistinctSketch(unit=per_record(), buckets=16, key_type="int")
        built.update(keys)
        return built

    merged, other = sketch(*a), sketch(*b)
    merged.merge(other)
    other.merge(sketch(*a))
    whole = sketch(*a, *b)
    np.testing.assert_array_equal(merged._arrays["bits"], whole._arrays["bits"])
    np.testing.assert_array_equal(other._arrays["bits"], whole._arrays["bits"])
    changed = int(np.bitwise_count(sketch(*a, extra)._arrays["bits"] ^ sketch(*a)._arrays["bits"]).sum())
    assert changed <= 1


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 30), max_size=30), st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_a_user_moves_the_ones_by_at_most_max_keys(shared: list[int], own: list[int]) -> None:
    def ones(*users: list[int]) -> int:
        built = DistinctSketch(unit=per_user(max_keys=3), buckets=16, key_type="int")
        for name, keys in enumerate(users):
            built.update(keys, users=[name] * len(keys))
        return int(np.bitwise_count(built._arrays["bits"]).sum())

    assert 0 <= ones(shared, own) - ones(shared) <= 3
