"""One level of a search: the same prefixes as by decoding all that may be frequent, and no fit of the noise."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch._compiled.countsketch import add_weighted
from dpsketch.hashing import row_keys
from dpsketch.sketches.heavy.search import INNER, PrefixLevel
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


@pytest.mark.parametrize("last", [False, True], ids=["inner", "last"])
@pytest.mark.parametrize("law", LAWS)
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


@pytest.mark.parametrize("rows", [255, 257, 513, 1023])
def test_a_key_in_all_of_many_rows_is_frequent(rows: int) -> None:
    """A count of the rows that reach a threshold must hold the most rows that a spec allows."""
    one, prints = level(np.array([5000.0]), rows, 64, last=True, seed=5)
    assert one._reaching(one.counters, prints[:8], 2500.0).tolist() == [0]


def test_a_level_of_too_many_gives_up() -> None:
    one, prints = level(np.full(400, 3000.0), 5, 1024, last=False, seed=5)
    assert one.frequent(prints, 300.0, 100) is None
    assert one.frequent(prints[400:401], 1e6, 0) is not None


@pytest.mark.parametrize("seed", [1, 2])
def test_three_crowded_rows_list_no_key_that_is_not_there(seed: int) -> None:
    """Who picks candidates of the last level by what others leave of them fits the noise, and lists absent ones."""
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
