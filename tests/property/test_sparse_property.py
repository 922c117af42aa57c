"""What holds for every stream: merging, order, files, and the bound on one unit's influence."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files
from dpsketch.sketches.sparse import SparseHistogram
from sensitive import everything

records = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=40)
wide_records = st.lists(st.tuples(st.integers(-(2**63), 2**64 - 1), st.integers(0, 5)), max_size=40)


def build(stream: list[tuple[int, int]], neighbours: str = "add_remove") -> SparseHistogram:
    unit = dps.per_record(max_weight=3, neighbours=neighbours)
    histogram = SparseHistogram(unit=unit, key_type="int")
    histogram.update([key for key, _ in stream], weights=[weight for _, weight in stream])
    return histogram


def content(histogram: SparseHistogram) -> dict[int, int]:
    arrays = files.decode(histogram.to_sensitive_bytes(), allow_sensitive=True).arrays
    return dict(zip(arrays["positions"].tolist(), arrays["units"].tolist(), strict=True))


@settings(deadline=None, max_examples=60)
@given(wide_records)
def test_values_are_exact_sums(stream) -> None:
    expected: dict[int, int] = {}
    for key, weight in stream:
        expected[key % 2**64] = expected.get(key % 2**64, 0) + min(weight, 3)
    assert content(build(stream)) == {key: value for key, value in sorted(expected.items()) if value}


@settings(deadline=None, max_examples=60)
@given(wide_records, st.data())
def test_merging_any_split_equals_one_pass(stream, data) -> None:
    whole = build(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    parts = [build(stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    order = data.draw(st.permutations(range(len(parts))))
    merged = parts[order[0]]
    for index in order[1:]:
        merged.merge(parts[index])
    assert everything(merged) == everything(whole)


@settings(deadline=None, max_examples=60)
@given(records, records, records)
def test_merge_commutes_and_associates(a, b, c) -> None:
    def merged(first: SparseHistogram, *others: SparseHistogram) -> SparseHistogram:
        for other in others:
            first.merge(other)
        return first

    left = merged(merged(build(a), build(b)), build(c))
    right = merged(build(c), merged(build(b), build(a)))
    assert everything(left) == everything(right)
    again = SparseHistogram.from_sensitive_bytes(left.to_sensitive_bytes())
    assert everything(again) == everything(left)


def moved(one: dict[int, int], two: dict[int, int]) -> list[int]:
    return [abs(one.get(key, 0) - two.get(key, 0)) for key in one.keys() | two.keys()]


@settings(deadline=None, max_examples=100)
@given(records, st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_one_record_moves_no_more_than_its_table_states(stream, extra, other) -> None:
    for neighbours, left, right in (
        ("add_remove", stream, [*stream, extra]),
        ("replace", [*stream, other], [*stream, extra]),
    ):
        one, two = build(left, neighbours), build(right, neighbours)
        apart = one.spec.tables()[0].between(neighbours)
        changes = moved(content(one), content(two))
        assert np.count_nonzero(changes) <= apart.cells
        assert max(changes, default=0) <= apart.most
        assert sum(changes) <= apart.l1


users_records = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abcdefgh"), st.integers(0, 4)), max_size=40)


def build_users(stream, domain: int, neighbours: str) -> SparseHistogram:
    unit = dps.per_user(2, max_weight=3, neighbours=neighbours)
    histogram = SparseHistogram(unit=unit, key_type="text", domain=domain)
    user, key, weight = zip(*stream, strict=True) if stream else ([], [], [])
    histogram.update(list(key), users=list(user), weights=list(weight))
    return histogram


@settings(deadline=None, max_examples=100)
@given(users_records, st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 4)), max_size=8), st.data())
def test_one_user_moves_no_more_than_its_table_states(stream, extra, data) -> None:
    for neighbours in ("add_remove", "replace"):
        with_user = [*stream, *((9, key, weight) for key, weight in extra)]
        without = stream
        if neighbours == "replace":
            without = [*stream, *((9, data.draw(st.sampled_from("abcdefgh")), 3) for _ in range(3))]
        one, two = (build_users(some, 2**41, neighbours) for some in (with_user, without))
        changes = moved(content(one), content(two))
        apart = one.spec.tables()[0].between(neighbours)
        assert np.count_nonzero(changes) <= apart.cells
        assert max(changes, default=0) <= apart.most
