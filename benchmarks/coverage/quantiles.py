"""Quantiles that were named beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import dpsketch as dps
from benchmarks.coverage.data import Integers
from benchmarks.coverage.measuring import BUDGETS, RELEASES, Answer, Case
from benchmarks.coverage.values import SHARES, SMOOTH, TIES, Shape, quantile_truths

Floats = npt.NDArray[np.float64]


def named_answers(private: Any, ordered: Integers, shares: Floats, truths: Integers) -> Iterator[Answer]:
    """Ask for quantiles that were named beforehand: intervals of values, and bounds on ranks."""
    found = private.quantiles()
    value, low, high = (np.array([getattr(one, end) for one in found]) for end in ("value", "low", "high"))
    yield Answer("quantiles", truths, value, low, high)
    below, upto = (np.searchsorted(ordered, value, side) for side in ("left", "right"))
    wanted = np.round(shares * len(ordered))
    off = np.maximum(0, np.maximum(below - wanted, wanted - upto))
    bound = np.array([one.rank_error for one in found])
    yield Answer("rank_error", np.zeros(len(off)), off, off - bound, off + bound)


def named(name: str, shape: Shape, budget: str) -> Iterator[Case]:
    """Nine quantiles of records."""
    shares = SHARES[1:-1]

    def trial(seed: int) -> Iterator[Answer]:
        ordered = np.sort(shape(np.random.default_rng(seed), 12))
        sketch = dps.QuantileSketch(bits=12, unit=dps.per_record(), quantiles=shares.round(1), interval_share=0.5)
        sketch.update(ordered)
        truths = quantile_truths(ordered)[1:-1]
        yield from named_answers(sketch.release(**BUDGETS[budget]), ordered, shares, truths)

    yield Case("QuantileSketch", f"{name}, 9 quantiles, 12 bits", budget, RELEASES, trial)


def medians(budget: str) -> Iterator[Case]:
    """One quantile alone, of users with two values each, under the relation that replaces them."""

    def trial(seed: int) -> Iterator[Answer]:
        values = SMOOTH["lognormal"](np.random.default_rng(seed), 12)
        unit = dps.per_user(max_keys=2, neighbours="replace")
        sketch = dps.QuantileSketch(bits=12, unit=unit, quantiles=[0.5], interval_share=0.5)
        # A user's two values are different ones: of equal ones the second would not count.
        kept = values[: len(values) // 2]
        pairs = np.column_stack([kept, kept ^ 1])
        sketch.update(pairs.ravel(), users=np.repeat(np.arange(len(kept)), 2))
        ordered = np.sort(pairs.ravel())
        truths = quantile_truths(ordered)[5:6]
        yield from named_answers(sketch.release(**BUDGETS[budget]), ordered, SHARES[5:6], truths)

    yield Case("QuantileSketch", "lognormal, the median, users of 2 values, replaced", budget, RELEASES, trial)


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for budget in BUDGETS:
        for name in ("lognormal", "ten spikes"):
            yield from named(name, (SMOOTH | TIES)[name], budget)
        yield from medians(budget)
