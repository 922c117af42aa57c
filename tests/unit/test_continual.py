"""Continual counts: answers against exact tables, shared noise, users' days, restarts; states that may be seized."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files, noise
from dpsketch.errors import InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.sketches.countsketch import ContinualCountSketch
from ledgers import begun

DESIGNS = ["recurrence", "banded", "daily", "blocks", "tree", "pan-private"]


def make(days: int | None = 9, **more: object) -> dps.ContinualSketch:
    arguments = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int", "seed": 5}
    arguments |= {"epsilon": 1.0, "delta": 1e-6} | more
    return ContinualCountSketch(days=days, **arguments)  # type: ignore[arg-type]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise at all: what is published is what the design makes of the days."""
    for law in (noise.RoundedGaussian, noise.DiscreteLaplace):
        monkeypatch.setattr(law, "sample", lambda _, size: np.zeros(size, np.int64))


def exact(keys: list[int]) -> np.ndarray:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record(), key_type="int", seed=5)
    sketch.update(keys)
    return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def again(sketch: dps.ContinualSketch) -> dps.ContinualSketch:
    return dps.ContinualSketch.from_sensitive_bytes(sketch.to_sensitive_bytes())


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("design", DESIGNS)
def test_every_run_of_days_is_the_sum_of_its_days(design: str) -> None:
    """Also of a stream that is written and read before and after each publication."""
    rng = np.random.default_rng(1)
    streams = [rng.integers(0, 50, rng.integers(0, 30)).tolist() for _ in range(9)]
    sketch = make(design=design)
    for day, stream in enumerate(streams, start=1):
        sketch.update(stream[:3])
        sketch = again(sketch)
        sketch.update(stream[3:])
        total = sketch.publish_day()
        sketch = again(sketch)
        np.testing.assert_allclose(total.table, exact([key for stream in streams[:day] for key in stream]), atol=0.01)
        np.testing.assert_array_equal(sketch.total().table, total.table)
        assert sketch.guarantee == total.guarantee
    for first in range(1, 10):
        for last in range(first, 10):
            np.testing.assert_allclose(
                sketch.between(first, last).table,
                exact([key for stream in streams[first - 1 : last] for key in stream]),
                atol=0.01,
            )
    with pytest.raises(ReleaseRefused, match="all 9 days"):
        sketch.publish_day()
    for first, last in ((0, 1), (1, 10), (2, 1)):
        with pytest.raises(InvalidInput):
            sketch.between(first, last)


def test_shared_noise_is_known() -> None:
    """Every answer's noise has the variance that is stated, days, windows, totals, sums and differences.

    3,000 counters without records; a mean square lies within 7 standard errors (3e-12 each, 25 of them). Twin: adding
    the variances of two totals, which share their noise, misses by more.
    """
    for design in DESIGNS:
        with noise.seeded_noise_for_tests_only(4):
            sketch = make(40, rows=3, width=1000, design=design)
            for _ in range(40):
                sketch.publish_day()
        week, last, total = sketch.between(34, 40), sketch.between(27, 33), sketch.total()
        change = total - sketch.between(1, 39)
        for answer in (total, week, sketch.between(40, 40), week - last, change):
            variance = answer.noise_scale**2
            seen = float(np.mean(np.square(answer.table)))
            assert abs(seen - variance) < 7 * variance * math.sqrt(2 / 3000)
        if design in ("recurrence", "banded", "daily", "pan-private"):
            np.testing.assert_allclose(change.table, sketch.between(40, 40).table, atol=1e-6)
            assert change.noise_scale == pytest.approx(sketch.between(40, 40).noise_scale)
        assert change.noise_scale**2 < 0.8 * (total.noise_scale**2 + sketch.between(1, 39).noise_scale ** 2)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_publication_is_never_drawn_again(design: str) -> None:
    sketch = make(8, design=design)
    first = sketch.day([1, 2])
    kept, shown = first.table.copy(), sketch.published.copy()
    for _ in range(5):
        sketch.day([3])
    np.testing.assert_array_equal(sketch.between(1, 1).table, kept)
    np.testing.assert_array_equal(sketch.published[: len(shown)], shown)
    assert not first.table.flags.writeable
    loaded = again(sketch)
    loaded._stream._day -= 1  # a state that forgot a day is refused its noise
    with pytest.raises(ReleaseRefused, match="drawn before"):
        loaded.publish_day()


@pytest.mark.usefixtures("quiet")
def test_streams_that_published_the_same_are_two_streams(tmp_path: Path) -> None:
    """As small tables do by chance: one answer less another is of two draws, and of two promises."""
    paid = {"ledger": begun(tmp_path / "budget.db"), "dataset": "web"}
    for ours, theirs in ((make(9, **paid), make(9, **paid)), (make(9), make(9, epsilon=2.0))):
        for sketch in (ours, theirs):
            sketch.day([1])
        change = ours.total() - theirs.total()
        alone = ours.total().noise_scale ** 2 + theirs.total().noise_scale ** 2
        assert change.noise_scale**2 == pytest.approx(alone)
        assert change.guarantee.costs == ours.guarantee.costs + theirs.guarantee.costs


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("days", "objective", "grid"), [(365, "balanced", 1e-9), (10_000, "totals", 1e-3)])
def test_weights_on_a_fine_grid_have_room(days: int, objective: str, grid: float) -> None:
    """A day's table is held to what its design has room for: a design is chosen that has it."""
    sketch = make(days, unit=dps.per_record(max_weight=1000), grid=grid, objective=objective)
    found = sketch.day([1] * 20_000, weights=[1000] * 20_000).estimate([1])
    assert found.value[0] == pytest.approx(2e7, rel=1e-6)


