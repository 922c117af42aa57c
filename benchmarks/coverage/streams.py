"""Streams of the other kinds: totals, windows and single days of ranges, histograms, heavy hitters and densities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.coverage.data import Integers
from benchmarks.coverage.measuring import BUDGETS, SEEDS, Answer, Case

DAYS = 7
# The days, counted from 1, of each answer.
WINDOWS = {"total": (1, DAYS), "a window of days": (3, 6), "a day": (5, 5)}
KEYS = 200


def published(sketch: Any, days: Sequence[Any], budget: str, **given: Any) -> Any:
    stream = dps.ContinualSketch(sketch, days=16, **BUDGETS[budget], **given)
    for records in days:
        stream.day(records)
    return stream


def windows(stream: Any, days: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Return the release of each window beside its records."""
    for name, (first, last) in WINDOWS.items():
        yield name, stream.between(first, last), np.concatenate(days[first - 1 : last])


def ranges(bits: int, width: int, budget: str, releases: int) -> Iterator[Case]:
    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        days = [np.exp(rng.normal(0.5 * bits, 1.2, 2000)).clip(max=2**bits - 1).astype(np.int64) for _ in range(DAYS)]
        sketch = dps.RangeSketch(unit=dps.per_record(), bits=bits, rows=5, width=width, seed=seed)
        for name, private, records in windows(published(sketch, days, budget), days):
            ordered = np.sort(records)
            low, high = np.sort(rng.choice(2**bits, (2, 40)), axis=0)
            inside = np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left")
            yield Answer.of(f"ranges, {name}", inside, private.ranges(low, high))
            alone = np.searchsorted(ordered, low, "right") - np.searchsorted(ordered, low, "left")
            yield Answer.of(f"ranges of one value, {name}", alone, private.ranges(low, low))

    yield Case("ContinualSketch", f"RangeSketch, {DAYS} days, {bits} bits, 5×{width:,}", budget, releases, trial)


def zipf_days(rng: np.random.Generator) -> list[Integers]:
    shares = np.arange(1, KEYS + 1) ** -1.1
    return [rng.choice(KEYS, 5000, p=shares / shares.sum()) for _ in range(DAYS)]


def keyed(
    setting: str, sketch: Callable[[int], Any], budget: str, releases: int, *, listed: bool = False
) -> Iterator[Case]:
    """Keys, all of them asked for; ``listed`` gives a public list of them."""

    def trial(seed: int) -> Iterator[Answer]:
        days, keys = zipf_days(np.random.default_rng(seed)), np.arange(KEYS)
        given: dict[str, Any] = {"keys": keys} if listed else {}
        for name, private, records in windows(published(sketch(seed), days, budget, **given), days):
            counts = np.bincount(records, minlength=KEYS)
            yield Answer.of(f"estimate, {name}", counts, private.estimate(keys))

    yield Case("ContinualSketch", setting, budget, releases, trial)


def found_names() -> Iterator[Case]:
    """Names that are found day by day, asked for where they were, and elsewhere."""

    def trial(seed: int) -> Iterator[Answer]:
        days, keys = zipf_days(np.random.default_rng(seed)), np.arange(KEYS)
        sketch = dps.Histogram(unit=dps.per_record(), key_type="int")
        for name, private, records in windows(published(sketch, days, "δ > 0"), days):
            counts, names = np.bincount(records, minlength=KEYS), np.sort(private.keys)
            yield Answer.of(f"estimate, published keys, {name}", counts[names], private.estimate(names))
            others = np.setdiff1d(keys, names)
            yield Answer.of(f"estimate, other keys, {name}", counts[others], private.estimate(others))

    yield Case("ContinualSketch", f"Histogram, {DAYS} days, unknown keys", "δ > 0", 10 * SEEDS, trial)


def densities(budget: str) -> Iterator[Case]:
    kernel = dps.kernels.Euclidean(dim=2, bandwidth=1.0)

    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        days = [rng.normal(-3, 0.05, (500, 2)) for _ in range(DAYS)]
        sketch = dps.DensitySketch(
            kernel=kernel, rows=100, unit=dps.per_record(), seed=seed, bounds=[(-10, 10), (-10, 10)]
        )
        for name, private, points in windows(published(sketch, days, budget), days):
            asked = points[:20]
            truth = kernel.similarity(asked, points).sum(axis=1)
            yield Answer.of(f"estimate near the data, {name}", truth, private.estimate(asked))
            yield Answer.of(f"count, {name}", len(points), private.count())

    yield Case("ContinualSketch", f"DensitySketch, {DAYS} days, a tight cluster, 100 rows", budget, 25 * SEEDS, trial)


def histogram(seed: int) -> Any:
    return dps.Histogram(unit=dps.per_record(), key_type="int")


def tree(seed: int) -> Any:
    return dps.HeavyHitters(unit=dps.per_record(), rows=5, width=256, key_bits=10, seed=seed)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        yield from ranges(10, 1024, budget, 10 * SEEDS)
        yield from ranges(18, 256, budget, 2 * SEEDS)
        yield from keyed(f"Histogram, {DAYS} days, public list", histogram, budget, 10 * SEEDS, listed=True)
        yield from keyed(f"HeavyHitters, {DAYS} days, 5×256", tree, budget, 5 * SEEDS)
        yield from densities(budget)
    yield from found_names()
