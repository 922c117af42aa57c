"""Location estimates over the rows of a table: one number a key from its signed cells.

Beside each kernel is its form in NumPy, which takes the same steps for all keys at once and sums the rows in the same
order, so that the results are the same to the bit.
"""

from __future__ import annotations

import numpy as np

from dpsketch._compiled.kernel import plain_kernel
from dpsketch.arrays import Floats

__all__ = ["huber_of_rows", "tukey_of_rows"]

_STEPS = 50
# About how long a cell takes without the compiler, all steps together.
_HUBER_SECONDS = 40e-9
_TUKEY_SECONDS = 150e-9


def _huber(cells: Floats, centres: Floats, threshold: float) -> Floats:
    result = centres.copy()
    rows, m, places = np.ascontiguousarray(cells.T), centres, np.arange(len(centres))
    low, high = rows.min(axis=0, initial=np.inf), rows.max(axis=0, initial=-np.inf)
    for _ in range(_STEPS):
        pull, inside = np.zeros(len(m)), np.zeros(len(m))
        for row in rows:
            gap = row - m
            cut = np.clip(gap, -threshold, threshold)
            pull += cut
            inside += cut == gap
        going = np.abs(pull) > 1e-9 * threshold
        rows, m, places, pull, inside = rows[:, going], m[going], places[going], pull[going], inside[going]
        if len(m) == 0:
            break
        low, high = np.where(pull > 0, m, low[going]), np.where(pull > 0, high[going], m)
        step = np.where(inside > 0, m + pull / np.maximum(inside, 1), low)
        m = np.where((low < step) & (step < high), step, 0.5 * (low + high))
        result[places] = m
    return result


def _tukey(cells: Floats, centres: Floats, threshold: float) -> Floats:
    result = centres.copy()
    rows, m, places = np.ascontiguousarray(cells.T), centres, np.arange(len(centres))
    for _ in range(_STEPS):
        total, moved = np.zeros(len(m)), np.zeros(len(m))
        for row in rows:
            gap = row - m
            weight = np.maximum(1.0 - (gap / threshold) ** 2, 0.0) ** 2
            total += weight
            moved += weight * gap
        step = np.divide(moved, total, out=np.zeros_like(moved), where=total > 0)
        m = m + step
        result[places] = m
        going = np.abs(step) > 1e-6 * threshold
        rows, m, places = rows[:, going], m[going], places[going]
        if len(m) == 0:
            break
    return result


@plain_kernel(lambda cells, centres, threshold: _HUBER_SECONDS * cells.size, _huber)
def huber_of_rows(cells: Floats, centres: Floats, threshold: float) -> Floats:
    """Return the Huber location of each line of ``cells``: the root m of Σ clip(cell − m, ±threshold).

    The sum falls with m and is piecewise linear, so Newton's step from the median (``centres``), kept inside a
    bracket, finds the root in a few steps.
    """
    n, rows = cells.shape
    result = np.empty(n)
    for j in range(n):
        low = float(cells[j, 0])
        high = low
        for i in range(rows):
            low = min(low, float(cells[j, i]))
            high = max(high, float(cells[j, i]))
        m = centres[j]
        for _ in range(_STEPS):
            pull = 0.0
            inside = 0
            for i in range(rows):
                gap = cells[j, i] - m
                if gap > threshold:
                    pull += threshold
                elif gap < -threshold:
                    pull -= threshold
                else:
                    pull += gap
                    inside += 1
            if abs(pull) <= 1e-9 * threshold:
                break
            if pull > 0:
                low = m
            else:
                high = m
            step = m + pull / inside if inside > 0 else low
            m = step if low < step < high else 0.5 * (low + high)
        result[j] = m
    return result


@plain_kernel(lambda cells, centres, threshold: _TUKEY_SECONDS * cells.size, _tukey)
def tukey_of_rows(cells: Floats, centres: Floats, threshold: float) -> Floats:
    """Return Tukey's biweight location of each line of ``cells``, climbing from the median (``centres``).

    A cell beyond the threshold has no weight at all, so a collision with a heavy key is ignored, not only bounded.
    """
    n, rows = cells.shape
    result = np.empty(n)
    for j in range(n):
        m = centres[j]
        for _ in range(_STEPS):
            total = 0.0
            moved = 0.0
            for i in range(rows):
                gap = cells[j, i] - m
                if -threshold < gap < threshold:
                    weight = (1.0 - (gap / threshold) ** 2) ** 2
                    total += weight
                    moved += weight * gap
            if total <= 0.0:
                break
            step = moved / total
            m += step
            if abs(step) <= 1e-6 * threshold:
                break
        result[j] = m
    return result
