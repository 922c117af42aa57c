"""Measure distinct counts where users are protected: ``DPSKETCH_DATA=… python docs/figures/distinct.py`` (a minute).

Three public sets, one line a user: what is counted if some keys of each user are, and if keys find owners. Errors are
root mean squares over 20 releases.
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pages import table, write_table

import dpsketch as dps
from dpsketch.bounding import bound
from dpsketch.hashing import fingerprint

PAGE = Path(__file__).parent.parent / "explanation" / "distinct.md"
SETS = {"retail": "retail.dat", "kosarak's head": "kosarak_head36682.dat", "gowalla": "gowalla.dat"}
EPSILON = 1.0

Integers = npt.NDArray[np.int64]


def pairs_of(file: str) -> tuple[Integers, Integers]:
    """Return users and keys of a file, each pair once."""
    path = Path(os.environ["DPSKETCH_DATA"]) / "sets" / f"{file}.xz"
    with lzma.open(path, "rt") as lines:
        held = [sorted({int(key) for key in line.split()}) for line in lines]
    users = np.repeat(np.arange(len(held)), [len(keys) for keys in held])
    return users, np.array([key for keys in held for key in keys])


def main() -> None:
    """Count, and write the table."""
    rows = []
    for name, file in SETS.items():
        users, keys = pairs_of(file)
        truth = len(np.unique(keys))
        for most in (1, 3, 10, 30):
            kept = bound(users, fingerprint(keys), 1, max_keys=most, max_units=1, seed=1)
            capped = len(np.unique(kept.fingerprints))
            sketch = dps.DistinctSet(unit=dps.per_user(max_keys=most))
            sketch.update(keys, users=users)
            found = [sketch.release(epsilon=EPSILON, delta=0).count for _ in range(20)]
            error = float(np.sqrt(np.mean((np.array(found) - truth) ** 2)))
            plain = float(np.hypot(capped - truth, np.sqrt(2) * most / EPSILON))
            cut = sketch.cut
            rows.append([name, f"{truth:,}", most, f"{cut.records - cut.left_out:,}", f"{error:,.0f}", f"{capped:,}",
                         f"{plain:,.0f}"])  # fmt: skip
    head = ["data", "keys", "max_keys", "with owners", "error", "kept by a cap", "its error"]
    write_table(PAGE, "owners: docs/figures/distinct.py", table(head, rows))


if __name__ == "__main__":
    main()
