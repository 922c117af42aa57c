"""Counting texts by key: 10⁷ texts of 33 bytes with 10⁶ distinct ones, uniform and Zipf(1.1), on all cores.

Beside DuckDB, polars and pyarrow, each with a column that lies ready in its own memory; the best of three rounds in
turn. Ours is a histogram, which also puts the keys in order for a release. The goal is ten
million rows a second. Rates are by the clock, and by processor time too: as if all cores had worked for it all the
time, which is what can be compared on a machine that others use, and is too good where threads wait for each other.
Then 10⁸ rows with 10⁷ distinct texts, which come in batches of a million: the high-water mark of a process of its own,
less what it held before, against 4 GB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch.sketches.store import Store, rows_of

RECORDS, KEYS, LENGTH, SKEW = 10**7, 10**6, 33, 1.1
GOAL = 10e6
ROUNDS = 3
LARGE, LARGE_KEYS, BATCH = 10**8, 10**7, 10**6
LIMIT = 4 * 2**30

CHILD = """
import json, sys, time
from pathlib import Path
import numpy as np
import pyarrow as pa
from benchmarks.grouping import BATCH, LARGE, LARGE_KEYS, distinct, texts
from dpsketch.sketches.store import Store, rows_of
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
rng = np.random.default_rng(1)
distinct(texts(np.arange(10)))
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
store, spent = Store(by_user=False), 0.0
for _ in range(LARGE // BATCH):
    column = texts(rng.integers(0, LARGE_KEYS, BATCH))
    start = time.perf_counter()
    store.add(rows_of(pa.chunked_array([column])))
    spent += time.perf_counter() - start
number = int(store.tables().whole("SELECT count(*) FROM {keys}")[0][0])
print(json.dumps([LARGE / spent, status("VmHWM") - before, number]))
"""


def distinct(column: pa.StringArray) -> int:
    """Count a column, put its keys in order, and return how many there are."""
    store = Store(by_user=False)
    store.add(rows_of(pa.chunked_array([column])))
    return int(store.tables().whole("SELECT count(*) FROM {keys}")[0][0])


def texts(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """Return a text of 33 bytes for each number: letters, and the number in twelve digits."""
    data = np.full((len(numbers), LENGTH), ord("k"), np.uint8)
    rest = numbers
    for place in range(LENGTH - 1, LENGTH - 13, -1):
        rest, digit = np.divmod(rest, 10)
        data[:, place] = ord("0") + digit
    edges = np.arange(len(numbers) + 1, dtype=np.int32) * LENGTH
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(edges), pa.py_buffer(data)])


def streams() -> dict[str, pa.StringArray]:
    rng = np.random.default_rng(1)
    shares = np.cumsum(np.arange(1, KEYS + 1) ** -SKEW)
    zipf = np.searchsorted(shares, rng.random(RECORDS) * shares[-1])
    return {"uniform": texts(rng.integers(0, KEYS, RECORDS)), "Zipf": texts(np.minimum(zipf, KEYS - 1))}


def contestants(column: pa.StringArray) -> dict[str, Callable[[], int]]:
    """Return for each library what counts the column and returns the number of distinct keys."""
    import duckdb
    import polars as pl

    records = pa.table({"key": column})
    frame = pl.from_arrow(records)
    connection = duckdb.connect()
    connection.register("records", records)

    return {
        "ours": lambda: distinct(column),
        "DuckDB": lambda: connection.sql("select key, count(*) from records group by key").to_arrow_table().num_rows,
        "polars": lambda: frame.group_by("key").len().height,
        "pyarrow": lambda: records.group_by("key").aggregate([([], "count_all")]).num_rows,
    }


def contest(kind: str, column: pa.StringArray) -> list[dict[str, Any]]:
    runs = contestants(column)
    best, busy = (dict.fromkeys(runs, float("inf")) for _ in range(2))
    found, cores = set(), int(os.environ["DPSKETCH_THREADS"])
    for _ in range(ROUNDS):
        for name, run_one in runs.items():
            start, used = time.perf_counter(), time.process_time()
            found.add(run_one())
            best[name] = min(best[name], time.perf_counter() - start)
            busy[name] = min(busy[name], (time.process_time() - used) / cores)
    if len(found) != 1:
        raise RuntimeError("the libraries do not agree on the number of distinct keys.")
    rows = []
    for clock, seconds in (("", best), (" by processor time", busy)):
        ours = RECORDS / seconds.pop("ours")
        shape = f"{kind}, texts of {LENGTH} bytes, {cores} threads{clock}"
        rows += [
            {"name": f"{shape}: {name}", "ours": ours, "theirs": RECORDS / spent, "ratio": ours * spent / RECORDS}
            for name, spent in seconds.items()
        ]
        rows.append({"name": f"{shape}: goal", "ours": ours, "theirs": GOAL, "ratio": ours / GOAL, "reach": 1.0})
    return [row | {"unit": "rows/s"} for row in rows]


def large() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    rate, peak, distinct = json.loads(done.stdout)
    shape = f"{LARGE:.0e} rows, {distinct:,} distinct"
    memory = {"name": f"{shape}: memory", "ours": peak / 2**20, "theirs": LIMIT / 2**20, "ratio": LIMIT / peak}
    speed = {"name": f"{shape}: adding", "ours": rate, "theirs": GOAL, "ratio": rate / GOAL, "unit": "rows/s"}
    return [memory | {"unit": "MB", "reach": 1.0}, speed]


def run() -> list[dict[str, Any]]:
    before = os.environ.get("DPSKETCH_THREADS")
    os.environ["DPSKETCH_THREADS"] = str(os.cpu_count() or 1)
    try:
        distinct(texts(np.arange(10)))  # compiles, or loads what was compiled
        return [row for kind, column in streams().items() for row in contest(kind, column)] + large()
    finally:
        if before is None:
            del os.environ["DPSKETCH_THREADS"]
        else:
            os.environ["DPSKETCH_THREADS"] = before


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:65} {row['ours']:12.4g} {row['theirs']:12.4g} {row['unit']:7} {row['ratio']:7.3f}×")
