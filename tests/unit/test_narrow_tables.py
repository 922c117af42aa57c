"""Tables of releases that were read: as narrow as in the file until somebody asks, and integers of 64 bits then."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps


def test_loading_takes_little_more_memory_than_the_file_has_bytes(tmp_path: Path) -> None:
    """Eight bytes for each counter would be eight times the file; half of it is for what is parsed."""
    path = tmp_path / "counts.dps"
    dps.CountSketch(rows=3, width=2**18, unit=dps.per_record()).release(epsilon=1.0, delta=1e-6).save(path)
    dps.load(path)
    tracemalloc.start()
    loaded = dps.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded is not None
    assert peak < 1.5 * path.stat().st_size


def test_sums_of_narrow_tables_do_not_wrap(tmp_path: Path) -> None:
    """Two counters of 100 are 200, which no byte with a sign holds."""
    paths = [tmp_path / "a.dps", tmp_path / "b.dps"]
    for path in paths:
        sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record())
        sketch.update(["a"] * 100)
        sketch.release(epsilon=50.0, delta=1e-6).save(path)
    first, second = (dps.load(path) for path in paths)
    assert (first + second).estimate(["a"]).value[0] == pytest.approx(200, abs=10)


@pytest.mark.parametrize(
    ("start", "names"),
    [
        (lambda unit: dps.CountSketch(rows=3, width=256, unit=unit), ["table"]),
        (lambda unit: dps.HeavyHitters(key_bytes=4, rows=3, width=256, unit=unit), ["total", "dense", "tables"]),
    ],
    ids=["counts", "tree"],
)
def test_a_loaded_table_is_the_one_that_was_released(start, names: list[str], tmp_path: Path) -> None:
    sketch = start(dps.per_record())
    sketch.update(["abcd"] * 1_000)
    release = sketch.release(epsilon=1.0, delta=1e-6)
    release.save(tmp_path / "some.dps")
    loaded = dps.load(tmp_path / "some.dps")
    for name in names:
        assert getattr(loaded, name).dtype == np.int64
        assert np.array_equal(getattr(loaded, name), getattr(release, name))
        assert not getattr(loaded, name).flags.writeable
