"""Location estimates of one key's cells, one step after the other."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce

STEPS = 50


def total(values: Iterable[float]) -> float:
    """Return a sum that is rounded at every step, as Python's own is not in all versions."""
    return reduce(operator.add, values, 0.0)


def huber(cells: Sequence[float], threshold: float) -> float:
    """Return the root m of Σ clip(cell − m, ±threshold), by Newton's steps from the median, kept inside a bracket."""
    low, high, m = min(cells), max(cells), sorted(cells)[len(cells) // 2]
    for _ in range(STEPS):
        cut = [min(max(cell - m, -threshold), threshold) for cell in cells]
        pull, inside = total(cut), sum(each == cell - m for each, cell in zip(cut, cells, strict=True))
        if abs(pull) <= 1e-9 * threshold:
            break
        low, high = (m, high) if pull > 0 else (low, m)
        step = m + pull / inside if inside else low
        m = step if low < step < high else 0.5 * (low + high)
    return m


def tukey(cells: Sequence[float], threshold: float) -> float:
    """Return Tukey's biweight location, climbing from the median."""
    m = sorted(cells)[len(cells) // 2]
    for _ in range(STEPS):
        weights = [max(1.0 - ((cell - m) / threshold) ** 2, 0.0) ** 2 for cell in cells]
        if total(weights) <= 0:
            break
        step = total(weight * (cell - m) for weight, cell in zip(weights, cells, strict=True)) / total(weights)
        m += step
        if abs(step) <= 1e-6 * threshold:
            break
    return m
