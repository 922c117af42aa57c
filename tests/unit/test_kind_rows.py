"""A release of every kind answers what its row says; files of every kind that an earlier version wrote are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.answers import answer, describe
from dpsketch.errors import InvalidInput
from dpsketch.kinds import KINDS
from dpsketch.release import Release
from dpsketch.server.models import ReleaseView, ReleaseWhole
from dpsketch.server.releases import Served
from kind_vectors import FOLDER, answers, plain

# One vector of each kind; of histograms the one that has whole numbers as keys.
VECTORS = {name: name for name in KINDS} | {"histogram": "histogram-user"}
KEY = {"local": "a", "table": "k1", "histogram-votes": "the key of number 1"}  # elsewhere 2
ASKED: dict[str, list[Any]] = {"keys": [], "range": ["1:2", "50%"], "point": ["0.5,0.5"], "statement": []}


@pytest.fixture(scope="module")
def made() -> dict[str, Release]:
    found = {name: dps.load(FOLDER / f"{vector}.dps") for name, vector in VECTORS.items()}
    kernel = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    plane = dps.DensitySketch(kernel=kernel, rows=20, unit=dps.per_record(), bounds=[(0, 1), (0, 1)])
    return found | {"density": plane.release(epsilon=4.0, delta=1e-6)}  # that of the vector has no bounds to draw


@pytest.mark.parametrize("name", KINDS)
def test_a_release_answers_what_its_row_says(made: dict[str, Release], name: str) -> None:
    release, row = made[name], KINDS[name]
    assert release.kind == name
    assert isinstance(release, row.private)
    for one in row.answers:
        if one in ASKED:
            asked = [KEY.get(name, 2)] if one == "keys" else ASKED[one]
            found = answer(release, asked, 0.9, None)
            assert len(found) == max(1, len(asked)) or name in ("moments", "quantiles", "table")
            assert found.counts == release.counts
            if name != "local":  # shares of people, clipped by their devices
                assert release.counts.startswith(release.guarantee.unit.counts)
        else:
            assert callable(getattr(release, one))
    with pytest.raises(InvalidInput, match="ask it without keys" if row.answers == ("statement",) else "at least one"):
        answer(release, ["x"] if row.answers == ("statement",) else [], 0.9, None)


@pytest.mark.parametrize("name", KINDS)
def test_a_release_is_drawn_and_described(made: dict[str, Release], name: str, tmp_path: Path) -> None:
    release = made[name]
    assert release.picture([KEY.get(name, 2)], 2).axes
    release.save(tmp_path / "it.dps")
    again = dps.load(tmp_path / "it.dps")
    assert type(again) is type(release)
    facts = describe(again, 1)
    assert facts["kind"] == name
    assert isinstance(facts["spec"], dict)
    served = Served("id", "name", name, 1, None, None, release)  # and the service says of it what it promises to
    place = {"version": 1, "versions": 1}
    ReleaseView.model_validate(served.view() | place)
    ReleaseWhole.model_validate(served.whole() | place)


RELEASES = sorted(FOLDER.glob("*.dps"))
SKETCHES = sorted(FOLDER.glob("*.sketch"))


def test_every_kind_has_its_vectors() -> None:
    released = {files.decode(path.read_bytes(), allow_sensitive=False).kind for path in RELEASES}
    kept = {files.decode(path.read_bytes(), allow_sensitive=True).kind for path in SKETCHES}
    assert released == set(KINDS)
    assert kept == {name for name, kind in KINDS.items() if kind.sensitive is not None}


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_a_release_answers_as_it_did_and_is_written_again(path: Path) -> None:
    release = dps.load(path)
    assert plain(answers(release)) == json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert files.encode(release.to_document()) == path.read_bytes()


@pytest.mark.parametrize("path", SKETCHES, ids=lambda path: path.stem)
def test_a_sketch_is_written_again(path: Path) -> None:
    sketch = dps.load_sensitive(path)
    secret = {"include_secret": True} if path.stem.startswith("moment") else {}
    assert sketch.to_sensitive_bytes(**secret) == path.read_bytes()


def test_a_file_is_read_where_no_other_was(tmp_path: Path) -> None:
    """Each in a process of its own: one file of each module of laws, windows of streams, sums and merges."""
    unit = dps.per_record()
    made: dict[str, Any] = {}
    ranges = dps.RangeSketch(bits=6, unit=unit)
    heavy = dps.HeavyHitters(rows=3, width=8, key_bits=16, unit=unit)
    for sketch, design in ((ranges, "recurrence"), (ranges, "pan-private"), (heavy, "banded"), (heavy, "blocks")):
        stream = dps.ContinualSketch(sketch, days=4, epsilon=1.0, delta=1e-6, design=design)  # type: ignore[arg-type]
        made |= {design: stream.publish_day(), f"{design} series": stream.series()}
    counts = [dps.CountSketch(rows=3, width=8, unit=unit).release(epsilon=1.0, delta=1e-6) for _ in range(2)]
    bitmaps = [dps.DistinctSketch(buckets=16, unit=unit).release_mergeable(epsilon=1.0) for _ in range(2)]
    made |= {"sum": counts[0] + counts[1], "merged bitmaps": bitmaps[0].merge(bitmaps[1])}
    for name, release in made.items():
        release.save(tmp_path / f"{name}.dps")
    few = ("series", "counts-share", "density", "distinct-bitmap", "heavy", "local", "moments", "sparse", "table.")
    vectors = [path for path in RELEASES + SKETCHES if path.name.startswith(few)]
    script = Path(__file__).parents[1] / "alone.py"
    command = [sys.executable, script, *vectors, *tmp_path.iterdir()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
