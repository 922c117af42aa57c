"""Adding keys to a CountSketch of 5 rows and width 65,536, on one core.

Against the same sketch in plain NumPy (the hash in vectorised uint64 operations, then ``np.bincount`` a row), and
against the Count-Min sketch of Apache DataSketches as Python offers it, which takes one key a call. DataSketches always
gets Python objects that are ready, in a loop that runs in C; ours is timed from the container named.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.peers import run_peer
from dpsketch._compiled.countsketch import add_ones
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch

ROWS, WIDTH = 5, 65_536
INTEGERS = 10_000_000
TEXTS = 2_000_000
PEER_KEYS = 1_000_000  # its rate does not depend on how many keys there are
REPETITIONS = 5
GOALS = {"integers, against DataSketches": 10, "Arrow strings, against DataSketches": 6}

Words = npt.NDArray[np.uint64]


def empty_table() -> npt.NDArray[np.int64]:
    return np.zeros((ROWS, WIDTH), np.int64)


def compiled(keys: Any) -> None:
    CountSketch(rows=ROWS, width=WIDTH, unit=per_record(), seed=7).update(keys)


def check(keys: npt.NDArray[np.int64]) -> None:
    """Make sure that the two sides of the comparison with NumPy compute the same table."""
    table = empty_table()
    add_ones(table, fingerprint(keys).fingerprints, row_keys(7, ROWS))
    if not np.array_equal(table, plain_numpy(keys, 65_536)):
        raise RuntimeError("the compiled sketch and the one in NumPy differ.")


def numpy_fingerprints(keys: npt.NDArray[np.int64]) -> Words:
    """Return XXH64 with seed 42 of 8 bytes, in NumPy."""
    p1, p2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
    p3, p4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
    word = keys.view(np.uint64) * p2
    word = (word << np.uint64(31) | word >> np.uint64(33)) * p1
    word ^= np.uint64(42 + 0x27D4EB2F165667C5 + 8)
    word = (word << np.uint64(27) | word >> np.uint64(37)) * p1 + p4
    word = (word ^ word >> np.uint64(33)) * p2
    word = (word ^ word >> np.uint64(29)) * p3
    return word ^ word >> np.uint64(32)


def plain_numpy(keys: npt.NDArray[np.int64], block: int) -> npt.NDArray[np.int64]:
    """Add keys a block at a time; bucket and sign share one bincount, which is faster than one with weights."""
    table = empty_table()
    for start in range(0, len(keys), block):
        fingerprints = numpy_fingerprints(keys[start : start + block])
        for r, key in enumerate(row_keys(7, ROWS)):
            z = fingerprints ^ key
            z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
            bucket = (z << np.uint64(1) >> np.uint64(32)) * np.uint64(WIDTH) >> np.uint64(32)
            cell = (bucket << np.uint64(1) | z >> np.uint64(63)).view(np.int64)
            counts = np.bincount(cell, minlength=2 * WIDTH)
            table[r] += counts[0::2] - counts[1::2]
    return table


def datasketches(keys: str) -> float:
    """Return how many keys a second DataSketches adds; ``keys`` is the code that makes them from ``numbers``."""
    return float(
        run_peer(f"""
import time
from collections import deque
from datasketches import count_min_sketch

numbers = range({PEER_KEYS})
keys = {keys}
rates = []
for _ in range(2):
    sketch = count_min_sketch({ROWS}, {WIDTH})
    start = time.perf_counter()
    deque(map(sketch.update, keys), maxlen=0)
    rates.append(len(keys) / (time.perf_counter() - start))
print(max(rates))
""")
    )


def rate(work: Callable[[], object], keys: int) -> float:
    start = time.perf_counter()
    work()
    return keys / (time.perf_counter() - start)


def text(number: int) -> str:
    return f"https://example.org/{number:08x}"


def run() -> list[dict[str, Any]]:
    integers = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, INTEGERS)
    texts = [text(number) for number in range(TEXTS)]
    column = pa.array(texts)
    check(integers[:100_000])
    compiled(column[:10])  # compiles, or loads what was compiled
    peer_texts = '[f"https://example.org/{number:08x}" for number in numbers]'
    contests: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "integers, against NumPy in one piece": (
            lambda: rate(lambda: compiled(integers), INTEGERS),
            lambda: rate(lambda: plain_numpy(integers, INTEGERS), INTEGERS),
        ),
        "integers, against NumPy in blocks of 65,536": (
            lambda: rate(lambda: compiled(integers), INTEGERS),
            lambda: rate(lambda: plain_numpy(integers, 65_536), INTEGERS),
        ),
        "integers, against DataSketches": (
            lambda: rate(lambda: compiled(integers), INTEGERS),
            lambda: datasketches("list(numbers)"),
        ),
        "Arrow strings, against DataSketches": (
            lambda: rate(lambda: compiled(column), TEXTS),
            lambda: datasketches(peer_texts),
        ),
        "list of strings, against DataSketches": (
            lambda: rate(lambda: compiled(texts), TEXTS),
            lambda: datasketches(peer_texts),
        ),
    }
    # Repetitions are interleaved, so that a busy machine disturbs every side alike; the best one counts.
    best = dict.fromkeys(contests, (0.0, 0.0))
    for _ in range(REPETITIONS):
        for name, (ours, theirs) in contests.items():
            best[name] = (max(best[name][0], ours()), max(best[name][1], theirs()))
    return [
        {"name": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs, "unit": "keys/s"}
        | ({"reach": GOALS[name]} if name in GOALS else {})
        for name, (ours, theirs) in best.items()
    ]


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:45} {row['ours'] / 1e6:8.1f} {row['theirs'] / 1e6:8.2f} M {row['unit']} {row['ratio']:6.1f}×"
        )
