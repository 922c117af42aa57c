"""What holds for every stream: merging, order, and the bound on one record's influence."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from parts import bound_of
from sensitive import everything

records = st.lists(st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(0, 5)), max_size=40)
shapes = st.tuples(st.sampled_from([1, 3, 5, 7]), st.integers(2, 40), st.integers(0, 2**64 - 1))


def build(
    shape: tuple[int, int, int], stream: list[tuple[int, int]], neighbours: str = "add_remove"
) -> dps.CountSketch:
    rows, width, seed = shape
    unit = dps.per_record(max_weight=3, neighbours=neighbours)
    sketch = dps.CountSketch(rows=rows, width=width, unit=unit, seed=seed, key_type="int")
    sketch.update([key for key, _ in stream], weights=[weight for _, weight in stream])
    return sketch


def content(sketch: dps.CountSketch) -> np.ndarray:
    return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


@settings(deadline=None, max_examples=60)
@given(shapes, records, st.data())
def test_merging_any_split_equals_one_pass(shape, stream, data) -> None:
    whole = build(shape, stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    parts = [build(shape, stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    order = data.draw(st.permutations(range(len(parts))))
    merged = parts[order[0]]
    for index in order[1:]:
        merged.merge(parts[index])
    assert everything(merged) == everything(whole)


@settings(deadline=None, max_examples=60)
@given(shapes, records, records, records)
def test_merge_commutes_and_associates(shape, a, b, c) -> None:
    def merged(first: dps.CountSketch, *others: dps.CountSketch) -> dps.CountSketch:
        for other in others:
            first.merge(other)
        return first

    left = merged(merged(build(shape, a), build(shape, b)), build(shape, c))
    right = merged(build(shape, c), merged(build(shape, b), build(shape, a)))
    assert everything(left) == everything(right)


@settings(deadline=None, max_examples=150)
@given(
    shapes, records, st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_one_record_moves_the_table_by_at_most_the_sensitivity(shape, stream, extra, other) -> None:
    """Few keys and narrow tables, so that records share cells and the bound under replacement is met."""
    for neighbours, left, right in (
        ("add_remove", stream, [*stream, extra]),
        ("replace", [*stream, other], [*stream, extra]),
    ):
        one, two = build(shape, left, neighbours), build(shape, right, neighbours)
        moved = content(one) - content(two)
        bound = bound_of(one.spec)
        assert np.abs(moved).sum() <= bound.l1
        assert math.sqrt(float((moved.astype(float) ** 2).sum())) <= bound.l2


def test_the_replacement_bound_is_met_and_not_only_sqrt_two_of_it() -> None:
    """Some pair of keys shares every cell with opposite signs: the distance is 2w√k, not w√(2k)."""
    shape = (3, 2, 5)
    reached = max(
        np.linalg.norm(content(build(shape, [(0, 3)], "replace")) - content(build(shape, [(key, 3)], "replace")))
        for key in range(300)
    )
    bound = bound_of(build(shape, [], "replace").spec).l2
    assert bound * (1 - 1e-12) <= reached <= bound
