"""Counting users: the memory of 2·10⁷ of them who come in batches, and how many records a second two cores bound.

A sketch remembers whom it counted, eight bytes a user, so that nobody counts twice. The high-water mark is that of a
process of its own, less what it held before the first batch; each batch is a million records of a million new users.
The rate is of batches of 2·10⁶ records of 200,000 users over 10⁵ keys, of which twenty a user count: on two cores by
the clock, which other work on the machine stretches, and on one by the processor's time, which it hardly does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

USERS, BATCH = 20_000_000, 1_000_000
LIMIT = 400 * 2**20
GOAL = 3e6

MEMORY = f"""
import json
from pathlib import Path
import numpy as np
import dpsketch as dps
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
keys = np.random.default_rng(1).integers(0, 2**31, {BATCH})
users = np.arange({BATCH})
sketch = dps.CountSketch(rows=5, width=65_536, unit=dps.per_user(max_keys=5))
sketch.empty_like().update(keys, users=users)
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
for number in range({USERS // BATCH}):
    sketch.update(keys, users=users + {BATCH} * number)
print(json.dumps(status("VmHWM") - before))
"""

RATE = """
import json, time
import numpy as np
import dpsketch as dps
rng = np.random.default_rng(1)
keys, users = rng.integers(0, 10**5, 2_000_000), rng.integers(0, 200_000, 2_000_000)
best = 0.0
for number in range(5):
    sketch = dps.CountSketch(rows=5, width=65_536, unit=dps.per_user(max_keys=20))
    start = time.CLOCK()
    sketch.update(keys, users=users)
    best = max(best, len(keys) / (time.CLOCK() - start))
print(json.dumps(best))
"""


def child(code: str, threads: int) -> float:
    environment = os.environ | {"DPSKETCH_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return float(json.loads(done.stdout))


def run() -> list[dict[str, Any]]:
    peak = child(MEMORY, 1)
    rates = {
        "two cores": child(RATE.replace("CLOCK", "perf_counter"), 2),
        "one core's own time": child(RATE.replace("CLOCK", "process_time"), 1),
    }
    memory = {"name": f"{USERS:,} users: memory against 400 MB", "ours": peak / 2**20, "theirs": LIMIT / 2**20}
    return [
        memory | {"ratio": LIMIT / peak, "unit": "MB", "reach": 1.0},
        *(
            {
                "name": f"per-user counts, {where}, against 3 million records a second",
                "ours": rate,
                "theirs": GOAL,
                "ratio": rate / GOAL,
                "unit": "records/s",
                "reach": 1.0,
            }
            for where, rate in rates.items()
        ),
    ]


if __name__ == "__main__":
    print(*run(), sep="\n")
