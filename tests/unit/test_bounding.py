"""Bounding users: the kernel against its oracle, exact users, and statements that are remembered."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.bounding import Bounded, bound
from dpsketch.core.move import sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from oracles import bounding as oracle
from oracles import hashing as hashing_oracle
from parts import bound_of


def sketch(max_keys: int = 3, max_weight: float = 2, **changes: object) -> dps.CountSketch:
    unit = dps.per_user(max_keys, max_weight=max_weight)
    return dps.CountSketch(**{"rows": 5, "width": 16, "unit": unit, "seed": 7, **changes})


def content(some: dps.CountSketch) -> np.ndarray:
    return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def runs_of(bounded: Bounded) -> list[list[tuple[int, int]]]:
    pairs = list(zip(bounded.fingerprints.tolist(), bounded.units.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(bounded.starts)]


# Users, records, keys: runs that are sorted by insertion, by the library, and reduced on the way.
@pytest.mark.parametrize("max_units", [5, 10**6])
@pytest.mark.parametrize("max_keys", [1, 3, 40])
@pytest.mark.parametrize(("people", "records", "distinct"), [(1, 0, 1), (50, 200, 1000), (1, 700, 500), (2, 3000, 5)])
def test_bounding_equals_oracle(people: int, records: int, distinct: int, max_keys: int, max_units: int) -> None:
    rng = np.random.default_rng(records)
    users, keys = rng.integers(-people, people, records), rng.integers(0, distinct, records)
    units = rng.integers(0, 4, records)
    kept = bound(users, fingerprint(keys), units, max_keys=max_keys, max_units=max_units, seed=9)
    prints = [hashing_oracle.fingerprint(key) for key in keys.tolist()]
    wanted = oracle.bound(users.tolist(), prints, units.tolist(), max_keys, max_units, 9)
    names = [hashing_oracle.fingerprint(user) for user in wanted]
    assert dict(zip(kept.users.tolist(), runs_of(kept), strict=True)) == dict(zip(names, wanted.values(), strict=True))
    assert fingerprint(keys).fingerprints[kept.rows].tolist() == kept.fingerprints.tolist()
    order = np.argsort(keys)  # what counts of a user does not depend on the order of records: here each key in a row
    units, again = units[order], fingerprint(keys[order])
    same = bound(users[order], again, units, max_keys=max_keys, max_units=max_units, seed=9)
    assert dict(zip(same.users.tolist(), runs_of(same), strict=True)) == dict(
        zip(kept.users.tolist(), runs_of(kept), strict=True)
    )


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


def test_whoever_no_longer_remembers_users_adds_nothing_in_silence() -> None:
    """Nor after a round trip; with a sketch that has counted nobody, nobody can be counted twice."""
    checked, stated = sketch(), sketch()
    checked.update([1], users=["a"])
    stated.update([1], users=["a"], disjoint_users=True)
    for forgetful in (stated, dps.load_sensitive(stated.to_sensitive_bytes())):
        for unchecked in (
            lambda some=forgetful: some.update([2], users=["b"]),
            lambda some=forgetful: some.merge(checked),
            lambda some=forgetful: dps.load_sensitive(checked.to_sensitive_bytes()).merge(some),
        ):
            with pytest.raises(InvalidInput, match="would go unseen"):
                unchecked()
    stated.merge(sketch())
    empty = sketch()
    empty.merge(stated)
    assert "not checked" in empty.release(rho=1).guarantee.caveat
