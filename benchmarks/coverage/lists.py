"""Kinds that list keys by themselves: heavy hitters and sparse histograms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.coverage.data import SHAPES, Integers
from benchmarks.coverage.measuring import BUDGETS, RELEASES, SEEDS, Answer, Case


def looked_up(found: Any, keys: Integers, counts: Integers) -> Integers:
    """Return the true counts of listed keys; of a key that nobody has, 0."""
    listed = np.array(found.key, dtype=np.int64)
    place = np.searchsorted(keys, listed).clip(max=len(keys) - 1)
    return np.where(keys[place] == listed, counts[place], 0)


def heavy(shape: str, budget: str, rows: int) -> Iterator[Case]:
    """Many keys a release, asked for; and lists and totals, one statement a release, of a smaller tree."""

    def released(seed: int, many: int, bits: int) -> tuple[Any, Integers, Integers]:
        keys, counts = np.arange(many) * 13 + seed % 800, SHAPES[shape](np.random.default_rng(seed))[:many]
        sketch = dps.HeavyHitters(unit=dps.per_record(), rows=rows, width=512, key_bits=bits, seed=seed)
        sketch.update(keys, counts=counts)
        return sketch.release(**BUDGETS[budget]), keys, counts

    def asked(seed: int) -> Iterator[Answer]:
        private, keys, counts = released(seed, 2000, 16)
        yield Answer.of("estimate", counts, private.estimate(keys))
        yield Answer.of("decode", counts, private.decode(keys))

    def listed(seed: int) -> Iterator[Answer]:
        private, keys, counts = released(seed, 250, 12)
        yield Answer.of("all_records", counts.sum(), private.all_records())
        if rows == 1 and seed >= RELEASES // 10:
            return  # a table of one row lists nothing, as the first releases show
        top = private.top()
        yield Answer.of("top, jointly", looked_up(top, keys, counts), top, joint=True)

    yield Case("HeavyHitters", f"{shape}, {rows}×512", budget, SEEDS, asked)
    # A list of several rows is decoded, a third of a second each: the dearest answers there are.
    releases = RELEASES if rows == 1 else RELEASES // 4
    yield Case("HeavyHitters", f"{shape}, 250 keys, {rows}×512", budget, releases, listed)


def sparse(budget: str, expected: int, largest: int) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        keys = np.arange(2000) * 521 + seed
        counts = np.random.default_rng(seed).integers(1, largest + 1, len(keys))
        histogram = dps.SparseHistogram(unit=dps.per_record(), domain=2**20, expected_keys=expected, seed=seed)
        histogram.update(keys, counts=counts)
        private = histogram.release(**BUDGETS[budget])
        for estimator in ("mean", "median"):
            yield Answer.of(f"estimate, {estimator}", counts, private.estimate(keys, estimator=estimator))
        survivors = private.survivors()
        yield Answer.of("survivors, jointly", looked_up(survivors, keys, counts), survivors, joint=True)
        top = private.top(10, candidates=keys[:500])
        yield Answer.of("top 10 of 500, jointly", looked_up(top, keys, counts), top, joint=True)

    yield Case("SparseHistogram", f"2,000 keys to {largest}, {expected:,} expected", budget, RELEASES, trial)


def small_values(budget: str) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        keys = np.arange(2000) * 521 + seed
        counts = np.random.default_rng(seed).integers(1, 31, len(keys))
        histogram = dps.SparseHistogram(
            unit=dps.per_record(), domain=2**20, expected_keys=2000, max_value=30, seed=seed
        )
        histogram.update(keys, counts=counts)
        yield Answer.of("estimate, mean", counts, histogram.release(**BUDGETS[budget]).estimate(keys))

    yield Case("SparseHistogram", "2,000 keys to 30, max_value", budget, SEEDS, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for shape in SHAPES:
            yield from heavy(shape, budget, 5)
        yield from heavy("Zipf", budget, 1)
        for expected in (20, 2000):
            for largest in (40, 300):
                yield from sparse(budget, expected, largest)
    yield from small_values("δ = 0")
