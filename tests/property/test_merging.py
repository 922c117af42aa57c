"""Parts of a dataset merge in any order to one pass over it; sums are exact, and moments stay within their ratio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files, noise
from dpsketch.privacy import per_record
from dpsketch.sketches.moment import MomentSpec
from oracles import moment as oracle
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
exponents = st.sampled_from([0.1, 0.5, 1.0])


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


@settings(max_examples=40)
@given(records, records, st.integers(0, 2**32))
def test_one_row_a_record_moves_one_counter(stream: list[Any], one: list[Any], seed: int) -> None:
    """With the same draws for the records they share, two neighbours differ in one counter: the last record's."""
    points = np.array([key for key, _ in stream], float).reshape(-1, 1)

    def table(more: int) -> np.ndarray:
        with noise.seeded_noise_for_tests_only(seed):
            sketch = dps.DensitySketch(kernel=RACE, rows=5, unit=per_record(), seed=1, placement="one_row")
            sketch.update(points)
            sketch.update(np.array([key for key, _ in one[:more]], float).reshape(-1, 1))
        return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])

    assert np.abs(table(1) - table(0)).sum() == len(one[:1])
    assert table(1).sum() == len(stream) + len(one[:1])


@settings(max_examples=100)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 5), st.floats(0.01, 7), exponents)
def test_a_record_more_stays_within_the_ratio(x: list[int], key: int, weight: float, p: float) -> None:
    spec = MomentSpec(p, 10, per_record(max_weight=7), public_total=0)
    y: list[float] = [*x, 0] if key >= len(x) else list(x)
    y[min(key, len(x))] += weight
    for floor in (0.01, 1.0, 50.0):
        assert (oracle.moment(y, p) + floor) / (oracle.moment(x, p) + floor) <= spec.ratio(floor)


signed = st.tuples(st.integers(0, 4), st.integers(-6, 6))
turnstile = st.sampled_from([0.25, 0.5, 1.0])


@settings(max_examples=100)
@given(st.lists(st.integers(-30, 30), min_size=2, max_size=5), signed, signed, turnstile)
def test_a_replaced_signed_record_stays_within_the_ratio(
    shared: list[int], old: tuple[int, int], new: tuple[int, int], p: float
) -> None:
    spec = MomentSpec(p, 10, per_record(max_weight=6, neighbours="replace"), stream="turnstile")
    x, y = list(shared), list(shared)
    x[old[0] % len(x)] += old[1]
    y[new[0] % len(y)] += new[1]
    for floor in (0.1, 1.0, 50.0):
        a, b = oracle.moment(x, p) + floor, oracle.moment(y, p) + floor
        assert max(a / b, b / a) <= spec.ratio(floor)
