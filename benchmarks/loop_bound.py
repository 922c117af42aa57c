"""Adding keys beside the physical limit: increments at random places of a table of the same size, and nothing else.

Two limits. *Anywhere*: the places are random in the whole table, as a sketch that takes one key after the other would
have it. *Row by row*: all increments of a row come together, which is kinder to the cache and is how ours works; no
sketch can be faster than that. The places are ready, in 32-bit integers; ours has the hashing to do beside it.

The hashing by itself is measured too: fingerprints, and a bucket and a sign for each row, into memory that stays in the
cache. Nobody spares it, so that *increments and hashing, one after the other* is what a loop reaches that loses nothing
between the two. It stands between ours and the goal of .6 of increments without any hashing.

The wide tables do not fit the cache; the goal there is half of what 65,536 counters a row give. What the machine's own
increments lose by the same width stands beside it: from some 2²² counters on a row is in no cache, and they fall to an
eighth of their narrow rate. Two cores share a memory: two sketches that know nothing of each other, each on a thread of
its own, show what they have to give. Rates of one core are per second of its time; rounds alternate, and the best of
each counts; two cores against one is the median of alternating runs, by the clock.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from dpsketch import threads
from dpsketch._compiled.countsketch import PIECE, locate
from dpsketch._compiled.hashing import hash_integers
from dpsketch.hashing import FINGERPRINT_SEED, row_keys
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch

ROWS, WIDTH = 5, 65_536
WIDE = (2**20, 2**22)
KEYS = 1 << 23
PLACES = 1 << 20
ROUNDS = 7


@numba.njit(nogil=True)
def anywhere(counters: Any, places: Any) -> None:
    for place in places:
        counters[np.uint64(place)] += 1


@numba.njit(nogil=True)
def row_by_row(table: Any, places: Any) -> None:
    for row in table:
        for place in places:
            row[np.uint64(place)] += 1


@numba.njit(nogil=True)
def hash_alone(words: Any, row_keys: Any, width: Any, prints: Any, buckets: Any, signs: Any) -> None:
    for start in range(0, len(words), len(prints)):
        piece = words[start : start + len(prints)]
        hash_integers(piece, FINGERPRINT_SEED, prints[: len(piece)])
        for row_key in row_keys:
            locate(prints[: len(piece)], row_key, width, buckets, signs)


def rate(work: Callable[[], object], keys: int, clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    work()
    return keys / (clock() - start)


def best(contests: dict[str, Callable[[], float]]) -> dict[str, float]:
    found = dict.fromkeys(contests, 0.0)
    for _ in range(ROUNDS):
        for name, work in contests.items():
            found[name] = max(found[name], work())
    return found


def adding(keys: Any, width: int, clock: Callable[[], float] = time.process_time) -> Callable[[], float]:
    sketch = CountSketch(rows=ROWS, width=width, unit=per_record())
    sketch.update(keys)  # compiles, or loads what was compiled, and touches the memory
    return lambda: rate(lambda: sketch.update(keys), len(keys), clock)


def hashing(keys: Any) -> Callable[[], float]:
    words = keys.view(np.uint64)[:PLACES]
    scratch = np.empty(PIECE, np.uint64), np.empty(PIECE, np.int32), np.empty(PIECE, np.int8)
    return lambda: rate(lambda: hash_alone(words, row_keys(1, ROWS), np.uint64(WIDTH), *scratch), len(words))


def apart(texts: Any) -> Callable[[], float]:
    """Two sketches, each with half of the texts and a thread of its own."""
    halves = [texts[: len(texts) // 2], texts[len(texts) // 2 :]]
    sketches = [CountSketch(rows=ROWS, width=WIDTH, unit=per_record()) for _ in halves]
    tasks = [partial(sketch.update, half) for sketch, half in zip(sketches, halves, strict=True)]
    return lambda: rate(lambda: threads.run(tasks), len(texts), time.perf_counter)


def limits() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**62, KEYS)
    table = np.zeros((ROWS, WIDTH), np.int64)
    everywhere = rng.integers(0, ROWS * WIDTH, ROWS * PLACES).astype(np.int32)
    in_a_row = rng.integers(0, WIDTH, PLACES).astype(np.int32)
    contests = {
        "ours": adding(keys, WIDTH),
        "increments anywhere": lambda: rate(lambda: anywhere(table.reshape(-1), everywhere), PLACES),
        "increments row by row": lambda: rate(lambda: row_by_row(table, in_a_row), PLACES),
        "hashing": hashing(keys),
    }
    for width in WIDE:
        wide, at = np.zeros((ROWS, width), np.int64), rng.integers(0, width, PLACES).astype(np.int32)
        contests[f"{width:,} wide"] = adding(keys, width)
        contests[f"{width:,} wide, increments"] = lambda wide=wide, at=at: rate(lambda: row_by_row(wide, at), PLACES)
    for work in contests.values():
        work()
    found = best(contests)
    both = "increments row by row and hashing, one after the other"
    found[both] = 1 / (1 / found["increments row by row"] + 1 / found["hashing"])
    rows = [_row(f"5×65,536 against {name}", found["ours"], found[name]) for name in ("increments anywhere", both)]
    rows[0]["reach"] = 0.6
    rows.insert(1, _row("5×65,536 against increments row by row", found["ours"], found["increments row by row"], 0.6))
    for width in WIDE:
        mine, limit = found[f"{width:,} wide"], found[f"{width:,} wide, increments"]
        narrow = found["increments row by row"]
        rows += [
            _row(f"5×{width:,} against 5×65,536", mine, found["ours"], 0.5),
            _row(f"5×{width:,} against increments row by row", mine, limit),
            _row(f"the machine's own: increments at 5×{width:,} against 5×65,536", limit, narrow),
        ]
    return rows


def _row(name: str, ours: float, theirs: float, reach: float | None = None) -> dict[str, Any]:
    row = {"name": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs, "unit": "keys/s"}
    return row if reach is None else row | {"reach": reach}


def cores() -> list[dict[str, Any]]:
    """Two threads against one; the ratio is the median over alternating runs."""
    numbers = np.random.default_rng(2).integers(0, 2**62, KEYS)
    texts = pa.array([f"https://example.org/{number:08x}" for number in range(KEYS // 4)])
    rows = []
    before = os.environ.get("DPSKETCH_THREADS")
    try:
        for name, keys in (("integers", numbers), ("Arrow strings", texts)):
            together, alone = adding(keys, WIDTH, time.perf_counter), apart(keys)
            contests = {"one": ("1", together), "two cores": ("2", together), "two sketches at once": ("1", alone)}
            rates: dict[str, list[float]] = {each: [] for each in contests}
            for _ in range(2 * ROUNDS):
                for each, (count, work) in contests.items():
                    os.environ["DPSKETCH_THREADS"] = count
                    rates[each].append(work())
            for each, goal in (("two cores", {"reach": 1.5}), ("two sketches at once", {})):
                ratio = statistics.median(two / one for one, two in zip(rates["one"], rates[each], strict=True))
                two, one = statistics.median(rates[each]), statistics.median(rates["one"])
                rows.append(_row(f"{name}: {each} against one", two, one) | {"ratio": ratio} | goal)
    finally:
        if before is None:
            del os.environ["DPSKETCH_THREADS"]
        else:
            os.environ["DPSKETCH_THREADS"] = before
    return rows


def run() -> list[dict[str, Any]]:
    return limits() + cores()
