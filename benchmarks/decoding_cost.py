"""Time and memory of ``decode`` by the number of candidates: ``python -m benchmarks.decoding_cost [CANDIDATES]…``.

Zipf's law at 5×1024, a fifth of the candidates absent. Each list is decoded in a process of its own, which has decoded
a short one before, so that nothing is left to load or compile. Memory is the kernel's high-water mark less what the
process held before, keys included; some of it is the answer: values, ends, and a number a key of Python's own. On
several cores the processor time is divided among them; the clock's time is that of a machine that may have more to do.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.decoding import FIRST_SEED, Case, zipf

SIZES = (10**5, 3 * 10**5, 10**6)

CHILD = """
import sys, time
from pathlib import Path
import numpy as np
import dpsketch as dps
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024
release, keys = dps.load(sys.argv[1]), np.load(sys.argv[2])
release.decode(keys[:3000])
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
sweeps, began, clock = [], time.process_time(), time.perf_counter()
answer = release.decode(keys, progress=lambda done, most: sweeps.append(done))
took, waited, peak = time.process_time() - began, time.perf_counter() - clock, status("VmHWM") - before
each = 2**20 * peak / len(keys)
# A list's place and a number of Python's for each key, and three numbers.
own = (8 * len(keys) + sum(map(sys.getsizeof, answer.key))) / len(keys) + 24
memory = f"{peak:.0f} MB, {each:.0f} bytes each, {each - own:.0f} beside the answer"
print(f"{len(keys):>9,} candidates: {took:.2f} s of processor time ({waited:.2f} s) in {sweeps[-1]} sweeps, {memory}")
"""


def main() -> None:
    """Measure and print."""
    for size in map(int, sys.argv[1:] or SIZES):
        with tempfile.TemporaryDirectory() as folder:
            release, keys, *_ = Case("cost", zipf(1.05, size * 4 // 5), 5, 1024).release(FIRST_SEED)
            files = Path(folder, "release.dps"), Path(folder, "keys.npy")
            release.save(files[0])
            np.save(files[1], keys)
            subprocess.run([sys.executable, "-c", CHILD, *map(str, files)], check=True)


if __name__ == "__main__":
    main()
