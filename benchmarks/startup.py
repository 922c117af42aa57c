"""How long a user waits before anything happens: the import, the help, a question to a release, the first update."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

REPEATS = 5
RELEASE = """
import sys, dpsketch as d
sketch = d.CountSketch(rows=7, width=4096, unit=d.per_record())
sketch.update(["/index", "/about"] * 1000)
sketch.release(epsilon=1.0, delta=1e-6).save(sys.argv[1])
"""
FIRST_UPDATE = "import dpsketch as d; d.CountSketch(rows=5, width=64, unit=d.per_record()).update([1])"
# What each may take, in seconds, with a warm cache.
ALLOWED = {
    "import dpsketch": (["-c", "import dpsketch"], 0.5),
    "import and load CountSketch": (["-c", "import dpsketch; dpsketch.CountSketch"], 0.5),
    "dpsketch --help": (["-m", "dpsketch", "--help"], 1.0),
    "dpsketch query": (["-m", "dpsketch", "query", "{release}", "/index", "/about"], 0.5),
    "dpsketch inspect": (["-m", "dpsketch", "inspect", "{release}"], 0.5),
    "first update": (["-c", FIRST_UPDATE], 1.5),
}


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        release = f"{folder}/visits.dps"
        subprocess.run([sys.executable, "-c", RELEASE, release], check=True)
        return [*warm(release), cold()]


def warm(release: str) -> list[dict[str, Any]]:
    """Time each start with what was loaded before still in the machine's memory."""
    rows = []
    for name, (arguments, allowed) in ALLOWED.items():
        times = []
        command = [sys.executable, *(release if word == "{release}" else word for word in arguments)]
        for _ in range(REPEATS):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
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
    return rows


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
