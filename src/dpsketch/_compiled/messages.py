"""Joint decoding: what the other rows say of a key, passed on to the cell that the key has in this row.

The state has a message for each key and row, the expectation M and the variance V of the key's count given its *other*
rows. A cell less its keys' messages is a residual R with variance W. In row r a key with sign s reads s·R + M, with
variance W − V: the cell without the other keys. Cells are numbered row after row.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel

__all__ = ["expect", "gather", "read", "sweep"]

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

_STEPS = 3
_DENSITY = 1 / math.sqrt(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
# A normal law so many standard deviations above 0 is all above it; one so many below has its tail's asymptote there.
_ABOVE = 6.0
_BELOW = -25.0
# exp(−40) is nothing beside the widest part, unless that lies far below 0; exp(−700) is nothing at all.
_NOTHING = -40.0
_NOTHING_AT_ALL = -700.0
_SMALL = 1e-9
# How much a change of a message's variance counts beside a change of the message. A key whose variances still fall is
# not done: as long as they are large, the cells of others are trusted less than they could be.
_SPREADING = 0.005


@kernel
def gather(cells: Cells, signs: Signs, messages: Floats, variances: Floats, size: int) -> tuple[Floats, Floats]:
    """Return what the messages add up to in each cell, and their variances."""
    means = np.zeros(size)
    spreads = np.zeros(size)
    for i in range(cells.shape[0]):
        for r in range(cells.shape[1]):
            means[cells[i, r]] += signs[i, r] * messages[i, r]
            spreads[cells[i, r]] += variances[i, r]
    return means, spreads


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
            gap = values[j] - centre
            square = gap * gap * precisions[j]
            weight = (freedom + 1.0) / (freedom + square) if freedom > 0.0 else 1.0
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
            gap = values[r] - centre
            square = gap * gap * precisions[r]
            weight = (freedom + 1.0) / (freedom + square) if rows > 3 else 1.0
            total += weight * precisions[r]
            moved += weight * precisions[r] * gap
            strayed += weight * square
        for place in range(start, stop):
            r = order[place]
            gap = values[r] - centre
            square = gap * gap * precisions[r]
            weight = (freedom + 1.0) / (freedom + square) if rows > 3 else 1.0
            rest = max(total - weight * precisions[r], 1e-12 * total)
            shift = (moved - weight * precisions[r] * gap) / rest
            found[r] = centre + shift
            errors[r] = max(1.0, (strayed - weight * square - rest * shift * shift) / (rows - 2)) / rest


@kernel
def _expect(
    reading: float, variance: float, weights: Floats, scales: Floats, signed: bool, shares: Floats
) -> tuple[float, float]:
    """Return mean and variance of a count given a reading, and fill in the share of each part of the prior.

    The prior is a mixture: part k is the law of the size of N(0, scales[k]), or of N(0, scales[k]) itself where counts
    may be negative. Part 0 is zero.
    """
    parts = len(weights)
    nearest = -0.5 * reading * reading / (scales[parts - 1] + variance)
    least = _NOTHING if signed or reading > 0.0 else _NOTHING_AT_ALL
    # A part's density at the reading times that of what it leaves of the count at zero: the same for every part.
    edge = 0.0 if signed else 2.0 * _DENSITY * math.exp(-0.5 * reading * reading / variance - nearest)
    total = 0.0
    mean = 0.0
    square = 0.0
    for k in range(parts):
        spread = scales[k] + variance
        exponent = -0.5 * reading * reading / spread - nearest
        share = 0.0
        if exponent > least:
            root = weights[k] / math.sqrt(spread)
            share = root * math.exp(exponent)
            kept = scales[k] / spread
            if share > _SMALL * total and kept > 0.0:
                centre = kept * reading
                rest = kept * variance
                if signed:
                    first, second = centre, rest + centre * centre
                else:
                    deviation = math.sqrt(rest)
                    ratio = centre / deviation
                    if ratio > _ABOVE:
                        share *= 2.0
                        first, second = centre, rest + centre * centre
                    elif ratio < _BELOW:
                        share = root * edge / -ratio
                        first = -deviation / ratio
                        second = 2.0 * first * first
                    else:
                        share *= math.erfc(-ratio * _ROOT_HALF)
                        first = centre + deviation * root * edge / share if share > 0.0 else 0.0
                        second = rest + centre * first
                mean += share * first
                square += share * second
        shares[k] = share
        total += share
    if not total > 0.0:
        shares[:] = 0.0
        shares[0] = 1.0
        return 0.0, 0.0
    for k in range(parts):
        shares[k] /= total
    mean /= total
    return mean, max(square / total - mean * mean, 0.0)


@kernel
def expect(readings: Floats, variances: Floats, weights: Floats, scales: Floats, signed: bool) -> tuple[Floats, Floats]:
    """Return the mean of each key's count given its reading, and how many keys each part of the prior has."""
    means = np.empty(len(readings))
    counts = np.zeros(len(weights))
    parts = np.empty(len(weights))
    for i in range(len(readings)):
        means[i], _ = _expect(readings[i], variances[i], weights, scales, signed, parts)
        counts += parts
    return means, counts


