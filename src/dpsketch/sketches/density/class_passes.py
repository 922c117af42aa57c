"""Passes after the first: what the classes' directions get wrong is summed over all records, and added to them.

A pass asks of every record how likely each class is, softmax(20·(q·M)) with M the directions that were released so
far, and takes that from 1 for its own class and 0 for the others: r, the residual, 0 where a record is clear. Σ r qᵀ is
released with noise, and M moves by a part of it: a step of gradient descent on the logistic loss (Song, Chaudhuri and
Sarwate, 2013; Abadi et al., 2016) that starts from class sums instead of from nothing, so that a few steps go as far as
dozens would. A later pass has a fifth of the first one's share of the budget, and of two passes the second a tenth; M
moves half as far where the classes' sums are shorter than 30 deviations of their noise, as they were released.

Privacy
-------
r is cut to whole steps of 2⁻¹², its squares summing to at most 2²⁴, and q to those of a vector's length: their product
has a length of 2²⁸ at most, held on the integers. It depends on the record and on what was released before; costs of
Gaussian noise add up where a part follows from another, too (Dong, Roth and Su, 2022). Inner products of integers are
exact in doubles, so that a record's residual does not depend on those it is read with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.vectors import residuals
from dpsketch.numbers import whole_number
from dpsketch.privacy import Unit
from dpsketch.sketches.density.embedding import STEPS, EmbeddingMap
from dpsketch.sketches.permit import Share
from dpsketch.sketches.specs import Sensitivity

__all__ = [
    "STEP",
    "correction_scale",
    "correction_shares",
    "fitting_step",
    "later_passes",
    "passes_of",
    "residual_sums",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.intp]

_RESIDUAL = 1 << 12  # steps of a residual
_DIRECTION = 1 << 15  # steps of a direction's coordinates
_FARTHEST = 1 << 10  # where directions end, so that inner products stay below 2⁵³
_SHARPNESS = 20.0  # of the probabilities, beside cosines
STEP = 0.16  # of a direction, in lengths of a class's sum
_SHORT_STEP, _SHORT = 0.08, 30  # where that length is less than so many deviations of its noise
_LATER, _SECOND = 5, 10  # a later pass has so many times less of the budget than the first; the second of two
_MOST = 32


def passes_of(asked: object) -> int:
    """Check how often records are read."""
    return whole_number("passes", asked, low=1, high=_MOST)


def correction_shares(unit: Unit, shape: EmbeddingMap, passes: int) -> list[Share]:
    """Return the parts of a release that later passes draw, one each.

    Privacy
    -------
    A unit of m records moves a pass's sums by m products of length 2²⁸ at most; they may turn round, so that a replaced
    one moves them by twice that. A residual's sizes sum to 2 at most.
    """
    times = unit.max_keys * (2 if unit.neighbours == "replace" else 1)
    length, less = times * _RESIDUAL * STEPS, _SECOND if passes == 2 else _LATER
    bound = Sensitivity(2 * length * shape.kept, float(length))
    return [Share(_name(number), bound, 1 / (less + passes - 1)) for number in range(2, passes + 1)]


def fitting_step(length: float, deviation: float) -> float:
    """Return how far directions move for a correction of one class sum's length, from what the first pass released.

    Long steps carry the corrections' noise with them: half of one is as good where noise is small, and better where
    class sums are short beside it.
    """
    return _SHORT_STEP if length < _SHORT * deviation else STEP


def correction_scale(step: float, length: float) -> float:
    """Return how far directions move for a correction of 1 in whole steps, where class sums are so long."""
    return step / (length * _RESIDUAL * STEPS)


def later_passes(
    shape: EmbeddingMap,
    vectors: Floats,
    codes: Codes,
    directions: Callable[[Integers | None], Floats],
    add_noise: Callable[[Integers, str], Integers],
    passes: int,
) -> Integers | None:
    """Read the records again, and return the noisy corrections of all later passes together; None without one.

    ``directions`` says what directions follow from corrections so far.
    """
    found: Integers | None = None
    for number in range(2, passes + 1):
        noisy = add_noise(residual_sums(shape, vectors, codes, directions(found)), _name(number))
        found = noisy if found is None else found + noisy
    return found


def residual_sums(shape: EmbeddingMap, vectors: Floats, codes: Codes, directions: Floats) -> Integers:
    """Return the sums of residuals times vectors, classes × coordinates. Sensitive."""
    whole = np.rint(np.clip(directions, -_FARTHEST, _FARTHEST) * _DIRECTION)
    total = np.zeros(directions.shape, np.int64)
    for chosen, integers in shape.chunks(vectors):
        measured = integers.astype(np.float64)
        left = np.empty((len(measured), len(whole)))
        residuals(measured @ whole.T, codes[chosen], _SHARPNESS / (STEPS * _DIRECTION), _RESIDUAL, left)
        total += (left.T @ measured).astype(np.int64)  # exact: a chunk's sums are below 2⁵³
    return total


def _name(number: int) -> str:
    return f"the corrections of pass {number}"
