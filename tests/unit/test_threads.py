"""Batches on several cores: the same bits, whatever the number of threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import threads
from dpsketch.bounding import groups
from dpsketch.errors import InvalidInput
from dpsketch.sketches.countsketch import addition
from dpsketch.sketches.countsketch import spec as counts
from sensitive import everything


@pytest.mark.parametrize("value", ["0", "two", "65"])
def test_a_bad_number_of_threads_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSKETCH_THREADS", value)
    with pytest.raises(InvalidInput, match="DPSKETCH_THREADS"):
        threads.thread_count()


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", ["counts", "heavy"])
def test_any_number_of_threads_bounds_and_clips_users_alike(
    kind: str, weighed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    # A third of the records is one user's; some users have more keys than count, and some keys that collide.
    users = np.where(rng.random(6000) < 1 / 3, 7, rng.integers(0, 500, 6000))
    keys = rng.integers(0, 300, 6000)
    given = {"weights": 4 * rng.integers(0, 3, 6000)} if weighed else {}
    unit = dps.per_user(max_keys=5, max_weight=4 if weighed else 1)
    monkeypatch.setattr(groups, "_SMALLEST_PART", 100)
    monkeypatch.setattr(counts, "_SMALLEST_PART", 100)
    found = []
    for count in ("1", "2", "3", "64"):
        monkeypatch.setenv("DPSKETCH_THREADS", count)
        if kind == "counts":
            sketch = dps.CountSketch(rows=1, width=256, unit=unit)
            sketch.update(keys, users=pa.array(users, mask=users % 11 == 0), **given)
            assert sketch.clipped_users > 0
        else:
            sketch = dps.HeavyHitters(rows=3, width=16, key_bits=12, unit=unit)
            sketch.update(keys, users=users, **given)
        found.append((everything(sketch), sketch.cut))
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("count", ["1", "3"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.string(), pa.string_view()], ids=str)
def test_keys_hashed_piece_by_piece_count_as_keys_hashed_at_once(
    kind: pa.DataType, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks begin and end anywhere in a piece, and nulls leave room in it; with counts all are hashed at once."""
    monkeypatch.setenv("DPSKETCH_THREADS", count)
    monkeypatch.setattr(addition, "_SMALLEST_PART", 40)
    monkeypatch.setattr(addition, "_PIECE", 11)
    rng = np.random.default_rng(5)
    for nulls in (0.0, 0.3, 1.0):
        numbers = pa.array(rng.integers(0, 50, 200), mask=rng.random(200) < nulls)
        column = (numbers if pa.types.is_integer(kind) else numbers.cast(pa.string())).cast(kind)
        keys = pa.chunked_array([column[low:high] for low, high in pairwise([0, 0, 1, 7, 29, 30, 30, 101, 200])])
        found = []
        for given in ({}, {"counts": np.ones(200, np.int64)}):
            sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record())
            sketch.update(keys, **given)
            found.append((everything(sketch), sketch.cut, sketch.skipped_nulls))
        assert found[0] == found[1]