@kernel
def _readings(
    cells: Cells,
    signs: Signs,
    messages: Floats,
    variances: Floats,
    residuals: Floats,
    spreads: Floats,
    least: float,
    values: Floats,
    precisions: Floats,
) -> None:
    """Fill in what one key reads in each row, and the reciprocals of the variances."""
    for r in range(len(cells)):
        values[r] = signs[r] * residuals[cells[r]] + messages[r]
        precisions[r] = 1.0 / max(spreads[cells[r]] - variances[r], least)


@kernel
def sweep(
    cells: Cells,
    signs: Signs,
    messages: Floats,
    variances: Floats,
    visited: npt.NDArray[np.int64],
    residuals: Floats,
    spreads: Floats,
    least: float,
    weights: Floats,
    scales: Floats,
    signed: bool,
    freedom: float,
    step: float,
    changes: Floats,
    shares: npt.NDArray[np.float32],
) -> None:
    """Renew the messages of the keys visited, in place.

    Fill in by how much each key's messages had to change, in mean square, with a small part of what their variances
    had to, and how much of the key each part of the prior has.
    """
    rows = cells.shape[1]
    values = np.empty(rows)
    precisions = np.empty(rows)
    order = np.empty(rows, np.int64)
    others = np.empty(rows)
    other_errors = np.empty(rows)
    parts = np.empty(len(weights))
    for i in visited:
        _readings(cells[i], signs[i], messages[i], variances[i], residuals, spreads, least, values, precisions)
        _sorted(values, order)
        centre, error = _locate(values, precisions, order, -1, freedom)
        _expect(centre, error, weights, scales, signed, parts)
        for k in range(len(parts)):
            shares[i, k] = parts[k]
        _without_each(values, precisions, order, freedom, others, other_errors)
        change = 0.0
        for r in range(rows):
            mean, variance = _expect(others[r], other_errors[r], weights, scales, signed, parts)
            change += (mean - messages[i, r]) ** 2 + _SPREADING * abs(variance - variances[i, r])
            messages[i, r] += step * (mean - messages[i, r])
            variances[i, r] += step * (variance - variances[i, r])
        changes[i] = change / rows


@kernel
def read(
    cells: Cells,
    signs: Signs,
    messages: Floats,
    variances: Floats,
    residuals: Floats,
    spreads: Floats,
    least: float,
    freedom: float,
) -> tuple[Floats, Floats]:
    """Return each key's location over all rows, and its variance.

    No degrees of freedom stand for the mean, and −1 for the median.
    """
    n, rows = cells.shape
    values = np.empty(rows)
    precisions = np.empty(rows)
    order = np.empty(rows, np.int64)
    found = np.empty(n)
    errors = np.empty(n)
    for i in range(n):
        _readings(cells[i], signs[i], messages[i], variances[i], residuals, spreads, least, values, precisions)
        _sorted(values, order)
        if freedom < 0.0:
            found[i] = _median(values, order, -1)
            errors[i] = 1.0 / np.sum(precisions)
        else:
            found[i], errors[i] = _locate(values, precisions, order, -1, freedom)
    return found, errors
