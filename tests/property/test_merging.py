"""Parts of a dataset merge in any order to one pass over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.privacy import per_record
from sensitive import everything

UNIT = per_record(max_weight=3)
RACE = dps.kernels.Euclidean(1, 1.0)
# Narrow tables, so that keys share cells.
STARTED: dict[str, Any] = {
    "counts": dps.CountSketch(rows=3, width=5, unit=UNIT, seed=1, key_type="int"),
    "heavy": dps.HeavyHitters(rows=3, width=5, unit=UNIT, seed=1, key_bits=24),
    "ranges": dps.RangeSketch(rows=3, width=5, unit=UNIT, seed=1, bits=18),
    "sparse": dps.SparseHistogram(unit=UNIT, key_type="int"),
    "distinct": dps.DistinctSketch(unit=per_record(), buckets=16, key_type="int"),
    "density": dps.DensitySketch(kernel=RACE, rows=5, unit=per_record(), seed=1),
}
records = st.lists(st.tuples(st.sampled_from([0, 1, 2, 255, 256, 65537, 2**18 - 1]), st.integers(0, 5)), max_size=25)


def filled(kind: str, stream: list[tuple[int, int]]) -> Any:
    sketch = STARTED[kind].empty_like()
    keys, weights = ([record[i] for record in stream] for i in range(2))
    if kind == "density":
        sketch.update(np.array(keys, float).reshape(-1, 1))
    else:
        sketch.update(keys, **({} if kind == "distinct" else {"weights": weights}))
    return sketch


@pytest.mark.parametrize("kind", STARTED)
@settings(max_examples=25)
@given(stream=records, data=st.data())
def test_parts_merged_in_any_order_are_one_pass(kind: str, stream: list[tuple[int, int]], data: st.DataObject) -> None:
    """Every order and every nesting: two of what is left are merged until one is left."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    left = [filled(kind, stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    while len(left) > 1:
        one, other = (left.pop(data.draw(st.integers(0, len(left) - 1))) for _ in range(2))
        one.merge(other)
        left.append(one)
    assert everything(left[0]) == everything(filled(kind, stream))
