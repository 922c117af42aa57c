"""A partial counts once: merged again, as itself, as a copy or inside another sketch, it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.shares import Share
from sensitive import MERGING, ROWS, Row, copied, everything

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
