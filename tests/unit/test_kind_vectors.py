"""Files of every kind that an earlier version wrote: they load, answer alike, and are written again to the byte."""

from __future__ import annotations

import json
from pathlib import Path

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
    # What is published day by day, or once, is a release of counts.
    assert released | {"counts-continual", "counts-pan-private"} == set(KINDS)
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
