"""From a file to a release beside an earlier version: ``python -m benchmarks.engines OTHER/src [--memory] [--large]``.

The versions take turns, each piece in a process of its own, and the best of the rounds counts. A piece reads a file,
counts it and releases it, once with a small file so that everything is loaded and compiled, then timed. ``--memory``
adds the peak memory of counts from a CSV file of 3 GB, and ``--large`` a histogram of 10⁸ rows with 10⁷ keys under a
limit of 1 GB; only this version runs these two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks" / "results" / "engines.json"
ROWS, ROUNDS = 3_000_000, 5
# Each piece, and the least ratio of rates, by the clock and by the processor, that meets the goal.
PIECES = {
    "histogram of users, parquet": (2.5, None),
    "histogram of users, csv": (2.5, None),
    "histogram of records, csv": (0.8, 0.8),
    "histogram of records, parquet": (0.8, 0.8),
    "counts, csv": (0.9, 0.9),
    "counts, parquet": (0.9, 0.9),
    "ranges, csv": (0.9, 0.9),
    "ranges, parquet": (0.9, 0.9),
    "distinct, csv": (0.9, 0.9),
    "distinct, parquet": (0.9, 0.9),
}
CSV_BYTES, CSV_LIMIT = 3 * 10**9, 450 * 2**20
LARGE, LARGE_KEYS = 10**8, 10**7


def write_files(folder: Path, rows: int, name: str) -> None:
    """Write one table as CSV and Parquet: a text user, a text key and an integer below 2¹⁶."""
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(rows)
    records = pa.table(
        {
            "user": _texts("person-", rng.integers(0, max(1, rows // 10), rows)),
            "page": _texts("/articles/page-", rng.zipf(1.15, rows) % max(1, rows)),
            "value": pa.array(rng.integers(0, 2**16, rows)),
        }
    )
    pyarrow.csv.write_csv(records, folder / f"{name}.csv")
    pyarrow.parquet.write_table(records, folder / f"{name}.parquet")


def _texts(prefix: str, numbers: npt.NDArray[np.int64]) -> Any:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def sketch_of(kind: str) -> tuple[Any, Any]:
    """Return an empty sketch, and the columns that it reads."""
    import dpsketch as dps
    from dpsketch.sources import Columns

    match kind:
        case "histogram of users":
            return dps.Histogram(unit=dps.per_user(max_keys=5)), Columns(key="page", user="user")
        case "histogram of records":
            return dps.Histogram(unit=dps.per_record()), Columns(key="page")
        case "counts":
            return dps.CountSketch(rows=5, width=65_536, unit=dps.per_record()), Columns(key="page")
        case "ranges":
            return dps.RangeSketch(unit=dps.per_record(), bits=16), Columns(key="value", key_type="int")
        case "distinct":
            return dps.DistinctSketch(unit=dps.per_record()), Columns(key="page")
    raise ValueError(kind)


def work(kind: str, path: Path) -> None:
    """Read a file, count it and release it."""
    from dpsketch.sketches.feed import feed
    from dpsketch.sources import open_source

    sketch, columns = sketch_of(kind)
    feed(sketch, open_source([str(path)], columns))
    sketch.release(epsilon=1, delta=0 if kind == "distinct" else 1e-6)


def timed(piece: str, folder: Path) -> dict[str, float]:
    """Return the seconds of one piece in this process, after a small one, and its peak memory."""
    __import__("numba")  # an earlier version loads the compiler only for large work
    kind, form = piece.split(", ")
    work(kind, folder / f"small.{form}")
    clock, busy = time.perf_counter(), time.process_time()
    work(kind, folder / f"whole.{form}")
    spent = {"clock": time.perf_counter() - clock, "processor": time.process_time() - busy}
    return spent | {"peak": peak_memory()}


def peak_memory() -> int:
    """Return the peak memory of this process; ``getrusage`` would count the parent's memory at the fork."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


def child(source: Path, *arguments: str) -> Any:
    """Run this file on the sources of one version and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--child", *arguments],
        env={**os.environ, "PYTHONPATH": str(source)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def compare(other: Path, folder: Path) -> dict[str, Any]:
    """Return for each piece the best of both versions, and the ratio of rates: above 1, this version is faster."""
    found: dict[str, Any] = {}
    for piece in PIECES:
        best: dict[str, dict[str, float]] = {"ours": {}, "theirs": {}}
        for _ in range(ROUNDS):
            for name, source in (("theirs", other), ("ours", ROOT / "src")):
                for measure, spent in child(source, piece, str(folder)).items():
                    best[name][measure] = min(spent, best[name].get(measure, spent))
        ratios = {measure: best["theirs"][measure] / spent for measure, spent in best["ours"].items()}
        found[piece] = best | {"ratio": ratios}
        print(f"{piece:32} clock {ratios['clock']:5.2f}  processor {ratios['processor']:5.2f}  {best}", flush=True)
    return found


def peak_of_csv(folder: Path) -> int:
    """Return the peak memory of counts from a CSV file of 3 GB."""
    whole, big = (folder / "whole.csv").read_bytes(), folder / "big.csv"
    header, _, rows = whole.partition(b"\n")
    with big.open("wb") as target:
        target.write(header + b"\n")
        while target.tell() < CSV_BYTES:
            target.write(rows)
    try:
        found: int = child(ROOT / "src", "memory", str(big))
    finally:
        big.unlink()
    return found


def _batches(batch: int = 10**6) -> Iterator[Any]:
    rng = np.random.default_rng(1)
    for _ in range(LARGE // batch):
        yield _texts("a key of thirty bytes ", rng.integers(0, LARGE_KEYS, batch))


def large() -> dict[str, float]:
    """Count and release a histogram whose keys do not fit into its limit."""
    import dpsketch as dps

    histogram, start = dps.Histogram(unit=dps.per_record(), memory_limit="1GB"), time.perf_counter()
    for column in _batches():
        histogram.update(column)
    names = len(histogram.release(epsilon=1, delta=1e-6).keys)
    return {"seconds": time.perf_counter() - start, "peak": peak_memory(), "names": names}


def main(arguments: list[str]) -> None:
    """Measure, print and keep the results."""
    match arguments:
        case ["--child", "memory", path]:
            work("counts", Path(path))
            print(peak_memory())
        case ["--child", "large"]:
            print(json.dumps(large()))
        case ["--child", piece, folder]:
            print(json.dumps(timed(piece, Path(folder))))
        case [other, *rest]:
            found = json.loads(STORED.read_text()) if STORED.exists() else {}
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                write_files(folder, 1_000, "small")
                write_files(folder, ROWS, "whole")
                found["pieces"] = compare(Path(other).resolve(), folder)
                if "--memory" in rest:
                    found["csv peak"] = peak_of_csv(folder)
            if "--large" in rest:
                found["large"] = child(ROOT / "src", "large")
            STORED.write_text(json.dumps(found, indent=1) + "\n")
            short = [
                piece for piece, goals in PIECES.items()
                for measure, goal in zip(("clock", "processor"), goals, strict=True)
                if goal is not None and found["pieces"][piece]["ratio"][measure] < goal
            ]  # fmt: skip
            short += ["csv peak"] * (found.get("csv peak", 0) > CSV_LIMIT)
            print("memory:", {name: found.get(name) for name in ("csv peak", "large")})
            print("short of the goal:", ", ".join(short) or "none")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
