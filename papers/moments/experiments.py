"""Streams, the published sketch and ours over them, and the errors."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from dpsketch.accounting import compose
from dpsketch.privacy import MomentCost
from dpsketch.sketches.moment import as_published as paper

RECORDS, KEYS, MOST = 2**15, 2**20, 16
"""The setting of Figure 3."""
SIZE = 50
RATE = 0.02
EPSILON, DELTA = 1.0, 1e-6

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """Records of weight 1, by key.

    Attributes
    ----------
    keys : numpy.ndarray
        The records' keys.
    distinct, counts : numpy.ndarray
        The keys that occur, and how often.
    """

    keys: Integers
    distinct: Integers
    counts: Integers

    @classmethod
    def of(cls, keys: Integers) -> Self:
        """Count a stream's keys."""
        return cls(keys, *np.unique(keys, return_counts=True))

    def moment(self, p: float) -> float:
        """Return F_p, exactly."""
        return float(np.sum(self.counts.astype(np.float64) ** p))


def exact_ratio(p: float, records: int, most: float) -> float:
    """Return the exact ratio of F_p between streams of so many records, one of them replaced by another."""
    return float(((records - 1) ** p + most**p) / records**p)


def charged_ratio(p: float, records: int, most: float) -> float:
    """Return the ratio that a release is charged for: a record may also be replaced by nothing."""
    unit = dps.per_record(max_weight=most, neighbours="replace")
    return dps.MomentSketch(p=p, size=SIZE, unit=unit, public_total=records, grid=1).spec.ratio(0.0)


def budgets(exponents: Sequence[float]) -> dict[str, list[float]]:
    """Return ε for each p in the setting of Figure 3: claimed, forced by one pair, and exact without sampling."""
    setting = {"size": SIZE, "rate": RATE}
    bounds = [paper.theorem_1_ratio(p, records=RECORDS, keys=KEYS, max_weight=MOST) for p in exponents]
    costs = [MomentCost(p, SIZE, charged_ratio(p, RECORDS, MOST)) for p in exponents]
    return {
        "Theorem 4 (false)": [
            paper.theorem_4_epsilon(p, **setting, ratio=bound) for p, bound in zip(exponents, bounds, strict=True)
        ],
        "one pair forces on Algorithm 2": [
            paper.epsilon_of_pair(p, **setting, records=RECORDS, max_weight=MOST) for p in exponents
        ],
        "dpsketch, no sampling, δ = 1e-6": [compose([cost], delta=DELTA) for cost in costs],
        "dpsketch, no sampling, δ = 0": [compose([cost], delta=0) for cost in costs],
    }


def synthetic(sizes: Sequence[int]) -> dict[str, list[Stream]]:
    """Return streams of these lengths whose keys are uniform, or binomial, over 1,000."""
    rng = np.random.default_rng(1)
    return {
        "uniform": [Stream.of(rng.integers(0, 1000, size)) for size in sizes],
        "binomial": [Stream.of(rng.binomial(999, 0.5, size)) for size in sizes],
    }


def published(stream: Stream, p: float, keys: int) -> float:
    """Return Algorithm 2's estimate: 50 coordinates, sampled at 0.02, geometric mean."""
    unit = dps.per_record(neighbours="replace")
    sketch = dps.MomentSketchAsPublished(p=p, size=SIZE, unit=unit, records=len(stream.keys), keys=keys, rate=RATE)
    sketch.update(stream.keys)
    return sketch.release_as_published().value


def ours(stream: Stream, p: float, keys: int) -> float:
    """Return the library's estimate: 50 coordinates, ε = 1, δ = 1e-6, nothing assumed public, not even ``keys``."""
    sketch = dps.MomentSketch(p=p, size=SIZE, unit=dps.per_record())
    sketch.update(stream.distinct, counts=stream.counts)
    return sketch.release(epsilon=EPSILON, delta=DELTA).value


def errors(estimate: Callable[[Stream, float, int], float], stream: Stream, p: float, keys: int, runs: int) -> Floats:
    """Return the relative errors |estimate/F_p − 1| of several runs."""
    truth = stream.moment(p)
    return np.array([abs(estimate(stream, p, keys) / truth - 1) for _ in range(runs)])


def spread(p: float, estimator: str, runs: int) -> float:
    """Return the relative root-mean-square error of 50 coordinates without floor or sampling."""
    total = 10**15  # public, so that no floor is needed
    found = []
    for _ in range(runs):
        unit = dps.per_record(neighbours="replace")
        sketch = dps.MomentSketch(p=p, size=SIZE, unit=unit, public_total=total, grid=1)
        sketch.update([1], counts=[total])
        private = sketch.release(epsilon=EPSILON, delta=DELTA, estimator=estimator)
        found.append((private.value / total**p - 1) ** 2)
    return float(np.sqrt(np.mean(found)))


def read_trace(path: Path, records: int) -> Stream:
    """Draw records, without replacement, from a trace of big-endian 64-bit keys."""
    keys = np.frombuffer(lzma.decompress(path.read_bytes()), ">i8").astype(np.int64)
    return Stream.of(np.random.default_rng(1).choice(keys, records, replace=False))
