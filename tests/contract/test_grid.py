"""A record without a stated weight has weight 1, and a grid that cannot hold it is refused in every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.sketches.countsketch import CountSketchSpec

HEAVY_RECORDS = dps.per_record(max_weight=9)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

KINDS: dict[str, Callable[..., Any]] = {
    "counts": lambda **given: dps.CountSketch(rows=3, width=64, **given),
    "continual": lambda **given: dps.ContinualCountSketch(days=4, rows=3, width=64, key_type="int", **BUDGET, **given),
    "pan-private": lambda **given: dps.PanPrivateCountSketch(rows=3, width=64, key_type="int", **BUDGET, **given),
    "heavy": lambda **given: dps.HeavyHitters(rows=3, width=64, key_bits=16, **given),
    "ranges": lambda **given: dps.RangeSketch(bits=8, **given),
    "quantiles": lambda **given: dps.QuantileSketch(bits=8, quantiles=[0.5], **given),
    "sparse": lambda **given: dps.SparseHistogram(domain=2**20, max_value=100, **given),
    "moment": lambda **given: dps.MomentSketch(p=0.5, size=20, **given),
    "moments": lambda **given: dps.MomentProfile(p=[0.5, 1], size=20, **given),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [3, 0.67, 0.3, 1.5])
def test_a_grid_that_does_not_hold_weight_1_is_refused(kind: str, step: float) -> None:
    with pytest.raises(InvalidInput, match="whole number of steps"):
        KINDS[kind](unit=HEAVY_RECORDS, grid=step)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "step"), [(HEAVY_RECORDS, 0.1), (dps.per_record(max_weight=0.75), 0.5)])
def test_one_that_divides_1_and_one_that_clips_it_are_taken(kind: str, unit: dps.Unit, step: float) -> None:
    KINDS[kind](unit=unit, grid=step).update([5, 5, 7])


def test_a_release_on_such_a_grid_can_still_be_read(tmp_path: Any) -> None:
    """Earlier versions wrote them, for weights that are multiples of the step."""
    spec = CountSketchSpec(3, 64, HEAVY_RECORDS, grid=3, key_type="int")
    sketch = dps.CountSketch.from_spec(spec)
    sketch.update([5], weights=[9.0])
    sketch.release(**BUDGET).save(tmp_path / "coarse.dps")
    assert dps.load(tmp_path / "coarse.dps").spec == spec
    with pytest.raises(InvalidInput, match="whole number of steps"):
        sketch.update([5])
