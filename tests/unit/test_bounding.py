"""Bounding and clipping users: kernels against oracles, exact users, and nobody counted twice."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch._compiled import bounding as kernels
from dpsketch.bounding import Bounded, bound
from dpsketch.core.move import sqrt_up
from dpsketch.errors import CounterOverflow, InvalidInput
from dpsketch.hashing import fingerprint, row_keys
from oracles import bounding as oracle
from oracles import hashing as hashing_oracle
from parts import bound_of
from sensitive import everything


def sketch(max_keys: int = 3, max_weight: float = 2, **changes: object) -> dps.CountSketch:
    unit = dps.per_user(max_keys, max_weight=max_weight)
    return dps.CountSketch(**{"rows": 5, "width": 16, "unit": unit, "seed": 7, **changes})


def content(some: dps.CountSketch) -> np.ndarray:
    return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def runs_of(bounded: Bounded) -> list[list[tuple[int, int]]]:
    pairs = list(zip(bounded.fingerprints.tolist(), bounded.units.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(bounded.starts)]


# Users, records, keys: one user, few, many; runs that are sorted by insertion, by the library, and reduced on the way.
SHAPES = [(1, 0, 1), (1, 1, 1), (3, 40, 9), (50, 200, 1000), (1, 700, 500), (2, 3000, 5)]


@pytest.mark.parametrize("max_units", [5, 10**6])
@pytest.mark.parametrize("max_keys", [1, 3, 40, 10**9])
@pytest.mark.parametrize(("people", "records", "distinct"), SHAPES)
def test_bounding_equals_oracle(people: int, records: int, distinct: int, max_keys: int, max_units: int) -> None:
    rng = np.random.default_rng(records)
    users, keys = rng.integers(-people, people, records), rng.integers(0, distinct, records)
    units = rng.integers(0, 4, records)
    kept = bound(users, fingerprint(keys), units, max_keys=max_keys, max_units=max_units, seed=9)
    wanted = oracle.bound(
        users.tolist(),
        [hashing_oracle.fingerprint(key) for key in keys.tolist()],
        units.tolist(),
        max_keys,
        max_units,
        9,
    )
    names = [hashing_oracle.fingerprint(user) for user in wanted]
    assert dict(zip(kept.users.tolist(), runs_of(kept), strict=True)) == dict(zip(names, wanted.values(), strict=True))
    assert fingerprint(keys).fingerprints[kept.rows].tolist() == kept.fingerprints.tolist()
    alike = bound(users, fingerprint(keys), 2, max_keys=max_keys, max_units=max_units, seed=9)
    each = bound(users, fingerprint(keys), np.full(records, 2), max_keys=max_keys, max_units=max_units, seed=9)
    assert runs_of(alike) == runs_of(each)


@pytest.mark.parametrize("width", [2, 5, 64, 1000])
@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("limit", [0, 60, 400, 2**60])
def test_clipping_equals_oracle(width: int, shift: int, limit: int) -> None:
    rng = np.random.default_rng(width)
    lengths = rng.integers(1, 30, 12)
    starts = np.append(0, np.cumsum(lengths))
    prints = rng.integers(0, 2**64, starts[-1], np.uint64)
    units = rng.integers(1, 12, starts[-1])
    keys = row_keys(1, 3)
    clipped, table = clipped_table(starts, prints, units, keys, width, limit, shift)
    pairs = list(zip(prints.tolist(), units.tolist(), strict=True))
    runs = [pairs[a:b] for a, b in pairwise(starts)]
    wanted, count = oracle.table(runs, keys.tolist(), width, limit, shift)
    assert table.tolist() == wanted
    assert clipped == count


def clipped_table(
    starts: Any, prints: Any, units: Any, keys: Any, width: int, limit: int, shift: int
) -> tuple[int, np.ndarray]:
    """Return how many users had a key left out, and the sum of all users' own sketches."""
    edges, cells, amounts = (np.empty(size, np.int64) for size in (len(starts), *[len(keys) * len(prints)] * 2))
    clipped = kernels.clip(starts, prints, units, keys, width, limit, shift, edges, cells, amounts)
    table = np.zeros((len(keys), width), np.int64)
    np.add.at(table.reshape(-1), cells[: edges[-1]], amounts[: edges[-1]])
    assert all(len(set(cells[a:b].tolist())) == b - a for a, b in pairwise(edges))
    return clipped, table


def test_the_order_of_a_users_keys_is_published() -> None:
    """Vectors for other engines: the first three of the keys 0 to 9, and of "key 0" to "key 9"."""
    numbers, words = fingerprint(list(range(10))), fingerprint([f"key {i}" for i in range(10)])
    for seed, user, keys, wanted in (
        (0, 0, numbers, [7, 0, 1]),
        (1, "ann", numbers, [9, 3, 7]),
        (7, -1, words, [9, 2, 0]),
        (2**64 - 1, "ü", words, [5, 9, 8]),
    ):
        assert bound([user] * 10, keys, 1, max_keys=3, max_units=1, seed=seed).rows.tolist() == wanted


