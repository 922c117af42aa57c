"""Kernels that may run without the compiler: the same bits as with it, and only as long as there is little to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsketch._compiled import bounding, countsketch, distinct, grouping, heavy, identity, location, xxh64
from dpsketch.sketches.histogram import keyslots
from dpsketch.sketches.histogram.keytable import KeyTable

SEED = np.uint64(42)


def both(kernel: Any, *arguments: Any) -> tuple[Any, Any]:
    return kernel.plain(*arguments), kernel.compiled(*arguments)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=200), max_size=6), st.data())
def test_ranges_of_bytes_have_the_same_hashes(texts: list[bytes], data: st.DataObject) -> None:
    held = np.frombuffer(b"".join(texts), np.uint8)
    ranges = st.tuples(st.integers(0, len(held)), st.integers(0, len(held))).map(sorted)
    edges = np.array(data.draw(st.lists(ranges, max_size=6)), np.int64).reshape(-1, 2)
    found = np.empty((2, len(edges)), np.uint64)
    xxh64.hash_ranges.plain(held, edges[:, 0], edges[:, 1], SEED, found[0])
    xxh64.hash_ranges.compiled(held, edges[:, 0], edges[:, 1], SEED, found[1])
    assert found[0].tolist() == found[1].tolist()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=80), max_size=6))
def test_texts_have_the_same_hashes(texts: list[bytes]) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    found = []
    for run in (xxh64.hash_slices.plain, xxh64.hash_slices.compiled):
        hashes = np.empty(len(texts), np.uint64)
        run(data, offsets, SEED, hashes)
        found.append(hashes.tolist())
    assert found[0] == found[1]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=6), st.integers(1, 5), st.integers(2, 2**20))
def test_integers_have_the_same_hashes_and_cells(keys: list[int], rows: int, width: int) -> None:
    words, row_keys = np.array(keys, np.uint64), np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes = np.empty((2, len(words)), np.uint64)
    xxh64.hash_integers.plain(words, SEED, hashes[0])
    xxh64.hash_integers.compiled(words, SEED, hashes[1])
    assert hashes[0].tolist() == hashes[1].tolist()
    table = np.arange(rows * width).reshape(rows, width)
    plain, compiled = both(countsketch.row_values, table, hashes[0], row_keys)
    np.testing.assert_array_equal(plain, compiled)
    assert plain.dtype == compiled.dtype
    for plain, compiled in zip(*both(countsketch.cells, hashes[0], row_keys, width), strict=True):
        np.testing.assert_array_equal(plain, compiled)
        assert plain.dtype == compiled.dtype


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 300), st.integers(1, 2**14))
def test_keys_mark_the_same_bits(seed: int, keys: int, buckets: int) -> None:
    words = np.random.default_rng(seed).integers(0, 2**64, keys + 2, np.uint64)
    bitmaps = np.zeros((2, buckets), np.uint64)
    bitmaps[:, 0] = 5
    distinct.mark.plain(bitmaps[0], words[2:], words[:2])
    distinct.mark.compiled(bitmaps[1], words[2:], words[:2])
    assert bitmaps[0].tolist() == bitmaps[1].tolist()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 4), st.booleans())
def test_texts_are_added_to_the_same_cells(texts: list[bytes], depth: int, alike: bool) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
    cells = np.full((2, len(texts)), -1, np.int64)
    heavy.text_cells.plain(data, starts, lengths, depth, cells[0])
    heavy.text_cells.compiled(data, starts, lengths, depth, cells[1])
    assert cells[0].tolist() == cells[1].tolist()
    counters = np.zeros((2, 50), np.int64)
    units = np.array([3]) if alike else np.arange(len(texts)) - 2
    heavy.add_units.plain(counters[0], cells[0] % 50, units)
    heavy.add_units.compiled(counters[1], cells[0] % 50, units)
    assert counters[0].tolist() == counters[1].tolist()


@pytest.mark.parametrize("piece", [3, 16_384], ids=["many pieces", "one piece"])
def test_pieces_make_no_difference(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xxh64, "PIECE", piece)
    monkeypatch.setattr(countsketch, "ADD_PIECE", piece)
    lengths = np.arange(100)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = np.random.default_rng(1).integers(0, 256, offsets[-1]).astype(np.uint8)
    row_keys = np.array([5, 77], np.uint64)
    hashes, integers = np.empty((2, 2, len(lengths)), np.uint64)
    tables, weighted = np.zeros((2, 2, 2, 16), np.int64)
    values = []
    for at, way in enumerate(("plain", "compiled")):
        getattr(xxh64.hash_slices, way)(data, offsets, SEED, hashes[at])
        getattr(xxh64.hash_integers, way)(hashes[at], SEED, integers[at])
        getattr(countsketch.add_ones, way)(tables[at], hashes[at], row_keys)
        getattr(countsketch.add_weighted, way)(weighted[at], hashes[at], row_keys, lengths)
        values.append(getattr(countsketch.row_values, way)(weighted[at], hashes[at], row_keys))
    for plain, compiled in (hashes, integers, tables, weighted, values):
        np.testing.assert_array_equal(plain, compiled)
        assert np.any(plain)


@pytest.mark.parametrize("piece", [3, 16_384], ids=["many pieces", "one piece"])
def test_pieces_of_identities_make_no_difference(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "PIECE", piece)
    edges = np.cumsum(np.arange(41))
    data = np.random.default_rng(2).integers(0, 256, edges[-1]).astype(np.uint8)
    secret = np.array([5, 2**63 + 9], np.uint64)
    found = np.empty((2, 2, 40, 3), np.uint64)
    for at, way in enumerate(("plain", "compiled")):
        texts, integers = found[at]
        getattr(identity.identify_texts, way)(data, edges, secret, texts[:, :2], texts[:, 2])
        getattr(identity.identify_integers, way)(texts[:, 2].copy(), secret, integers[:, :2], integers[:, 2])
    np.testing.assert_array_equal(*found)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(1, 5), st.sampled_from([1, 3, 64]), st.booleans())
def test_tables_hold_the_same_counters(seed: int, keys: int, rows: int, width: int, real: bool) -> None:
    rng = np.random.default_rng(seed)
    prints = rng.integers(0, 50, keys).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    row_keys = rng.integers(0, 2**63, rows).astype(np.uint64)
    # Sums of floats depend on their order, so that it is held as well.
    weights = rng.normal(0, 10, keys) if real else rng.integers(-(2**40), 2**40, keys)
    tables = np.zeros((2, rows, width), weights.dtype)
    countsketch.add_weighted.plain(tables[0], prints, row_keys, weights)
    countsketch.add_weighted.compiled(tables[1], prints, row_keys, weights)
    np.testing.assert_array_equal(*tables)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 2**32),
    st.integers(0, 120),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sampled_from([1, 3, 1 << 20]),
    st.booleans(),
)
def test_users_are_bounded_in_the_same_way(
    seed: int, records: int, users: int, max_keys: int, max_units: int, weighed: bool
) -> None:
    """Grouped, cut to their first keys and clipped: users who repeat keys, have none, or many."""
    rng = np.random.default_rng(seed)
    codes = (rng.integers(0, users, records) * rng.integers(0, 2, records)).astype(np.int32)
    prints = rng.integers(0, 60, records).astype(np.uint64)
    names = rng.integers(0, 2**63, users).astype(np.uint64)
    units = rng.integers(-1, 2 * min(max_units, 10), records) if weighed and records != 1 else np.array([1])
    row_keys = rng.integers(0, 2**63, 3).astype(np.uint64)
    limit = int(rng.integers(1, 60)) * max_units**2
    found = []
    for way in ("plain", "compiled"):
        starts, order = np.empty(users + 1, np.int64), np.empty(records, np.int64)
        getattr(bounding.group, way)(codes, starts, order)
        kept_starts, rows, kept = (
            np.empty(users + 1, np.int64),
            np.empty(records, np.int64),
            np.empty(records, np.int64),
        )
        keep = getattr(bounding.keep_first, way)
        left_out = keep(starts, order, names, prints, units, np.uint64(9), max_keys, max_units, kept_starts, rows, kept)
        end = kept_starts[-1]
        keys = prints[rows[:end]]  # which record names a key is free
        edges, cells, amounts = (np.zeros(size, np.int64) for size in (users + 1, 3 * end, 3 * end))
        own = (kept_starts, keys, kept[:end], row_keys, 8, limit, 1, edges, cells, amounts)
        clipped = getattr(bounding.clip, way)(*own)
        found.append([starts, order, left_out, kept_starts, keys, kept[:end], edges, cells, amounts, clipped])
    for plain, compiled in zip(*found, strict=True):
        np.testing.assert_array_equal(plain, compiled)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.lists(st.sampled_from([0, 1, 2, 3, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]), min_size=30, max_size=30),
)
def test_keys_are_ordered_by_all_bits_of_their_rank(owners: list[int], ranks: list[int]) -> None:
    """Ranks of one user that differ in their last bits only: those that a word has no room for beside the user."""
    whose = np.sort(np.array(owners, np.int64))
    words = np.array(ranks[: len(owners)], np.uint64)
    expected = np.lexsort((words, whose))
    assert bounding.by_owner_and_rank(whose, words, 4).tolist() == expected.tolist()


@settings(deadline=None, max_examples=60)
@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_users_are_remembered_in_the_same_way(first: set[int], second: set[int]) -> None:
    a, b = (np.array(sorted(each), np.uint64) for each in (first, second))
    unions = np.zeros((2, len(a) + len(b)), np.uint64)
    ends = bounding.unite.plain(a, b, unions[0]), bounding.unite.compiled(a, b, unions[1])
    assert unions[0, : ends[0]].tolist() == unions[1, : ends[1]].tolist() == sorted(first | second)
    assert bounding.share.plain(a, b) == bounding.share.compiled(a, b) == bool(first & second)


LONG = "https://example.org/a/path/"  # longer than a text that is its own identity


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["", "/page/", LONG]), st.integers(0, 400)), max_size=300),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.sampled_from(["plain", "compiled"]), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_keys_have_the_same_numbers(
    batches: list[list[tuple[str, int]]], ways: list[str], texts: bool, threads: int
) -> None:
    """Whichever way takes which batch: numbers, sums and names are those of a dictionary that counts."""
    expected: dict[Any, int] = {}
    table = KeyTable(secret=np.array([1, 2], np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSKETCH_THREADS", str(threads))
        patch.setattr(keyslots, "_SMALLEST_PART", 8)
        patch.setattr(keyslots, "_BLOCK", 64)
        for batch, way in zip([*batches, []], ways, strict=False):
            take(patch, way)
            keys = [f"{start}{number}" if texts else number for start, number in batch]
            units = np.arange(len(keys)) % 4
            if keys:
                table.count(keys, units)
            for key, unit in zip(keys, units.tolist(), strict=True):
                if unit:
                    expected[key] = expected.get(key, 0) + unit
        assert table.names(range(len(table))) == list(expected)
        assert table.units.tolist() == list(expected.values())
        for way in ("plain", "compiled"):
            take(patch, way)
            if expected:
                assert table.find([*expected]).tolist() == list(range(len(expected)))
                assert table.find(["nobody"] if texts else [10**6]).tolist() == [-1]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_large_tables_agree_too(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many keys that the table has regions, which threads own."""
    monkeypatch.setenv("DPSKETCH_THREADS", threads)
    keys = np.random.default_rng(1).integers(0, 60_000, 120_000)
    tables = []
    for way in ("plain", "compiled"):
        take(monkeypatch, way)
        table = KeyTable(secret=np.array([3, 4], np.uint64))
        table.count(keys[:70_000])
        table.count(keys[70_000:])
        tables.append(table)
    assert tables[0].names(range(len(tables[0]))) == tables[1].names(range(len(tables[1])))
    np.testing.assert_array_equal(tables[0].units, tables[1].units)
    np.testing.assert_array_equal(tables[0].find(keys), tables[1].find(keys))