@pytest.mark.usefixtures("quiet")
def test_users_count_on_the_days_they_may() -> None:
    """Two days, at least three apart: days 1, 4 of one who comes daily; 2, 5 of one who first comes on day 2."""
    unit = dps.per_user(1, max_weight=2)
    sketch = make(10, unit=unit, user_days=2, days_apart=3, key_type="text")
    for day in range(1, 11):
        sketch.update(["tea", "tea"], users=["ann", "ann"])
        if day >= 2:
            sketch.update(["rye", None], users=["bob", None])
        sketch = again(sketch)
        if day in (1, 4):
            with pytest.raises(InvalidInput, match="counted before"):
                sketch.update(["tea"], users=["ann"])
        sketch.publish_day()
        sketch = again(sketch)
    days = [sketch.between(day, day) for day in range(1, 11)]
    assert [round(float(day.estimate(["tea"]).value[0])) for day in days] == [2, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    assert [round(float(day.estimate(["rye"]).value[0])) for day in days] == [0, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert sketch.dropped_records == 8 * 2 + 7
    assert sketch.skipped_nulls == 9
    assert "at most 2 days, at least 3 days apart" in str(sketch.guarantee)


@pytest.mark.usefixtures("quiet")
def test_what_is_dropped_of_a_user_follows_from_their_own_records() -> None:
    """With or without ann, the others add the same on every day: the streams differ by ann's two days alone."""
    published = []
    for ann in (True, False):
        sketch = make(6, unit=dps.per_user(1), user_days=2, days_apart=2, key_type="int", design="daily")
        for day in range(6):
            users = list(range(day, day + 4)) + ([99] if ann else [])
            sketch.day([user % 5 for user in users], users=users)
        published.append(sketch.published)
    assert np.abs(published[0] - published[1]).sum(axis=(1, 2)).tolist() == [3, 0, 3, 0, 0, 0]


def test_streams_without_an_end() -> None:
    sketch = make(None)
    sketch.day([1])
    assert sketch.days is None
    assert again(sketch).guarantee == sketch.guarantee
    with pytest.raises(InvalidInput, match="user_days"):
        make(None, unit=dps.per_user(1))
    with pytest.raises(InvalidInput, match="need an end"):
        make(None, epsilon=1.0, delta=0)


@pytest.mark.statistical
def test_intervals_that_hold_for_a_whole_curve_do() -> None:
    """Of 100 curves of absent keys, at 90%, 28 are missed somewhere with a probability of 1e-7.

    Twin: intervals that hold one by one do not hold for whole curves. That they hold is in the table of coverage.
    """
    with noise.seeded_noise_for_tests_only(8):
        sketch = make(20, rows=5, width=512)
        for _ in range(20):
            sketch.publish_day()
    for together in (True, False):
        curves = [
            sketch.curve(key, window=window, confidence=0.9, together=together)
            for key in range(50)
            for window in (None, 1)
        ]
        missed = sum(bool(np.any((curve.low > 0) | (curve.high < 0))) for curve in curves)
        assert (missed <= 28) == together


def test_copies_that_went_on_apart_are_not_combined() -> None:
    """Nobody paid in a ledger that would tell them: they share their first days, and not the noise of later ones."""
    shape: Any = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int", "epsilon": 1.0, "delta": 1e-6}
    one = dps.ContinualCountSketch(days=5, **shape)
    one.day([1])
    two = dps.load_sensitive(one.to_sensitive_bytes())
    for sketch in (one, two):
        sketch.day([2])
    assert one.between(1, 1) - two.between(1, 1)
    for mine, theirs in ((one.total(), two.total()), (one.between(1, 1) - one.between(2, 2), two.between(2, 2))):
        with pytest.raises(ReleaseRefused, match="apart"):
            mine - theirs
        with pytest.raises(ReleaseRefused, match="apart"):
            dps.load(files.encode(mine.to_document())) + theirs


def pan_private(**more: Any) -> dps.ContinualSketch:
    shape: Any = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "text", "epsilon": 1.0, "delta": 1e-6}
    return dps.PanPrivateCountSketch(**shape, **more)


def test_a_state_goes_on_where_it_was(tmp_path: Path) -> None:
    """The guarantee and its price come along, and what was published leaves nothing behind."""
    sketch = pan_private(ledger=begun(tmp_path / "ledger.db"), dataset="visits")
    again = dps.load_sensitive(sketch.to_sensitive_bytes())
    one, other = sketch.publish(), again.publish()
    assert (one.guarantee, one.charge, one.noise_scale) == (other.guarantee, other.charge, other.noise_scale)
    assert not dps.load_sensitive(again.to_sensitive_bytes())._stream.state.any()


def test_a_merge_is_an_update() -> None:
    sketch, part = pan_private(), dps.CountSketch(rows=3, width=16, unit=dps.per_record())
    before = sketch.snapshot()
    part.update(["a", "b", "a"], counts=[5, 1, 2])
    exact = files.decode(part.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"]
    sketch.merge(part)
    assert np.array_equal(sketch.snapshot() - before, exact)
    for other in (dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2)), pan_private()):
        with pytest.raises(SpecMismatch):
            sketch.merge(other)
