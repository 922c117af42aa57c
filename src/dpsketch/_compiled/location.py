"""Location estimates over the rows of a table: one number a key from its signed cells."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["huber_of_rows", "tukey_of_rows"]

_STEPS = 50


@kernel
def huber_of_rows(
    cells: npt.NDArray[np.float64], centres: npt.NDArray[np.float64], threshold: float
) -> npt.NDArray[np.float64]:
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


@kernel
def tukey_of_rows(
    cells: npt.NDArray[np.float64], centres: npt.NDArray[np.float64], threshold: float
) -> npt.NDArray[np.float64]:
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
