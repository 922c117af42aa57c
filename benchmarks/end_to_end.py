"""From a Parquet file to a sketch, beside the same keys already in memory: reading must not cost more than counting."""

from __future__ import annotations

import tempfile
import time
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


def _best(work: Any) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def run() -> list[dict[str, Any]]:
    keys = np.random.default_rng(1).zipf(1.2, ROWS) % (1 << 40)
    tables = {
        "integers": pa.table({"key": keys, "other": np.arange(ROWS)}),
        "strings": pa.table({"key": pa.array([f"/page/{key % 100_000}" for key in keys[: ROWS // 5].tolist()])}),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            path = Path(folder, f"{name}.parquet")
            pa.parquet.write_table(table, path)
            column = table["key"]

            def from_memory(column: pa.ChunkedArray = column) -> None:
                _sketch().update(column)

            def from_file(path: Path = path) -> None:
                sketch = _sketch()
                for batch in open_source([str(path)], Columns(key="key")):
                    sketch.update(batch.key)

            from_memory()
            from_file()
            memory, file = _best(from_memory), _best(from_file)
            count = table.num_rows
            rows.append(
                {
                    "name": f"{name} from Parquet against memory",
                    "ours": count / file,
                    "theirs": count / memory,
                    "ratio": memory / file,
                    "unit": "rows/s",
                }
            )
    return rows


if __name__ == "__main__":
    for row in run():
        print(row)
