"""Messages between keys and cells without the compiler: all keys at once, row after row, to the same bits.

Sums over a key's rows are taken in the order of the rows, and what is kept in 32 bits is widened before it is used, as
the kernels of :mod:`dpsketch._compiled.messages` do, which say what is computed and why. For a few thousand candidates
this takes less time than to load the compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.expectation import expect

__all__ = ["SPREADING", "STEPS", "gather", "gather_seconds", "read", "read_seconds", "sweep", "sweep_seconds"]

Floats = npt.NDArray[np.float64]
Shorts = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]
Signs = npt.NDArray[np.int8]

STEPS = 3
"""How often a location is taken anew from the weights that it gives."""
# A key whose variances still fall is not done: as long as they are large, the cells of others are trusted less than
# they could be.
SPREADING = 0.005
"""How much a change of a message's variance counts beside a change of the message."""

# About how long it takes for one message: to add it to its cell, to read it in one way, and to renew it.
_ADD_SECONDS = 30e-9
_READ_SECONDS = 100e-9
_RENEW_SECONDS = 300e-9
_CALL_SECONDS = 5e-4


def gather_seconds(cells: Cells, *more: object) -> float:
    """Return about how long :func:`gather` takes."""
    return _ADD_SECONDS * cells.size


def read_seconds(
    cells: Cells, signs: Signs, bases: Floats, offsets: Shorts, variances: Shorts, own: float, *more: Any
) -> float:
    """Return about how long :func:`read` takes."""
    _, _, _, freedoms, *_ = more
    return (1 if own == 1.0 else 2) * _READ_SECONDS * cells.size * len(freedoms)


def sweep_seconds(
    cells: Cells, signs: Signs, bases: Floats, offsets: Shorts, variances: Shorts, visited: Integers, *more: object
) -> float:
    """Return about how long :func:`sweep` takes, beside what the expectations do."""
    return _CALL_SECONDS + _RENEW_SECONDS * (len(visited) * int(cells.shape[1]))


def gather(
    cells: Cells, signs: Signs, bases: Floats, offsets: Shorts, variances: Shorts, means: Floats, spreads: Floats
) -> None:
    """Add the messages to what they add up to in each cell, and their variances."""
    places = cells.ravel()
    np.add.at(means, places, (signs * (bases[:, None] + offsets)).ravel())
    np.add.at(spreads, places, variances.astype(np.float64).ravel())


