"""The tree of prefixes: its tables against a slow oracle, for integers, text and users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.heavy import sketch as module
from oracles import hashing as hashing_oracle
from oracles import heavy as oracle
from sensitive import everything

TEXTS = [b"", b"a", b"a\0", b"a\0\0", b"ab", b"abc", b"abcd", b"abcde", b"\xff", b"\xff\xff\xff", "ü".encode(), b"\0"]


def parts(sketch: HeavyHitters) -> tuple[int, list[int], list[list[list[int]]]]:
    """The exact content: total, dense level, tables."""
    exact = sketch._exact()
    return (
        exact["total"].item(),
        exact["first"].tolist(),
        [*exact.get("above", np.empty(0)).tolist(), *exact["keys"].tolist()],
    )


@pytest.mark.parametrize(("key_bits", "weighted"), [(64, True), (33, False), (20, True), (16, False), (9, True)])
def test_the_tree_of_integers_is_the_oracles(key_bits: int, weighted: bool) -> None:
    rng = np.random.default_rng(key_bits)
    keys = [int(key) & (2**key_bits - 1) for key in rng.integers(0, 2**64, 30, dtype=np.uint64)] + [0, 2**key_bits - 1]
    units = rng.integers(0, 6, len(keys)).tolist() if weighted else [1] * len(keys)
    sketch = HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=11, key_bits=key_bits, seed=5)
    sketch.update(np.array(keys, np.uint64), weights=units if weighted else None)
    dense, tables = oracle.tree(oracle.Shape(3, 11, 5, key_bits, None), keys, units)
    assert parts(sketch) == (sum(units), dense, tables)


@pytest.mark.parametrize(("key_bytes", "weighted"), [(1, True), (3, False), (24, True)])
def test_the_tree_of_texts_is_the_oracles(key_bytes: int, weighted: bool) -> None:
    """Texts that end, go on with a zero byte, or are too long for the tree are all among them."""
    units = list(range(len(TEXTS))) if weighted else [1] * len(TEXTS)
    sketch = HeavyHitters(unit=dps.per_record(max_weight=99), rows=3, width=11, key_bytes=key_bytes, seed=5)
    sketch.update(pa.array(TEXTS), weights=units if weighted else None)
    dense, tables = oracle.tree(oracle.Shape(3, 11, 5, None, key_bytes), TEXTS, units)
    assert parts(sketch) == (sum(units), dense, tables)


@pytest.mark.parametrize("texts", [False, True])
def test_the_tree_of_users_is_the_oracles(texts: bool) -> None:
    """Each prefix once a user with the largest weight, and each level clipped by itself (one user was made to be)."""
    rng = np.random.default_rng(3)
    pool = TEXTS if texts else [0, 1, 255, 256, 2**24 - 1, 2**20, 2**20 + 1, 70000, 70001, 70002]
    worst = colliding(texts, 9, 12)
    keys = [pool[i] for i in rng.integers(0, len(pool), 120)] + worst
    users = [*rng.integers(0, 12, 120).tolist(), *[99] * len(worst)]
    units = [*rng.integers(0, 4, 120).tolist(), *[4] * len(worst)]
    space = {"key_bytes": 4} if texts else {"key_bits": 24}
    unit = dps.per_user(max_keys=10, max_weight=4)
    sketch = HeavyHitters(unit=unit, rows=3, width=4, seed=9, **space)
    sketch.update(keys, users=users, weights=units)
    assert 0 < sketch.clipped_users <= 13
    shape = oracle.Shape(3, 4, 9, space.get("key_bits"), space.get("key_bytes"))
    dense, tables, total = oracle.user_tree(shape, users, keys, units, 10, 4)
    assert parts(sketch) == (total, dense, tables)


def colliding(texts: bool, seed: int, count: int) -> list[int] | list[bytes]:
    """Return keys that fall into the same cells of the last level, 3×4, with the same signs."""
    groups: dict[object, list] = {}
    for i in range(10_000):
        key = b"%d" % i if texts else i
        cells = [hashing_oracle.cell(hashing_oracle.fingerprint(key), k, 4) for k in hashing_oracle.row_keys(seed, 3)]
        group = groups.setdefault(tuple(cells), [])
        group.append(key)
        if len(group) == count:
            return group
    raise AssertionError("no such keys")


def test_blocks_are_seamless(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> object:
        sketch = HeavyHitters(unit=dps.per_record(max_weight=5), rows=3, width=9, key_bits=24)
        sketch.update(np.arange(50), weights=np.arange(50) % 6)
        sketch.update(np.arange(50))
        return everything(sketch)

    whole = build()
    monkeypatch.setattr("dpsketch.sketches.heavy.sketch._BLOCK", 7)
    assert build() == whole


RNG = np.random.default_rng(1)
REPEATED = ["", "a", "ab", "abc", "a longer one than fits", "é", *(f"key {number}" for number in range(60))]
RECORDS = [None if number == 3 else REPEATED[number] for number in RNG.integers(0, len(REPEATED), 3_000)]


def tables(keys: Any, **more: Any) -> list[Any]:
    sketch = dps.HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=64, key_bytes=8, grid=0.5)
    sketch.update(keys, **more)
    return list(sketch._exact().values())


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (pa.string(), {}),
        (pa.large_string(), {"weights": RNG.uniform(0, 12, 3_000)}),
        (pa.binary(), {"counts": RNG.integers(0, 5, 3_000)}),
    ],
    ids=["ones", "weights", "counts"],
)
def test_sums_make_the_same_tables(kind: pa.DataType, more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [RECORDS[:1_000], [], RECORDS[1_000:]]
    column = pa.chunked_array([pa.array(piece, pa.string()).cast(kind) for piece in pieces])
    summed = tables(column, **more)
    monkeypatch.setattr(module, "_FEWEST", 10**9)
    for ours, alone in zip(summed, tables(column, **more), strict=True):
        np.testing.assert_array_equal(ours, alone)


def test_of_nothing_but_nulls_nothing_is_added() -> None:
    assert not any(array.any() for array in tables(pa.nulls(2_000, pa.string())))
