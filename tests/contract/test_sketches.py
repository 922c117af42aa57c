"""Promises of every sensitive sketch: it leaks nothing, comes back from its file, merges, and counts nobody twice.

A release says the same after it was written and read, and a second one has nothing of the first.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.audit.sampled import PROTOCOLS
from dpsketch.errors import InvalidInput, ReleaseRefused, SensitiveData, SpecMismatch
from dpsketch.noise import RoundedGaussian, seeded_noise_for_tests_only
from sensitive import MERGING, ROWS, Row, copied, everything, written

# Kinds whose spec decides all; a stream and a pan-private state hold noise, and votes depend on the order of records.
PLAIN = [row for row in MERGING if row.name != "pan-private"]
ORDERLESS = [row for row in PLAIN if not row.name.startswith("moment") and "votes" not in row.name]
BOUNDED_AT_RELEASE = ("histogram user", "histogram auto user", "distinct-set user")
ONCE = [row for row in PLAIN if row.name.endswith("user") and not (row.name in BOUNDED_AT_RELEASE or row.frames)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_sensitive_sketch_does_not_leak_by_accident(row: Row, tmp_path: Path) -> None:
    sketch = row.filled(0)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SensitiveData):
            leak(sketch)
    assert "sensitive" in repr(sketch)
    if row in PLAIN:
        # A frame states the types of its columns, which are in the spec.
        assert repr(sketch) == repr(row.filled(1) if row.frames else row.start())
    path = tmp_path / "part.sketch"
    sketch.save_sensitive(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SensitiveData):
        dps.load(path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_sketch_goes_on_from_its_file(row: Row) -> None:
    sketch = row.seeded(0)
    again = dps.load_sensitive(written(sketch))
    assert type(again) is type(sketch)
    for which in (None, 1):
        if which is not None:
            row.add(sketch, which)
            row.add(again, which)
        assert everything(again) == everything(sketch)
    for name in ("cut", "skipped_nulls", "clipped_users"):
        assert getattr(again, name, None) == getattr(sketch, name, None)


@pytest.mark.parametrize("row", ORDERLESS, ids=lambda row: row.name)
def test_merging_is_one_pass(row: Row) -> None:
    merged, whole = row.seeded(0), row.seeded(0, 1)
    merged.merge(row.partner(merged, 1))
    assert everything(merged) == everything(whole)


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
def test_what_is_not_alike_does_not_merge(row: Row) -> None:
    sketch = row.filled(0)
    before = everything(sketch)
    unit = replace(sketch.spec.unit, neighbours="replace")
    with pytest.raises(SpecMismatch, match=r"unit differs .* Build both sketches from one spec"):
        sketch.merge(type(sketch).from_spec(replace(sketch.spec, unit=unit)))
    other = next(each for each in PLAIN if each.name.split()[0] != row.name.split()[0]).start()
    with pytest.raises(SpecMismatch, match="cannot merge a"):
        sketch.merge(other)
    if unit.level == "record":
        with pytest.raises(InvalidInput, match="per_user"):
            sketch.merge(row.partner(sketch, 1), disjoint_users=True)
    assert everything(sketch) == before


@pytest.mark.parametrize("row", ONCE, ids=lambda row: row.name)
def test_nobody_is_counted_twice(row: Row) -> None:
    sketch = row.filled(0)
    before = everything(sketch)
    part = row.partner(sketch, 0)
    for some in (sketch, copied(sketch)):
        with pytest.raises(InvalidInput, match="counted before"):
            row.add(some, 0)
        with pytest.raises(InvalidInput, match="in both sketches"):
            some.merge(part)
        assert everything(some) == before
    sketch.merge(part, disjoint_users=True)
    for some in (copied(sketch), *(() if row.name.startswith("moment") else (sketch,))):  # whose copies share a secret
        assert "not checked" in row.publish(some).guarantee.caveat


def arrays_of(release: Any) -> dict[str, Any]:
    return {
        f"{name} {each}": array for name, part in release.drawn.parts.items() for each, array in part.arrays.items()
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_release_is_what_its_file_says(row: Row, tmp_path: Path) -> None:
    release = row.publish(row.filled(0))
    assert release.guarantee.holds
    release.save(tmp_path / "some.dps")
    written = files.encode(release.to_document())
    for again in (dps.load(tmp_path / "some.dps"), pickle.loads(pickle.dumps(release))):
        assert type(again) is type(release)
        assert (again.spec, again.guarantee) == (release.spec, release.guarantee)
        assert files.encode(again.to_document()) == written
    for some in (release, dps.load(tmp_path / "some.dps")):
        arrays = [array for array in arrays_of(some).values() if isinstance(array, np.ndarray)]
        assert not any(array.flags.writeable for array in arrays)
    with seeded_noise_for_tests_only(3):
        assert not row.publish(row.filled(0)).guarantee.holds


# Two releases of one sketch: the second has nothing of the first but the data.

# All that a release draws comes from one source of bits. With the same bits a release comes out the same, also after
# another one that had other bits. So the second of two releases is a function of the data and of its own bits, which
# are fresh, and what two releases tell together is what their costs add up to.
# What is published of a stream, or of a memory that may be seized, goes on from what was published before: its laws
# are held in their own tests. A moment's secret is drawn once, and its release ends it.
GOES_ON = {"continual", "continual histogram", "pan-private"}
ENDS = {"moment", "moments"}
AGAIN = [row for row in ROWS if row.name not in GOES_ON and row.name.split()[0] not in ENDS]


def published(row: Row, sketch: Any, seed: int) -> dict[str, Any]:
    """What a release with these bits shows, part by part."""
    with seeded_noise_for_tests_only(seed):
        # So few records pass a threshold only where δ is large.
        release = sketch.release(epsilon=0.5, delta=0.4) if sketch.kind.startswith("histogram") else row.publish(sketch)
    document = release.to_document()
    parts = {name: np.asarray(array).tolist() for name, array in document.arrays.items()}
    return parts | {name: value for name, value in document.header.items() if name not in ("guarantee", "charge")}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", AGAIN, ids=lambda row: row.name)
def test_a_second_release_has_nothing_of_the_first(row: Row) -> None:
    sketch = row.filled(0, 1)
    first, second = published(row, sketch, 1), published(row, sketch, 2)
    assert second == published(row, row.filled(0, 1), 2)
    assert first == published(row, row.filled(0, 1), 1)
    assert first != second


@pytest.mark.parametrize("row", [row for row in ROWS if row.name.split()[0] in ENDS], ids=lambda row: row.name)
def test_where_a_release_ends_the_sketch_there_is_no_second(row: Row) -> None:
    """Nor of a copy."""
    sketch = row.filled(0)
    copy = copied(sketch)
    row.publish(sketch)
    for again in (sketch, copy):
        with pytest.raises(ReleaseRefused):
            row.publish(again)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_second_report_has_nothing_of_the_first(name: str) -> None:
    make, held, _ = PROTOCOLS[name]

    def reported(protocol: Any, seed: int) -> Any:
        with seeded_noise_for_tests_only(seed):
            return protocol.report([held] * 50).to_pylist()

    protocol = make(1.0)
    first, second = reported(protocol, 1), reported(protocol, 2)
    assert second == reported(make(1.0), 2)
    assert first != second


def test_noise_that_is_kept_for_the_next_release_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[Any, Any] = {}
    drawn = RoundedGaussian.sample
    monkeypatch.setattr(RoundedGaussian, "sample", lambda law, size: kept.setdefault((law, size), drawn(law, size)))
    row = next(row for row in AGAIN if row.name == "counts record")
    with pytest.raises(AssertionError):
        test_a_second_release_has_nothing_of_the_first(row)
