"""Updating a moment sketch, on one core: stable variates beside NumPy, and the cost against size and distinct keys.

NumPy computes the same variates by Chambers, Mallows and Stuck's formula in vectorised logarithms, from uniforms that
it gets for nothing or draws with its own generator, which is no cipher; ours include the cipher that makes them. NumPy
works in pieces that fit the second-level cache, which is up to three times faster than in one piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.moment import LANES, chacha20_blocks, project
from dpsketch.hashing import fingerprint
from dpsketch.privacy import per_record
from dpsketch.sketches.moment import MomentSketch

VARIATES = 4_000_000
RECORDS = 1_000_000
PIECE = 20_000
REPETITIONS = 5
SECRET = np.arange(1, 9, dtype=np.uint32)

Floats = npt.NDArray[np.float64]


def numpy_variates(p: float, u: Floats, v: Floats, signs: Floats) -> Floats:
    """Return stable variates in plain NumPy."""
    theta = np.pi / 2 * u
    logs = np.log(np.sin(p * theta)) - np.log(np.cos(theta)) / p
    if p < 1:
        logs += (1 - p) / p * (np.log(np.cos((1 - p) * theta)) - np.log(-np.log(v)))
    return signs * np.exp(logs)


def given_uniforms(p: float, weights: Floats, size: int, piece: tuple[Floats, Floats, Floats]) -> Floats:
    """Sum weighted variates, from one piece of uniforms that is used again and again."""
    sums = np.zeros(size)
    step = len(piece[0])
    for start in range(0, len(weights), step):
        some = weights[start : start + step]
        sums += some @ numpy_variates(p, *(part[: len(some)] for part in piece))
    return sums


def own_uniforms(p: float, weights: Floats, size: int, step: int) -> Floats:
    """Sum weighted variates, from NumPy's own generator."""
    rng = np.random.default_rng(1)
    sums = np.zeros(size)
    for start in range(0, len(weights), step):
        some = weights[start : start + step]
        u, v = rng.random((len(some), size)), rng.random((len(some), size))
        sums += some @ numpy_variates(p, u, v, np.where(rng.integers(0, 2, u.shape, dtype=np.int8), 1.0, -1.0))
    return sums


def uniforms_of(key: int, size: int) -> tuple[Floats, Floats, Floats]:
    """Return the uniforms and signs that the sketch derives for one key, in the order of its rows."""
    blocks = -(-size // 4)
    inputs, words = np.zeros(4 * LANES, np.uint32), np.empty(16 * LANES, np.uint32)
    inputs[:LANES] = np.arange(LANES)
    inputs[2 * LANES : 3 * LANES] = key
    chacha20_blocks(SECRET, inputs, words)
    slots = words.reshape(4, 4, LANES)[:, :, :blocks].astype(np.uint64)
    first = (slots[:, 0] << np.uint64(20)) | (slots[:, 1] >> np.uint64(12))
    second = (slots[:, 2] << np.uint64(20)) | (slots[:, 3] >> np.uint64(12))
    signs = np.where(slots[:, 1] & np.uint64(1), -1.0, 1.0).ravel()[:size]
    return (first.ravel()[:size] + 0.5) * 2.0**-52, (second.ravel()[:size] + 0.5) * 2.0**-52, signs


def check(p: float, size: int) -> None:
    """Make sure that both sides compute the same variates from the same uniforms."""
    sums = np.zeros(-(-size // 4) * 4)
    project(sums, SECRET, np.array([7], np.uint64), np.ones(1), p)
    if not np.allclose(sums[:size], numpy_variates(p, *uniforms_of(7, size)), rtol=1e-9):
        raise RuntimeError("the compiled variates and those in NumPy differ.")


def rate(work: Callable[[], object], amount: int) -> float:
    start = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start)


def compiled_update(keys: npt.NDArray[np.int64], size: int) -> None:
    MomentSketch(p=0.5, size=size, unit=per_record()).update(keys)


def numpy_update(keys: npt.NDArray[np.int64], size: int) -> None:
    """Do what an update does in NumPy: fingerprint, sum equal keys, project each key once."""
    _, counts = np.unique(fingerprint(keys).fingerprints, return_counts=True)
    own_uniforms(0.5, counts.astype(np.float64), size, PIECE // size)


def run() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    contests: dict[str, tuple[str, Callable[[], float], Callable[[], float]]] = {}
    for p, size in ((0.5, 200), (0.75, 200), (1.0, 200), (0.5, 50), (0.5, 1000)):
        check(p, size)
        keys = rng.integers(0, 2**64, VARIATES // size, dtype=np.uint64)
        weights = rng.uniform(1, 9, len(keys))
        shape = (PIECE // size, size)
        piece = (rng.random(shape), rng.random(shape), np.where(rng.random(shape) < 0.5, 1.0, -1.0))

        def ours(p: float = p, size: int = size, keys: Any = keys, weights: Floats = weights) -> float:
            return rate(lambda: project(np.zeros(-(-size // 4) * 4), SECRET, keys, weights, p), VARIATES)

        def free(p: float = p, size: int = size, weights: Floats = weights, piece: Any = piece) -> float:
            return rate(lambda: given_uniforms(p, weights, size, piece), VARIATES)

        def drawn(p: float = p, size: int = size, weights: Floats = weights) -> float:
            return rate(lambda: own_uniforms(p, weights, size, PIECE // size), VARIATES)

        contests[f"variates, p = {p:g}, size {size}, NumPy given uniforms"] = ("variates/s", ours, free)
        contests[f"variates, p = {p:g}, size {size}, NumPy draws them"] = ("variates/s", ours, drawn)
    for distinct in (1_000, 10_000, 100_000, 1_000_000):
        records = rng.permutation(np.arange(RECORDS) % distinct)
        contests[f"a million records, {distinct:,} distinct, size 50"] = (
            "records/s",
            lambda records=records: rate(lambda: compiled_update(records, 50), RECORDS),
            lambda records=records: rate(lambda: numpy_update(records, 50), RECORDS),
        )
    # Repetitions are interleaved, so that a busy machine disturbs both sides alike; the best one counts.
    best = dict.fromkeys(contests, (0.0, 0.0))
    for repetition in range(REPETITIONS):
        for name, (_, one, other) in contests.items():
            # The slow side of the large contests is as slow the second time.
            theirs = best[name][1] if repetition > 1 and "million" in name else other()
            best[name] = (max(best[name][0], one()), max(best[name][1], theirs))
    return [
        {"name": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs, "unit": contests[name][0]}
        for name, (ours, theirs) in best.items()
    ]


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:55} {row['ours'] / 1e6:8.1f} {row['theirs'] / 1e6:8.2f} M {row['unit']} {row['ratio']:6.1f}×"
        )
