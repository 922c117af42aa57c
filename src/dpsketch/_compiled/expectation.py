"""The expectation of counts given readings, under a prior that is a mixture of a zero and normal laws of all scales.

Part k is the law of the size of N(0, s), or N(0, s) itself where counts may be negative. Given a reading y with
variance v, part k has the share w·N(y; 0, s + v)·erfc(−a/√2), with a = y/√v·√(s/(s + v)), and its count is normal with
mean y·s/(s + v), cut off at nothing. For readings above 0, erfc(−x) = 2 − exp(−x²)·erfcx(x), and below it
exp(−x²)·erfcx(−x); the two exponents add up to y²/2v, which is the same for all parts. So one exp and one erfcx a part
do, both by polynomials without branches: the loop over readings is vectorised.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from dpsketch._compiled.kernel import part, plain_kernel
from dpsketch.arrays import Floats

__all__ = ["expect"]

X = TypeVar("X", float, Floats)

_ROOT_HALF = math.sqrt(0.5)
# Twice the normal density at its centre.
_EDGE = math.sqrt(2 / math.pi)
# A reading further below nothing, in standard errors, is as one that is so far below.
_BELOW = -25.0
# exp(−80) is nothing, whatever it is weighted with.
_NOTHING = -80.0
# About how long it takes without the compiler for a reading and a part of the prior.
PART_SECONDS = 60e-9


@part
def _exp(x: X) -> X:
    """Return exp(x) for −80 ≤ x ≤ 0, right to 1e-12: the series of exp(x/256), squared eight times."""
    x = x * 0.00390625
    e = 1 + x * (1 / 8) * (1 + x * (1 / 9) * (1 + x * (1 / 10)))
    e = 1 + x * (1 / 4) * (1 + x * (1 / 5) * (1 + x * (1 / 6) * (1 + x * (1 / 7) * e)))
    e = 1 + x * (1 + x * (1 / 2) * (1 + x * (1 / 3) * e))
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return e * e


@part
def _erfcx(x: X) -> X:
    """Return exp(x²)·erfc(x) for x ≥ 0, right to 2e-12.

    (1 + 2x) times it is a polynomial in (x − 15/4)/(x + 15/4) (Shepherd and Laframboise 1981, Math. Comp. 36,
    249–253); the coefficients are a least-squares fit on Chebyshev's points.
    """
    inverse = 1 / ((x + 3.75) * (1 + 2 * x))
    t = (x - 3.75) * (1 + 2 * x) * inverse
    p = 9.400469681356814e-07 * t - 1.0351558234814808e-06
    p = p * t - 1.0112592579193533e-05
    p = p * t + 2.2403781638042908e-05
    p = p * t + 5.0390440631986814e-05
    p = p * t - 0.0002901358270133513
    p = p * t + 0.00029442625042090263
    p = p * t + 0.0017556055641619387
    p = p * t - 0.009746819796978208
    p = p * t + 0.028362285507651092
    p = p * t - 0.05869335273915943
    p = p * t + 0.09230431965631254
    p = p * t - 0.10880393454632545
    p = p * t + 0.08227673860879958
    p = p * t + 0.003585415648883289
    p = p * t - 0.14024059858819543
    p = p * t + 1.2375126308368274
    return p * (x + 3.75) * inverse


def _expect(
    readings: Floats,
    variances: Floats,
    weights: Floats,
    scales: Floats,
    signed: bool,
    means: Floats,
    spreads: Floats,
    shares: Floats,
) -> None:
    v, y = variances, readings
    kept = shares.shape[1]
    if not signed:
        np.maximum(y, _BELOW * np.sqrt(v), out=y)
    nearest = -0.5 * y * y / np.where((y > 0.0) | signed, scales[-1] + v, v)
    edges = _exp(np.fmax(-0.5 * y * y / v - nearest, _NOTHING))
    totals = weights[0] / np.sqrt(v) * edges
    shares[0] = totals[:kept]
    means[:] = spreads[:] = 0.0
    for k in range(1, len(weights)):
        weight = weights[k] / math.sqrt(scales[k])
        inverse = 1 / (scales[k] + v)
        left = scales[k] * inverse
        root = weight * np.sqrt(left)
        density = _exp(np.fmax(-0.5 * y * y * inverse - nearest, _NOTHING))
        if signed:
            centre = left * y
            share = root * density
            means += share * centre
            spreads += share * (left * v + centre * centre)
        else:
            deviation = np.sqrt(left * v)
            below = edges * _erfcx(np.abs(y) * left / deviation * _ROOT_HALF)
            share = root * np.where(y > 0.0, 2 * density - below, below)
            first = share * left * y + deviation * root * edges * _EDGE
            means += first
            spreads += share * left * v + left * y * first
        totals += share
        shares[k] = share[:kept]
    means /= totals
    np.fmax(spreads / totals - means * means, 0.0, out=spreads)
    shares /= totals[:kept]


@plain_kernel(lambda readings, variances, weights, *more: PART_SECONDS * len(readings) * len(weights), _expect)
def expect(
    readings: Floats,
    variances: Floats,
    weights: Floats,
    scales: Floats,
    signed: bool,
    means: Floats,
    spreads: Floats,
    shares: Floats,
) -> None:
    """Fill in mean and variance of each count, and the share of each part of the prior in each of the first counts.

    ``shares`` has a row for each part and may be shorter than ``readings``. Part 0 is zero itself.
    """
    n = len(readings)
    parts = len(weights)
    kept = shares.shape[1]
    widest = scales[parts - 1]
    nearest = np.empty(n)
    edges = np.empty(n)
    totals = np.empty(n)
    part = np.empty(n)
    for j in range(n):
        v = variances[j]
        y = readings[j]
        lowest = _BELOW * math.sqrt(v)
        if not signed and y < lowest:
            y = lowest
        readings[j] = y
        # Exponents are taken from that of the largest density: of the widest part, or, below nothing, of the zero.
        most = -0.5 * y * y / (widest + v if signed or y > 0.0 else v)
        exponent = -0.5 * y * y / v - most
        edges[j] = _exp(exponent if exponent > _NOTHING else _NOTHING)
        nearest[j] = most
        totals[j] = weights[0] / math.sqrt(v) * edges[j]
        means[j] = 0.0
        spreads[j] = 0.0
    shares[0] = totals[:kept]
    for k in range(1, parts):
        scale = scales[k]
        weight = weights[k] / math.sqrt(scale)
        if signed:
            for j in range(n):
                v = variances[j]
                y = readings[j]
                inverse = 1 / (scale + v)
                centre = scale * inverse * y
                exponent = -0.5 * y * y * inverse - nearest[j]
                share = weight * math.sqrt(scale * inverse) * _exp(exponent if exponent > _NOTHING else _NOTHING)
                part[j] = share
                means[j] += share * centre
                spreads[j] += share * (scale * inverse * v + centre * centre)
        else:
            for j in range(n):
                v = variances[j]
                y = readings[j]
                inverse = 1 / (scale + v)
                left = scale * inverse
                deviation = math.sqrt(left * v)
                root = weight * math.sqrt(left)
                exponent = -0.5 * y * y * inverse - nearest[j]
                whole = 2 * _exp(exponent if exponent > _NOTHING else _NOTHING)
                below = edges[j] * _erfcx(abs(y) * left / deviation * _ROOT_HALF)
                share = root * (whole - below if y > 0.0 else below)
                first = share * left * y + deviation * root * edges[j] * _EDGE
                part[j] = share
                means[j] += first
                spreads[j] += share * left * v + left * y * first
        for j in range(n):
            totals[j] += part[j]
        shares[k] = part[:kept]
    for j in range(n):
        mean = means[j] / totals[j]
        spread = spreads[j] / totals[j] - mean * mean
        means[j] = mean
        spreads[j] = spread if spread > 0.0 else 0.0
    for k in range(parts):
        for j in range(kept):
            shares[k, j] /= totals[j]
