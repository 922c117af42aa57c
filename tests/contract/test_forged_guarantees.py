"""A file whose laws, receipt, arrays or guarantee someone changed is refused, of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
import forgery
from dpsketch import files
from dpsketch.errors import FileRefused
from sensitive import BUDGET, ROWS


def counts() -> Any:
    return dps.CountSketch(rows=3, width=8, unit=dps.per_record(), key_type="int")


def stream(sketch: Any, **given: Any) -> Any:
    made = dps.ContinualSketch(sketch, days=4, **BUDGET, **given)
    made.publish_day()
    return made


def bitmap() -> Any:
    return dps.DistinctSketch(buckets=16, unit=dps.per_user(2)).release_mergeable(epsilon=1.0)


def shares() -> list[Any]:
    return [counts().release(**BUDGET, share=dps.Share(2, 1.0, party)) for party in range(2)]


RECORD = dps.per_record()
MADE: dict[str, Callable[[], Any]] = {
    **{row.name: lambda row=row: row.publish(row.filled(0)) for row in ROWS},
    "a pure release": lambda: dps.HeavyHitters(rows=3, width=8, key_bits=16, unit=RECORD).release(epsilon=1.0, delta=0),
    "a release by rho": lambda: dps.RangeSketch(bits=18, rows=3, width=8, unit=RECORD).release(rho=0.1),
    "a share": lambda: shares()[0],
    "merged shares": lambda: dps.merge_releases(shares()),
    "a sum": lambda: counts().release(**BUDGET) + counts().release(**BUDGET),
    "a difference of days": lambda: (lambda days: days.publish_day() - days.between(1, 1))(stream(counts())),
    "a bitmap": bitmap,
    "merged bitmaps": lambda: bitmap().merge(bitmap()),
    "a window of ranges": lambda: stream(dps.RangeSketch(bits=6, unit=dps.per_user(2)), user_days=2).total(),
    "a window of a tree": lambda: stream(dps.HeavyHitters(rows=3, width=8, key_bits=16, unit=RECORD)).total(),
    "days of a list": lambda: stream(dps.Histogram(unit=RECORD, key_type="int"), keys=range(9)).series(),
    "days of found keys": lambda: stream(dps.Histogram(unit=RECORD, key_type="int")).series(),
    "days of users": lambda: stream(dps.Histogram(unit=dps.per_user(2), key_type="int"), user_days=2).series(),
    "seizable days": lambda: stream(counts(), design="pan-private").series(),
}
STATES: dict[str, Callable[[], Any]] = {
    "a stream": lambda: stream(counts()),
    "a stream of users": lambda: stream(dps.RangeSketch(bits=6, unit=dps.per_user(2)), user_days=2),
    "a stream of found keys": lambda: stream(dps.Histogram(unit=RECORD, key_type="int")),
    "a seizable stream": lambda: stream(counts(), design="pan-private"),
    "a pan-private sketch": lambda: dps.PanPrivateCountSketch(rows=3, width=8, unit=RECORD, key_type="int", **BUDGET),
}


@pytest.mark.parametrize("name", MADE)
def test_a_forged_release_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "forged.dps"
    release = MADE[name]()
    release.save(path)
    document = files.read(path, allow_sensitive=False)
    assert dps.load(path).guarantee == release.guarantee
    tried = 0
    for what, header in forgery.headers(document.header):
        files.write(path, replace(document, header=header))
        with pytest.raises(FileRefused):
            pytest.fail(f"{what}: {dps.load(path).guarantee}")
        tried += 1
    assert tried > 10


@pytest.mark.parametrize("name", STATES)
def test_a_forged_state_is_refused(name: str) -> None:
    """What was paid for a stream is in its sensitive file, and it goes on by that."""
    document = files.decode(STATES[name]().to_sensitive_bytes(), allow_sensitive=True)
    assert dps.load_sensitive(files.encode(document))
    for what, header in forgery.headers(document.header):
        with pytest.raises(FileRefused):
            pytest.fail(f"{what}: {dps.load_sensitive(files.encode(replace(document, header=header))).guarantee}")


def other_arrays(arrays: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Arrays that no law drew: one less, one more, renamed, of another type, and of another shape."""
    found: dict[str, dict[str, Any]] = {"one more": {**arrays, "more": np.zeros(1)}}
    for name, array in arrays.items():
        rest = {each: other for each, other in arrays.items() if each != name}
        found |= {f"no {name}": rest, f"{name} renamed": {**rest, f"{name}x": array}}
        listed = isinstance(array, list) and isinstance((*array, "")[0], str)
        found[f"{name} of another list"] = {**arrays, name: [b"a", b"b"] if listed else ["a", "b"]}
        if isinstance(array, np.ndarray):
            other = np.float32 if array.dtype.kind == "f" else np.bool_
            found[f"{name} of another type"] = {**arrays, name: np.zeros(array.shape, other)}
            found[f"{name} of another shape"] = {**arrays, name: np.zeros((*array.shape, 2), array.dtype)}
    return found


@pytest.mark.parametrize("name", MADE)
def test_arrays_that_were_not_drawn_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "forged.dps"
    MADE[name]().save(path)
    document = files.read(path, allow_sensitive=False)
    if "receipts" not in document.header:
        return
    for what, arrays in other_arrays(dict(document.arrays)).items():
        files.write(path, replace(document, arrays=arrays))
        with pytest.raises(FileRefused):
            pytest.fail(f"{what}: {dps.load(path)}")


def test_moments_of_two_streams_are_refused(tmp_path: Path) -> None:
    """The moments of a profile differ in p alone: the law of one of them cannot be for another stream."""
    profile = dps.MomentProfile(p=[0.5, 1], size=20, unit=dps.per_record())
    document = profile.release(epsilon=4.0, delta=0).to_document()
    for changed in ({"p": 1.5}, {"sums": 30}, {"step": 1.0}, {"public_total": 9.0}):
        header = json.loads(json.dumps(document.header))
        header["receipts"][0]["laws"][1]["table"].update(changed)
        files.write(tmp_path / "forged.dps", replace(document, header=header))
        with pytest.raises(FileRefused):
            pytest.fail(f"{changed}: {dps.load(tmp_path / 'forged.dps')}")