def take(patch: pytest.MonkeyPatch, way: str) -> None:
    """Let key tables run with the compiler, or without."""
    for module in (grouping, identity):
        for name, kernel in KEPT[module.__name__].items():
            patch.setattr(module, name, getattr(kernel, way))


KEPT = {
    module.__name__: {name: getattr(module, name) for name in module.__all__ if hasattr(getattr(module, name), "plain")}
    for module in (grouping, identity)
}
KEPT[identity.__name__].pop("place_of")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 9))
@example([bytes(range(1, length + 1)) for length in range(40)], 3)  # every length, each byte different
def test_texts_have_the_same_identities(texts: list[bytes], before: int) -> None:
    data = np.frombuffer(bytes(before) + b"".join(texts), np.uint8)
    edges = before + np.cumsum([0, *map(len, texts)])
    secret = np.array([2**63 + 5, 77], np.uint64)
    found = []
    for way in ("plain", "compiled"):
        ids, places = np.zeros((len(texts), 2), np.uint64), np.zeros(len(texts), np.uint64)
        getattr(identity.identify_texts, way)(data, edges, secret, ids, places)
        integers, at = np.zeros((len(texts), 2), np.uint64), np.zeros(len(texts), np.uint64)
        getattr(identity.identify_integers, way)(places, secret, integers, at)
        found.append([ids.tolist(), places.tolist(), integers.tolist(), at.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("way", ["plain", "compiled"])
def test_a_crowd_is_refused_either_way(way: str) -> None:
    slots = np.ones(4, np.uint64) << np.uint64(40)  # all taken, by keys with other places
    ids, units = np.zeros((8, 2), np.uint64), np.zeros(8, np.int64)
    order, fill = np.zeros((1, 4), np.int32), np.ones(1, np.int64)
    rows = np.zeros((4, 2), np.uint64), np.zeros(4, np.uint64), np.ones(4, np.int64)
    group = getattr(grouping.group, way)
    left = np.zeros(4, np.int64), np.zeros(4, np.int64)
    assert not group(slots, np.uint64(3), ids, units, 4, *rows, order, fill, True, *left)


@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("half", [0, 1], ids=["first word", "second word"])
def test_keys_that_share_their_place_and_half_of_their_identity_are_two(way: str, half: int) -> None:
    slots, ids, units = np.zeros(4, np.uint64), np.zeros((8, 2), np.uint64), np.zeros(8, np.int64)
    group, place = getattr(grouping.group, way), np.array([7 << 40], np.uint64)
    one, other = np.array([[[3, 5]], [[3, 5]]], np.uint64)
    other[0, half] += np.uint64(1)
    numbers = []
    for size, key in enumerate((one, other, other)):
        found, spots = np.zeros(1, np.int64), np.zeros(1, np.int64)
        row = key, place, np.ones(1, np.int64), np.zeros((1, 1), np.int32), np.ones(1, np.int64)
        assert group(slots, np.uint64(3), ids, units, size, *row, True, found, spots)
        numbers.append(int(found[0]))
    assert numbers == [0, 1, 1]
    assert units[:3].tolist() == [1, 2, 0]


def test_sums_that_might_pass_64_bits_are_for_the_compiler() -> None:
    seconds = bounding._rank_seconds
    assert np.isfinite(seconds(np.arange(4), 2**60))
    assert np.isinf(seconds(np.arange(5), 2**60))


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 7, 300]),
    st.sampled_from([1, 3, 5, 7, 15]),
    st.sampled_from(["noise", "ties", "tails", "collisions"]),
    st.floats(1e-3, 1e5),
)
def test_locations_are_the_same(seed: int, keys: int, rows: int, law: str, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    cells = {
        "noise": lambda: rng.normal(0, 10, (keys, rows)),
        "ties": lambda: rng.integers(-3, 4, (keys, rows)).astype(np.float64),
        "tails": lambda: 5 * rng.standard_cauchy((keys, rows)),
        "collisions": lambda: rng.normal(0, 1, (keys, rows)) + 1e6 * (rng.random((keys, rows)) < 0.3),
    }[law]()
    medians, compiled = both(countsketch.median_of_rows, cells)
    np.testing.assert_array_equal(medians, compiled)
    for kernel in (location.huber_of_rows, location.tukey_of_rows):
        np.testing.assert_array_equal(*both(kernel, cells, medians, threshold))


@pytest.mark.parametrize(("allowed", "loaded"), [(0.5, False), (0.001, True)])
def test_the_compiler_is_loaded_for_much_work_only(allowed: float, loaded: bool) -> None:
    code = f"""
import sys
from dpsketch._compiled import kernel
from dpsketch.hashing import fingerprint
kernel._ALLOWED = {allowed}
fingerprint(range(200_000))
print("numba" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(loaded)


def test_many_small_calls_load_the_compiler_too() -> None:
    code = """
import sys
from dpsketch.hashing import fingerprint
for i in range(20_000):
    fingerprint(range(100))
    if "numba" in sys.modules:
        break
print(100 < i < 19_999)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"
