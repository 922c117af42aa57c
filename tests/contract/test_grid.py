"""A record without a stated weight has weight 1, and a grid that cannot hold it is refused in every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.sketches.countsketch import CountSketchSpec

UNIT = dps.per_record(max_weight=9)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
TABLE = {"rows": 3, "width": 64, "key_type": "int"}
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "counts": (dps.CountSketch, TABLE),
    "continual": (dps.ContinualCountSketch, {"days": 4, **TABLE, **BUDGET}),
    "pan-private": (dps.PanPrivateCountSketch, TABLE | BUDGET),
    "heavy": (dps.HeavyHitters, {"rows": 3, "width": 64, "key_bits": 16}),
    "ranges": (dps.RangeSketch, {"bits": 8}),
    "quantiles": (dps.QuantileSketch, {"bits": 8, "quantiles": [0.5]}),
    "sparse": (dps.SparseHistogram, {"domain": 2**20, "max_value": 100}),
    "moment": (dps.MomentSketch, {"p": 0.5, "size": 20}),
    "moments": (dps.MomentProfile, {"p": [0.5, 1], "size": 20}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_holds_weight_1_or_is_refused(kind: str) -> None:
    start, shape = KINDS[kind]
    for step in (3, 0.67, 0.3, 1.5):
        with pytest.raises(InvalidInput, match="whole number of steps"):
            start(unit=UNIT, grid=step, **shape)
    for unit, step in ((UNIT, 0.1), (dps.per_record(max_weight=0.75), 0.5)):
        start(unit=unit, grid=step, **shape).update([5, 5, 7])


def test_a_release_on_such_a_grid_can_still_be_read(tmp_path: Any) -> None:
    """Earlier versions wrote them, for weights that are multiples of the step."""
    spec = CountSketchSpec(unit=UNIT, grid=3, **TABLE)
    sketch = dps.CountSketch.from_spec(spec)
    sketch.update([5], weights=[9.0])
    sketch.release(**BUDGET).save(tmp_path / "coarse.dps")
    assert dps.load(tmp_path / "coarse.dps").spec == spec
    with pytest.raises(InvalidInput, match="whole number of steps"):
        sketch.update([5])
