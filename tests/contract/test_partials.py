"""A partial counts once: merged again, as itself, as a copy or inside another sketch, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.shares import Share
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import MERGING, ROWS, Row, everything

TWICE = "already in the sketch|some users are in both"


def written(sketch: Any) -> bytes:
    moments = isinstance(sketch, dps.MomentSketch | dps.MomentProfile)
    data: bytes = sketch.to_sensitive_bytes(**({"include_secret": True} if moments else {}))
    return data


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_a_partial_is_merged_once(row: Row) -> None:
    """As the same object, as a copy read from its file, and inside a sketch that it was merged into."""
    sketch = row.filled(0)
    part = row.partner(sketch, 1)
    copied = dps.load_sensitive(written(part))
    sketch.merge(part)
    before = everything(sketch)
    for repeated in (part, copied, dps.load_sensitive(written(copied))):
        with pytest.raises(InvalidInput, match=TWICE):
            sketch.merge(repeated)
        assert everything(sketch) == before
    other = row.partner(sketch, 2)
    holder = sketch.empty_like()
    holder.merge(part)
    with pytest.raises(InvalidInput, match=TWICE):
        sketch.merge(holder)
    sketch.merge(other)  # whoever was not merged yet still is
    assert sketch.partial_ids >= part.partial_ids | other.partial_ids
    assert len(sketch.partial_ids) == 3


@pytest.mark.parametrize("row", [row for row in MERGING if row.name.endswith("user")], ids=lambda row: row.name)
def test_stating_that_users_are_disjoint_does_not_let_a_partial_in_twice(row: Row) -> None:
    sketch = row.filled(0)
    part = row.partner(sketch, 1)
    sketch.merge(part, disjoint_users=True)
    with pytest.raises(InvalidInput, match="already in the sketch"):
        sketch.merge(part, disjoint_users=True)
    with pytest.raises(InvalidInput, match="already in the sketch"):
        sketch.merge(dps.load_sensitive(written(part)), disjoint_users=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ids_are_random_kept_in_files_and_never_released(row: Row) -> None:
    with seeded_noise_for_tests_only(1):
        one = row.filled(0)
    with seeded_noise_for_tests_only(1):
        two = row.filled(0)
    assert one.partial_ids.isdisjoint(two.partial_ids)  # whatever the records and the seed of the noise
    (own,) = one.partial_ids
    assert len(bytes.fromhex(own)) == 16
    row.add(one, 1)
    assert one.partial_ids == {own}
    assert dps.load_sensitive(written(one)).partial_ids == {own}
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


@pytest.mark.parametrize("row", [row for row in MERGING if not row.frames], ids=lambda row: row.name)
def test_a_task_that_spark_repeats_makes_another_partial(row: Row) -> None:
    """Each run's partial merges, since Spark takes one run's; the same one that came twice is refused."""
    tasks = pytest.importorskip("dpsketch.spark.tasks")
    sketch = row.filled(0)
    shared = {"include_secret": True} if row.name.startswith("moment") else {}
    prototype = sketch.empty_like().to_sensitive_bytes(**shared)

    def task_of(users: list[str]) -> Any:
        columns = {"point_0": [0.5, 1.0], "point_1": [1.0, 2.0]} if row.name.startswith("density") else {"key": [1, 2]}
        if row.name.startswith("counts"):
            columns = {"key": ["a", "b"]}
        if row.name.endswith("user"):
            columns["user"] = users
        (made,) = tasks.counting(prototype, disjoint_users=False)(iter([pa.RecordBatch.from_pydict(columns)]))
        return made

    one, repeated, other = task_of(["a", "b"]), task_of(["a", "b"]), task_of(["c", "d"])
    ids = [tasks.unpack(part.column("part")[0].as_py()).partial_ids for part in (one, repeated, other)]
    assert len(frozenset.union(*ids)) == 3
    for run in (one, repeated):
        merged, _ = tasks.merge_parts([run, other], disjoint_users=False)
        sketch.empty_like().merge(merged)
    with pytest.raises(InvalidInput, match=TWICE):
        tasks.merge_parts([one, other, one], disjoint_users=False)


def bitmap(keys: range) -> dps.PrivateDistinctBitmap:
    sketch = dps.DistinctSketch(unit=dps.per_record())
    sketch.update(keys)
    return sketch.release_mergeable(epsilon=4.0)


def test_a_released_bitmap_is_merged_once(tmp_path: Path) -> None:
    """Merged by exclusive or, a bitmap met again cancels out: a thousand keys would read 0."""
    one, other = bitmap(range(1000)), bitmap(range(1000, 2000))
    one.save(tmp_path / "one.dps")
    copied = dps.load(tmp_path / "one.dps")
    both = one.merge(other)
    for left, right in ((one, one), (one, copied), (both, one), (copied, both), (both, both)):
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