def test_the_sensitivity_of_users() -> None:
    spec = sketch(30, 1, width=500).spec
    assert bound_of(spec).l2 == sqrt_up(162)  # 150 · (1 + 3·√(2/2500)) = 162.73
    assert bound_of(spec).l1 == 150
    replaced = bound_of(sketch(unit=dps.per_user(30, neighbours="replace"), width=500).spec)
    assert (replaced.l1, replaced.l2) == (300, 2 * sqrt_up(162))
    weighted = bound_of(sketch(unit=dps.per_user(2, max_weight=3.5), grid=0.25).spec)
    assert weighted.l1 == 5 * 2 * 14
    assert bound_of(sketch(1, 4).spec).l2 == sqrt_up(16 * 5)


def test_an_update_is_bound_clip_and_sum() -> None:
    rng = np.random.default_rng(3)
    users, weights = rng.integers(0, 60, 900), rng.integers(0, 9, 900)
    worst = np.array(oracle.keys_that_share_cells(20, 7, 3, 4))
    keys = np.where(users < 20, rng.choice(worst, 900), rng.integers(0, 40, 900))
    some = sketch(12, 3, rows=3, width=4)
    some.update(keys, users=users, weights=weights)
    runs = oracle.bound(
        users.tolist(), [hashing_oracle.fingerprint(k) for k in keys.tolist()], weights.tolist(), 12, 3, 7
    )
    wanted, clipped = oracle.table(runs.values(), hashing_oracle.row_keys(7, 3), 4, oracle.clip_squared(3, 4, 12, 3))
    assert content(some).tolist() == wanted
    assert some.clipped_users == clipped > 0


def test_users_are_compared_by_value_and_never_by_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with one fingerprint for all, two users of a batch are two; across batches a doubt is a refusal."""
    from dpsketch.bounding import groups

    def alike(users: object, *_: object) -> object:
        found = fingerprint(users)
        found.fingerprints[:] = 1
        return found

    some = sketch(1)
    keys = [1, 2, 1, 2]
    monkeypatch.setattr(groups, "fingerprint", alike)
    some.update(keys, users=["ann", "bob", "eve", "joe"])
    monkeypatch.undo()
    assert np.abs(content(some)).sum() > 5 * 2
    monkeypatch.setattr(groups, "fingerprint", alike)
    with pytest.raises(InvalidInput, match="counted before"):
        some.update(keys, users=["new"] * 4)


def test_nobody_is_counted_twice() -> None:
    whole, first, second = sketch(), sketch(), sketch()
    whole.update([1, 2, 3], users=["a", "b", "c"])
    first.update([1, 2], users=["a", "b"])
    second.update([3], users=["c"])
    for again in (["a"], ["d", "b"]):
        before = first.to_sensitive_bytes()
        with pytest.raises(InvalidInput, match="counted before"):
            first.update(list(range(len(again))), users=again)
        assert first.to_sensitive_bytes() == before
    # A copy inside the boundary remembers as well.
    copied = dps.load_sensitive(first.to_sensitive_bytes())
    with pytest.raises(InvalidInput, match="counted before"):
        copied.update([9], users=["a"])
    for one, two in ((first, copied), (copied, first), (first, first)):
        with pytest.raises(InvalidInput, match="in both sketches"):
            one.merge(two)
    first.merge(second)
    assert everything(first) == everything(whole)
    with pytest.raises(InvalidInput, match="counted before"):
        first.update([9], users=["c"])


def test_a_statement_is_taken_remembered_and_published() -> None:
    checked, stated = sketch(), sketch()
    checked.update([1], users=["a"])
    assert checked.release(epsilon=1, delta=1e-6).guarantee.caveat is None
    stated.update([1], users=["a"], disjoint_users=True)
    assert "not checked" in stated.release(epsilon=1, delta=1e-6).guarantee.caveat
    assert np.array_equal(content(stated), content(checked))
    # Whoever no longer remembers adds nothing in silence, after a round trip either.
    for forgetful in (stated, dps.load_sensitive(stated.to_sensitive_bytes())):
        for unchecked in (
            lambda some=forgetful: some.update([2], users=["b"]),
            lambda some=forgetful: some.merge(checked),
            lambda some=forgetful: dps.load_sensitive(checked.to_sensitive_bytes()).merge(some),
        ):
            with pytest.raises(InvalidInput, match="would go unseen"):
                unchecked()
    # Nobody can be counted twice with a sketch that has counted nobody.
    stated.merge(sketch())
    empty = sketch()
    empty.merge(stated)
    assert "not checked" in empty.release(rho=1).guarantee.caveat
    stated.update([2], users=["b"], disjoint_users=True)
    stated.merge(checked, disjoint_users=True)


def test_counters_never_wrap() -> None:
    full = sketch(1, 2**40, key_type="int")
    full._mass = 2**62 - 2**40
    before = full.to_sensitive_bytes()
    with pytest.raises(CounterOverflow):
        full.update([1, 1], users=[1, 2], weights=[2**40, 1])
    assert full.to_sensitive_bytes() == before
    full.update([1], users=[1], weights=[2**40])
