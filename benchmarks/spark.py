"""A CountSketch of strings on Spark, beside Spark's own count_min_sketch and an exact groupBy, in one session.

Both sketches have 7 rows of about 4,000 counters. Every contestant reads the same Parquet files, 20 million urls with a
long tail; they take turns, so that a busy machine disturbs all alike, and the best of three turns counts, after one
that compiles. Files are cut as Spark and we do by default, at 128 MB: a task costs Spark a tenth of a second, whatever
it does. *Handing over* sends the fingerprints of the same urls from Spark to Python, which counts rows and no more:
whatever is counted of a DataFrame in Python takes at least that. ``--cost`` prints the figures that the cost model of
docs/scale.md starts from.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import dpsketch as dps
from dpsketch.privacy import per_record, per_user

ROWS = 20_000_000
FILES = 2
DISTINCT = 5_000_000
TURNS = 3


def _write(folder: Path) -> None:
    draw = np.random.default_rng(1)
    words = pa.array([f"https://example.org/page/{number:07x}" for number in range(DISTINCT)])
    rows = ROWS // FILES // 20
    for name in range(FILES):
        schema = pa.schema([("key", pa.string()), ("user", pa.int64())])
        with pyarrow.parquet.ParquetWriter(folder / f"{name}.parquet", schema) as writer:
            for _ in range(20):
                codes = pa.array(draw.zipf(1.1, rows) % DISTINCT)
                users = draw.integers(0, ROWS // 20, rows)
                writer.write_table(pa.table({"key": words.take(codes), "user": users}))


def _session(folder: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.local.dir": folder,
    }
    builder = SparkSession.builder.master("local[2]").appName("dpsketch benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _contestants(session: Any, folder: Path) -> dict[str, Callable[[], object]]:
    from pyspark.sql import functions

    from dpsketch import spark

    frame = session.read.parquet(str(folder))
    records = dps.CountSketch(rows=7, width=4096, unit=per_record()).spec
    users = dps.CountSketch(rows=7, width=4096, unit=per_user(max_keys=5)).spec
    peer = functions.count_min_sketch("key", functions.lit(0.0005), functions.lit(0.99), functions.lit(1))
    return {
        "frame": lambda: spark.build(frame, records, key="key"),
        "files": lambda: spark.build_files(session, [str(folder / "*.parquet")], records, key="key"),
        "count_min_sketch": lambda: frame.select(peer).collect(),
        "groupBy": lambda: frame.groupBy("key").count().agg(functions.max("count")).collect(),
        "handing over": lambda: _hand_over(frame),
        "frame by user": lambda: spark.build(frame, users, key="key", user="user"),
    }


def _hand_over(frame: Any) -> object:
    from pyspark.sql import functions

    from dpsketch.spark.construction import large_batches

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], names=["rows"])

    prints = frame.select(functions.when(functions.col("key").isNotNull(), functions.xxhash64("key")))
    with large_batches(prints):
        return prints.mapInArrow(rows, "rows long").collect()


def _measure(names: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return, for each contestant, the seconds of its best turn, and the processor's seconds of its thriftiest."""
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        urls = Path(folder, "urls")
        urls.mkdir()
        _write(urls)
        session = _session(folder)
        try:
            contestants = _contestants(session, urls)
            for turn in range(TURNS + 1):
                for name in names:
                    busy, start = _processor_seconds(), time.perf_counter()
                    contestants[name]()
                    taken = (time.perf_counter() - start, _processor_seconds() - busy)
                    if turn:
                        former = best.get(name, taken)
                        best[name] = (min(former[0], taken[0]), min(former[1], taken[1]))
        finally:
            session.stop()
    return best


def _processor_seconds() -> float:
    """Return what this process and all below it, the JVM and Python workers among them, have used."""
    parents, used = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.name)] = int(words[1])
        used[int(place.name)] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        while process and process != os.getpid():
            process = parents.get(process, 0)
        return bool(process)

    return sum(seconds for process, seconds in used.items() if ours(process))


def run() -> list[dict[str, Any]]:
    best = _measure(("frame", "files", "handing over", "count_min_sketch", "groupBy"))
    contests: list[tuple[str, str, dict[str, float]]] = [
        ("frame", "count_min_sketch", {"reach": 1.0}),
        ("handing over", "count_min_sketch", {}),
        ("frame", "handing over", {}),
        ("files", "count_min_sketch", {"reach": 1.5}),
        ("frame", "groupBy", {"reach": 2.0}),
    ]
    return [
        {
            "name": f"strings, {ours} against {theirs}",
            "ours": ROWS / best[ours][0],
            "theirs": ROWS / best[theirs][0],
            "ratio": best[theirs][0] / best[ours][0],
            "unit": "rows/s",
            **goal,
        }
        for ours, theirs, goal in contests
    ]


def cost() -> dict[str, float]:
    """Measure a processor's microseconds a record, for docs/scale.md."""
    best = _measure(("frame", "files", "frame by user"))
    return {name: 1e6 * busy / ROWS for name, (_, busy) in best.items()}


if __name__ == "__main__":
    print(json.dumps(cost() if "--cost" in sys.argv else run(), indent=2))
