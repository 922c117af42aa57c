"""CountSketch through its public names: the grid, the largest counts, tables of estimates, and sums of releases."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import CounterOverflow, SpecMismatch


def sketch(**changes: object) -> dps.CountSketch:
    arguments: dict[str, object] = {"rows": 5, "width": 64, "unit": dps.per_record(), "seed": 7, **changes}
    return dps.CountSketch(**arguments)


def test_real_weights_are_rounded_to_the_grid_and_the_bound_holds_after_rounding() -> None:
    on_grid = sketch(unit=dps.per_record(max_weight=1.1), grid=0.25)
    on_grid.update(["a", "a"], weights=[0.55, 1.1])
    assert np.abs(on_grid._exact()["counters"]).max() == 2 + 4
    assert on_grid.spec.tables()[0].move.l1 == 5 * 4


def test_the_last_count_that_fits_is_counted() -> None:
    """To the unit, which no float of that size tells from the next one."""
    full = sketch()
    full.update(["a"], counts=[2**62 - 5])
    for more in ([6], np.array([2**63], dtype=np.uint64)):
        with pytest.raises(CounterOverflow):
            full.update(["b"], counts=more)
    full.update(["b"], counts=[5])
    found = full.release(epsilon=1, delta=0).estimate(["a"], estimator="median")
    assert found.value[0] == pytest.approx(2**62, rel=1e-9)


def test_estimates_become_tables() -> None:
    some = sketch()
    some.update(["a", "b"], counts=[500, 100])
    found = some.release(epsilon=1, delta=1e-6).top(5, candidates=["b", "a", "a", "zzz"])
    assert found.key[:2] == ["a", "b"]
    assert len(found) == 3
    assert found.to_arrow().column_names == ["key", "value", "low", "high"]
    assert np.all((found.low <= found.value) & (found.value <= found.high))


def test_releases_add_and_subtract() -> None:
    """Also as they come from files, where counters of 100 and 60 are bytes with a sign, which hold no 160."""
    made = []
    for n in (100, 60):
        day = sketch()
        day.update(["a"], counts=[n])
        made.append(day.release(epsilon=20, delta=1e-6))
    read = [dps.load(files.encode(each.to_document())) for each in made]
    for days in (made, read):
        both, change = days[0] + days[1], days[0] - days[1]
        assert np.array_equal(both.table, days[0].table + days[1].table)
        assert both.estimate(["a"]).value[0] == pytest.approx(160, abs=15)
        assert change.estimate(["a"]).value[0] == pytest.approx(40, abs=15)
        assert both.noise_scale == pytest.approx(np.sqrt(2) * days[0].noise_scale)
        assert days[0].guarantee.epsilon < both.guarantee.epsilon < 40
        with pytest.raises(SpecMismatch, match="cannot combine"):
            days[0] + sketch(seed=9).release(epsilon=20, delta=1e-6)


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
