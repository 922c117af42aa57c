"""Users from a file larger than memory should be: sorted through the disk, bounded, counted, within a fixed memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch import files
from sensitive import everything

# What the command line does with --user, in a process of its own; what it held at most is read off the system.
PROGRAM = """
import json, sys
import dpsketch as dps
from dpsketch.bounding import whole_users
from dpsketch.sources import Columns, open_source

source, target = sys.argv[1:]
sketch = dps.CountSketch(rows=7, width=4096, unit=dps.per_user(max_keys=30))
read = 0
for batch in whole_users(open_source([source], Columns(key="key", user="user"), sort_by_user=True), sketch.spec):
    sketch.update(batch.key, users=batch.user, weights=batch.weight)
    read += batch.rows
sketch.save_sensitive(target)
# Not getrusage: what it gives began with the memory of the process that started this one.
peak = 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
print(json.dumps({"rows": read, "peak": peak}))
"""


def write_records(path: Path, rows: int, users: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    writer = None
    for start in range(0, rows, 500_000):
        n = min(500_000, rows - start)
        who, what = rng.integers(0, users, n), (rng.pareto(1.1, n) * 10).astype(np.int64) % 10**6
        who[: n // 20] = 0  # one user has a twentieth of all records
        columns = {"user": pa.array(who), "key": pa.array(what)}
        if kind == "text":
            columns = {name: column.cast(pa.string()) for name, column in columns.items()}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def run(folder: Path, rows: int, users: int, kind: str) -> dict[str, float]:
    source, target = folder / "records.parquet", folder / "users.sketch"
    write_records(source, rows, users, kind)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    assert [path.name for path in folder.iterdir() if "dpsketch-" in path.name] == []
    return found


@pytest.mark.parametrize("kind", ["int", pytest.param("text", marks=pytest.mark.full)])
def test_a_sorted_file_gives_the_table_of_one_update(tmp_path: Path, kind: str) -> None:
    found = run(tmp_path, 300_000, 15_000, kind)
    assert found["peak"] < 1e9
    records = pq.read_table(tmp_path / "records.parquet")
    once = dps.CountSketch(rows=7, width=4096, unit=dps.per_user(max_keys=30))
    once.update(records["key"], users=records["user"])
    through_disk = dps.load_sensitive(tmp_path / "users.sketch")
    assert everything(through_disk) == everything(once)
    assert files.decode(once.to_sensitive_bytes(), allow_sensitive=True).arrays["users"].size <= 15_000


@pytest.mark.full
@pytest.mark.parametrize(("users", "kind"), [(4_000_000, "int"), (1_000_000, "text")])
def test_twenty_million_rows_within_a_gigabyte(tmp_path: Path, users: int, kind: str) -> None:
    found = run(tmp_path, 20_000_000, users, kind)
    assert found["peak"] < 1e9
