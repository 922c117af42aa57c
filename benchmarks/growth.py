"""How the time of an update grows: with records, rows, width, distinct keys, users and cores.

Each row compares the largest setting with the smallest as time a record, and carries all between as its ``series``.
A user's records are bounded to five keys; every fourth record is a new user's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import dpsketch as dps

ROUNDS = 5
RECORDS = 2_000_000
WIDE_RECORDS = 8_000_000
MOST_RECORDS = 16_000_000
SIZES = [10**3, 10**4, 10**5, 10**6, 10**7]
PEOPLE = [10**3, 10**4, 10**5, 10**6]


def rate(records: Any, *, rows: int = 5, width: int = 65_536) -> float:
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record())
    sketch.update(records)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        sketch.update(records)
        best = min(best, time.perf_counter() - start)
    return len(records) / best


def user_rate(keys: Any, people: int) -> float:
    """Count four records of each user, in one batch, as users that a sketch already holds are refused."""
    best = float("inf")
    users = np.arange(4 * people) // 4
    for _ in range(3):
        sketch = dps.CountSketch(rows=5, width=65_536, unit=dps.per_user(max_keys=5))
        start = time.perf_counter()
        sketch.update(keys[: len(users)], users=users)
        best = min(best, time.perf_counter() - start)
    return len(users) / best


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


def row(
    what: str, label: str, values: Sequence[float], records: Sequence[int], rates: Sequence[float]
) -> dict[str, Any]:
    """Return the largest setting beside the smallest, and with it the seconds that each setting took."""
    name = f"{what}: {values[-1]:,g} against {values[0]:,g}"
    seconds = [count / each for count, each in zip(records, rates, strict=True)]
    series = {"what": what, "label": label, "values": list(values), "seconds": seconds}
    ratio = rates[-1] / rates[0]
    return {"name": name, "ours": rates[-1], "theirs": rates[0], "ratio": ratio, "unit": "records/s", "series": series}


def run() -> list[dict[str, Any]]:
    os.environ.setdefault("DPSKETCH_THREADS", "1")
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**62, MOST_RECORDS)
    some = keys[:RECORDS]
    table_rows = [1, 3, 5, 9, 17, 33]
    widths = [2**power for power in range(8, 23, 2)]
    distinct = [10, 10**3, 10**5, 2 * 10**6]
    streams = [rng.integers(0, number, RECORDS) for number in distinct]
    cores = list(range(1, (os.cpu_count() or 1) + 1))
    rate(some)  # loads the compiler: without it small batches would be measured in NumPy
    wide = len(widths) * [WIDE_RECORDS]
    fixed = len(distinct) * [RECORDS]
    return [
        row("records, counts", "records a batch", SIZES, SIZES, [rate(keys[:n]) for n in SIZES]),
        row("rows, counts", "rows", table_rows, len(table_rows) * [RECORDS], [rate(some, rows=n) for n in table_rows]),
        row("width, counts", "counters a row", widths, wide, [rate(keys[:WIDE_RECORDS], width=n) for n in widths]),
        row("distinct keys, counts", "distinct keys", distinct, fixed, [rate(stream) for stream in streams]),
        row("distinct keys, moment", "distinct keys", distinct, fixed, [moment_rate(stream) for stream in streams]),
        row("users, counts", "users", PEOPLE, [4 * n for n in PEOPLE], [user_rate(keys, n) for n in PEOPLE]),
        row("cores, counts", "threads", cores, len(cores) * [len(keys)], [with_threads(n, keys) for n in cores]),
    ]
