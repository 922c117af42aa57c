"""Vectors in a column of arrays on an executor: every map counts them as one machine does, to the bit.

The tasks take Arrow batches and are called here without a cluster; test_spark.py has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import dpsketch as dps
from dpsketch.spark import tasks
from sensitive import everything

VECTORS = np.random.default_rng(5).normal(size=(200, 3)).astype(np.float32)
LOST = np.arange(200) % 50 == 7
COLUMN = pa.array(
    [None if lost else row for row, lost in zip(VECTORS.tolist(), LOST, strict=True)], pa.list_(pa.float64())
)
BELL = dps.kernels.Gaussian(3, 1.0)
MAPS: dict[str, dict[str, Any]] = {
    "race": {"kernel": dps.kernels.Euclidean(3, 1.0), "rows": 20},
    "fourier": {"kernel": BELL, "rows": 20, "features": "fourier"},
    "nystrom": {"kernel": BELL, "features": "nystrom", "landmarks": np.eye(3)},
    "linear": {"kernel": dps.kernels.Linear(3)},
}


@pytest.mark.parametrize("name", MAPS)
def test_a_task_counts_vectors_as_one_machine_does(name: str) -> None:
    whole = dps.DensitySketch(unit=dps.per_record(), **MAPS[name])
    prototype = whole.empty_like().to_shared_bytes()
    whole.update(COLUMN)
    merged = whole.empty_like()
    for start, end in ((0, 7), (7, 90), (90, 200)):
        batch = pa.record_batch([COLUMN.slice(start, end - start)], names=["vector"])
        tally: Any = tasks.Counter()
        found = tasks._batch(batch, tally, merged.spec.dim, None)
        part = tasks.unpack(prototype).empty_like()
        tasks.feed(part, iter([found]))
        merged.merge(part)
        assert tally["records"] == end - start
    assert everything(merged) == everything(whole)
    assert merged.skipped_nulls == 4
