"""What a condition and a compound key cost over a CSV file, and what a release for each day of a year does.

``python -m benchmarks.tables [MEGABYTES]`` runs alternately without and with them, ``python -m benchmarks.tables parts
[ROWS]`` over a pipe, which can be read but once. Each run is a process of its own. Printed are wall time, processor
time (which other work on the machine does not stretch) and the most memory held; before them the floor, what Arrow
alone takes to read the one column and the four that the question needs. ``--write`` keeps them in results/tables.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow.csv

STORED = Path(__file__).parent / "results" / "tables.json"
_ROW_BYTES = 24
_PLAIN = ["--key", "origin"]
_ASKED = ["--key", "origin,dest", "--where", "carrier = 'UA' and distance > 500"]


def write(path: Path, megabytes: int) -> None:
    """Write flights of five columns, about a fifth of them is United's and longer than 500 miles."""
    rows = megabytes * 1_000_000 // _ROW_BYTES
    duckdb.sql(f"""
        COPY (
            SELECT ['UA', 'B6', 'DL', 'AA'][1 + (hash(i) % 4)::BIGINT] AS carrier,
                'A' || (hash(i * 3) % 300) AS origin, 'B' || (hash(i * 7) % 300) AS dest,
                hash(i * 11) % 3000 AS distance, i % 1000000 AS flight
            FROM range({rows}) t(i)
        ) TO '{path}' (FORMAT csv, HEADER)
    """)


def measured(source: str, options: list[str], output: Path, piped: IO[bytes] | None = None) -> tuple[float, float, int]:
    """Run a histogram over a source; return seconds of the clock and of the processor, and megabytes held at most."""
    command = [sys.executable, "-m", "dpsketch", "run", "histogram", source, *options]
    command += ["--epsilon", "1", "--delta", "1e-6", "--no-ledger", "--overwrite", "-o", str(output)]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdin=piped, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def floor(path: Path, columns: list[str]) -> float:
    """Read columns as text and do nothing with them, as Arrow's reader of streams does; return processor seconds."""
    began = time.process_time()
    options = pyarrow.csv.ConvertOptions(
        include_columns=columns, column_types=dict.fromkeys(columns, pyarrow.string()), strings_can_be_null=True
    )
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=2 << 20)
    for _ in pyarrow.csv.open_csv(path, read_options=reading, convert_options=options):
        pass
    return time.process_time() - began


def measure_parts(rows: int) -> None:
    """Count rows of 365 days, a release for each, as they come through a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        path, listed, output = Path(folder, "visits.csv"), Path(folder, "days.txt"), Path(folder, "out")
        duckdb.sql(f"""
            COPY (
                SELECT strftime(DATE '2026-01-01' + (hash(i) % 365)::INTEGER, '%Y-%m-%d') AS day,
                    '/page/' || (hash(i * 3) % 100) AS page
                FROM range({rows}) t(i)
            ) TO '{path}' (FORMAT csv, HEADER)
        """)
        days = [f"{date(2026, 1, 1) + timedelta(days=i)}" for i in range(365)]
        listed.write_text("\n".join(days))
        with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as pipe:
            options = ["--key", "page", "--part-by", "day", "--parts", str(listed)]
            wall, processor, memory = measured("-", options, output, pipe.stdout)
        made = len(list(output.glob("*.dps")))
        print(f"{rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB through a pipe, {made} releases:")
        print(f"{wall:.1f} s of the clock, {processor:.1f} s of the processor, {memory} MB at most")


def main() -> None:
    write_results = "--write" in sys.argv
    given = [each for each in sys.argv[1:] if each != "--write"]
    if given[:1] == ["parts"]:
        measure_parts(int(given[1]) if len(given) > 1 else 10_000_000)
        return
    megabytes = int(given[0]) if given else 300
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "flights.csv"), Path(folder, "out.dps")
        write(path, megabytes)
        print(f"{path.stat().st_size / 1e6:,.0f} MB")
        one, four = floor(path, ["origin"]), floor(path, ["carrier", "origin", "dest", "distance"])
        print(f"processor, Arrow alone: {one:.1f} s for one column and {four:.1f} s for four, {four / one:.2f} times")
        runs: dict[str, list[tuple[float, float, int]]] = {"plain": [], "asked": []}
        for name, options in [("plain", _PLAIN), ("asked", _ASKED)] * 2:
            runs[name].append(measured(str(path), options, output))
            wall, processor, memory = runs[name][-1]
            print(f"{name}: {wall:.1f} s of the clock, {processor:.1f} s of the processor, {memory} MB at most")
        clock, work, _ = (asked / plain for asked, plain in zip(min(runs["asked"]), min(runs["plain"]), strict=True))
        print(f"a condition and a compound key: {clock:.2f} times the clock, {work:.2f} times the processor")
        if write_results:
            found = {
                "megabytes": round(path.stat().st_size / 1e6),
                "arrow_alone_processor_seconds": {"one column": round(one, 1), "four columns": round(four, 1)},
                **{name: _columns(each) for name, each in runs.items()},
                "asked_against_plain": {"clock": round(clock, 2), "processor": round(work, 2)},
            }
            STORED.write_text(json.dumps(found, indent=2) + "\n")


def _columns(runs: list[tuple[float, float, int]]) -> dict[str, Any]:
    clocks, processors, memory = zip(*runs, strict=True)
    seconds = {"clock_seconds": clocks, "processor_seconds": processors}
    rounded = {name: [round(each, 1) for each in values] for name, values in seconds.items()}
    return rounded | {"megabytes_held": max(memory)}


if __name__ == "__main__":
    main()
