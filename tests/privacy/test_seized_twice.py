"""What a seized stream must not have lying beside it, count twice, or promise by a forged file."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.kinds import load
from dpsketch.sketches.continual.folder import StreamFolder

KILLED = """
import os, pathlib, sys
from dpsketch.sketches.continual.folder import StreamFolder
folder = StreamFolder(sys.argv[1])
sketch = folder.load()
sketch.update(["a"] * 7)
pathlib.Path.replace = lambda *_: os._exit(9)
folder.publish(sketch)
"""


def stream(unit: Any = None, **given: Any) -> dps.ContinualSketch:
    options: dict[str, Any] = {"days": 365, "epsilon": 1.0, "delta": 1e-6, **given}
    counted = dps.Histogram(unit=unit or dps.per_record(), key_type="text")
    return dps.ContinualSketch(counted, keys=["a", "b"], **options)


def test_killed_while_it_writes_no_second_state_is_left(tmp_path: Path) -> None:
    """The two would differ by the records of a day, exactly: the same noise is under both."""
    folder = StreamFolder(tmp_path)
    folder.begin(stream(design="pan-private"))
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == 9
    assert len(list(tmp_path.glob("*.tmp"))) == 1
    StreamFolder(tmp_path).load()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stream.lock", "stream.sketch"]


@pytest.mark.parametrize("design", [None, "pan-private"])
def test_no_part_is_merged_twice_by_a_copy_or_within_another(design: Any) -> None:
    sketch = stream(design=design)
    part, other = sketch.empty_day(), sketch.empty_day()
    part.update(["a"])
    other.merge(part)
    twin = type(part).from_sensitive_bytes(part.to_sensitive_bytes())
    sketch.merge_today(other)
    for again in (part, twin):
        with pytest.raises(InvalidInput, match="already in the sketch"):
            sketch.merge_today(again)
    sketch.publish_day()
    with pytest.raises(InvalidInput, match="already in the sketch"):
        dps.ContinualSketch.from_sensitive_bytes(sketch.to_sensitive_bytes()).merge_today(twin)


def test_a_series_promises_in_words_what_its_noise_pays_for() -> None:
    """Its limits are read from one place and printed from another: they must agree."""
    unit = dps.per_user(max_keys=2)
    sketch = stream(unit, user_days=12, days_apart=30)
    sketch.day(["a"] * 3, users=[1, 2, 3])
    document = sketch.series().to_document()
    less, seized, silent, fewer = (copy.deepcopy(document.header) for _ in range(4))
    less["limits"] = fewer["limits"] = [1, 1]
    fewer["receipt"]["laws"][0] |= {"days": 1, "apart": 1}
    seized["guarantee"]["caveat"] += " It holds against one seizure of the state."
    silent["guarantee"]["caveat"] = None
    for header in (less, seized, silent, fewer):
        with pytest.raises(FileRefused, match="guarantee"):
            load(files.encode(replace(document, header=header)))
    assert load(files.encode(document)).guarantee == sketch.guarantee
