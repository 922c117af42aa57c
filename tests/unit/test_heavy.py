"""HeavyHitters: what goes in and is refused, the tree against a slow oracle, and what a search lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch._compiled.countsketch import add_weighted
from dpsketch.errors import InvalidInput
from dpsketch.hashing import row_keys
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.countsketch.messages import places_of
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.heavy import sketch as module
from dpsketch.sketches.heavy.search import INNER, PrefixLevel, confidence_in_each, search
from dpsketch.sketches.heavy.sketch import level_keys
from oracles import hashing as hashing_oracle
from oracles import heavy as oracle
from oracles.heavy import frequent


def sketch(**changes: object) -> dps.HeavyHitters:
    arguments: dict[str, object] = {"rows": 5, "width": 256, "unit": dps.per_record(), "key_bytes": 6, **changes}
    if "key_bits" in changes:
        arguments.pop("key_bytes")
    return dps.HeavyHitters(**arguments)


def released(
    counts: dict[object, int], epsilon: float = 1.0, delta: float = 1e-6, **changes
) -> dps.PrivateHeavyHitters:
    some = sketch(**changes)
    some.update(list(counts), counts=list(counts.values()))
    with seeded_noise_for_tests_only(4):
        return some.release(epsilon=epsilon, delta=delta)


def test_negative_integers_are_refused_without_being_named() -> None:
    for keys in ([-7654321, 5], pa.array([None, -7654321])):
        with pytest.raises(InvalidInput, match="negative") as refusal:
            sketch(key_bits=64).update(keys)
        assert "7654321" not in str(refusal.value)


def test_bad_shapes_are_refused() -> None:
    wrong = ({"key_bytes": None}, {"key_bytes": 65}, {"key_bytes": 2.0}, {"key_bits": 7}, {"key_bits": 65})
    for changes in (*wrong, {"rows": 1023, "width": 2**21}, {"unit": None}, {"unit": "record"}):
        with pytest.raises(InvalidInput):
            sketch(**changes)
    with pytest.raises(InvalidInput, match="not both"):
        dps.HeavyHitters(unit=dps.per_record(), key_bits=64, key_bytes=8)


def test_keys_come_back_as_what_they_were() -> None:
    """Text as text, invalid UTF-8 as bytes, integers as integers; no key is cut, and what ends differs from a zero."""
    texts = {"": 9000, "a": 8000, "a\0": 7000, "aa": 6000, "aaaaaa": 5000, "ü": 4000, b"\xff\0\xff": 3000, "zz": 2}
    keys = [key if isinstance(key, bytes) else key.encode() for key in texts]
    some = sketch()
    some.update(keys, counts=list(texts.values()))
    with seeded_noise_for_tests_only(1):
        found = some.release(epsilon=1, delta=1e-6).top(threshold=1000)
    assert found.key == list(texts)[:-1]
    assert found.value == pytest.approx(list(texts.values())[:-1], abs=100)
    for bits in (8, 20, 64):
        numbers = {2**bits - 1: 5000, 0: 4000, 3: 3000, 100: 2}
        assert released(numbers, key_bits=bits).top(threshold=1000).key == list(numbers)[:-1]
    assert released({"b": 5000, "": 3000, "a": 4}, key_bytes=1).top(threshold=1000).key == ["b", ""]


def test_keys_that_are_too_long_are_counted_and_never_found() -> None:
    private = released({"seventy": 5000, "seventy-one": 3000, "short": 1000})
    assert private.top(threshold=500).key == ["short"]
    assert private.too_long().value == pytest.approx(8000, abs=100)
    assert private.all_records().value == pytest.approx(9000, abs=200)
    with pytest.raises(InvalidInput, match="key_bytes=6"):
        private.estimate(["seventy"])


def test_top_takes_a_number_a_threshold_or_candidates() -> None:
    counts = {f"key{i}": 1000 * (9 - i) for i in range(8)}
    private = released(counts)
    assert private.top(3).key == list(counts)[:3]
    assert private.top(threshold=4500).key == list(counts)[:5]
    assert private.top(2, threshold=4500).key == list(counts)[:2]
    assert private.top().key == list(counts)
    assert private.top(100).key == list(counts)  # there are no more: noise is never listed
    assert private.top(2, candidates=["key4", "key2", "no", "key6"]).key == ["key2", "key4"]
    assert private.top(threshold=3500, candidates=["key4", "no", "key6"]).key == ["key4"]
    every = private.top()
    assert np.all((every.low < every.value) & (every.value < every.high))
    one_key = private.estimate(["key0"])
    assert every.high[0] - every.low[0] > one_key.high[0] - one_key.low[0]  # corrected for selection
    for bad in ({"n": 0}, {"threshold": float("nan")}, {"threshold": "3"}, {"confidence": 1}, {"candidates": []}):
        with pytest.raises(InvalidInput):
            private.top(**bad)


@pytest.mark.parametrize(("space", "delta"), [({"key_bits": 64}, 1e-6), ({"key_bytes": 12}, 0.0)])
def test_noise_alone_is_never_listed(space: dict[str, int], delta: float) -> None:
    """At the lowest threshold about one noise-only release in a thousand lists a key; the noise is seeded."""
    private = released({}, delta=delta, **space)
    assert len(private.top()) == len(private.top(5, threshold=1)) == 0


TEXTS = [b"", b"a", b"a\0", b"a\0\0", b"ab", b"abc", b"abcd", b"abcde", b"\xff", b"\xff\xff\xff", "ü".encode(), b"\0"]


def parts(sketch: HeavyHitters) -> tuple[int, list[int], list[list[list[int]]]]:
    """The exact content: total, dense level, tables."""
    exact = sketch._exact()
    return (
        exact["total"].item(),
        exact["first"].tolist(),
        [*exact.get("above", np.empty(0)).tolist(), *exact["keys"].tolist()],
    )


@pytest.mark.parametrize(
    ("space", "weighted"),
    [({"key_bits": 64}, True), ({"key_bits": 33}, False), ({"key_bits": 9}, True), ({"key_bytes": 3}, True)],
    ids=str,
)
def test_the_tree_of_records_is_the_oracles(space: dict[str, int], weighted: bool) -> None:
    """Texts that end, go on with a zero byte, or are too long for the tree are all among them."""
    bits = space.get("key_bits")
    keys: list[Any] = TEXTS
    if bits is not None:
        numbers = np.random.default_rng(bits).integers(0, 2**64, 30, dtype=np.uint64).tolist()
        keys = [*(number & (2**bits - 1) for number in numbers), 0, 2**bits - 1]
    units = [i % 6 for i in range(len(keys))] if weighted else [1] * len(keys)
    sketch = HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=11, seed=5, **space)
    column = pa.array(keys) if bits is None else np.array(keys, np.uint64)
    sketch.update(column, weights=units if weighted else None)
    dense, tables = oracle.tree(oracle.Shape(3, 11, 5, bits, space.get("key_bytes")), keys, units)
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


def test_repeated_texts_are_summed_to_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, one of them empty, with nulls and weights that are clipped."""
    rng = np.random.default_rng(1)
    texts = ["", "a", "ab", None, "a longer one than fits", "é", *(f"key {number}" for number in range(60))]
    records = [texts[number] for number in rng.integers(0, len(texts), 3_000)]
    pieces = [records[:1_000], [], records[1_000:]]
    column = pa.chunked_array([pa.array(piece, pa.large_string()) for piece in pieces])
    contents = []
    for fewest in (module._FEWEST, 10**9):
        monkeypatch.setattr(module, "_FEWEST", fewest)
        sketch = dps.HeavyHitters(unit=dps.per_record(max_weight=9), rows=3, width=64, key_bytes=8, grid=0.5)
        sketch.update(column, weights=np.random.default_rng(1).uniform(0, 12, 3_000))
        contents.append(parts(sketch))
    assert contents[0] == contents[1]


