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
print(json.dumps([read, peak]))
"""


@pytest.mark.full
@pytest.mark.parametrize(("users", "kind"), [(4_000_000, pa.int64()), (1_000_000, pa.string())])
def test_twenty_million_rows_within_a_gigabyte(tmp_path: Path, users: int, kind: pa.DataType) -> None:
    """That the sketch is that of one update is in ``tests/unit/test_whole_users.py``."""
    rng, rows = np.random.default_rng(1), 20_000_000
    source, target = tmp_path / "records.parquet", tmp_path / "users.sketch"
    with pq.ParquetWriter(source, pa.schema({"user": kind, "key": kind})) as writer:
        for start in range(0, rows, 500_000):
            n = min(500_000, rows - start)
            who, what = rng.integers(0, users, n), (rng.pareto(1.1, n) * 10).astype(np.int64) % 10**6
            who[: n // 20] = 0  # one user has a twentieth of all records
            writer.write_table(pa.table({"user": pa.array(who).cast(kind), "key": pa.array(what).cast(kind)}))
    command = [sys.executable, "-c", PROGRAM, str(source), str(target)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    read, peak = json.loads(done.stdout)
    assert read == rows
    assert peak < 1e9
    assert [path.name for path in tmp_path.iterdir() if "dpsketch-" in path.name] == []
