"""A million vectors of 384 dimensions in flat memory: rate on one core, and how far memory grows.

``python -m benchmarks.vectors [--records 1000000]`` feeds half-precision vectors, batch by batch, to class sums
(``partial_fit``) and to a density of linear features, from NumPy arrays and from a Parquet file of fixed-size lists. It
prints records for each second of processor time and the growth of the process's largest memory.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

import dpsketch as dps

DIM, BATCH, CLASSES = 384, 1 << 13, 77


def batches(records: int) -> Iterator[tuple[npt.NDArray[np.float16], npt.NDArray[np.int64]]]:
    """Yield half-precision vectors of length about 1, and labels."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=(BATCH, DIM))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    half, labels = base.astype(np.float16), rng.integers(0, CLASSES, BATCH)
    for start in range(0, records, BATCH):
        n = min(BATCH, records - start)
        yield np.roll(half, start // BATCH, axis=1)[:n], labels[:n]


def parquet(path: Path, records: int) -> Iterator[tuple[Any, npt.NDArray[np.int64]]]:
    """Yield the batches of a Parquet file with a column of fixed-size lists of half-precision numbers."""
    schema = pa.schema({"vector": pa.list_(pa.float16(), DIM), "label": pa.int64()})
    with pa.parquet.ParquetWriter(path, schema, compression="none") as writer:
        for vectors, labels in batches(records):
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
            writer.write_table(pa.table({"vector": column, "label": labels}, schema=schema))
    for batch in pa.parquet.ParquetFile(path).iter_batches(batch_size=BATCH):
        yield batch.column("vector"), batch.column("label").to_numpy()


def class_sums() -> Callable[[Any, Any], Any]:
    """Return a step of a classifier by class sums."""
    model = dps.DensityClassifier(epsilon=1.0, delta=1e-6, classes=range(CLASSES))
    return model.partial_fit


def linear() -> Callable[[Any, Any], Any]:
    """Return a step of a density of linear features."""
    sketch = dps.DensitySketch(kernel=dps.kernels.Linear(DIM), unit=dps.per_record())
    return lambda vectors, labels: sketch.update(vectors)


def measured(step: Callable[[Any, Any], Any], source: Iterator[tuple[Any, Any]]) -> tuple[float, float]:
    """Return records a second of processor time inside the step, and mebibytes by which the largest memory grew."""
    step(*next(source))  # compiles
    before, spent, records = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    for vectors, labels in source:
        started = time.process_time()
        step(vectors, labels)
        spent += time.process_time() - started
        records += len(labels)
    return records / spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=1_000_000)
    asked = options.parse_args()
    held = asked.records * DIM * 8 / 2**20
    with tempfile.TemporaryDirectory() as folder:
        for name, step, source in (
            ("class sums, NumPy", class_sums(), batches(asked.records)),
            ("linear features, NumPy", linear(), batches(asked.records)),
            ("linear features, Parquet", linear(), parquet(Path(folder) / "vectors.parquet", asked.records // 10)),
        ):
            rate, grown = measured(step, source)
            print(
                f"{name}: {rate:,.0f} records/s; memory grew by {grown:.0f} MiB (all at once: {held:,.0f})", flush=True
            )


if __name__ == "__main__":
    main()
