"""RACE beside an earlier version, in one run: ``python -m benchmarks.race_rates OTHER/src [--write]``.

The versions take turns, an interpreter each: points of 384 dimensions are counted and asked in 1,000 rows, by the
processor's time on one thread, and the best of all rounds counts. ``--write`` writes the table into the page of
explanations.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import page

ROUNDS, ROWS, DIM, POINTS, ASKED, RUNS = 7, 1000, 384, 2000, 300, 2
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "embeddings.md"
START, END = "<!-- race: python -m benchmarks.race_rates OTHER/src --write -->", "<!-- end of race -->"

# What both versions have; a run that is not timed comes first, and compiles.
WORK = f"""
import json, time
import numpy as np
import dpsketch as dps
rng = np.random.default_rng(1)
points = rng.normal(size=({POINTS}, {DIM}))
points /= np.linalg.norm(points, axis=1, keepdims=True)
def best(call, count):
    seconds = []
    for _ in range({RUNS} + 1):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return count / min(seconds[1:])
found = {{}}
for name, kernel in (
    ("angular of power 1", dps.kernels.Angular({DIM}, 1)), ("angular of power 2", dps.kernels.Angular({DIM}, 2)),
    ("Euclidean", dps.kernels.Euclidean({DIM}, 0.5)),
):
    sketch = dps.DensitySketch(kernel=kernel, rows={ROWS}, unit=dps.per_record())
    found[name + ", counted"] = best(lambda: sketch.update(points), {POINTS})
    released = sketch.release(epsilon=1.0, delta=1e-5)
    found[name + ", asked"] = best(lambda: released.estimate(points[:{ASKED}]), {ASKED})
print(json.dumps(found))
"""


def rates(source: Path) -> dict[str, float]:
    """Return points a second of one version, in an interpreter of its own."""
    one = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORK], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(before: list[dict[str, float]], now: list[dict[str, float]]) -> str:
    """Return the table in Markdown."""
    lines = ["| RACE, points/s | before | now | ratio |", "|---|---:|---:|---:|"]
    for name in now[0]:
        best = [max(each[name] for each in rounds) for rounds in (before, now)]
        lines.append(f"| {name} | {best[0]:,.0f} | {best[1]:,.0f} | {best[1] / best[0]:.2f} |")
    said = (
        f"{ROWS:,} rows, {DIM} dimensions, one thread; the versions took turns for {len(now)} rounds, and the best "
        "by the processor's time counts. *Before* is the first version with densities."
    )
    return "\n".join([*lines, "", said])


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("other", type=Path, help="the sources of the earlier version")
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    before, now = [], []
    for _ in range(ROUNDS):
        before.append(rates(asked.other.resolve()))
        now.append(rates(ROOT / "src"))
    made = table(before, now)
    print(made)
    if asked.write:
        page.replace(PAGE, made, START, END)


if __name__ == "__main__":
    main()
