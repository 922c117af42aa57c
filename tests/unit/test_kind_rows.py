"""The table of kinds: each row names what exists, agrees with the classes it names, and loads nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.answers import answer, describe
from dpsketch.errors import InvalidInput
from dpsketch.kinds import KINDS
from dpsketch.release import Release
from dpsketch.server.models import ReleaseView, ReleaseWhole
from dpsketch.server.releases import Served

RECORD = dps.per_record()
BUDGET: dict[str, float] = {"epsilon": 4.0, "delta": 1e-6}
KEYS = [1, 2, 2, 3] * 50


def _counted(sketch: Any, records: Any = KEYS) -> Any:
    sketch.update(records)
    return sketch


def _density() -> Release:
    kernel = dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    sketch = dps.DensitySketch(kernel=kernel, rows=20, unit=RECORD, bounds=[(0, 1), (0, 1)])
    sketch.update([[0.5, 0.5]] * 20)
    return sketch.release(**BUDGET)


def _local() -> Release:
    protocol = dps.local.SubsetHashing(epsilon=4.0, max_items=2)
    return protocol.collector().add(protocol.report([["a"], ["b"]] * 50))


def _days(days: int) -> Any:
    stream = dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="int"), keys=range(4), days=3, **BUDGET)
    for _ in range(days):
        stream.day(KEYS)
    return stream


MADE: dict[str, Any] = {
    "table": lambda: _counted(dps.Table(by="key"), pa.table({"key": KEYS})).release(**BUDGET),
    "continual": lambda: _counted(_days(0)).publish_day(),
    "series": lambda: _days(2).series(),
    "histogram": lambda: _counted(dps.Histogram(unit=RECORD)).release(**BUDGET),
    "histogram-votes": lambda: _counted(dps.VoteHistogram(unit=RECORD, max_counters=64)).release(**BUDGET),
    "counts": lambda: _counted(dps.CountSketch(rows=5, width=4096, unit=RECORD)).release(**BUDGET),
    "heavy": lambda: _counted(dps.HeavyHitters(rows=5, width=64, key_bits=8, unit=RECORD)).release(**BUDGET),
    "sparse": lambda: _counted(dps.SparseHistogram(unit=RECORD)).release(epsilon=4.0, delta=0),
    "moment": lambda: _counted(dps.MomentSketch(p=0.5, size=20, unit=RECORD)).release(**BUDGET),
    "moments": lambda: _counted(dps.MomentProfile(p=[0.5, 1], size=20, unit=RECORD)).release(**BUDGET),
    "density": _density,
    "distinct": lambda: _counted(dps.DistinctSketch(unit=RECORD)).release(**BUDGET),
    "distinct-set": lambda: _counted(dps.DistinctSet(unit=RECORD)).release(**BUDGET),
    "distinct-bitmap": lambda: _counted(dps.DistinctSketch(unit=RECORD)).release_mergeable(epsilon=4.0),
    "local": _local,
    "ranges": lambda: _counted(dps.RangeSketch(bits=4, unit=RECORD)).release(**BUDGET),
    "quantiles": lambda: _counted(dps.QuantileSketch(bits=4, unit=RECORD, quantiles=[0.5])).release(**BUDGET),
}
ASKED: dict[str, list[Any]] = {"keys": [2], "range": ["1:2", "50%"], "point": ["0.5,0.5"], "statement": []}


@pytest.fixture(scope="module")
def made() -> dict[str, Release]:
    return {name: make() for name, make in MADE.items()}


def test_every_kind_that_publishes_under_its_name_is_made_here() -> None:
    assert set(MADE) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_row_names_what_exists(name: str) -> None:
    row = KINDS[name]
    assert row.name == name
    assert issubclass(row.private, Release)
    assert row.sensitive is None or row.sensitive.__module__.startswith("dpsketch.sketches.")
    assert row.spec is None or (row.spec.from_json and row.sensitive.from_spec)
    if row.questions:
        assert row.plan_path is not None
        assert row.suits
        assert KINDS[row.command or name].has_command
    if row.instead is not None:
        assert set(row.questions) <= set(KINDS[row.instead].questions)
        assert KINDS[row.instead].instead is None


@pytest.mark.parametrize("name", MADE)
def test_a_release_answers_what_its_row_says(made: dict[str, Release], name: str) -> None:
    release, row = made[name], KINDS[name]
    assert release.kind == name
    assert isinstance(release, row.private)
    for one in row.answers:
        if one in ASKED:
            asked = ["a"] if name == "local" else ASKED[one]
            found = answer(release, asked, 0.9, None)
            assert len(found) == max(1, len(asked)) or name == "moments"
            assert found.counts == release.counts
            if name != "local":  # shares of people, clipped by their devices
                assert release.counts.startswith(release.guarantee.unit.counts)
        else:
            assert callable(getattr(release, one))
    with pytest.raises(InvalidInput, match="ask it without keys" if row.answers == ("statement",) else "at least one"):
        answer(release, ["x"] if row.answers == ("statement",) else [], 0.9, None)


@pytest.mark.parametrize("name", MADE)
def test_a_release_is_drawn_and_described(made: dict[str, Release], name: str, tmp_path: Path) -> None:
    release = made[name]
    candidates: list[Any] = ["a", "b"] if name == "local" else [1, 2]
    assert release.picture(candidates, 2).axes
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


@pytest.mark.parametrize(("name", "own"), [("counts", "sketches.countsketch"), ("local", "local")])
def test_a_query_loads_its_own_kind_only(made: dict[str, Release], name: str, own: str, tmp_path: Path) -> None:
    made[name].save(tmp_path / "it.dps")
    asked = ["2", "--key-type", "int"] if name == "counts" else ["a"]
    script = f"""
import sys
sys.argv = ["dpsketch", "query", {str(tmp_path / "it.dps")!r}, *{asked!r}]
from dpsketch.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("LOADED", *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split("LOADED", 1)[1].split())
    homes = {f"sketches.{each.sensitive.__module__.split('.')[2]}" for each in KINDS.values() if each.sensitive}
    homes = homes - {"sketches.continual"} | {"local"}
    assert {home for home in homes if f"dpsketch.{home}" in loaded} == {own}
    assert not loaded & {"pandas", "polars", "matplotlib", "duckdb", "dp_accounting", "dpsketch.cli.run"}
    if name == "counts":
        # A few keys are hashed and read without the compiler, and a table of many cells needs no special function.
        assert not loaded & {"numba", "scipy"}
