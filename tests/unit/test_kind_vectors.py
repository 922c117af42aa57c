"""Files of every kind that an earlier version wrote: they load, answer alike, and are written again to the byte."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.kinds import KINDS
from kind_vectors import FOLDER, answers, plain

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


@pytest.mark.parametrize("all_files", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_file_is_read_where_no_other_was(all_files: bool, tmp_path: Path) -> None:
    """Each in a process of its own: vectors, windows of streams of every kind and design, sums and merges.

    The quick suite leaves out second files of a kind, and sensitive files of kinds that draw nothing before a release.
    """
    unit = dps.per_record()
    made: dict[str, Any] = {}
    counted = [dps.RangeSketch(bits=6, unit=unit), dps.HeavyHitters(rows=3, width=8, key_bits=16, unit=unit)]
    designs = ("recurrence", "banded", "blocks", "pan-private")
    for number, (sketch, design) in enumerate(itertools.product(counted, designs)):
        if all_files or number in (0, 3, 5, 6):
            stream = dps.ContinualSketch(sketch, days=4, epsilon=1.0, delta=1e-6, design=design)  # type: ignore[arg-type]
            made[f"{design} {sketch.kind}"] = stream.publish_day()
            made[f"{design} {sketch.kind} series"] = stream.series()
    counts = [dps.CountSketch(rows=3, width=8, unit=unit).release(epsilon=1.0, delta=1e-6) for _ in range(2)]
    bitmaps = [dps.DistinctSketch(buckets=16, unit=unit).release_mergeable(epsilon=1.0) for _ in range(2)]
    made |= {"sum": counts[0] + counts[1], "merged bitmaps": bitmaps[0].merge(bitmaps[1])}
    for name, release in made.items():
        release.save(tmp_path / f"{name}.dps")
    vectors = RELEASES + SKETCHES
    if not all_files:
        drawing = [path for path in SKETCHES if path.stem.startswith(("continual", "counts-", "moment"))]
        vectors = [path for path in RELEASES + drawing if not path.stem.endswith("-user")]
    script = Path(__file__).parents[1] / "alone.py"
    command = [sys.executable, script, *vectors, *tmp_path.iterdir()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
