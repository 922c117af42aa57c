"""From a file to a sketch: Parquet beside the same keys in memory, CSV beside what Arrow alone takes to read it.

Rates are per second of the processor: of reading and counting together, although they run side by side where a second
core is free, so that other work on the machine matters little. Rounds alternate, and the best of each counts.

Texts of which Parquet has a dictionary are read as its codes. Where nearly every text is another, it has none, and
Arrow alone takes longer to read them than counting does: that row's own limit stands beside it.
``python -m benchmarks.end_to_end [ROWS]``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import dpsketch as dps
from dpsketch.sources import Columns, open_source

ROWS = 10_000_000
ROUNDS = 5


def _sketch() -> dps.CountSketch:
    return dps.CountSketch(rows=5, width=65_536, unit=dps.per_record())


def run(size: int = ROWS) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    keys = rng.zipf(1.2, size) % (1 << 40)
    texts = size // 5
    tables = {
        "integers": pa.table({"key": keys, "other": np.arange(size)}),
        "strings": pa.table({"key": pa.array([f"/page/{key % 100_000}" for key in keys[:texts].tolist()])}),
        "distinct strings": pa.table(
            {"key": pa.array([f"https://example.org/{key:08x}" for key in rng.integers(0, 2**32, texts).tolist()])}
        ),
    }
    goals = {"strings": 0.6}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            path = Path(folder, f"{name}.parquet")
            pa.parquet.write_table(table, path)
            others = {"memory": partial(_from_memory, table["key"])}
            if name == "distinct strings":
                others["Arrow alone"] = partial(_parquet_alone, path)
            goal = {"reach": goals[name]} if name in goals else {}
            rows += [row | goal for row in _rows(f"{name} from Parquet", table.num_rows, path, others)]
        path = Path(folder, "strings.csv")
        pyarrow.csv.write_csv(tables["strings"], path)
        alone = {"Arrow alone": partial(_csv_alone, path)}
        rows += [row | {"reach": 0.5} for row in _rows("strings from CSV", texts, path, alone)]
    return rows


def _from_memory(column: pa.ChunkedArray) -> None:
    _sketch().update(column)


def _from_file(path: Path) -> None:
    sketch = _sketch()
    for batch in open_source([str(path)], Columns(key="key", encoded=True)):
        sketch.update(batch.key)


def _parquet_alone(path: Path) -> None:
    for _ in pa.parquet.ParquetFile(path).iter_batches(1 << 18, columns=["key"], use_threads=False):
        pass


def _csv_alone(path: Path) -> None:
    options = pyarrow.csv.ConvertOptions(column_types={"key": pa.string()})
    reading = pyarrow.csv.ReadOptions(use_threads=False)
    for _ in pyarrow.csv.open_csv(path, read_options=reading, convert_options=options):
        pass


def _rows(name: str, count: int, path: Path, others: dict[str, Callable[[], None]]) -> list[dict[str, Any]]:
    """Time the way from a file to a sketch beside other pieces of work on the same keys."""
    contests = {"": partial(_from_file, path), **others}
    best = dict.fromkeys(contests, float("inf"))
    for turn in range(ROUNDS + 1):
        for each, work in contests.items():
            start = time.process_time()
            work()
            if turn:  # the first compiles
                best[each] = min(best[each], time.process_time() - start)
    return [
        {
            "name": f"{name} against {other}",
            "ours": count / best[""],
            "theirs": count / best[other],
            "ratio": best[other] / best[""],
            "unit": "rows/s of processor",
        }
        for other in others
    ]


if __name__ == "__main__":
    for row in run(*map(int, sys.argv[1:2])):
        print(row)
