"""Finding the frequent keys: 10⁶ records, Zipf(1.1) on 10⁵ keys, ε = 1, δ = 10⁻⁶, threshold 300.

Against the frequent-items sketch of Apache DataSketches on the same stream, which is not private: it shows what privacy
costs in what is found, and how fast records go in, by processor time (one a call there, from objects that are ready;
one thread). The time from the last record to the list is held against a limit of two seconds. For times, a ratio above
1 is below the limit.

The search is also held against a part of what any search has to do, in the same run: to hash all that may follow the
prefixes of the keys listed, and to take each median once. It is slowest where many keys are equally clear, and of many
bytes: 2,000 keys of 5,000 each, of which every cell of a table has half a key.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from benchmarks.peers import run_peer
from dpsketch._compiled.countsketch import row_values
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch.estimates import median_of_rows
from dpsketch.sketches.heavy import HeavyHitters

RECORDS, KEYS, SKEW, THRESHOLD = 10**6, 10**5, 1.1, 300
LIMIT = 2.0
EQUAL, EACH = 2000, 5000
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


def looking_once(private: dps.PrivateHeavyHitters, keys: pa.Array) -> None:
    """Take the median of all that may follow a prefix of some keys, level by level."""
    space = private.spec.space
    parsed = space.parse(pa.chunked_array([keys]))
    for number, (table, row_keys) in enumerate(zip(private.tables, private.row_keys, strict=True)):
        depth = space.dense_depth + number
        prefixes = parsed.cut(depth)
        distinct = np.unique(prefixes.prints(), return_index=True)[1]
        median_of_rows(row_values(table, prefixes.take(distinct).children_prints(depth), row_keys))


def searching(kind: str, private: dps.PrivateHeavyHitters) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return what a search lists, and how long it takes beside its limit and beside one look."""
    document = private.to_document()
    wait = once = float("inf")
    for _ in range(REPETITIONS):
        fresh = type(private).from_document(document)
        start = time.perf_counter()
        found = fresh.top()
        wait = min(wait, time.perf_counter() - start)
        keys = pa.array(found.key, pa.string() if private.spec.key_type == "text" else pa.uint64())
        start = time.perf_counter()
        looking_once(private, keys)
        once = min(once, time.perf_counter() - start)
    return found.key, [
        {"name": f"{kind}: search", "ours": wait, "theirs": LIMIT, "ratio": LIMIT / wait, "unit": "s", "reach": 1.0},
        {"name": f"{kind}: search, beside one look at each prefix", "ours": wait, "theirs": once,
         "ratio": once / wait, "unit": "s"},
    ]  # fmt: skip


def equal_keys(kind: str, space: dict[str, int]) -> list[dict[str, Any]]:
    """Search among keys that are all equally clear, and see that all are listed."""
    rng = np.random.default_rng(1)
    if "key_bytes" in space:
        words = {"".join(map(chr, rng.integers(97, 123, rng.integers(8, 25)))) for _ in range(EQUAL)}
        keys = pa.array(sorted(words))
    else:
        keys = pa.array(rng.integers(0, 2**62, EQUAL))
    sketch = HeavyHitters(unit=per_record(), rows=7, width=4096, **space)
    sketch.update(keys, counts=np.full(len(keys), EACH))
    listed, rows = searching(f"{EQUAL:,} equal {kind}", sketch.release(epsilon=1.0, delta=1e-6))
    right = len(set(listed) & set(keys.to_pylist()))
    rows.append({"name": f"{EQUAL:,} equal {kind}: listed", "ours": right, "theirs": len(keys),
                 "ratio": right / len(keys), "unit": "keys", "reach": 1.0})  # fmt: skip
    return rows


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
        private = sketch.release(epsilon=1.0, delta=1e-6)
        found = private.top(threshold=THRESHOLD)
        wait = min(wait, time.perf_counter() - added)
    peer_rate, peer_found = run_peer(PEER.format(text=made["text"], make=MAKE, threshold=THRESHOLD))
    rows = [
        {"name": f"{kind}: adding", "ours": rate, "theirs": peer_rate, "ratio": rate / peer_rate, "unit": "keys/s"},
        {"name": f"{kind}: release and search", "ours": wait, "theirs": LIMIT, "ratio": LIMIT / wait, "unit": "s"},
        *searching(kind, private)[1],
    ]
    theirs = figures(peer_found, truth)
    for name, ours in figures(found.key, truth).items():
        peer = theirs[name]
        rows.append({"name": f"{kind}: {name}", "ours": ours, "theirs": peer, "ratio": ours / peer, "unit": ""})
    return rows


def run() -> list[dict[str, Any]]:
    return [
        *contest("64-bit integers", {"key_bits": 64}),
        *contest("texts of 4 to 24 bytes", {"key_bytes": 24}),
        *equal_keys("64-bit integers", {"key_bits": 64}),
        *equal_keys("texts of 8 to 24 bytes", {"key_bytes": 24}),
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:65} {row['ours']:12.4g} {row['theirs']:12.4g} {row['unit']:7} {row['ratio']:7.3f}×")
