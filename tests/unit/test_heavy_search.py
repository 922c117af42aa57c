"""What a search of the prefix tree lists: whom the slow search passes, clear keys, no absent key; or why nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch._compiled.countsketch import add_weighted
from dpsketch.cli.output import print_estimates
from dpsketch.hashing import row_keys
from dpsketch.sketches.countsketch.messages import places_of
from dpsketch.sketches.heavy.search import INNER, PrefixLevel, confidence_in_each, search
from dpsketch.sketches.heavy.sketch import level_keys
from oracles.heavy import frequent

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
    "three rows": (np.floor(20_000 / np.arange(1, 1001) ** 1.05), 3, 1024, 500.0),
    "noise": (np.zeros(0), 7, 1024, 60.0),
}


@pytest.mark.parametrize(
    ("law", "last"), [("zipf", True), ("zipf", False), ("equal", False), ("three rows", True), ("noise", True)]
)
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


def test_three_crowded_rows_list_no_key_that_is_not_there() -> None:
    """Who picks candidates of the last level by what others leave of them fits the noise, and lists absent ones."""
    seed = 1
    rng = np.random.default_rng(seed)
    shares = np.arange(1, 20_001) ** -1.05
    keys = rng.choice(2**32, 20_000, replace=False)
    counts = rng.multinomial(10**6, shares / shares.sum())
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=32, rows=3, width=1024, seed=seed)
    sketch.update(keys[counts > 0], counts=counts[counts > 0])
    with noise.seeded_noise_for_tests_only(seed):
        private = sketch.release(epsilon=1.0, delta=1e-6)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert len(found) >= 60
    assert all(low <= truth.get(key, 0) <= high for key, _, low, high in found.rows())
    assert all(truth.get(key, 0) > 0 for key in found.key)


def test_a_search_tells_how_far_it_is() -> None:
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bytes=8, rows=5, width=512, seed=1)
    sketch.update(["abcdefgh"] * 5000)
    private = sketch.release(epsilon=1.0, delta=1e-6)
    told: list[tuple[int, int]] = []
    found = private.top(progress=lambda done, most: told.append((done, most)))
    levels = len(private.tables)
    assert found.key == ["abcdefgh"]
    assert told[-levels:] == [(level + 1, levels) for level in range(levels)]
    assert private.top(progress=lambda done, most: told.append((0, 0))).key == found.key
    assert (0, 0) not in told


def release(keys: np.ndarray, counts: np.ndarray, rows: int, width: int, seed: int = 1) -> dps.PrivateHeavyHitters:
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=24, rows=rows, width=width, seed=seed)
    sketch.update(keys, counts=counts)
    with noise.seeded_noise_for_tests_only(seed):
        return sketch.release(epsilon=1.0, delta=1e-6)


def test_clear_keys_in_a_crowded_table_are_listed() -> None:
    """Half as many keys as the table is wide: every cell collides, and joint decoding takes all of it away."""
    keys = np.random.default_rng(1).choice(2**24, 500, replace=False)
    private = release(keys, np.full(500, 5000), 7, 1024)
    assert private.lowest_threshold < 1000
    found = private.top(threshold=1000)
    assert set(found.key) == set(keys.tolist())
    assert np.sqrt(np.mean((found.value - 5000) ** 2)) < 12
    assert np.all((found.low <= 5000) & (found.high >= 5000))
    assert found.note == ""


@pytest.mark.parametrize("rows", [5, pytest.param(7, marks=pytest.mark.full)])
def test_two_thousand_equal_keys_are_all_found(rows: int) -> None:
    """Half as many as the table is wide, of 32 bits. Without a second and third look five rows miss one of them: heavy
    keys hide it in most rows, and of those some were hidden themselves."""
    keys = np.random.default_rng(1).choice(2**32, 2000, replace=False)
    sketch = dps.HeavyHitters(unit=dps.per_record(), key_bits=32, rows=rows, width=4096, seed=1)
    sketch.update(keys, counts=np.full(2000, 5000))
    with noise.seeded_noise_for_tests_only(1):
        private = sketch.release(epsilon=1.0, delta=1e-6)
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
    private = release(keys[counts > 0], counts[counts > 0], 5, 4096)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert all(truth.get(key, 0) > 0 and low <= truth[key] <= high for key, _, low, high in found.rows())
    inside = private._found
    assert inside.decoded is not None
    alone = inside.decoded.half_widths(confidence_in_each(0.95, inside.looked_at))[inside.places]
    assert len(found) >= 1.02 * np.count_nonzero(inside.values > alone)
    # What a confidence of its own costs the narrower of two.
    assert np.all(inside.half_widths(0.95) <= 1.1 * alone)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_row_lists_no_key_that_is_not_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.choice(2**24, 3000, replace=False)
    counts = np.floor(1e5 / np.arange(1, 3001) ** 1.05).astype(np.int64)
    private = release(keys, counts, 1, 1024, seed)
    found = private.top()
    truth = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    assert all(low <= truth.get(key, 0) <= high for key, _, low, high in found.rows())
    assert set(found.key) <= set(truth)
    assert found.key == []
    assert "rows=3" in private.top(threshold=1000).note


def test_a_search_without_a_result_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    keys = np.arange(100)
    private = release(keys, np.full(100, 3), 5, 1024)
    found = private.top()
    assert found.key == []
    assert found.note.startswith("no key passes ")
    assert "told from nothing" in found.note
    assert found.note in repr(found)
    above = private.top(threshold=10 * private.lowest_threshold)
    assert "the threshold asked for" in above.note
    print_estimates(found, private.guarantee, as_json=False)
    print_estimates(found, private.guarantee, as_json=True)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("o key passes") == 2


HEAVY = 5000


def tree() -> dps.HeavyHitters:
    return dps.HeavyHitters(rows=3, width=64, unit=dps.per_record(), key_bits=32, seed=3)


def tree_release(keys: np.ndarray, count: int) -> dps.PrivateHeavyHitters:
    sketch = tree()
    sketch.update(keys, counts=np.full(len(keys), count))
    with noise.seeded_noise_for_tests_only(1):
        return sketch.release(epsilon=1.0, delta=1e-6)


def test_a_heavy_prefix_survives_beside_one_that_no_row_tells_from_it() -> None:
    """Each has half of what both have, which may be all of one of them: the next level tells."""
    spec = tree().spec
    siblings = spec.space.from_cells(np.array([134])).children(spec.space.dense_depth, np.arange(256)).prints()
    places, signs = places_of(siblings, level_keys(spec)[0], spec.width)
    assert np.array_equal(places[8], places[107])
    assert np.array_equal(signs[8], signs[107])
    key = (134 << 16) + (8 << 8) + 5
    found = search(tree_release(np.array([key]), 1000), 900.0)
    assert found.keys.plain() == [key]


def test_a_confidence_that_rounds_to_one_has_intervals_without_ends() -> None:
    """Of many intervals at once, each must be so sure that no double says it."""
    sketch = dps.CountSketch(rows=5, width=256, unit=dps.per_record(), seed=3)
    sketch.update(np.repeat(np.arange(5), 1000))
    found = sketch.release(epsilon=1.0, delta=1e-6).top(3, candidates=np.arange(50), confidence=1 - 1e-15)
    assert found.low.tolist() == [-math.inf] * 3
    assert found.high.tolist() == [math.inf] * 3
