"""Every kind is charged to a part of a dataset by the same words; and a partial counts once, wherever it is merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, LedgerError, ReleaseRefused, SketchBroken, SpecMismatch
from dpsketch.laws.shares import Share
from dpsketch.ledger import Ledger
from dpsketch.sketches.kinds import KINDS
from sensitive import DAILY, LISTS, MERGING, RECORD, ROWS, USER, Row, copied, everything

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
def test_so_it_is_after_a_restart(row: Absorbing, streams: Ledger, tmp_path: Path) -> None:
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
    # A ledger that paid for other streams of that dataset, in rows of the same numbers, did not pay for this one.
    elsewhere = Ledger(tmp_path / "elsewhere.db")
    elsewhere.create("streams", epsilon=10, delta=1e-3, unit=ONE, parts="day")
    for part in (NEXT, DAY):
        row.begin(elsewhere, part)
    for stream in (copied(first), copied(second)):
        with pytest.raises(LedgerError):
            row.absorb(stream, row.partial(stream), ledger=elsewhere)


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


TWICE = "already in the sketch|some users are in both"


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_a_partial_is_merged_once(row: Row) -> None:
    """As the same object, as a copy read from its file, and inside a sketch that it was merged into."""
    sketch = row.filled(0)
    part = row.partner(sketch, 1)
    copy = copied(part)
    sketch.merge(part)
    before = everything(sketch)
    for repeated in (part, copy, copied(copy)):
        with pytest.raises(InvalidInput, match=TWICE):
            sketch.merge(repeated)
        if row.name.endswith("user"):  # nor does it help to state that the users are others
            with pytest.raises(InvalidInput, match="already in the sketch"):
                sketch.merge(repeated, disjoint_users=True)
        assert everything(sketch) == before
    other = row.partner(sketch, 2)
    holder = sketch.empty_like()
    holder.merge(part)
    with pytest.raises(InvalidInput, match=TWICE):
        sketch.merge(holder)
    sketch.merge(other)  # whoever was not merged yet still is
    assert sketch.partial_ids >= part.partial_ids | other.partial_ids
    assert len(sketch.partial_ids) == 3


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ids_are_random_kept_in_files_and_never_released(row: Row) -> None:
    one, two = row.seeded(0), row.seeded(0)
    assert one.partial_ids.isdisjoint(two.partial_ids)  # whatever the records and the seed of the noise
    (own,) = one.partial_ids
    assert len(bytes.fromhex(own)) == 16
    row.add(one, 1)
    assert one.partial_ids == {own}
    assert copied(one).partial_ids == {own}
    if hasattr(one, "empty_like"):
        assert own not in one.empty_like().partial_ids
    release = files.encode(row.publish(one).to_document())
    assert own.encode() not in release
    assert bytes.fromhex(own) not in release


def test_forged_ids_are_refused() -> None:
    document = files.decode(ROWS[0].filled(0).to_sensitive_bytes(), allow_sensitive=True)
    for forged in (None, [], [b"short"], ["text of sixteen b"], [bytes(16), bytes(16)], np.arange(16)):
        arrays = {name: array for name, array in document.arrays.items() if name != "partials"}
        arrays |= {} if forged is None else {"partials": forged}
        with pytest.raises(FileRefused):
            dps.load_sensitive(files.encode(files.Document(document.kind, True, document.header, arrays)))


def bitmap(keys: range) -> dps.PrivateDistinctBitmap:
    sketch = dps.DistinctSketch(unit=dps.per_record())
    sketch.update(keys)
    return sketch.release_mergeable(epsilon=4.0)


def test_a_released_bitmap_is_merged_once(tmp_path: Path) -> None:
    """Merged by exclusive or, a bitmap met again cancels out: a thousand keys would read 0."""
    one, other = bitmap(range(1000)), bitmap(range(1000, 2000))
    one.save(tmp_path / "one.dps")
    read = dps.load(tmp_path / "one.dps")
    both = one.merge(other)
    for left, right in ((one, one), (one, read), (both, one), (read, both), (both, both)):
        with pytest.raises(ReleaseRefused, match="one release is in both"):
            left.merge(right)
    both.save(tmp_path / "both.dps")
    third = dps.load(tmp_path / "both.dps").merge(bitmap(range(2000, 3000)))
    assert len(third.ids) == 3
    assert third.low < 3000 < third.high


@pytest.mark.parametrize("party", [None, 1])
def test_one_partys_share_is_merged_once(party: int | None, tmp_path: Path) -> None:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record())
    sketch.update(["tea"])
    share = sketch.release(epsilon=1.0, delta=1e-6, share=Share(2, honest=1.0, party=party))
    share.save(tmp_path / "share.dps")
    for repeated in (share, dps.load(tmp_path / "share.dps")):
        with pytest.raises(ReleaseRefused, match="given twice"):
            dps.merge_releases([share, repeated])
