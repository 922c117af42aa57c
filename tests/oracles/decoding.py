"""Messages between keys and cells, slowly: one sweep, key by key and row by row, with SciPy's own laws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, truncnorm


def spread_out(table: np.ndarray, cells: np.ndarray, signs: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """Return the counters without the messages."""
    left = table.astype(float).copy()
    for places, sign, message in zip(cells, signs, sent, strict=True):
        for row, place in enumerate(places):
            left[row, place] -= sign[row] * message[row]
    return left


def location(values: Sequence[float], variances: Sequence[float], freedom: float) -> tuple[float, float]:
    """Return one step of Student's location from the median, and its variance; two values have their mean."""
    values, variances = np.asarray(values), np.asarray(variances)
    centre = float(np.median(values))
    weights = (
        (freedom + 1) / (freedom + (values - centre) ** 2 / variances) if len(values) > 2 else np.ones(len(values))
    )
    precision = weights / variances
    found = float(np.sum(precision * values) / np.sum(precision))
    disagreement = float(np.sum(precision * (values - found) ** 2)) / (len(values) - 1)
    return found, max(1.0, disagreement) / float(np.sum(precision))


def expectation(
    reading: float, variance: float, weights: Sequence[float], scales: Sequence[float], signed: bool
) -> tuple[float, float]:
    """Return mean and variance of a count given a reading; part 0 of the prior is zero itself."""
    shares, means, squares = [], [], []
    for weight, scale in zip(weights, scales, strict=True):
        density = norm.pdf(reading, scale=math.sqrt(scale + variance))
        if scale == 0:
            shares.append(weight * density)
            means.append(0.0)
            squares.append(0.0)
            continue
        rest = scale * variance / (scale + variance)
        law = norm(rest / variance * reading, math.sqrt(rest))
        if not signed:
            density *= 2 * law.sf(0)
            law = truncnorm(-law.mean() / law.std(), np.inf, loc=law.mean(), scale=law.std())
        shares.append(weight * density)
        means.append(float(law.mean()))
        squares.append(float(law.var() + law.mean() ** 2))
    total = sum(shares)
    mean = sum(s * m for s, m in zip(shares, means, strict=True)) / total
    return mean, sum(s * q for s, q in zip(shares, squares, strict=True)) / total - mean**2


def twins(cells: np.ndarray, signs: np.ndarray) -> list[tuple[int, int, int]]:
    """Return, of each key, the first that no row tells from it with equal signs, how many do, and how many opposite."""
    found = []
    for i in range(len(cells)):
        same = [j for j in range(len(cells)) if tuple(cells[j]) == tuple(cells[i])]
        alike = [j for j in same if tuple(signs[j]) == tuple(signs[i])]
        opposed = [j for j in same if tuple(signs[j]) == tuple(-signs[i])]
        found.append((alike[0], len(alike), len(opposed)))
    return found
