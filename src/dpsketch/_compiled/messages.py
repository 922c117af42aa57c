"""Joint decoding: what the other rows say of a key, passed on to the cell that the key has in this row.

The state has a message for each key and row, the expectation M and the variance V of the key's count given its *other*
rows. A cell less its keys' messages is a residual R with variance W. In row r a key with sign s reads s·R + M, with
variance W − V: the cell without the other keys. Cells are numbered row after row.

The messages of a key are close to each other: they are kept as one number of 64 bits and the distances from it, which,
like the variances, have 32. A message is subtracted from its cell as it is kept, so that rounding it moves no key's own
reading, and others' by a part in 10⁷ of how far its rows disagree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import plain_messages as plain
from dpsketch._compiled.expectation import expect
from dpsketch._compiled.kernel import kernel, plain_kernel
from dpsketch._compiled.plain_messages import SPREADING, STEPS
from dpsketch.arrays import Floats

__all__ = ["gather", "read", "sweep"]

Shorts = npt.NDArray[np.float32]
Cells = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

# Keys a piece: what is computed for all of their readings at once stays in the first-level cache.
_PIECE = 48


@plain_kernel(plain.gather_seconds, plain.gather)
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
        for _ in range(STEPS):
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


@plain_kernel(plain.sweep_seconds, plain.sweep)
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
                change += (mean - before) ** 2 + SPREADING * abs(variance - variances[i, r])
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


@plain_kernel(plain.read_seconds, plain.read)
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
