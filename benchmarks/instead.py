"""What a user would do instead, without privacy: exact counts in polars, NumPy and DuckDB, and DuckDB's approximations.

Ten million records of Zipf(1.1) over a million keys, ready in memory as Arrow columns. Everyone may use one core. Ours
ends with a release at ε = 1; theirs with an exact or approximate answer that must not be published.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather

from benchmarks.peers import run_peer
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.heavy import HeavyHitters
from dpsketch.sketches.ranges import RangeSketch

RECORDS, KEYS = 10_000_000, 1_000_000
ROUNDS = 3

PEER = """
import json, os, time
os.environ["POLARS_MAX_THREADS"] = "1"
import duckdb, numpy as np, polars as pl, pyarrow.feather as feather
table = feather.read_table({path!r})
frame = pl.from_arrow(table)
numbers = table["number"].to_numpy()
con = duckdb.connect(config={{"threads": 1}})
con.register("records", table)
def timed(work):
    best = float("inf")
    for _ in range({rounds}):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return {records} / best
found = {{
    "polars number": timed(lambda: frame.group_by("number").len()),
    "polars text": timed(lambda: frame.group_by("text").len()),
    "numpy number": timed(lambda: np.unique(numbers, return_counts=True)),
    "duckdb top": timed(lambda: con.sql("select approx_top_k(number, 100) from records").fetchall()),
    "duckdb top text": timed(lambda: con.sql("select approx_top_k(text, 100) from records").fetchall()),
    "duckdb distinct": timed(lambda: con.sql("select approx_count_distinct(number) from records").fetchall()),
    "duckdb quantile": timed(lambda: con.sql("select approx_quantile(small, .5) from records").fetchall()),
}}
print(json.dumps(found))
"""


def columns() -> pa.Table:
    rng = np.random.default_rng(1)
    shares = np.arange(1, KEYS + 1) ** -1.1
    ranks = rng.choice(KEYS, RECORDS, p=shares / shares.sum())
    names = pa.array([f"https://example.org/page/{number:07d}" for number in range(KEYS)])
    numbers = rng.permutation(2**40 + np.arange(KEYS))[ranks]
    return pa.table({"number": numbers, "text": names.take(pa.array(ranks)), "small": numbers % 65_536})


def timed(work: Callable[[], object]) -> float:
    work()
    found = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return RECORDS / found


def counts(column: Any) -> None:
    sketch = CountSketch(rows=5, width=65_536, unit=per_record())
    sketch.update(column)
    sketch.release(epsilon=1.0, delta=1e-6)


def heavy(column: Any, **space: int) -> None:
    added_to_tree(column, **space).release(epsilon=1.0, delta=1e-6).top(100)


def added_to_tree(column: Any, **space: int) -> HeavyHitters:
    sketch = HeavyHitters(unit=per_record(), rows=5, width=4096, **space)
    sketch.update(column)
    return sketch


def distinct(column: Any) -> None:
    sketch = DistinctSketch(unit=per_record())
    sketch.update(column)
    sketch.release(epsilon=1.0, delta=0)


def median(column: Any) -> None:
    sketch = RangeSketch(unit=per_record(), bits=16)
    sketch.update(column)
    sketch.release(epsilon=1.0, delta=1e-6).quantile(0.5)


def run() -> list[dict[str, Any]]:
    table = columns()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.arrow"
        pa.feather.write_feather(table, path, compression="uncompressed")
        theirs = run_peer(PEER.format(path=str(path), rounds=ROUNDS, records=RECORDS))
    ours = {
        "number": timed(lambda: counts(table["number"])),
        "text": timed(lambda: counts(table["text"])),
        "top": timed(lambda: heavy(table["number"], key_bits=41)),
        "top text": timed(lambda: heavy(table["text"], key_bytes=32)),
        "added": timed(lambda: added_to_tree(table["number"], key_bits=41)),
        "added text": timed(lambda: added_to_tree(table["text"], key_bytes=32)),
        "distinct": timed(lambda: distinct(table["number"])),
        "quantile": timed(lambda: median(table["small"])),
    }
    pairs = {
        "counts of integers against polars group_by (exact)": ("number", "polars number"),
        "counts of integers against numpy.unique (exact)": ("number", "numpy number"),
        "counts of texts against polars group_by (exact)": ("text", "polars text"),
        "frequent integers against DuckDB approx_top_k": ("top", "duckdb top"),
        "frequent texts against DuckDB approx_top_k": ("top text", "duckdb top text"),
        "frequent integers, adding alone, against DuckDB approx_top_k": ("added", "duckdb top"),
        "frequent texts, adding alone, against DuckDB approx_top_k": ("added text", "duckdb top text"),
        "distinct integers against DuckDB approx_count_distinct": ("distinct", "duckdb distinct"),
        "median against DuckDB approx_quantile": ("quantile", "duckdb quantile"),
    }
    return [
        {
            "name": name,
            "ours": ours[mine],
            "theirs": theirs[peer],
            "ratio": ours[mine] / theirs[peer],
            "unit": "records/s",
        }
        for name, (mine, peer) in pairs.items()
    ]


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
