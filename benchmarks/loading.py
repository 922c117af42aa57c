"""Loading a release beside the digest of its bytes alone, which nobody who checks what is read can do without.

The files lie in the system's cache. Beside the digest, loading copies the file into memory once, so that what was
checked is what is used (of more than 4 MB on a thread of its own, while what came is hashed), and walks its metadata,
which takes as long for a small table as for a large one. The stored
integers are widened to 64 bits when a table is first asked; the time of that is the last row's.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

import dpsketch as dps
from dpsketch._digest import KEY

ROUNDS = 9
WIDTHS = (2**18, 2**22, 2**24)


def seconds(works: list[Callable[[], object]]) -> list[float]:
    """Return the best time of each, in turn."""
    found = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            found[place] = min(found[place], time.perf_counter() - start)
    return found


def read_by_others(path: Path) -> None:
    """Read a file and its digest, and its metadata as Arrow's and Python's own readers do, which check nothing else."""
    data = path.read_bytes()
    hashlib.sha256(data).digest()
    json.loads(pa.ipc.open_stream(data).read_all().schema.metadata[KEY])


def run() -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for width in WIDTHS:
            path = Path(folder) / "counts.dps"
            sketch = dps.CountSketch(rows=5, width=width, unit=dps.per_record())
            sketch.release(epsilon=1.0, delta=1e-6).save(path)
            data = path.read_bytes()
            digest, checked, others, load, asked = seconds(
                [
                    lambda data=data: hashlib.sha256(data).digest(),
                    lambda path=path: hashlib.sha256(path.read_bytes()).digest(),
                    lambda path=path: read_by_others(path),
                    lambda path=path: dps.load(path),
                    lambda path=path: dps.load(path).table,
                ]
            )
            size = f"{len(data) / 1e6:.2g}"
            row = {"name": f"a table of {size} MB: load against its digest", "ours": load * 1e3, "theirs": digest * 1e3}
            rows.append(row | {"ratio": digest / load, "unit": "ms", "reach": 0.9})
            for against, ours, theirs in (("load against reading it and its digest", load, checked),
                                          ("load against that and Arrow's and JSON's own parsing", load, others),
                                          ("load and widen against its digest", asked, digest)):  # fmt: skip
                row = {"name": f"a table of {size} MB: {against}", "ours": ours * 1e3, "theirs": theirs * 1e3}
                rows.append(row | {"ratio": theirs / ours, "unit": "ms"})
    return rows


if __name__ == "__main__":
    print(*run(), sep="\n")
