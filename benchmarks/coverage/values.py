"""Kinds whose answers are numbers: ranges and quantiles, moments, distinct keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import dpsketch as dps
from benchmarks.coverage.data import Integers, zipf
from benchmarks.coverage.measuring import BUDGETS, RELEASES, SEEDS, Answer, Case

RECORDS = 20_000
Shape = Callable[[np.random.Generator, int], Integers]

SMOOTH: dict[str, Shape] = {
    "uniform": lambda rng, bits: rng.integers(0, 2**bits, RECORDS),
    "lognormal": lambda rng, bits: np.exp(rng.normal(0.5 * bits, 1.2, RECORDS)).clip(max=2**bits - 1).astype(np.int64),
}
TIES: dict[str, Shape] = {
    "two spikes": lambda rng, bits: np.repeat(np.sort(rng.choice(2**bits, 2, replace=False)), RECORDS // 2),
    "ten spikes": lambda rng, bits: np.repeat(np.sort(rng.choice(2**bits, 10, replace=False)), RECORDS // 10),
    "all equal": lambda rng, bits: np.full(RECORDS, rng.integers(0, 2**bits)),
}
SHARES = np.linspace(0, 1, 11)


def quantile_truths(ordered: Integers) -> Integers:
    """For each share, the least and the largest record v with F(v−) ≤ share ≤ F(v)."""
    ranks = SHARES * len(ordered)
    first = np.maximum(np.ceil(ranks - 1e-9).astype(int) - 1, 0)
    last = np.minimum(np.floor(ranks + 1e-9).astype(int), len(ordered) - 1)
    return np.column_stack([ordered[first], ordered[last]])


def ranges(name: str, shape: Shape, bits: int, width: int, budget: str, releases: int = RELEASES) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        ordered = np.sort(shape(rng, bits))
        sketch = dps.RangeSketch(unit=dps.per_record(), bits=bits, rows=5, width=width, seed=seed)
        sketch.update(ordered)
        private = sketch.release(**BUDGETS[budget])
        yield Answer.of("total", len(ordered), private.total())
        if seed >= RELEASES // 3 and name != "two spikes":
            return  # there are many of the others a release
        found = private.quantiles(SHARES.tolist())
        truth = quantile_truths(ordered)
        value, low, high = (np.array([getattr(one, end) for one in found]) for end in ("value", "low", "high"))
        yield Answer("quantiles", truth[:, 0], value, low, high)
        tied = truth[:, 0] < truth[:, 1]
        if name in TIES:
            yield Answer("quantiles at ties, both ends", truth[tied], value[tied], low[tied], high[tied])
        if seed >= RELEASES // 3:
            return
        places = np.sort(rng.choice(2**bits, (2, 60)), axis=0)
        inside = np.searchsorted(ordered, places[1], "right") - np.searchsorted(ordered, places[0], "left")
        yield Answer.of("ranges", inside, private.ranges(places[0], places[1]))
        alone = np.searchsorted(ordered, places[0], "right") - np.searchsorted(ordered, places[0], "left")
        yield Answer.of("ranges of one value", alone, private.ranges(places[0], places[0]))
        below = np.searchsorted(ordered, places[0], "right")
        yield Answer.of("ranks", below, private.ranks(places[0]))

    yield Case("RangeSketch", f"{name}, {bits} bits, 5×{width:,}", budget, releases, trial)


def moments(p: float, size: int, budget: str) -> Iterator[Case]:
    """One estimator after the other on data of their own: a release ends the sketch."""

    def trial(seed: int) -> Iterator[Answer]:
        counts = zipf(np.random.default_rng(seed), 100, 5000)
        truth = np.sum(counts[counts > 0].astype(float) ** p)
        for estimator in ("mle", "geometric", "fractional", "median", *(["harmonic"] if p < 0.5 else [])):
            sketch = dps.MomentSketch(p=p, size=size, unit=dps.per_record(), key_type="int")
            sketch.update(np.arange(len(counts)), counts=counts)
            yield Answer.of(estimator, truth, sketch.release(**BUDGETS[budget], estimator=estimator))

    yield Case("MomentSketch", f"Zipf, p = {p:g}, size {size}", budget, RELEASES, trial)


def profile(budget: str) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        counts = zipf(np.random.default_rng(seed), 100, 5000)
        counts = counts[counts > 0]
        sketch = dps.MomentProfile(p=[0.5, 1.0], size=50, unit=dps.per_record(), key_type="int")
        sketch.update(np.arange(len(counts)), counts=counts)
        truth = [np.sum(counts.astype(float) ** p) for p in (0.5, 1.0)]
        yield Answer.of("curve", truth, sketch.release(**BUDGETS[budget]).curve())

    yield Case("MomentProfile", "Zipf, p = 0.5 and 1, size 50", budget, RELEASES, trial)


def keys_of(seed: int, first: int, last: int) -> dps.DistinctSketch:
    sketch = dps.DistinctSketch(unit=dps.per_record(), buckets=1024, seed=seed)
    sketch.update(np.arange(first, last) + 10**6 * seed)
    return sketch


def distinct(keys: int, budget: str) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        yield Answer.of("value", keys, keys_of(seed, 0, keys).release(**BUDGETS[budget]))

    yield Case("DistinctSketch", f"{keys:,} keys, 1,024 buckets", budget, RELEASES, trial)


def bitmaps(keys: int) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        one = keys_of(seed, 0, keys).release_mergeable(epsilon=2.0)
        other = keys_of(seed, keys // 2, keys + keys // 2).release_mergeable(epsilon=2.0)
        yield Answer.of("mergeable", keys, one)
        yield Answer.of("two merged", keys + keys // 2, one.merge(other))

    yield Case("DistinctSketch", f"{keys:,} keys, 1,024 buckets, ε = 2", "δ = 0", RELEASES, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for name, shape in (SMOOTH | TIES).items():
            yield from ranges(name, shape, 12, 1024, budget)
        # More values than are kept cell by cell, so that the lowest level is sketched.
        for name in ("lognormal", "ten spikes"):
            yield from ranges(name, (SMOOTH | TIES)[name], 18, 256, budget, 10 * SEEDS)
        # A tree so small that a single draw may make up most of an answer's error.
        yield from ranges("uniform", SMOOTH["uniform"], 2, 1024, budget)
        for p, size in ((0.25, 50), (1.0, 50), (1.0, 10)):
            yield from moments(p, size, budget)
        yield from profile(budget)
        for keys in (100, 20_000):
            yield from distinct(keys, budget)
    for keys in (100, 20_000):
        yield from bitmaps(keys)
