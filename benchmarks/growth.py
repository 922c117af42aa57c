"""How the cost of an update grows: with records, rows, width, distinct keys and cores.

Each row of the table compares the largest setting with the smallest, as time a record; the picture
``benchmarks/results/growth.png`` shows all between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.drawing import draw_growth

ROUNDS = 5
RECORDS = 2_000_000


def rate(records: Any, *, rows: int = 5, width: int = 65_536) -> float:
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record())
    sketch.update(records)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        sketch.update(records)
        best = min(best, time.perf_counter() - start)
    return len(records) / best


def moment_rate(records: Any) -> float:
    sketch = dps.MomentSketch(p=0.5, size=50, unit=dps.per_record())
    sketch.update(records[:10])  # compiles, or loads what was compiled
    start = time.perf_counter()
    sketch.update(records)
    return len(records) / (time.perf_counter() - start)


def with_threads(count: int, records: Any) -> float:
    before = os.environ["DPSKETCH_THREADS"]
    os.environ["DPSKETCH_THREADS"] = str(count)
    try:
        return rate(records)
    finally:
        os.environ["DPSKETCH_THREADS"] = before


def row(what: str, values: Sequence[float], rates: Sequence[float]) -> dict[str, Any]:
    name = f"{what}: {values[-1]:,g} against {values[0]:,g}"
    return {"name": name, "ours": rates[-1], "theirs": rates[0], "ratio": rates[-1] / rates[0], "unit": "records/s"}


def run() -> list[dict[str, Any]]:
    os.environ.setdefault("DPSKETCH_THREADS", "1")
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**62, 16_000_000)
    some = keys[:RECORDS]
    records = [10**3, 10**4, 10**5, 10**6, 10**7]
    table_rows = [1, 3, 5, 9, 17, 33]
    widths = [2**power for power in range(8, 23, 2)]
    distinct = [10, 10**3, 10**5, 2 * 10**6]
    streams = [rng.integers(0, number, RECORDS) for number in distinct]
    cores = list(range(1, (os.cpu_count() or 1) + 1))
    series = {
        "records": ("records a batch", records, {"counts": [rate(keys[:n]) for n in records]}),
        "rows": ("rows", table_rows, {"counts": [rate(some, rows=n) for n in table_rows]}),
        "width": ("counters a row", widths, {"counts": [rate(keys[:8_000_000], width=n) for n in widths]}),
        "distinct keys": (
            "distinct keys",
            distinct,
            {"counts": [rate(stream) for stream in streams], "moment": [moment_rate(stream) for stream in streams]},
        ),
        "cores": ("threads", cores, {"counts": [with_threads(n, keys) for n in cores]}),
    }
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    draw_growth(series, folder / "growth.png", "records a second")
    return [
        row(f"{title}, {name}", values, rates)
        for title, (_, values, lines) in series.items()
        for name, rates in lines.items()
    ]
