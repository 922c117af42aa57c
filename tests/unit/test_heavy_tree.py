"""The tree of prefixes: kernels and tables against a slow oracle, for integers, text and users."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch._compiled import heavy as kernels
from dpsketch._compiled.hashing import hash_ranges
from dpsketch.sketches.heavy import HeavyHitters
from oracles import hashing as hashing_oracle
from oracles import heavy as oracle
from sensitive import everything

TEXTS = [
    b"",
    b"a",
    b"a\0",
    b"a\0\0",
    b"ab",
    b"abc",
    b"abcd",
    b"abcde",
    b"\xff",
    b"\xff\xff\xff",
    "über".encode(),
    b"\0",
]


def parts(sketch: HeavyHitters) -> tuple[int, list[int], list[list[list[int]]]]:
    """The exact content: total, dense level, tables."""
    exact = sketch._exact()
    return (
        exact["total"].item(),
        exact["first"].tolist(),
        [*exact.get("above", np.empty(0)).tolist(), *exact["keys"].tolist()],
    )


def columns(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return texts as data, starts and lengths, with other bytes between them."""
    data = np.frombuffer(b"?".join([b"", *texts, b""]), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    return data, np.cumsum(lengths + 1) - lengths, lengths


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_text_cells_equals_oracle(depth: int) -> None:
    data, starts, lengths = columns(TEXTS)
    cells = np.empty(len(TEXTS), np.int64)
    kernels.text_cells(data, starts, lengths, depth, cells)
    assert cells.tolist() == [oracle.numbers(depth)[text[:depth]] for text in TEXTS]


@pytest.mark.parametrize("length", [1, 3, 8, 40])
def test_hash_ranges_equals_oracle(length: int) -> None:
    texts = [bytes(range(start, start + length)) for start in range(20)] + TEXTS
    data, starts, lengths = columns(texts)
    hashes = np.empty(len(texts), np.uint64)
    hash_ranges(data, starts, starts + np.minimum(lengths, length), np.uint64(42), hashes)
    assert hashes.tolist() == [hashing_oracle.fingerprint(text[:length]) for text in texts]


@pytest.mark.parametrize("single", [True, False])
def test_add_units_equals_oracle(single: bool) -> None:
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 9, 50)
    units = np.array([4]) if single else rng.integers(0, 5, 50)
    counters = np.zeros(9, np.int64)
    kernels.add_units(counters, cells, units)
    assert counters.tolist() == [int(np.broadcast_to(units, 50)[cells == cell].sum()) for cell in range(9)]


def test_distinct_prefixes_equals_oracle() -> None:
    rng = np.random.default_rng(2)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 40))])
    prints = rng.integers(0, 6, starts[-1]).astype(np.uint64) << np.uint64(40)  # equal low bits: every slot collides
    units = rng.integers(1, 9, starts[-1])
    present = rng.random(starts[-1]) < 0.8
    kept_starts, kept_prints, kept_units = np.empty_like(starts), np.empty_like(prints), np.empty_like(units)
    kernels.distinct_prefixes(starts, prints, units, present, kept_starts, kept_prints, kept_units)
    for u in range(len(starts) - 1):
        expected: dict[int, int] = {}
        for i in range(starts[u], starts[u + 1]):
            if present[i]:
                expected[int(prints[i])] = max(expected.get(int(prints[i]), 0), int(units[i]))
        run = slice(kept_starts[u], kept_starts[u + 1])
        assert list(zip(kept_prints[run].tolist(), kept_units[run].tolist(), strict=True)) == list(expected.items())


@pytest.mark.parametrize("depth", [0, 1, 7, 33])
def test_hash_following_equals_oracle(depth: int) -> None:
    texts = [bytes((17 * i + j) % 256 for j in range(depth)) for i in range(3)]
    letters = np.frombuffer(b"".join(texts), np.uint8).reshape(3, depth)
    hashes = np.empty((3, 257), np.uint64)
    kernels.hash_following(letters, np.uint64(42), hashes)
    following = [[text, *(text + bytes([byte]) for byte in range(256))] for text in texts]
    assert hashes.tolist() == [[hashing_oracle.fingerprint(text) for text in line] for line in following]


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_rows_reaching_equals_oracle(rows: int) -> None:
    """More keys than a piece has, and values that are just enough."""
    rng = np.random.default_rng(3)
    table = rng.integers(-4, 5, (rows, 7)).astype(np.float64)
    prints = rng.integers(0, 2**64, 4100, dtype=np.uint64, endpoint=False)
    row_keys = np.array(hashing_oracle.row_keys(1, rows), np.uint64)
    counts = np.empty(len(prints), np.uint8)
    kernels.rows_reaching(table, prints, row_keys, 2.0, counts)
    values = hashing_oracle.row_values(table.tolist(), prints.tolist(), row_keys.tolist())
    assert counts.tolist() == [sum(value >= 2 for value in line) for line in values]


@pytest.mark.parametrize("key_bits", [64, 63, 33, 24, 20, 16, 12, 9, 8])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_tree_of_integers_is_the_oracles(key_bits: int, weighted: bool) -> None:
    rng = np.random.default_rng(key_bits)
    keys = [int(key) & (2**key_bits - 1) for key in rng.integers(0, 2**64, 30, dtype=np.uint64)] + [0, 2**key_bits - 1]
    units = rng.integers(0, 6, len(keys)).tolist() if weighted else [1] * len(keys)
    sketch = HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=11, key_bits=key_bits, seed=5)
    sketch.update(np.array(keys, np.uint64), weights=units if weighted else None)
    dense, tables = oracle.tree(oracle.Shape(3, 11, 5, key_bits, None), keys, units)
    assert parts(sketch) == (sum(units), dense, tables)


@pytest.mark.parametrize("key_bytes", [1, 2, 3, 4, 24])
@pytest.mark.parametrize("weighted", [False, True])
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


def test_the_last_level_is_an_ordinary_countsketch() -> None:
    keys = ["red", "green", "red", ""]
    tree, flat = (
        HeavyHitters(unit=dps.per_record(), rows=5, width=32, key_bytes=9, seed=4),
        dps.CountSketch(unit=dps.per_record(), rows=5, width=32, seed=4),
    )
    for sketch in (tree, flat):
        sketch.update(keys)
    table = files.decode(flat.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"]
    assert parts(tree)[2][-1] == table.tolist()
