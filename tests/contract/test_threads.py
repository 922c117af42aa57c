"""Two threads that give one sketch the same users, or release one secret: once, or refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import DpsketchError, SketchBroken
from dpsketch.sketches.countsketch import addition


def outcomes(call: Any, times: int = 4) -> list[Any]:
    def tried(_: int) -> Any:
        try:
            return call()
        except DpsketchError as refusal:
            return refusal

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(tried, range(times)))


def test_users_given_by_several_threads_count_once() -> None:
    users, keys = np.arange(50_000), np.zeros(50_000, np.int64)
    for _ in range(3):
        sketch = dps.CountSketch(rows=1, width=2, unit=dps.per_user(max_keys=1))
        found = outcomes(lambda sketch=sketch: sketch.update(keys, users=users))
        assert sum(each is None for each in found) == 1
        table = sketch.release(rho=1e9).table
        assert np.abs(table).sum() == 50_000


def test_a_merge_waits_for_a_change_of_the_other_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in the middle of its update, the other would be merged with half of a batch, or refused as broken."""
    ours, theirs = (dps.CountSketch(rows=1, width=2, unit=dps.per_record(), key_type="int") for _ in range(2))
    half_way, go_on = Event(), Event()
    whole = addition.kernels.add_ones

    def slowly(table: Any, prints: Any, keys: Any) -> None:
        whole(table, prints[: len(prints) // 2], keys)
        half_way.set()
        assert go_on.wait(20)
        whole(table, prints[len(prints) // 2 :], keys)

    monkeypatch.setattr(addition.kernels, "add_ones", slowly)
    with ThreadPoolExecutor(2) as pool:
        updating = pool.submit(theirs.update, np.zeros(1000, np.int64))
        assert half_way.wait(20)
        merging = pool.submit(ours.merge, theirs)
        with pytest.raises(TimeoutError):
            merging.result(timeout=0.2)
        go_on.set()
        updating.result(20)
        merging.result(20)
    assert np.abs(ours.release(rho=1e9).table).sum() == 1000


def test_two_sketches_that_merge_each_other_do_not_wait_for_ever() -> None:
    for _ in range(200):
        ours, theirs = (dps.CountSketch(rows=1, width=2, unit=dps.per_record(), key_type="int") for _ in range(2))
        both = [(ours, theirs), (theirs, ours)]
        with ThreadPoolExecutor(2) as pool:
            merging = [pool.submit(one.merge, other) for one, other in both]
            found = [each.exception(timeout=20) for each in merging]
        assert sum(each is None for each in found) == 1


def test_a_secret_is_released_by_one_thread() -> None:
    for _ in range(3):
        sketch = dps.MomentSketch(p=0.5, size=50, unit=dps.per_record(), key_type="int")
        sketch.update([1, 2, 3])
        found = outcomes(lambda sketch=sketch: sketch.release(epsilon=1.0, delta=1e-6))
        assert sum(isinstance(each, dps.PrivateMoment) for each in found) == 1


def test_a_fresh_partial_ends_with_its_merge() -> None:
    state = dps.PanPrivateCountSketch(rows=3, width=8, unit=dps.per_record(), key_type="int", rho=1e6)
    part = state.empty_day()
    part.update([5])
    state.merge(part, fresh=True)
    for fresh in (True, False):
        with pytest.raises(SketchBroken):
            state.merge(part, fresh=fresh)
