"""How long a user waits before anything happens: the import, the help, the first update."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

REPEATS = 5
# What each may take, in seconds, with a warm cache.
ALLOWED = {
    "import dpsketch": (["-c", "import dpsketch"], 0.5),
    "import and load CountSketch": (["-c", "import dpsketch; dpsketch.CountSketch"], 0.5),
    "dpsketch --help": (["-m", "dpsketch", "--help"], 1.0),
    "first update": (
        ["-c", "import dpsketch as d; d.CountSketch(rows=5, width=64, unit=d.per_record()).update([1])"],
        1.5,
    ),
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
            }
        )
    return rows


if __name__ == "__main__":
    for row in run():
        print(row)
