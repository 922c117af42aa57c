"""CountSketch through its public names: what goes in, what is refused, what comes out; and tables that were read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import CounterOverflow, InvalidInput, SpecMismatch


def sketch(**changes: object) -> dps.CountSketch:
    arguments: dict[str, object] = {"rows": 5, "width": 64, "unit": dps.per_record(), "seed": 7, **changes}
    return dps.CountSketch(**arguments)


def content(some: dps.CountSketch) -> np.ndarray:
    """The exact table, by way of the sensitive bytes."""
    return np.asarray(files.decode(some.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def test_each_record_adds_its_sign_once_to_every_row() -> None:
    one = sketch()
    one.update(["key"])
    table = content(one)
    assert np.array_equal(np.abs(table).sum(axis=1), np.ones(5))
    many = sketch()
    many.update(["key"] * 9)
    assert np.array_equal(content(many), 9 * table)


def test_counts_and_weights_are_repeated_records() -> None:
    unit = dps.per_record(max_weight=3)
    by_hand, by_count, by_weight = (sketch(unit=unit) for _ in range(3))
    by_hand.update(["a"] * 2 + ["b"] * 3)
    by_count.update(["a", "b"], counts=[2, 3])
    by_weight.update(["a", "b"], weights=[2, 3])
    assert np.array_equal(content(by_hand), content(by_count))
    assert np.array_equal(content(by_hand), content(by_weight))


def test_real_weights_are_rounded_to_the_grid_and_the_bound_holds_after_rounding() -> None:
    on_grid = sketch(unit=dps.per_record(max_weight=1.1), grid=0.25)
    on_grid.update(["a", "a"], weights=[0.55, 1.1])
    assert np.abs(content(on_grid)).max() == 2 + 4
    assert on_grid.spec.tables()[0].move.l1 == 5 * 4
    assert on_grid.release(epsilon=100, delta=0).estimate(["a"], estimator="median").value[0] == pytest.approx(
        1.5, abs=1
    )


def test_bad_shapes_are_refused() -> None:
    wrong: list[dict[str, object]] = [{"rows": rows} for rows in (4, 2.0, True)]
    for changes in (*wrong, {"width": 1}, {"seed": 2**64}, {"unit": None}, {"grid": 0}, {"rows": 1023, "width": 2**31}):
        with pytest.raises(InvalidInput):
            sketch(**changes)


def test_counters_never_wrap() -> None:
    full = sketch()
    full.update(["a"], counts=[2**62 - 5])
    before = content(full)
    with pytest.raises(CounterOverflow):
        full.update(["b"], counts=[6])
    with pytest.raises(CounterOverflow):
        full.update(["b"], counts=np.array([2**63], dtype=np.uint64))
    other = sketch()
    other.update(["c"], counts=[10])
    with pytest.raises(CounterOverflow):
        full.merge(other)
    assert np.array_equal(content(full), before)
    full.update(["b"], counts=[5])
    released = full.release(epsilon=1, delta=0)
    assert released.estimate(["a"], estimator="median").value[0] == pytest.approx(2**62, rel=1e-9)


def test_estimates_become_tables() -> None:
    some = sketch()
    some.update(["a", "b"], counts=[500, 100])
    found = some.release(epsilon=1, delta=1e-6).top(5, candidates=["b", "a", "a", "zzz"])
    assert found.key[:2] == ["a", "b"]
    assert len(found) == 3
    assert found.to_arrow().column_names == ["key", "value", "low", "high"]
    assert np.all((found.low <= found.value) & (found.value <= found.high))


def test_releases_add_and_subtract() -> None:
    days = []
    for n in (1000, 400):
        day = sketch()
        day.update(["a"], counts=[n])
        days.append(day.release(epsilon=1, delta=1e-6))
    both, change = days[0] + days[1], days[0] - days[1]
    assert np.array_equal(both.table, days[0].table + days[1].table)
    assert both.estimate(["a"]).value[0] == pytest.approx(1400, abs=120)
    assert change.estimate(["a"]).value[0] == pytest.approx(600, abs=120)
    assert both.noise_scale == pytest.approx(np.sqrt(2) * days[0].noise_scale)
    assert days[0].guarantee.epsilon < both.guarantee.epsilon < 2
    with pytest.raises(SpecMismatch, match="cannot combine"):
        days[0] + sketch(seed=9).release(epsilon=1, delta=1e-6)


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


def test_a_loaded_table_is_the_one_that_was_released(tmp_path: Path) -> None:
    unit = dps.per_record()
    counts, tree = dps.CountSketch(rows=3, width=256, unit=unit), dps.HeavyHitters(key_bytes=4, rows=3, unit=unit)
    for one, names in ((counts, ["table"]), (tree, ["total", "dense", "tables"])):
        one.update(["abcd"] * 1_000)
        release = one.release(epsilon=1.0, delta=1e-6)
        release.save(tmp_path / "some.dps")
        loaded = dps.load(tmp_path / "some.dps")
        for name in names:
            assert getattr(loaded, name).dtype == np.int64
            assert np.array_equal(getattr(loaded, name), getattr(release, name))
            assert not getattr(loaded, name).flags.writeable