class _Readings:
    """What keys read in each row, the reciprocals of the variances, and the order of the readings: a row a line."""

    def __init__(
        self, cells: Cells, signs: Signs, sent: Floats, variances: Floats, left: tuple[Floats, Floats, float]
    ) -> None:
        residuals, spreads, least = left
        self.values: Floats = np.ascontiguousarray((signs * residuals[cells] + sent).T)
        self.precisions: Floats = np.ascontiguousarray((1.0 / np.maximum(spreads[cells] - variances, least)).T)
        self.order: Integers = np.argsort(self.values, axis=0, kind="stable")
        self.sorted: Floats = np.take_along_axis(self.values, self.order, 0)

    def median(self, skip: int = -1) -> Floats:
        """Return the medians, without the reading that has a place in the order."""
        rest = self.sorted if skip < 0 else np.delete(self.sorted, skip, 0)
        if not len(rest):
            return np.zeros(rest.shape[1])
        found: Floats = 0.5 * (rest[(len(rest) - 1) // 2] + rest[len(rest) // 2])
        return found

    def locate(self, freedom: float) -> tuple[Floats, Floats]:
        """Return the locations of all readings, and their variances."""
        rows = len(self.values)
        total = _summed(self.precisions)
        centre = _summed(self.precisions * self.values) / total
        if rows == 1:
            return centre, 1.0 / total
        if freedom > 0.0 and rows > 2:
            centre = self.median()
            for _ in range(STEPS):
                gap = self.values - centre
                weight = self.precisions * (freedom + 1.0) / (freedom + gap * gap * self.precisions)
                centre = centre + _summed(weight * gap) / _summed(weight)
        _, square, weight = self.weighed(centre, freedom)
        strayed = _summed(weight * square) / (rows - 1)
        return centre, np.fmax(1.0, strayed) / _summed(weight * self.precisions)

    def weighed(self, centre: Floats, freedom: float) -> tuple[Floats, Floats, Floats]:
        """Return the readings' distances from a centre, the squares of those over their variances, and weights."""
        gap = self.values - centre
        square = gap * gap * self.precisions
        return gap, square, (freedom + 1.0) / (freedom + square) if freedom > 0.0 else np.ones_like(square)

    def without_each(self, freedom: float) -> tuple[Floats, Floats]:
        """Return, for each reading, the location of the others and its variance."""
        rows = len(self.values)
        freedom = freedom if rows > 3 else 0.0
        found, errors = np.empty_like(self.values), np.empty_like(self.values)
        for start, stop in ((0, rows // 2), (rows // 2, rows // 2 + 1), (rows // 2 + 1, rows)):
            if start >= stop:
                continue
            centre = self.median(start)
            gap, square, weight = self.weighed(centre, freedom)
            light = weight * self.precisions
            total, moved, strayed = _summed(light), _summed(light * gap), _summed(weight * square)
            for r in self.order[start:stop]:
                at = r, np.arange(len(r))
                rest = np.maximum(total - light[at], 1e-12 * total)
                shift = (moved - light[at] * gap[at]) / rest
                found[at] = centre + shift
                spread = strayed - weight[at] * square[at] - rest * shift * shift
                errors[at] = np.fmax(1.0, spread / (rows - 2)) / rest
        return found, errors


def _summed(lines: Floats) -> Floats:
    """Return the sum of lines, added one after the other."""
    total = np.zeros(lines.shape[1])
    for line in lines:
        total += line
    return total


@np.errstate(divide="ignore", invalid="ignore")  # of two rows no disagreement is left when one is left out
def sweep(
    cells: Cells,
    signs: Signs,
    bases: Floats,
    offsets: Shorts,
    variances: Shorts,
    visited: Integers,
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
    """Renew the messages of the keys visited, in place."""
    n, rows = len(visited), cells.shape[1]
    before = bases[visited, None] + offsets[visited]
    spread = variances[visited].astype(np.float64)
    readings = _Readings(cells[visited], signs[visited], before, spread, (residuals, spreads, least))
    value, error = readings.locate(freedom)
    others, other_errors = readings.without_each(freedom)
    means, rest = np.empty((2, n * (rows + 1)))
    shares = np.empty((len(weights), n))
    seen, errors = np.concatenate([value, others.ravel()]), np.concatenate([error, other_errors.ravel()])
    expect(seen, errors, weights, scales, signed, means, rest, shares)
    mean, variance = means[n:].reshape(rows, n).T, rest[n:].reshape(rows, n).T
    gap = mean - before
    change = _summed((gap * gap + SPREADING * np.abs(variance - spread)).T)
    moved = before + step * gap
    base = _summed(moved.T) / rows
    variances[visited] = spread + step * (variance - spread)
    bases[visited] = base
    offsets[visited] = moved - base[:, None]
    changes[visited] = change / rows
    moving = changes[visited].astype(np.float64) > limit
    for place, which in enumerate((~moving, moving)):
        if which.any():
            keys[place] = np.cumsum(np.column_stack([keys[place], shares[:, which]]), axis=1)[:, -1]


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
    """Fill in each key's location over all rows, and its variance."""
    sent, spread = bases[:, None] + offsets, variances.astype(np.float64)
    for part in dict.fromkeys((own, 1.0)):
        readings = _Readings(cells, signs, sent, part * spread, (residuals, spreads, least))
        for k, freedom in enumerate(freedoms.tolist()):
            if freedom < 0.0:
                found[k], error = readings.median(), 1.0 / _summed(readings.precisions)
            else:
                found[k], error = readings.locate(freedom)
            if part == own:
                errors[k] = error
