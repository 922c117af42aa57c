"""From the coordinates to the scale: five estimates of ζ from draws of t = p·ln|X| + ln ζ.

Every estimate is ζ times a pivot, a variable whose law depends on p, the size and the estimator alone. Its logarithm is
close to normal, with the variance given here, from ten coordinates on; intervals are made from that.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import gamma, ndtri

from dpsketch.accounting.moments import stable_information, stable_table
from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.numbers import probability

__all__ = ["ESTIMATORS", "ScaleEstimator", "check_estimator", "estimate_scale", "pivot_interval", "pivot_variance"]

ScaleEstimator = Literal["mle", "geometric", "harmonic", "fractional", "median"]
ESTIMATORS: tuple[ScaleEstimator, ...] = ("mle", "geometric", "harmonic", "fractional", "median")


def check_estimator(estimator: str, p: float) -> None:
    """Refuse an estimator that does not exist, or has no variance at this p."""
    if estimator not in ESTIMATORS:
        raise InvalidInput(f"estimator is one of {', '.join(ESTIMATORS)}, not {estimator!r}.")
    if estimator == "harmonic" and p >= 0.5:
        raise InvalidInput(f"the harmonic mean has a finite variance for p below 0.5 only, and p is {p:g}: use 'mle'.")


def estimate_scale(sums: Floats, p: float, estimator: ScaleEstimator) -> float:
    """Estimate the scale of p-stable coordinates, corrected for bias.

    Parameters
    ----------
    sums : numpy.ndarray
        The coordinates.
    p : float
        The exponent.
    estimator : {"mle", "geometric", "harmonic", "fractional", "median"}
        "mle": the maximum of the log-concave likelihood, times 1 − 1/size. "geometric": ∏|a|^{p/size} over its mean,
        unbiased (Li 2008). "harmonic": size/Σ|a|^−p, for p below 0.5 (Li 2008). "fractional": the mean of |a|^{λp}, at
        the λ with the least variance, to the power 1/λ (Li and Hastie 2007). "median": that of |a|^p (Indyk 2006).
    """
    t = p * np.log(np.maximum(np.abs(sums), np.finfo(np.float64).tiny))
    size = len(t)
    match estimator:
        case "mle":
            return math.exp(_likeliest_shift(p, t)) * (1 - 1 / size)
        case "geometric":
            return math.exp(float(np.mean(t)) - size * math.log(_mean_power(p, 1 / size)))
        case "harmonic":
            return _power_mean(p, t, -1.0)
        case "fractional":
            return _power_mean(p, t, _best_power(p))
        case "median":
            centre, density, slope = _at_median(p)
            # The median of n draws is off by −f'/(8f³n) and has the variance 1/(4f²n) (David and Nagaraja 2003, §4.6).
            bias = (1 / (8 * density**2) - slope / (8 * density**3)) / size
            return math.exp(float(np.median(t)) - centre) / (1 + bias)


def pivot_variance(p: float, size: int, estimator: ScaleEstimator) -> float:
    """Return the variance of the logarithm of an estimate, which is also its relative variance, for large sizes.

    Examples
    --------
    >>> [round(pivot_variance(0.5, 200, name) ** 0.5, 3) for name in ("mle", "geometric", "median")]
    [0.084, 0.096, 0.105]
    """
    match estimator:
        case "mle":
            return 1 / (size * stable_information(p))
        case "geometric":
            return math.pi**2 / 12 * (p * p + 2) / size
        case "harmonic":
            return _power_variance(p, -1.0) / size
        case "fractional":
            return _power_variance(p, _best_power(p)) / size
        case "median":
            return 1 / (4 * _at_median(p)[1] ** 2 * size)


def pivot_interval(p: float, size: int, estimator: ScaleEstimator, confidence: float) -> tuple[float, float]:
    """Return two factors: ζ lies between them times its estimate, with this confidence."""
    confidence = probability("confidence", confidence)
    variance = pivot_variance(p, size, estimator)
    reach = -float(ndtri((1 - confidence) / 2)) * math.sqrt(variance)
    # The estimate is unbiased, so its logarithm is low by half its variance.
    return math.exp(variance / 2 - reach), math.exp(variance / 2 + reach)


def _likeliest_shift(p: float, t: Floats) -> float:
    """Return the shift that maximises the likelihood; its derivative falls with the shift, so there is one root."""
    points, score, curvature = _score(p)
    low, high = float(np.min(t)), float(np.max(t))
    low, high = low - 1 - abs(points[0]), high + 1
    shift = float(np.mean(t))
    for _ in range(100):
        rest = t - shift
        pull = float(np.sum(np.interp(rest, points, score)))
        if pull > 0:
            low = shift
        else:
            high = shift
        bend = float(np.sum(np.interp(rest, points, curvature)))
        step = pull / bend if bend > 0 else math.inf
        if abs(step) < 1e-12 or high - low < 1e-12:
            break
        shift = shift + step if low < shift + step < high else (low + high) / 2
    return shift


@lru_cache(maxsize=16)
def _score(p: float) -> tuple[Floats, Floats, Floats]:
    """Return points, −(ln f)' and −(ln f)'' there."""
    law = stable_table(p)
    score = -law.slope / law.density
    return law.points, score, np.gradient(score, law.points)


def _mean_power(p: float, power: float) -> float:
    """Return E|X|^{λp} for the standard law, −1/p < λ < 1."""
    return float(2 / math.pi * gamma(1 - power) * gamma(power * p) * math.sin(math.pi * power * p / 2))


def _power_variance(p: float, power: float) -> float:
    return (_mean_power(p, 2 * power) / _mean_power(p, power) ** 2 - 1) / power**2


@lru_cache(maxsize=64)
def _best_power(p: float) -> float:
    """Return the λ with the least variance; 0, which stands for the geometric mean, is left out."""
    step = 1e-3
    candidates = np.arange(-0.49 / p, 0.49, step)
    candidates = candidates[np.abs(candidates) > step]
    return float(min(candidates, key=lambda power: _power_variance(p, float(power))))


def _power_mean(p: float, t: Floats, power: float) -> float:
    raised = float(np.mean(np.exp(power * (t - t.mean())))) / _mean_power(p, power)
    # To second order E (1+e)^{1/λ} exceeds 1 by (1/λ)(1/λ − 1)/2 times the variance of e.
    bias = _power_variance(p, power) * (1 - power) / 2 / len(t)
    return float(math.exp(t.mean()) * raised ** (1 / power) * (1 - bias))


@lru_cache(maxsize=64)
def _at_median(p: float) -> tuple[float, float, float]:
    """Return the median of the standard law, its density there and the density's slope."""
    law = stable_table(p)
    median = float(np.interp(0.5, law.below, law.points))
    return median, float(np.interp(median, law.points, law.density)), float(np.interp(median, law.points, law.slope))
