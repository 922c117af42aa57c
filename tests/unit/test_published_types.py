"""What a release says of the type of its keys: what was stated, never what was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


def sparse(**options: Any) -> dps.SparseHistogram:
    return dps.SparseHistogram(**{"unit": dps.per_record(), "expected_keys": 50, **options})


def pan_private() -> dps.ContinualSketch:
    unit = dps.per_record()
    return dps.PanPrivateCountSketch(rows=5, width=64, unit=unit, epsilon=1.0, delta=1e-6, key_type="text")


@pytest.mark.parametrize("make", [counts, sparse])
@pytest.mark.parametrize("keys", [[], [None, None], ["tea"]])
def test_whether_there_is_any_key_does_not_show_in_a_release(make: Callable[[], Any], keys: Any) -> None:
    sketch = make()
    sketch.update(keys)
    assert sketch.release(epsilon=1.0, delta=0).spec.key_type is None


@pytest.mark.parametrize("make", [counts, sparse])
def test_a_column_of_integers_without_a_record_is_one_of_integers(make: Callable[[], Any]) -> None:
    sketch = make()
    sketch.update(pa.array([], pa.int64()))
    assert sketch.release(epsilon=1.0, delta=0).spec.key_type == "int"


def test_a_pan_private_sketch_without_keys_publishes_like_one_with_a_text() -> None:
    assert pan_private().publish().spec.key_type == "text"


@pytest.mark.parametrize("make", [counts, sparse])
def test_a_key_type_is_one_of_two(make: Callable[..., Any]) -> None:
    for wrong in ("float", ["int"], 5):
        with pytest.raises(InvalidInput, match="key_type"):
            make(key_type=wrong)


def test_no_release_tells_an_empty_stream_by_its_key_type() -> None:
    budget = {"epsilon": 1.0, "delta": 1e-6}
    makers = [
        lambda: dps.CountSketch(rows=3, width=8, unit=dps.per_record()),
        lambda: dps.MomentSketch(p=0.5, size=10, unit=dps.per_record()),
        lambda: dps.DistinctSketch(unit=dps.per_record()),
        lambda: dps.DistinctSet(unit=dps.per_record()),
    ]
    for make in makers:
        empty, one = make(), make()
        empty.update([])
        one.update(["a"])
        assert empty.release(**budget).spec == one.release(**budget).spec
    shows = dps.DensitySketch(kernel=dps.kernels.Jaccard(), rows=3, unit=dps.per_record())
    assert shows.release(**budget).spec.key_type is None


def test_a_sketch_that_was_never_given_a_batch_answers_for_either_type() -> None:
    private = dps.CountSketch(rows=3, width=8, unit=dps.per_record()).release(epsilon=1.0, delta=0)
    assert len(private.estimate([1, 2])) == len(private.estimate(["a", "b"])) == 2
