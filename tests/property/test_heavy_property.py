"""What holds for every stream: merging, numbering prefixes, and the bound on one unit's influence on every level."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from dpsketch.core.move import Distance
from dpsketch.privacy import Unit
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.heavy.spec import KeySpace, TextKeys
from parts import bounds_of
from sensitive import everything

# Few keys with common prefixes, and narrow tables, so that bounds are met.
texts = st.sampled_from([b"", b"a", b"a\0", b"ab", b"abc", b"abcd", b"abce", b"abcdef", b"b", b"bc"])
integers = st.sampled_from([0, 1, 2, 255, 256, 65535, 65536, 65537, 2**24 - 1])
weights = st.integers(0, 5)
shapes = st.tuples(st.sampled_from([1, 3]), st.integers(2, 9), st.integers(0, 2**64 - 1), st.booleans())
Record = tuple[object, int]


def build(shape: tuple[int, int, int, bool], unit: Unit, stream: list[Record], users: list[int] | None) -> HeavyHitters:
    rows, width, seed, text = shape
    space = {"key_bytes": 4} if text else {"key_bits": 24}
    sketch = HeavyHitters(unit=unit, rows=rows, width=width, seed=seed, **space)
    keys = [key for key, _ in stream]
    column = pa.array(keys, pa.binary() if text else pa.uint64())
    sketch.update(column, weights=[weight for _, weight in stream], users=users)
    return sketch


@st.composite
def streams(draw, number: int, size: int = 12):
    shape = draw(shapes)
    record = st.tuples(texts if shape[3] else integers, weights)
    return shape, *(draw(st.lists(record, max_size=size)) for _ in range(number))


def levels(sketch: HeavyHitters) -> tuple[int, np.ndarray, np.ndarray]:
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    arrays = document.arrays
    tables = np.concatenate([arrays[name] for name in ("above", "keys") if name in arrays])
    return int(document.header["mass"]), arrays["first"], tables


@settings(deadline=None, max_examples=40)
@given(streams(1, 25), st.data())
def test_merging_any_split_equals_one_pass(drawn, data) -> None:
    shape, stream = drawn
    unit = dps.per_record(max_weight=3)
    whole = build(shape, unit, stream, None)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    parts = [build(shape, unit, stream[a:b], None) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    order = data.draw(st.permutations(range(len(parts))))
    merged = parts[order[0]]
    for index in order[1:]:
        merged.merge(parts[index])
    assert everything(merged) == everything(whole)


@settings(deadline=None, max_examples=25)
@given(streams(3))
def test_merge_commutes_and_associates(drawn) -> None:
    shape, *parts = drawn

    def merged(first: HeavyHitters, *others: HeavyHitters) -> HeavyHitters:
        for other in others:
            first.merge(other)
        return first

    unit = dps.per_user(max_keys=3, max_weight=3)
    a, b, c = ([build(shape, unit, part, [who] * len(part)) for _ in range(2)] for who, part in enumerate(parts))
    left = merged(merged(a[0], b[0]), c[0])
    right = merged(c[1], merged(b[1], a[1]))
    assert everything(left) == everything(right)


def moves_within(one: HeavyHitters, two: HeavyHitters) -> None:
    bounds = bounds_of(one.spec)
    (total_one, dense_one, tables_one), (total_two, dense_two, tables_two) = levels(one), levels(two)

    def within(moved: np.ndarray, limit: Distance) -> None:
        assert np.abs(moved).sum() <= limit.l1
        assert math.sqrt(float((moved.astype(float) ** 2).sum())) <= limit.l2 * (1 + 1e-15)

    within(np.array([total_one - total_two]), bounds["total"])
    within(dense_one.astype(np.int64) - dense_two, bounds["first"])
    for table_one, table_two in zip(tables_one.astype(np.int64), tables_two, strict=True):
        within(table_one - table_two, bounds["keys"])


@settings(deadline=None, max_examples=100)
@given(streams(3))
def test_one_record_moves_no_level_by_more_than_its_bound(drawn) -> None:
    shape, stream, extra, other = drawn
    for neighbours, left, right in (
        ("add_remove", stream, [*stream, *extra[:1]]),
        ("replace", [*stream, *other[:1]], [*stream, *extra[: len(other[:1])]]),
    ):
        unit = dps.per_record(max_weight=3, neighbours=neighbours)
        moves_within(build(shape, unit, left, None), build(shape, unit, right, None))


@settings(deadline=None, max_examples=150)
@given(streams(3), st.integers(1, 4), st.sampled_from(["add_remove", "replace"]))
def test_one_user_moves_no_level_by_more_than_its_bound(drawn, max_keys: int, neighbours: str) -> None:
    """User 1 is there or not, or has other records; user 2 stays. User 1 has more keys and weight than allowed."""
    shape, others, mine, instead = drawn
    unit = dps.per_user(max_keys=max_keys, max_weight=3, neighbours=neighbours)
    left = instead if neighbours == "replace" else []
    sketches = [build(shape, unit, [*others, *own], [2] * len(others) + [1] * len(own)) for own in (left, mine)]
    moves_within(*sketches)


def test_the_bounds_are_met() -> None:
    """The twin: each bound but the clip's, which chance alone approaches, is reached by some pair of neighbours."""
    shape = (3, 5, 1, False)
    apart = [(0, 3), (65536, 3), (2**17, 3)]
    for neighbours, times in (("add_remove", 1), ("replace", 2)):
        unit = dps.per_user(max_keys=3, max_weight=3, neighbours=neighbours)
        with_them = build(shape, unit, apart, [1] * 3)
        far = [(2**18, 3), (2**19, 3), (2**20, 3)] if neighbours == "replace" else []
        without = build(shape, unit, far, [1] * len(far))
        bounds = bounds_of(with_them.spec)
        (total, dense, tables), (other_total, other_dense, other_tables) = levels(with_them), levels(without)
        moved = dense.astype(float) - other_dense
        assert np.abs(moved).sum() == bounds["first"].l1 == times * 9
        assert np.linalg.norm(moved) == pytest.approx(bounds["first"].l2)
        assert neighbours == "replace" or total - other_total == bounds["total"].l1
        assert np.linalg.norm(tables[-1].astype(float) - other_tables[-1]) > 0.3 * bounds["keys"].l2


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=5), max_size=20), st.integers(1, 4))
def test_numbers_of_prefixes_are_undone(words: list[bytes], size: int) -> None:
    space = KeySpace("text", size, 0)
    keys = space.parse(pa.chunked_array([pa.array(words, pa.binary())])).cut(space.dense_depth)
    cells = keys.cells(space.dense_depth)
    assert np.all(cells < space.dense_cells - 1)
    again = space.from_cells(cells)
    assert isinstance(again, TextKeys)
    assert again.plain() == keys.plain()
    assert np.array_equal(again.prints(), keys.prints())
    joined = space.join([keys, again.take(np.arange(len(words))[::2])])
    assert joined.plain() == keys.plain() + keys.plain()[::2]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=4), st.integers(2, 4))
def test_children_are_all_that_may_follow(words: list[bytes], size: int) -> None:
    """A key is among the children of its own prefix: cut one byte less, or itself where it ends there."""
    space = KeySpace("text", size, 0)
    words = [word[:size] for word in words]
    keys = space.parse(pa.chunked_array([pa.array(words, pa.binary())]))
    for depth in range(size):
        reaching = keys.reaching(depth)
        live = keys if reaching is None else keys.take(np.flatnonzero(reaching))
        parents = live.cut(depth)
        children = parents.children(depth, np.arange(257 * len(live)))
        assert np.array_equal(parents.children_prints(depth), children.prints())
        some = np.arange(257 * len(live))[::-5]
        assert parents.children(depth, some).plain() == children.take(some).plain()
        prints = children.prints().reshape(len(live), 257)
        for own, wanted in zip(prints, live.cut(depth + 1).prints(), strict=True):
            assert len(set(own.tolist())) == 257
            assert wanted in own