SCALE = 20.0


def level(counts: np.ndarray, rows: int, width: int, *, last: bool, seed: int) -> tuple[PrefixLevel, np.ndarray]:
    """Return a level whose first prefixes have these counts, and 12,000 prefixes in all."""
    rng = np.random.default_rng(seed)
    prints = rng.integers(0, 2**64, 12_000, dtype=np.uint64, endpoint=False)
    keys = row_keys(seed, rows)
    counters = np.zeros((rows, width), np.int64)
    add_weighted(counters, prints[: len(counts)], keys, counts.astype(np.int64))
    return PrefixLevel(counters + np.rint(rng.normal(0, SCALE, counters.shape)), keys, SCALE, last), prints


LAWS = {
    "zipf": (np.floor(20_000 / np.arange(1, 3001) ** 1.05), 5, 1024, 300.0),
    "equal": (np.full(400, 3000.0), 5, 1024, 300.0),
    "noise": (np.zeros(0), 7, 1024, 60.0),
}


@pytest.mark.parametrize(("law", "last"), [("zipf", True), ("zipf", False), ("equal", False), ("noise", True)])
def test_a_level_passes_whom_the_slow_search_passes(law: str, last: bool) -> None:
    """They may differ by prefixes within three errors of what is needed, and by no others."""
    counts, rows, width, threshold = LAWS[law]
    one, prints = level(counts, rows, width, last=last, seed=5)
    needed = threshold if last else INNER * threshold
    slow, error = frequent(one.counters, prints, one.row_keys, SCALE, needed)
    passed = one.frequent(prints, threshold, None)
    assert passed is not None
    assert np.all(np.diff(passed.values) <= 0)
    truth = np.append(counts, np.zeros(len(prints) - len(counts)))
    differing = np.setxor1d(passed.places, slow)
    assert np.all(np.abs(truth[differing] - needed) < 3 * error)
    assert set(np.flatnonzero(truth > needed + 4 * error)) <= set(passed.places)
    assert not np.any(truth[passed.places] < needed - 5 * error)


