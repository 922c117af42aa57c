"""Every kind is charged to a part of a dataset, by the same words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import ReleaseRefused, SketchBroken, SpecMismatch
from dpsketch.ledger import Ledger
from dpsketch.sketches.kinds import KINDS
from sensitive import DAILY, LISTS, MERGING, RECORD, USER, Row, copied

DAY, NEXT = "2026-11-15", "2026-11-16"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "budget.db")
    ledger.create("records", epsilon=10, delta=1e-5, unit=RECORD, parts="day")
    ledger.create("users", epsilon=10, delta=1e-5, unit=USER, parts="day", disjoint_users=True)
    return ledger


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_a_release_is_charged_to_its_part(row: Row, ledger: Ledger) -> None:
    dataset = "users" if row.name.endswith("user") else "records"
    sketch = row.filled(0)
    copy = None if row.name.startswith("moment") else copied(sketch)
    spend = {"epsilon": 1.0, "delta": 0 if copy is None else 1e-6, "ledger": ledger, "dataset": dataset}
    charge = sketch.release(**spend, part=DAY).charge
    [entry] = ledger.history(dataset)
    assert (entry.part, entry.digest) == (DAY, charge.digest)
    if copy is not None:
        with pytest.raises(ReleaseRefused, match=SHARED):
            copy.release(**spend, part=NEXT)


def test_so_is_what_is_charged_when_it_begins(ledger: Ledger) -> None:
    spend = {"epsilon": 1.0, "delta": 0, "ledger": ledger, "dataset": "records", "part": DAY}
    shape = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int"}
    dps.ContinualCountSketch(days=4, **shape, **spend)
    dps.PanPrivateCountSketch(**shape, **spend)
    dps.DistinctSketch(buckets=16, unit=dps.per_record()).release_mergeable(**spend)
    dps.CountSketch(rows=3, width=8, unit=dps.per_record()).release(**spend | {"delta": 1e-6}, share=dps.Share(2, 1.0))
    points, classes = np.array([[0.5, 1.0], [1.0, 0.5]]), np.array([0, 1])
    dps.DensityClassifier(bounds=[(0, 2), (0, 2)], classes=[0, 1], **spend).fit(points, classes)
    assert [entry.part for entry in ledger.history("records")] == [DAY] * 5


ONE = dps.per_record()
SHAPE: dict[str, Any] = {"rows": 3, "width": 8, "unit": ONE, "key_type": "int"}


@dataclass(frozen=True)
class Absorbing:
    """A sketch that is charged as a part before its records come, and the ways in which it absorbs others."""

    name: str
    kind: str
    more: dict[str, Any] = field(default_factory=dict)

    def begin(self, ledger: Ledger, part: str | None) -> Any:
        spend: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "ledger": ledger, "dataset": "streams", "part": part}
        if self.name.startswith("pan-private"):
            return dps.PanPrivateCountSketch(**SHAPE, **spend)
        if self.name == "stream":
            return dps.ContinualCountSketch(**SHAPE, days=4, **spend)
        return dps.ContinualSketch(DAILY[self.kind][0](ONE), days=4, **self.more, **spend)

    def partial(self, stream: Any) -> Any:
        partial = stream.empty_day()
        partial.update(DAILY[self.kind][1])
        return partial

    def absorb(self, stream: Any, partial: Any, **given: Any) -> None:
        stream.merge(partial, fresh=self.name.endswith(" fresh"), **given)


ABSORBING = [
    *(Absorbing(name, name, LISTS.get(name, {})) for name in DAILY),
    Absorbing("seizable", "ranges", {"design": "pan-private"}),
    *(Absorbing(name, "counts") for name in ("stream", "pan-private", "pan-private fresh")),
]
SHARED = "parts must share no record"


@pytest.fixture
def streams(ledger: Ledger) -> Ledger:
    ledger.create("streams", epsilon=10, delta=1e-3, unit=ONE, parts="day")
    return ledger


def test_every_kind_that_is_published_day_after_day_is_held_to_its_part() -> None:
    assert set(DAILY) == {name for name, kind in KINDS.items() if kind.daily}


@pytest.mark.parametrize("row", ABSORBING, ids=lambda row: row.name)
def test_what_was_released_as_one_part_is_not_absorbed_by_another(row: Absorbing, streams: Ledger) -> None:
    """Charged once for each of three parts, its records would have cost three times what the ledger says."""
    spend: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "ledger": streams, "dataset": "streams"}
    first, second, same = row.begin(streams, DAY), row.begin(streams, NEXT), row.begin(streams, DAY)
    partial, other = row.partial(first), row.partial(first)
    copy, again = copied(partial), copied(partial)
    row.absorb(first, partial)
    with pytest.raises(ReleaseRefused, match=SHARED):
        row.absorb(second, copy)
    if hasattr(type(copy), "release_type"):
        with pytest.raises(ReleaseRefused, match=SHARED):
            copy.release(**spend, part=NEXT)
        shown = copied(other)
        other.release(**spend, part=DAY)
        with pytest.raises(ReleaseRefused, match=SHARED):
            row.absorb(second, shown)
    holder = again.empty_like()
    holder.merge(again)
    with pytest.raises(ReleaseRefused, match=SHARED):
        row.absorb(second, holder)
    row.absorb(second, row.partial(second))  # a refusal leaves the stream as it was
    row.absorb(same, copy)
    row.absorb(row.begin(streams, None), again)  # this counts for every part


@pytest.mark.parametrize("row", ABSORBING, ids=lambda row: row.name)
def test_so_it_is_after_a_restart(row: Absorbing, streams: Ledger) -> None:
    first, second = row.begin(streams, DAY), copied(row.begin(streams, NEXT))
    partial = row.partial(first)
    copy = copied(partial)
    row.absorb(first, partial)
    with pytest.raises(ReleaseRefused, match="ledger="):
        row.absorb(second, row.partial(second))
    with pytest.raises(ReleaseRefused, match=SHARED):
        row.absorb(second, copy, ledger=streams)
    mine = row.partial(second)
    row.absorb(second, copied(mine), ledger=streams)
    with pytest.raises(ReleaseRefused, match=SHARED):
        row.absorb(first, mine)
    row.absorb(copied(row.begin(streams, None)), row.partial(second))  # which has no part to be held to


@pytest.mark.parametrize("row", ABSORBING, ids=lambda row: row.name)
def test_what_a_stream_refuses_is_still_free_for_its_own_part(row: Absorbing, streams: Ledger) -> None:
    first, second = row.begin(streams, DAY), row.begin(streams, NEXT)
    other = dps.CountSketch(rows=5, width=4, unit=ONE, key_type="int")
    other.update([1])
    with pytest.raises(SpecMismatch):
        row.absorb(first, other)
    partial = row.partial(first)
    spoiled = copied(partial)
    spoiled._begin_change()
    with pytest.raises(SketchBroken):
        row.absorb(first, spoiled)
    row.absorb(second, partial)
