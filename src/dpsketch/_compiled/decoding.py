"""Joint decoding: what the other rows say of a key, passed on to the cell that the key has in this row.

The state has a message for each key and row, the expectation M and the variance V of the key's count given its *other*
rows. A cell less its keys' messages is a residual R with variance W. In row r a key with sign s reads s·R + M, with
variance W − V: the cell without the other keys. Cells are numbered row after row.

The messages of a key are close to each other: they are kept as one number of 64 bits and the distances from it, which,
like the variances, have 32. A message is subtracted from its cell as it is kept, so that rounding it moves no key's own
reading, and others' by a part in 10⁷ of how far its rows disagree.

A message is an expectation under a prior that is a mixture of a zero and normal laws of all scales (:func:`expect`).
Part k is the law of the size of N(0, s), or N(0, s) itself where counts may be negative. Given a reading y with
variance v, part k has the share w·N(y; 0, s + v)·erfc(−a/√2), with a = y/√v·√(s/(s + v)), and its count is normal with
mean y·s/(s + v), cut off at nothing. For readings above 0, erfc(−x) = 2 − exp(−x²)·erfcx(x), and below it
exp(−x²)·erfcx(−x); the two exponents add up to y²/2v, which is the same for all parts. So one exp and one erfcx a part
do, both by polynomials without branches: the loop over readings is vectorised.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel
from dpsketch.arrays import Floats

__all__ = ["expect", "gather", "read", "sweep"]

Shorts = npt.NDArray[np.float32]
Cells = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

_STEPS = 3  # how often a location is taken anew from the weights that it gives
# How much a change of a message's variance counts beside a change of the message. A key whose variances still fall is
# not done: as long as they are large, the cells of others are trusted less than they could be.
_SPREADING = 0.005
# Keys a piece: what is computed for all of their readings at once stays in the first-level cache.
_PIECE = 48
_ROOT_HALF = math.sqrt(0.5)
# Twice the normal density at its centre.
_EDGE = math.sqrt(2 / math.pi)
# A reading further below nothing, in standard errors, is as one that is so far below.
_BELOW = -25.0
# exp(−80) is nothing, whatever it is weighted with.
_NOTHING = -80.0


@kernel
def _exp(x: float) -> float:
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


@kernel
def _erfcx(x: float) -> float:
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


@kernel
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


@kernel
def gather(
    cells: Cells, signs: Signs, bases: Floats, offsets: Shorts, variances: Shorts, means: Floats, spreads: Floats
) -> None:
    """Add the messages to what they add up to in each cell, and their variances."""
    for i in range(cells.shape[0]):
        for r in range(cells.shape[1]):
            means[cells[i, r]] += signs[i, r] * (bases[i] + offsets[i, r])
            spreads[cells[i, r]] += variances[i, r]


@kernel
def _sorted(values: Floats, order: npt.NDArray[np.int64]) -> None:
    """Fill in the places of the values in increasing order."""
    for i in range(len(values)):
        k = i
        while k > 0 and values[order[k - 1]] > values[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i


@kernel
def _median(values: Floats, order: npt.NDArray[np.int64], skip: int) -> float:
    """Return the median of the values but one, given their order; skip −1 leaves none out."""
    count = len(values) - (1 if skip >= 0 else 0)
    seen = 0
    low = 0.0
    for k in range(len(order)):
        if order[k] != skip:
            if seen == (count - 1) // 2:
                low = float(values[order[k]])
            if seen == count // 2:
                return 0.5 * (low + float(values[order[k]]))
            seen += 1
    return low


@kernel
def _weighed(value: float, precision: float, centre: float, freedom: float) -> tuple[float, float, float]:
    """Return a reading's distance from a centre, the square of that over its variance, and its weight.

    The weight is that of Student's law with so many degrees of freedom; without any it is 1.
    """
    gap = value - centre
    square = gap * gap * precision
    return gap, square, (freedom + 1.0) / (freedom + square) if freedom > 0.0 else 1.0


@kernel
def _locate(
    values: Floats, precisions: Floats, order: npt.NDArray[np.int64], skip: int, freedom: float
) -> tuple[float, float]:
    """Return the location of some readings, one of them left out, and its variance.

    Readings are weighted by Student's law with so many degrees of freedom; 0 stands for the mean. Where they disagree
    by more than their variances allow, the variance is as much larger.
    """
    count = len(values) - (1 if skip >= 0 else 0)
    total = 0.0
    moved = 0.0
    for j in range(len(values)):
        if j != skip:
            total += precisions[j]
            moved += precisions[j] * values[j]
    centre = moved / total
    if count == 1:
        return centre, 1.0 / total
    weighted = freedom > 0.0 and count > 2
    if weighted:
        centre = _median(values, order, skip)
        for _ in range(_STEPS):
            total = 0.0
            moved = 0.0
            for j in range(len(values)):
                if j != skip:
                    gap = values[j] - centre
                    weight = precisions[j] * (freedom + 1.0) / (freedom + gap * gap * precisions[j])
                    total += weight
                    moved += weight * gap
            centre += moved / total
    total = 0.0
    strayed = 0.0
    for j in range(len(values)):
        if j != skip:
            _, square, weight = _weighed(values[j], precisions[j], centre, freedom)
            total += weight * precisions[j]
            strayed += weight * square
    return centre, max(1.0, strayed / (count - 1)) / total


@kernel
def _without_each(
    values: Floats, precisions: Floats, order: npt.NDArray[np.int64], freedom: float, found: Floats, errors: Floats
) -> None:
    """Fill in, for each reading, the location of the others and its variance.

    That is one step of :func:`_locate` from the median of the others. These medians are three different numbers at
    most, one for the readings below the middle, one for the middle, one for those above; sums over all readings are
    taken for each of them, so that a row's own need only be subtracted.
    """
    rows = len(values)
    freedom = freedom if rows > 3 else 0.0
    middle = rows // 2
    for side in range(3):
        start = 0 if side == 0 else middle + side - 1
        stop = middle + side if side < 2 else rows
        if start >= stop:
            continue
        centre = _median(values, order, order[start])
        total = 0.0
        moved = 0.0
        strayed = 0.0
        for r in range(rows):
            gap, square, weight = _weighed(values[r], precisions[r], centre, freedom)
            total += weight * precisions[r]
            moved += weight * precisions[r] * gap
            strayed += weight * square
        for place in range(start, stop):
            r = order[place]
            gap, square, weight = _weighed(values[r], precisions[r], centre, freedom)
            rest = max(total - weight * precisions[r], 1e-12 * total)
            shift = (moved - weight * precisions[r] * gap) / rest
            found[r] = centre + shift
            errors[r] = max(1.0, (strayed - weight * square - rest * shift * shift) / (rows - 2)) / rest


@kernel
def _readings(
    key: int,
    cells: Cells,
    signs: Signs,
    bases: Floats,
    offsets: Shorts,
    variances: Shorts,
    own: float,
    left: tuple[Floats, Floats, float],
    values: Floats,
    precisions: Floats,
    order: npt.NDArray[np.int64],
) -> None:
    """Fill in what one key reads in each row, the reciprocals of the variances, and the order of the readings.

    ``left`` is what is left of the cells, its variances, and the least of these that a reading can have.
    """
    residuals, spreads, least = left
    for r in range(len(values)):
        cell = cells[key, r]
        values[r] = signs[key, r] * residuals[cell] + (bases[key] + offsets[key, r])
        precisions[r] = 1.0 / max(spreads[cell] - own * variances[key, r], least)
    _sorted(values, order)


@kernel
def sweep(
    cells: Cells,
    signs: Signs,
    bases: Floats,
    offsets: Shorts,
    variances: Shorts,
    visited: npt.NDArray[np.int64],
    residuals: Floats,
    spreads: Floats,
    least: float,
    weights: Floats,
    scales: Floats,
    signed: bool,
    freedom: float,
    step: float,
    limit: float,
    changes: Shorts,
    keys: Floats,
) -> None:
    """Renew the messages of the keys visited, in place.

    Fill in by how much each key's messages had to change, in mean square, with a small part of what their variances
    had to. Add to ``keys`` how much of the keys each part of the prior has: in its first row those that changed by at
    most ``limit``, in its second the others.
    """
    rows = cells.shape[1]
    left = (residuals, spreads, least)
    values = np.empty(rows)
    precisions = np.empty(rows)
    order = np.empty(rows, np.int64)
    others = np.empty(rows)
    other_errors = np.empty(rows)
    # All readings of a piece's keys come first, then row 0's messages to be, and so on.
    readings = np.empty(_PIECE * (rows + 1))
    errors = np.empty(_PIECE * (rows + 1))
    means = np.empty(_PIECE * (rows + 1))
    rest = np.empty(_PIECE * (rows + 1))
    shares = np.empty((len(weights), _PIECE))
    for start in range(0, len(visited), _PIECE):
        piece = visited[start : start + _PIECE]
        n = len(piece)
        for j in range(n):
            i = piece[j]
            _readings(i, cells, signs, bases, offsets, variances, 1.0, left, values, precisions, order)
            readings[j], errors[j] = _locate(values, precisions, order, -1, freedom)
            _without_each(values, precisions, order, freedom, others, other_errors)
            for r in range(rows):
                readings[(r + 1) * n + j] = others[r]
                errors[(r + 1) * n + j] = other_errors[r]
        size = n * (rows + 1)
        expect(readings[:size], errors[:size], weights, scales, signed, means[:size], rest[:size], shares[:, :n])
        for j in range(n):
            i = piece[j]
            change = 0.0
            base = 0.0
            for r in range(rows):
                mean = means[(r + 1) * n + j]
                variance = rest[(r + 1) * n + j]
                before = bases[i] + offsets[i, r]
                change += (mean - before) ** 2 + _SPREADING * abs(variance - variances[i, r])
                values[r] = before + step * (mean - before)
                base += values[r]
                variances[i, r] += step * (variance - variances[i, r])
            base /= rows
            bases[i] = base
            for r in range(rows):
                offsets[i, r] = values[r] - base
            changes[i] = change / rows
            moving = 1 if changes[i] > limit else 0
            for k in range(len(weights)):
                keys[moving, k] += shares[k, j]


@kernel
def read(
    cells: Cells,
    signs: Signs,
    bases: Floats,
    offsets: Shorts,
    variances: Shorts,
    own: float,
    residuals: Floats,
    spreads: Floats,
    least: float,
    freedoms: Floats,
    found: Floats,
    errors: Floats,
) -> None:
    """Fill in each key's location over all rows, and its variance if a reading is free of so much of its own message's.

    Both have a line for each number of degrees of freedom. None stand for the mean, and −1 for the median.
    """
    n, rows = cells.shape
    left = (residuals, spreads, least)
    values = np.empty(rows)
    precisions = np.empty(rows)
    order = np.empty(rows, np.int64)
    for i in range(n):
        for part in (own, 1.0):
            _readings(i, cells, signs, bases, offsets, variances, part, left, values, precisions, order)
            for k in range(len(freedoms)):
                if freedoms[k] < 0.0:
                    found[k, i] = _median(values, order, -1)
                    error = 1.0 / float(np.sum(precisions))
                else:
                    found[k, i], error = _locate(values, precisions, order, -1, freedoms[k])
                if part == own:
                    errors[k, i] = error
            if own == 1.0:
                break
