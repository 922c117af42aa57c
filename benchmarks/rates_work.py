"""What `benchmarks.rates` times in one interpreter: each piece of work by the processor's time, the least of some runs.

Run with either version's sources in ``PYTHONPATH``, so it uses what both have. The last line on standard error has the
records a second of each piece. All is on one thread and compiled: a run that is not timed comes first.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dpsketch as dps
from dpsketch.noise import DiscreteLaplace, RoundedGaussian

RUNS = 16
Work = Callable[[], Any]


@cache
def integers(n: int, below: int = 2**40) -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, below, n)


@cache
def texts(n: int) -> Any:
    return pa.array([f"/page/{page}" for page in integers(n, 10**6).tolist()])


@cache
def reals(n: int, columns: int = 1) -> npt.NDArray[np.float64]:
    return np.random.default_rng(2).random((n, columns))


def counting(unit: dps.Unit, grid: float = 1) -> dps.CountSketch:
    return dps.CountSketch(rows=5, width=65_536, unit=unit, grid=grid)


def count_integers(n: int) -> Work:
    return partial(counting(dps.per_record()).update, integers(n))


def count_texts(n: int) -> Work:
    return partial(counting(dps.per_record()).update, texts(n))


def count_weights(n: int) -> Work:
    return partial(counting(dps.per_record(max_weight=1), 0.01).update, integers(n), weights=reals(n)[:, 0])


def count_users(n: int) -> Work:
    sketch = counting(dps.per_user(max_keys=5))
    return partial(sketch.update, integers(n, 10**5), users=integers(n, n // 10)[::-1])


def moment(p: float, n: int) -> Work:
    return partial(dps.MomentSketch(p=p, size=16, unit=dps.per_record()).update, integers(n))


def spread(n: int) -> npt.NDArray[np.int64]:
    return np.arange(n) * 2654435761 % 2**32


def sparse() -> dps.SparseHistogram:
    return dps.SparseHistogram(unit=dps.per_record(), domain=2**32, max_value=100)


def sparse_update(n: int) -> Work:
    return partial(sparse().update, spread(n), counts=spread(n) % 100 + 1)


def sparse_release(n: int) -> Work:
    histogram = sparse()
    histogram.update(spread(n), counts=spread(n) % 100 + 1)
    return partial(histogram.release, epsilon=1, delta=0)


@cache
def sparse_estimate(n: int) -> Work:
    return partial(sparse_release(n)().estimate, spread(n))


def density(n: int) -> Work:
    kernel = dps.kernels.Euclidean(10, 2.0)
    return partial(dps.DensitySketch(kernel=kernel, rows=100, width=256, unit=dps.per_record()).update, reals(n, 10))


def ranges(bits: int, n: int) -> Work:
    return partial(dps.RangeSketch(unit=dps.per_record(), bits=bits).update, integers(n, 2**bits))


def heavy(n: int) -> Work:
    return partial(dps.HeavyHitters(unit=dps.per_record(), key_bits=32).update, integers(n, 2**32))


def heavy_users(n: int) -> Work:
    sketch = dps.HeavyHitters(unit=dps.per_user(max_keys=5), key_bits=32)
    return partial(sketch.update, integers(n, 2**32), users=integers(n, n // 10)[::-1])


def histogram(n: int) -> Work:
    return partial(dps.Histogram(unit=dps.per_record()).update, texts(n))


def histogram_users(n: int) -> Work:
    return partial(dps.Histogram(unit=dps.per_user(max_keys=5)).update, texts(n), users=integers(n, n // 10)[::-1])


def small(n: int) -> Work:
    """Count in batches of 100 records."""
    sketch, keys = counting(dps.per_record()), integers(n)

    def work() -> None:
        for start in range(0, n, 100):
            sketch.update(keys[start : start + 100])

    return work


def released(updated: Callable[[int], Work], n: int) -> Work:
    work: Any = updated(n)
    work()
    return partial(work.func.__self__.release, epsilon=1, delta=1e-6)


def noise(law: DiscreteLaplace | RoundedGaussian, n: int) -> Work:
    return partial(law.sample, n)


PIECES: dict[str, tuple[Callable[[int], Work], int]] = {
    "counts of integers": (count_integers, 1_000_000),
    "counts of texts": (count_texts, 500_000),
    "counts with weights": (count_weights, 500_000),
    "counts of users": (count_users, 300_000),
    "counts in batches of 100": (small, 100_000),
    "counts: release": (partial(released, count_integers), 300_000),
    "ranges of 16 bits": (partial(ranges, 16), 500_000),
    "ranges of 24 bits": (partial(ranges, 24), 400_000),
    "ranges of 24 bits: release": (partial(released, partial(ranges, 24)), 100_000),
    "heavy, records": (heavy, 400_000),
    "heavy, users": (heavy_users, 200_000),
    "histogram of records": (histogram, 300_000),
    "histogram of users": (histogram_users, 200_000),
    "histogram of records: release": (partial(released, histogram), 100_000),
    "histogram of users: release": (partial(released, histogram_users), 100_000),
    "moments, p = 1": (partial(moment, 1.0), 100_000),
    "moments, p = 0.5": (partial(moment, 0.5), 100_000),
    "sparse (ALP): update": (sparse_update, 100_000),
    "sparse (ALP): release": (sparse_release, 20_000),
    "sparse (ALP): estimate": (sparse_estimate, 20_000),
    "density: update": (density, 40_000),
    "Laplace noise, scale 1": (partial(noise, DiscreteLaplace(1.0, 1)), 1_000_000),
    "Laplace noise, scale 1,000": (partial(noise, DiscreteLaplace(1.0, 1000)), 1_000_000),
    "Gaussian noise, σ = 3": (partial(noise, RoundedGaussian(3.0)), 1_000_000),
    "Gaussian noise, σ = 1,000": (partial(noise, RoundedGaussian(1000.0)), 1_000_000),
}


def rate(ready: Callable[[int], Work], n: int) -> float:
    """Return how many a second of processor time, at best, after a run that compiles or loads what was compiled."""
    ready(n)()
    least = float("inf")
    for _ in range(RUNS):
        work = ready(n)
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return n / least


if __name__ == "__main__":
    os.environ["DPSKETCH_THREADS"] = "1"
    __import__("numba")  # the compiler is there from the start, in both versions
    print(json.dumps({name: rate(*piece) for name, piece in PIECES.items()}), file=sys.stderr)
