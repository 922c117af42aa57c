"""The most memory that a sketch takes, beside the formula: its counters, so many bytes a key of a batch, and 8 MB.

The counters are ``spec.memory``, 8 bytes each. A key of a batch costs what its kind needs beside it while the batch is
added: its fingerprint, and where keys are summed or cut into prefixes, those. The 8 MB are scratch of a fixed size. A
process of its own adds ten batches of a million keys, after a small one that loads and compiles; its high-water mark is
the kernel's, less what it held before the sketch was made. A ratio above 1 is below the formula.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

BATCH, BATCHES = 1_000_000, 10
SCRATCH = 8 * 2**20

CHILD = """
import json, sys
from pathlib import Path
import numba  # else few keys are added without the compiler, and many load it
import numpy as np
import dpsketch as dps
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
keys = np.random.default_rng(1).integers(0, 2**31, {batch})
points = np.random.default_rng(1).normal(size=({batch}, 2)) if "Density" in {make!r} else None
warm = {make}
warm.update((keys if points is None else points)[:10])
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
sketch = {make}
for _ in range({batches}):
    sketch.update(keys if points is None else points)
print(json.dumps([sketch.spec.memory, status("VmHWM") - before]))
"""

# The bytes of a key, and the sketch.
SKETCHES = {
    "counts 5×4096": (8, "dps.CountSketch(rows=5, width=4096, unit=dps.per_record())"),
    "counts 5×65,536": (8, "dps.CountSketch(rows=5, width=65_536, unit=dps.per_record())"),
    "counts 5×4,194,304": (8, "dps.CountSketch(rows=5, width=2**22, unit=dps.per_record())"),
    "heavy 7×4096, 32 bits": (32, "dps.HeavyHitters(unit=dps.per_record(), key_bits=32)"),
    "moment p=.5, size 50": (40, "dps.MomentSketch(p=0.5, size=50, unit=dps.per_record())"),
    "distinct 4096": (8, "dps.DistinctSketch(unit=dps.per_record())"),
    "ranges 32 bits": (48, "dps.RangeSketch(unit=dps.per_record(), bits=32)"),
    "density 500 rows": (
        8,
        "dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=2, bandwidth=1.0), rows=500, unit=dps.per_record())",
    ),
}


def run() -> list[dict[str, Any]]:
    rows = []
    for name, (a_key, make) in SKETCHES.items():
        code = CHILD.format(make=make, batch=BATCH, batches=BATCHES)
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        table, peak = json.loads(done.stdout)
        stated = table + a_key * BATCH + SCRATCH
        row = {"name": f"{name}: high-water mark against the formula", "ours": peak / 2**20, "theirs": stated / 2**20}
        rows.append(row | {"ratio": stated / peak, "unit": "MB", "reach": 1.0})
    return rows
