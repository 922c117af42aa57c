"""Slow, obvious answers for trees of intervals: least squares on all leaves at once, and counting by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """One level: a value for each node, their variance, and whether nodes off the paths may be used as well."""

    depth: int
    values: np.ndarray
    variance: float
    whole: bool


def least_squares(
    levels: Sequence[Measured], bits: int, low: int, high: int, weights: Sequence[float]
) -> tuple[float, float]:
    """Return the best linear estimate, and its variance, of a weighted sum of what lies left of, in and right of one.

    The unknowns are all leaves. Nodes of a level that is not ``whole`` count if their parent lies on the path to
    ``low`` or to ``high``.
    """
    design, values, scales = [], [], []
    above = 0
    for level in levels:
        for node in range(1 << level.depth):
            parent = node >> (level.depth - above)
            on_path = parent in (low >> (bits - above), high >> (bits - above))
            if level.whole or on_path:
                size = 1 << (bits - level.depth)
                row = np.zeros(1 << bits)
                row[node * size : (node + 1) * size] = 1
                design.append(row)
                values.append(level.values[node])
                scales.append(level.variance**-0.5)
        above = level.depth
    wanted = np.zeros(1 << bits)
    wanted[:low], wanted[low : high + 1], wanted[high + 1 :] = weights
    scaled = np.array(design) * np.array(scales)[:, None]
    inverse = np.linalg.pinv(scaled.T @ scaled, rcond=1e-12)
    leaves = inverse @ scaled.T @ (np.array(values) * np.array(scales))
    return float(wanted @ leaves), float(wanted @ inverse @ wanted)


def rank_gap(values: np.ndarray, found: int, share: float) -> float:
    """Return by how many records a value misses being a quantile: 0 where the share is met within the value's own."""
    target = share * len(values)
    below, up_to = np.count_nonzero(values < found), np.count_nonzero(values <= found)
    return float(max(0.0, target - up_to, below - target))