@pytest.mark.parametrize("rows", [257, 1023])
def test_a_key_in_all_of_many_rows_is_frequent(rows: int) -> None:
    """A count of the rows that reach a threshold must hold the most rows that a spec allows."""
    one, prints = level(np.array([5000.0]), rows, 64, last=True, seed=5)
    assert one._reaching(one.counters, prints[:8], 2500.0).tolist() == [0]


def searched(keys: Any, counts: Any, rows: int, width: int, seed: int = 1, bits: int = 24) -> dps.PrivateHeavyHitters:
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=bits, rows=rows, width=width, seed=seed)
    sketch.update(keys, counts=counts)
    with seeded_noise_for_tests_only(seed):
        return sketch.release(epsilon=1.0, delta=1e-6)


def test_three_crowded_rows_list_no_key_that_is_not_there() -> None:
    """Who picks candidates of the last level by what others leave of them fits the noise, and lists absent ones."""
    seed = 2
    rng = np.random.default_rng(seed)
    shares = np.arange(1, 20_001) ** -1.05
    keys = rng.choice(2**32, 20_000, replace=False)
    counts = rng.multinomial(10**6, shares / shares.sum())
    found = searched(keys[counts > 0], counts[counts > 0], 3, 1024, seed, bits=32).top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert len(found) >= 60
    assert all(low <= truth.get(key, 0) <= high for key, _, low, high in found.rows())
    assert all(truth.get(key, 0) > 0 for key in found.key)


def test_two_thousand_equal_keys_are_all_found() -> None:
    """Half as many as the table is wide, of 32 bits. Without a second and third look five rows miss one of them: heavy
    keys hide it in most rows, and of those some were hidden themselves."""
    keys = np.random.default_rng(1).choice(2**32, 2000, replace=False)
    private = searched(keys, np.full(2000, 5000), 5, 4096, bits=32)
    found = private.top()
    assert private.lowest_threshold < 300
    assert set(found.key) == set(keys.tolist())
    assert np.all((found.low <= 5000) & (found.high >= 5000))


def test_a_list_is_no_shorter_than_one_interval_for_all_would_make_it() -> None:
    """Keys whose rows disagree have wide intervals of their own; far out, the one that is the same for all is narrower.
    All of them cover, and none is absent."""
    rng = np.random.default_rng(1)
    keys = rng.choice(2**24, 20_000, replace=False)
    counts = rng.multinomial(10**6, (shares := np.arange(1, 20_001) ** -1.05) / shares.sum())
    private = searched(keys[counts > 0], counts[counts > 0], 5, 4096)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert all(truth.get(key, 0) > 0 and low <= truth[key] <= high for key, _, low, high in found.rows())
    inside = private._found
    assert inside.decoded is not None
    alone = inside.decoded.half_widths(confidence_in_each(0.95, inside.looked_at))[inside.places]
    assert len(found) >= 1.02 * np.count_nonzero(inside.values > alone)
    # What a confidence of its own costs the narrower of two.
    assert np.all(inside.half_widths(0.95) <= 1.1 * alone)


def test_one_row_lists_no_key_that_is_not_there() -> None:
    keys = np.random.default_rng(0).choice(2**24, 3000, replace=False)
    counts = np.floor(1e5 / np.arange(1, 3001) ** 1.05).astype(np.int64)
    private = searched(keys, counts, 1, 1024, 0)
    assert private.top().key == []
    assert "rows=3" in private.top(threshold=1000).note


def test_a_search_without_a_result_says_why() -> None:
    private = searched(np.arange(100), np.full(100, 3), 5, 1024)
    found = private.top()
    assert found.key == []
    assert found.note.startswith("no key passes ")
    assert "told from nothing" in found.note
    assert found.note in repr(found)
    assert "the threshold asked for" in private.top(threshold=10 * private.lowest_threshold).note


def test_a_heavy_prefix_survives_beside_one_that_no_row_tells_from_it() -> None:
    """Each has half of what both have, which may be all of one of them: the next level tells."""
    sketch = dps.HeavyHitters(rows=3, width=64, unit=dps.per_record(), key_bits=32, seed=3)
    spec = sketch.spec
    siblings = spec.space.from_cells(np.array([134])).children(spec.space.dense_depth, np.arange(256)).prints()
    places, signs = places_of(siblings, level_keys(spec)[0], spec.width)
    assert np.array_equal(places[8], places[107])
    assert np.array_equal(signs[8], signs[107])
    key = (134 << 16) + (8 << 8) + 5
    sketch.update([key], counts=[1000])
    with seeded_noise_for_tests_only(1):
        found = search(sketch.release(epsilon=1.0, delta=1e-6), 900.0)
    assert found.keys.plain() == [key]
