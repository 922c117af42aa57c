"""Tables of releases that were read: as narrow as in the file until somebody asks, and integers of 64 bits then."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps


@pytest.fixture
def counts(tmp_path: Path) -> tuple[dps.PrivateCountSketch, Path]:
    sketch = dps.CountSketch(rows=3, width=2**18, unit=dps.per_record())
    sketch.update(["a"] * 100 + ["b"])
    release = sketch.release(epsilon=1.0, delta=1e-6)
    release.save(tmp_path / "counts.dps")
    return release, tmp_path / "counts.dps"


def test_loading_takes_little_more_memory_than_the_file_has_bytes(
    counts: tuple[dps.PrivateCountSketch, Path],
) -> None:
    """Eight bytes for each counter would be eight times the file; half of it is for what is parsed."""
    dps.load(counts[1])
    tracemalloc.start()
    loaded = dps.load(counts[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded is not None
    assert peak < 1.5 * counts[1].stat().st_size


def test_a_loaded_table_is_the_one_that_was_released(counts: tuple[dps.PrivateCountSketch, Path]) -> None:
    release, path = counts
    loaded = dps.load(path)
    assert isinstance(loaded, dps.PrivateCountSketch)
    assert loaded.table.dtype == np.int64
    assert np.array_equal(loaded.table, release.table)
    assert loaded.table is loaded.table
    assert loaded.estimate(["a", "b"]).to_json() == release.estimate(["a", "b"]).to_json()


def test_nobody_may_change_a_table(counts: tuple[dps.PrivateCountSketch, Path]) -> None:
    for release in (counts[0], dps.load(counts[1])):
        assert isinstance(release, dps.PrivateCountSketch)
        with pytest.raises(ValueError, match="read-only"):
            release.table[0, 0] = 1
        with pytest.raises((AttributeError, TypeError)):
            release.table = release.table.copy()  # type: ignore[misc]


def test_sums_of_narrow_tables_do_not_wrap(tmp_path: Path) -> None:
    """Two counters of 100 are 200, which no byte with a sign holds."""
    paths = [tmp_path / "a.dps", tmp_path / "b.dps"]
    for path in paths:
        sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record())
        sketch.update(["a"] * 100)
        sketch.release(epsilon=50.0, delta=1e-6).save(path)
    first, second = (dps.load(path) for path in paths)
    assert (first + second).estimate(["a"]).value[0] == pytest.approx(200, abs=10)


def test_copies_and_files_of_a_loaded_release_are_the_same(
    counts: tuple[dps.PrivateCountSketch, Path], tmp_path: Path
) -> None:
    release, path = counts
    loaded = dps.load(path)
    loaded.save(tmp_path / "again.dps")
    assert (tmp_path / "again.dps").read_bytes() == path.read_bytes()
    for other in (copy.copy(dps.load(path)), pickle.loads(pickle.dumps(dps.load(path)))):
        assert np.array_equal(other.table, release.table)


def test_a_tree_is_read_in_the_same_way(tmp_path: Path) -> None:
    sketch = dps.HeavyHitters(key_bytes=4, rows=3, width=256, unit=dps.per_record())
    sketch.update(["abcd"] * 1_000)
    release = sketch.release(epsilon=1.0, delta=1e-6)
    release.save(tmp_path / "tree.dps")
    loaded = dps.load(tmp_path / "tree.dps")
    for name in ("total", "dense", "tables"):
        assert getattr(loaded, name).dtype == np.int64
        assert np.array_equal(getattr(loaded, name), getattr(release, name))
        assert not getattr(loaded, name).flags.writeable
