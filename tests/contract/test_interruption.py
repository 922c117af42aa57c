"""Interrupted anywhere, or used by two threads at once, a sketch counts nobody twice: it refuses to go on, or waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import DpsketchError, SketchBroken, SourceError
from dpsketch.sketches.countsketch import addition
from dpsketch.sketches.countsketch import spec as counts
from dpsketch.sketches.feed import feed
from dpsketch.sources import Batch
from interrupting import interrupted, sampled_lines
from sensitive import BUDGET, ROWS, Row, copied, everything

MOST_LINES = 25

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def refuses_everything(row: Row, sketch: Any) -> bool:
    """Say whether a sketch refuses to go on; it must refuse all or nothing."""
    other = row.filled(1)
    actions: list[Callable[[], object]] = [
        lambda: row.add(sketch, 2),
        lambda: row.publish(sketch),
        sketch.to_sensitive_bytes,
        lambda: sketch.save_sensitive("/nowhere/at/all.sketch"),
    ]
    if row.merges:
        actions.append(lambda: sketch.merge(other))
    try:
        everything(sketch)
    except SketchBroken:
        for action in actions:
            with pytest.raises(SketchBroken, match="interrupted"):
                action()
        if row.merges:
            with pytest.raises(DpsketchError):  # of moments, which have different secrets, for that reason
                other.merge(sketch)
        return True
    return False


def check(row: Row, whole: Any, change: Callable[[Any], object], *, repeats: bool = True) -> None:
    """Interrupt a change of a sketch at many lines, and look at what is left; one that repeats does the same again."""
    refused = unchanged = 0
    change(copied(whole))  # once before, for what is imported and compiled at its first use
    twin = copied(whole)
    for line in sampled_lines(lambda: change(twin), MOST_LINES):
        sketch = copied(whole)
        before = everything(sketch)
        if not interrupted(lambda some=sketch: change(some), line):
            continue
        if refuses_everything(row, sketch):
            refused += 1
        else:
            assert everything(sketch) == before, f"interrupted at line {line}: changed, and goes on"
            unchanged += 1
            change(sketch)  # what was not begun may be tried again
            if repeats:
                assert exact(sketch) == exact(twin)
    assert refused  # a change that was never seen half done was not tested
    assert unchanged


def exact(sketch: Any) -> Any:
    """All that a sketch holds, but for publications with noise of their own."""
    kind, header, arrays = everything(sketch)
    return kind, header, {name: array for name, array in arrays.items() if name not in ("nodes", "published")}


# A table asks its database for each look at what it holds: one is enough.
FEW = [row for row in ROWS if not row.frames or row.name == "table user"]


@pytest.mark.parametrize("row", FEW, ids=lambda row: row.name)
def test_an_interrupted_update_adds_nothing_or_ends_the_sketch(row: Row) -> None:
    check(row, row.filled(0), lambda sketch: row.add(sketch, 1))


@pytest.mark.parametrize("row", [row for row in FEW if row.merges], ids=lambda row: row.name)
def test_an_interrupted_merge_adds_nothing_or_ends_the_sketch(row: Row) -> None:
    whole = row.filled(0)
    partner = row.partner(whole, 1)
    before = everything(partner)
    check(row, whole, lambda sketch: sketch.merge(partner))
    assert everything(partner) == before  # the other one is read, whatever happens


@pytest.mark.parametrize("design", ["tree", "recurrence"])
@pytest.mark.parametrize("change", ["publish_day", "day"])
def test_an_interrupted_day_is_published_once_or_never(change: str, design: str) -> None:
    """Each publication is drawn once and each day counted once; of a tree the fourth day completes three nodes."""
    [row] = [row for row in ROWS if row.name == "continual"]
    shape: Any = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int", "design": design}
    whole = dps.ContinualCountSketch(days=8, **shape, **BUDGET)
    for key in range(3):
        whole.day([key])
    whole.update([4, 5])
    check(row, whole, lambda sketch: sketch.publish_day() if change == "publish_day" else sketch.day([6]))


@pytest.mark.parametrize("row", [row for row in ROWS if row.name.startswith("moment")], ids=lambda row: row.name)
def test_an_interrupted_release_of_moments_ends_them_or_leaves_them(row: Row) -> None:
    """A moment's release uses up its secret: half done, there is no second try."""
    # Copies of a sketch for tests may each be released.
    check(row, row.seeded(0), lambda sketch: sketch.release(epsilon=1.0, delta=0.0), repeats=False)


def batches(n: int, *, user: bool) -> Iterator[Batch]:
    for i in range(n):
        users = pa.array([f"fed {2 * i}", f"fed {2 * i + 1}"]) if user else None
        yield Batch(pa.array([f"a{i}", f"b{i}"]), users, None, (), 2)


FED = [row for row in ROWS if row.name in ("counts record", "counts user")]


@pytest.mark.parametrize("row", FED, ids=lambda row: row.name)
def test_an_interrupted_feed_adds_nothing_or_ends_the_sketch(row: Row) -> None:
    """Several updates are one change: between two of them the sketch is not whole either."""
    user = row.name.endswith("user")
    check(row, row.filled(0), lambda sketch: feed(sketch, batches(3, user=user)))


@pytest.mark.parametrize("row", FED, ids=lambda row: row.name)
def test_a_source_that_fails_after_its_first_batch_ends_the_sketch(row: Row) -> None:
    """Fed again, the first batch would count twice; a source that fails at once leaves the sketch as it was."""
    user = row.name.endswith("user")

    def failing(good: int) -> Iterator[Batch]:
        yield from batches(good, user=user)
        raise SourceError("the source could not be read.")

    sketch = row.filled(0)
    before = everything(sketch)
    with pytest.raises(SourceError):
        feed(sketch, failing(0))
    assert everything(sketch) == before
    with pytest.raises(SourceError):
        feed(sketch, failing(3))
    assert refuses_everything(row, sketch)


def test_an_interrupt_while_threads_count_users_ends_the_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread it strikes: some users may be in the table, and all are remembered."""
    monkeypatch.setenv("DPSKETCH_THREADS", "2")
    monkeypatch.setattr(counts, "_SMALLEST_PART", 100)
    whole = counts.clip
    for struck in (True, False):

        def interrupted_in_one(*given: Any, struck: bool = struck) -> int:
            clipped = whole(*given)
            if (threading.current_thread() is threading.main_thread()) is struck:
                raise KeyboardInterrupt
            return clipped

        monkeypatch.setattr(counts, "clip", interrupted_in_one)
        sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2))
        with pytest.raises(KeyboardInterrupt):
            sketch.update(range(1000), users=range(1000))
        monkeypatch.setattr(counts, "clip", whole)
        assert refuses_everything(FED[1], sketch)


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
