"""How long a user waits before anything happens: the import, the help, the first update."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

REPEATS = 5
FIRST_UPDATE = "import dpsketch as d; d.CountSketch(rows=5, width=64, unit=d.per_record()).update([1])"
# What each may take, in seconds, with a warm cache.
ALLOWED = {
    "import dpsketch": (["-c", "import dpsketch"], 0.5),
    "import and load CountSketch": (["-c", "import dpsketch; dpsketch.CountSketch"], 0.5),
    "dpsketch --help": (["-m", "dpsketch", "--help"], 1.0),
    "first update": (["-c", FIRST_UPDATE], 1.5),
}


def run() -> list[dict[str, Any]]:
    rows = []
    for name, (arguments, allowed) in ALLOWED.items():
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        rows.append(
            {
                "name": f"{name} (against what is allowed)",
                "ours": min(times),
                "theirs": allowed,
                "ratio": allowed / min(times),
                "unit": "s",
                "reach": 1.0,
            }
        )
    return [*rows, cold()]


def cold() -> dict[str, Any]:
    """Time the first update with an empty cache of machine code, as right after the installation."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        subprocess.run([sys.executable, "-c", FIRST_UPDATE], check=True, capture_output=True, env=environment)
        taken = time.perf_counter() - start
    allowed = 15.0
    name = "first update, nothing compiled yet (against what is allowed)"
    return {"name": name, "ours": taken, "theirs": allowed, "ratio": allowed / taken, "unit": "s", "reach": 1.0}


if __name__ == "__main__":
    for row in run():
        print(row)
