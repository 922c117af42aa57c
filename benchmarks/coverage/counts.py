"""CountSketches: single keys, lists, sums of releases, and the ways of publishing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.coverage.data import SHAPES, Integers, named_keys
from benchmarks.coverage.measuring import BUDGETS, RELEASES, SEEDS, Answer, Case

ESTIMATORS = ("robust", "median", "mean")


def built(seed: int, keys: Integers, counts: Integers, rows: int, width: int) -> Any:
    sketch = dps.CountSketch(rows=rows, width=width, unit=dps.per_record(), seed=seed)
    sketch.update(keys, counts=counts)
    return sketch


def single_keys(shape: str, budget: str, rows: int, width: int) -> Iterator[Case]:
    """One key at a time, and many decoded together."""

    def trial(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed), SHAPES[shape](np.random.default_rng(seed))
        private = built(seed, keys, counts, rows, width).release(**BUDGETS[budget])
        for estimator in ESTIMATORS if seed < SEEDS else ():
            yield Answer.of(f"estimate, {estimator}", counts, private.estimate(keys, estimator=estimator))
        decoded = private.decode(keys)
        yield Answer.of("decode", counts, decoded)
        order = np.argsort(-counts, kind="stable")
        for most in (10, 100):
            some = order[:most]
            yield Answer(
                f"decode, heaviest {most}", counts[some], decoded.value[some], decoded.low[some], decoded.high[some]
            )

    # The heaviest keys are few, so that they take more releases.
    yield Case("CountSketch", f"{shape}, {rows}×{width}", budget, 10 * SEEDS, trial)


def one_number(shape: str, budget: str) -> Iterator[Case]:
    """Answers that are one statement a release."""

    def trial(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed, 250), SHAPES[shape](np.random.default_rng(seed))[:250]
        private = built(seed, keys, counts, 5, 128).release(**BUDGETS[budget])
        top = private.top(20, candidates=keys)
        yield Answer.of("top 20 of 250, jointly", counts[np.searchsorted(keys, top.key)], top, joint=True)

    yield Case("CountSketch", f"{shape}, 250 keys, 5×128", budget, RELEASES, trial)


def few_cells(rows: int, width: int, budget: str) -> Iterator[Case]:
    """Narrow tables: one row, so that no other tells what collides, or a few."""

    def trial(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed, 40), SHAPES["flat"](np.random.default_rng(seed))[:40]
        private = built(seed, keys, counts, rows, width).release(**BUDGETS[budget])
        if seed < RELEASES // 4:
            yield Answer.of("estimate", counts, private.estimate(keys))

    yield Case("CountSketch", f"40 keys, {rows}×{width}", budget, RELEASES, trial)


def combined(budget: str) -> Iterator[Case]:
    """Releases added, subtracted, and made of shares."""

    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        keys, parts = named_keys(seed), [SHAPES["Zipf"](rng), SHAPES["flat"](rng)]
        first, second = (built(seed, keys, counts, 5, 1024).release(**BUDGETS[budget]) for counts in parts)
        yield Answer.of("estimate of a sum", parts[0] + parts[1], (first + second).estimate(keys))
        yield Answer.of("estimate of a difference", parts[0] - parts[1], (first - second).estimate(keys))
        if budget == "δ > 0":
            shares = [
                built(seed, keys, counts, 5, 1024).release(
                    **BUDGETS[budget], share=dps.Share(2, honest=1.0, party=party)
                )
                for party, counts in enumerate(parts)
            ]
            merged = dps.merge_releases(shares)
            yield Answer.of("estimate, shares merged", parts[0] + parts[1], merged.estimate(keys))

    yield Case("CountSketch", "Zipf and flat, 5×1024", budget, SEEDS, trial)


def users(budget: str) -> Iterator[Case]:
    """Users with at most as many keys as are kept."""

    def trial(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        keys = named_keys(seed)
        held = np.argsort(rng.random((4000, 40)), axis=1)[:, :5] * 50 + rng.integers(0, 50, (4000, 1))
        sketch = dps.CountSketch(rows=5, width=1024, unit=dps.per_user(max_keys=5), seed=seed)
        sketch.update(keys[held.ravel()], users=np.repeat(np.arange(4000), 5))
        counts = np.bincount(held.ravel(), minlength=len(keys))
        yield Answer.of("estimate", counts, sketch.release(**BUDGETS[budget]).estimate(keys))

    yield Case("CountSketch", "users of 5 keys, 5×1024", budget, SEEDS, trial)


def streams(budget: str) -> Iterator[Case]:
    """Sketches of streams: the pan-private and the continual one."""

    def pan_private(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed), SHAPES["Zipf"](np.random.default_rng(seed))
        sketch = dps.PanPrivateCountSketch(
            rows=5, width=1024, unit=dps.per_record(), seed=seed, key_type="int", **BUDGETS[budget]
        )
        sketch.update(keys, counts=counts)
        yield Answer.of("estimate", counts, sketch.publish().estimate(keys))

    def continual(seed: int) -> Iterator[Answer]:
        rng = np.random.default_rng(seed)
        keys, days = named_keys(seed), [SHAPES["flat"](rng) for _ in range(7)]
        sketch = dps.ContinualCountSketch(
            days=16, rows=5, width=1024, unit=dps.per_record(), seed=seed, key_type="int", **BUDGETS[budget]
        )
        for counts in days:
            sketch.day(keys, counts=counts)
        yield Answer.of("total", sum(days), sketch.total().estimate(keys))
        yield Answer.of("a window of days", sum(days[2:6]), sketch.between(3, 6).estimate(keys))

    yield Case("PanPrivateCountSketch", "Zipf, 5×1024", budget, SEEDS, pan_private)
    yield Case("ContinualCountSketch", "flat, 7 days, 5×1024", budget, SEEDS, continual)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for shape in SHAPES:
            yield from single_keys(shape, budget, 5, 1024)
        yield from single_keys("Zipf", budget, 5, 128)
        yield from single_keys("equal heavy", budget, 3, 512)
        for shape in ("Zipf", "flat"):
            yield from one_number(shape, budget)
        for rows, width in ((1, 2), (1, 3), (1, 64), (3, 2), (5, 8)):
            yield from few_cells(rows, width, budget)
        yield from combined(budget)
        yield from users(budget)
        yield from streams(budget)
