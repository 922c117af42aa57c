"""From a file to a sketch: Parquet beside the same keys in memory, CSV beside what Arrow alone takes to read it.

Reading must not cost more than counting. ``python -m benchmarks.end_to_end [ROWS]``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import dpsketch as dps
from dpsketch.sources import Columns, open_source

ROWS = 10_000_000
REPEATS = 3


def _sketch() -> dps.CountSketch:
    return dps.CountSketch(rows=5, width=65_536, unit=dps.per_record())


def _best(work: Callable[[], None]) -> tuple[float, float]:
    """Return the least seconds of the clock, and of the processor, which other work on the machine stretches less."""
    clocks, processors = [], []
    for _ in range(REPEATS):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        clocks.append(time.perf_counter() - clock)
        processors.append(time.process_time() - processor)
    return min(clocks), min(processors)


def run(size: int = ROWS) -> list[dict[str, Any]]:
    keys = np.random.default_rng(1).zipf(1.2, size) % (1 << 40)
    tables = {
        "integers": pa.table({"key": keys, "other": np.arange(size)}),
        "strings": pa.table({"key": pa.array([f"/page/{key % 100_000}" for key in keys[: size // 5].tolist()])}),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            path = Path(folder, f"{name}.parquet")
            pa.parquet.write_table(table, path)
            column = table["key"]

            def from_memory(column: pa.ChunkedArray = column) -> None:
                _sketch().update(column)

            rows.append(_row(f"{name} from Parquet against memory", table.num_rows, path, from_memory))
        path = Path(folder, "strings.csv")
        pyarrow.csv.write_csv(tables["strings"], path)

        def arrow_alone() -> None:
            options = pyarrow.csv.ConvertOptions(column_types={"key": pa.string()})
            reading = pyarrow.csv.ReadOptions(use_threads=False)
            for _ in pyarrow.csv.open_csv(path, read_options=reading, convert_options=options):
                pass

        rows.append(_row("strings from CSV against Arrow alone", tables["strings"].num_rows, path, arrow_alone))
    return rows


def _row(name: str, count: int, path: Path, other: Callable[[], None]) -> dict[str, Any]:
    """Time the way from a file to a sketch beside another piece of work on the same keys."""

    def from_file() -> None:
        sketch = _sketch()
        for batch in open_source([str(path)], Columns(key="key", encoded=True)):
            sketch.update(batch.key)

    other()
    from_file()
    (theirs, their_work), (ours, our_work) = _best(other), _best(from_file)
    speeds = {"ours": count / ours, "theirs": count / theirs, "ratio": theirs / ours, "unit": "rows/s"}
    return {"name": name, **speeds, "processor_ratio": their_work / our_work}


if __name__ == "__main__":
    for row in run(*map(int, sys.argv[1:2])):
        print(row)
