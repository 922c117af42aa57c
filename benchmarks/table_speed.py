"""A table's release beside DuckDB's own GROUP BY of the same pairs: ``python -m benchmarks.table_speed``.

10⁷ records of 10⁶ users in 10⁴ groups; users, counts, a sum, a mean and a median. Both take turns, each in a process of
its own, after a small piece that loads and compiles, and the best of the rounds counts. DuckDB groups the records by
user and group into a table, once with count, sum and mean, once with the median too. The goal is that the first
release, which puts the records in order, takes at most twice that. The time of the processor is that of all threads; it
is the fairer one on a machine that others load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.engines import peak_memory

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks" / "results" / "table_speed.json"
RECORDS, GROUPS, ROUNDS, GOAL = 10**7, 10**4, 3, 2.0
LIMITS = ("512MB", "1GB")
MEDIAN = ", median(y)"


def records(n: int) -> pa.Table:
    """Return records of n/10 users, evenly, whose groups are as uneven as names are."""
    rng = np.random.default_rng(1)
    groups = np.minimum(rng.pareto(0.8, n) * 20, GROUPS - 1).astype(np.int64)
    amounts = np.round(np.exp(rng.normal(2.5, 1, n)), 2)
    columns = {"user": rng.integers(0, n // 10, n), "group": groups, "x": amounts, "y": rng.normal(10, 30, n)}
    return pa.table(columns)


class Timer:
    """Seconds since the last question, by the clock and of the processor."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def take(self) -> dict[str, float]:
        """Return the seconds, and start again."""
        before, self._start = self._start, self._now()
        return {"clock": self._start[0] - before[0], "processor": self._start[1] - before[1]}


def release(frame: pa.Table, limit: str | None) -> dict[str, Any]:
    """Return the seconds of each stage of a table."""
    import dpsketch as dps

    columns = [dps.users(), dps.count(), dps.sum("x"), dps.mean("y"), dps.quantiles("y", [0.5])]
    table = dps.Table(by="group", user="user", columns=columns, memory_limit=limit)
    found: dict[str, Any] = {}
    timer = Timer()
    for batch in frame.to_batches(max_chunksize=1 << 20):
        table.update(pa.Table.from_batches([batch]))
    found["update"] = timer.take()
    table._store.tables()
    found["order"] = timer.take()
    table.release(epsilon=1, delta=1e-6)
    found["rest"] = timer.take()
    found["release"] = {measure: found["order"][measure] + found["rest"][measure] for measure in found["order"]}
    table.release(epsilon=1, delta=1e-6)
    found["second release"] = timer.take()
    return found


def group(frame: pa.Table) -> dict[str, Any]:
    """Return the seconds of DuckDB's own grouping."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    connection.register("frame", frame)
    connection.execute("CREATE TABLE records AS FROM frame")
    found, timer = {}, Timer()
    for name, more in (("group by", ""), ("group by, median", MEDIAN)):
        connection.execute(
            f'CREATE OR REPLACE TABLE pairs AS SELECT "user", "group", count(*), sum(x), avg(y){more} FROM records '
            'GROUP BY "user", "group"'
        )
        found[name] = timer.take()
    return found


def piece(name: str, n: int) -> dict[str, Any]:
    """Run one piece in this process, after a small one; its memory is what it took beside the records."""
    step = group if name == "duckdb" else lambda frame: release(frame, None if name == "table" else name)
    step(records(1_000))
    frame = records(n)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = peak_memory()
    found = step(frame)
    return {**found, "memory": peak_memory() - before}


def child(name: str, n: int) -> dict[str, Any]:
    """Run a piece in a process of its own."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.table_speed", "--child", name, str(n)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def least(one: Any, other: Any) -> Any:
    """Return the best of two rounds, number by number."""
    if isinstance(one, dict):
        return {name: least(each, other[name]) for name, each in one.items()}
    return min(one, other)


def measure(n: int) -> dict[str, Any]:
    """Return the best of alternating rounds, and ratios of a first release to DuckDB's grouping."""
    found: dict[str, Any] = {"records": n}
    for _ in range(ROUNDS):
        for name in ("duckdb", "table"):
            new = child(name, n)
            found[name] = least(found[name], new) if name in found else new
    for limit in LIMITS:
        found[limit] = child(limit, n)
    found["ratio"] = {
        name: {each: found["table"]["release"][each] / seconds for each, seconds in found["duckdb"][name].items()}
        for name in ("group by", "group by, median")
    }
    return found


def main(arguments: list[str]) -> None:
    """Measure, print and keep the results."""
    match arguments:
        case ["--child", name, n]:
            print(json.dumps(piece(name, int(n))))
        case []:
            found = measure(RECORDS)
            STORED.write_text(json.dumps(found, indent=1) + "\n")
            print(json.dumps(found, indent=1))
            short = [name for name, ratio in found["ratio"].items() if ratio["processor"] > GOAL]
            print("short of the goal:", ", ".join(short) or "none")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
