"""Finding the frequent keys: 10⁶ records, Zipf(1.1) on 10⁵ keys, ε = 1, δ = 10⁻⁶, threshold 300.

Against the frequent-items sketch of Apache DataSketches on the same stream, which is not private: it shows what privacy
costs in what is found, and how fast records go in, by processor time (one a call there, from objects that are ready;
one thread). The time from the last record to the list is held against a limit of ten seconds. For times, a ratio above
1 is below the limit.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from benchmarks.peers import run_peer
from dpsketch.privacy import per_record
from dpsketch.sketches.heavy import HeavyHitters

RECORDS, KEYS, SKEW, THRESHOLD = 10**6, 10**5, 1.1, 300
LIMIT = 10.0
REPETITIONS = 3

# Runs here and in the peer's interpreter, so that both see the same stream.
MAKE = f"""
import numpy as np
rng = np.random.default_rng(1)
shares = np.arange(1, {KEYS} + 1) ** -{SKEW}
counts = rng.multinomial({RECORDS}, shares / shares.sum())
if text:
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(4, 25)))) for _ in range({KEYS})]
    names = np.array(words, dtype=object)
else:
    names = rng.integers(0, 2**64 - 1, {KEYS}, dtype=np.uint64, endpoint=True)
stream = rng.permutation(np.repeat(names, counts))
"""

PEER = """
import json, time
from collections import deque
import datasketches
text = {text}
{make}
keys = stream.tolist()
sketch = datasketches.frequent_strings_sketch(14) if text else datasketches.frequent_items_sketch(14)
start = time.process_time()
deque(map(sketch.update, keys), maxlen=0)
rate = len(keys) / (time.process_time() - start)
kind = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
found = [row[0] for row in sketch.get_frequent_items(kind, {threshold}) if row[1] >= {threshold}]
print(json.dumps([rate, found]))
"""


def figures(found: list[Any], truth: dict[Any, int]) -> dict[str, float]:
    """Return recall and precision, strictly at the threshold and with the benefit of the doubt."""

    def recall(least: float) -> float:
        frequent = {key for key, count in truth.items() if count >= least}
        return len(frequent.intersection(found)) / len(frequent)

    def precision(least: float) -> float:
        return sum(truth.get(key, 0) >= least for key in found) / max(1, len(found))

    return {
        f"recall over counts of at least {1.15 * THRESHOLD:g}": recall(1.15 * THRESHOLD),
        f"precision, right at counts of at least {THRESHOLD / 2:g}": precision(THRESHOLD / 2),
        "recall, strict": recall(THRESHOLD),
        "precision, strict": precision(THRESHOLD),
    }


def contest(kind: str, space: dict[str, int]) -> list[dict[str, Any]]:
    made: dict[str, Any] = {"text": "key_bytes" in space}
    exec(MAKE, made)
    stream = made["stream"]
    column = pa.array(stream) if made["text"] else stream
    truth: dict[Any, int] = {}
    for name, count in zip(made["names"].tolist(), made["counts"].tolist(), strict=True):
        truth[name] = truth.get(name, 0) + count
    rate, wait = 0.0, float("inf")
    for _ in range(REPETITIONS):
        sketch = HeavyHitters(unit=per_record(), rows=7, width=4096, **space)
        sketch.update(column[:10])  # compiles, or loads what was compiled
        sketch = sketch.empty_like()
        start = time.process_time()
        sketch.update(column)
        rate = max(rate, len(stream) / (time.process_time() - start))
        added = time.perf_counter()
        found = sketch.release(epsilon=1.0, delta=1e-6).top(threshold=THRESHOLD)
        wait = min(wait, time.perf_counter() - added)
    peer_rate, peer_found = run_peer(PEER.format(text=made["text"], make=MAKE, threshold=THRESHOLD))
    rows = [
        {"name": f"{kind}: adding", "ours": rate, "theirs": peer_rate, "ratio": rate / peer_rate, "unit": "keys/s"},
        {"name": f"{kind}: release and search", "ours": wait, "theirs": LIMIT, "ratio": LIMIT / wait, "unit": "s"},
    ]
    theirs = figures(peer_found, truth)
    for name, ours in figures(found.key, truth).items():
        peer = theirs[name]
        rows.append({"name": f"{kind}: {name}", "ours": ours, "theirs": peer, "ratio": ours / peer, "unit": ""})
    return rows


def run() -> list[dict[str, Any]]:
    return contest("64-bit integers", {"key_bits": 64}) + contest("texts of 4 to 24 bytes", {"key_bytes": 24})


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:65} {row['ours']:12.4g} {row['theirs']:12.4g} {row['unit']:7} {row['ratio']:7.3f}×")
