"""Kernels: how alike two points are, as the probability that a random hash function puts them into one cell.

A *locality-sensitive* family of hash functions sends near points to one cell more often than far ones. The probability
of that, as a function of the two points, is the family's kernel, and a density sketch estimates sums of it. Each kernel
here is a frozen value that knows its family's exact collision probability.

With ``power`` p a row of a sketch uses p independent functions at once, which narrows the kernel to its p-th power.

Two kernels have no such family, and are inner products of features instead: :class:`Gaussian` and :class:`Linear`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import erf

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_whole, real_number

__all__ = [
    "Angular",
    "Directions",
    "Euclidean",
    "Gaussian",
    "HashKernel",
    "Kernel",
    "Linear",
    "Manhattan",
    "named",
]

Directions = Literal["stratified", "independent"]

LARGEST_DIM = 1 << 12
LARGEST_POWER = 16
_BLOCK = 1 << 22  # numbers in a block of differences


@dataclass(frozen=True, slots=True)
class _Projected:
    """A kernel of vectors that are projected onto a line and cut into cells of a bandwidth."""

    dim: int
    bandwidth: float | tuple[float, ...]
    power: int = 1
    directions: Directions = "stratified"
    name: ClassVar[str]

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=LARGEST_DIM)
        hold_whole(self, "power", low=1, high=LARGEST_POWER)
        _check_directions(self.directions)
        object.__setattr__(self, "bandwidth", _bandwidth(self.bandwidth, self.dim))

    def _distances(self, points: npt.ArrayLike, others: npt.ArrayLike, norm: Callable[[Floats], Floats]) -> Floats:
        """Return the distance between each point and each other, in bandwidths."""
        return _pairwise(_vectors(points, self.dim) / self.bandwidth, _vectors(others, self.dim) / self.bandwidth, norm)


@dataclass(frozen=True, slots=True)
class Euclidean(_Projected):
    """Cells of a randomly turned, scaled and shifted grid on a line: near in Euclidean distance is alike.

    A row projects a point onto a normal vector, shifts it by a uniform amount and takes the whole number of bandwidths
    (Datar, Immorlica, Indyk and Mirrokni, 2004). With c the distance in bandwidths the kernel is::

        k(c) = 1 − 2Φ(−1/c) − √(2/π)·c·(1 − exp(−1/(2c²)))

    which is 1 at c = 0, about .37 at c = 1, and falls like 1/(c√(2π)): its tails are long. ``power`` shortens them.

    Parameters
    ----------
    dim : int
        Number of coordinates.
    bandwidth : float or tuple of float
        The width of a cell, in the coordinates' unit; one for all coordinates, or one for each.
    power : int
        Functions a row, at most 16.
    directions : {"stratified", "independent"}
        How the rows' functions relate. "stratified" spreads their directions, lengths and shifts evenly, each row by
        itself being as random as an independent one: the estimate stays unbiased, and its error falls to a half or
        less in few dimensions. It costs no privacy.

    Examples
    --------
    >>> kernel = Euclidean(dim=2, bandwidth=2.0)
    >>> kernel.similarity([[0, 0]], [[0, 0], [2, 0], [20, 0]]).round(3)
    array([[1.   , 0.369, 0.04 ]])
    """

    name: ClassVar[str] = "euclidean"

    def similarity(self, points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        """Return the exact kernel between each point and each other, an array of points × others."""
        with np.errstate(divide="ignore"):
            t = 1 / self._distances(points, others, _length)
        kernel = erf(t / math.sqrt(2)) + math.sqrt(2 / math.pi) / t * np.expm1(-(t**2) / 2)
        return np.asarray(kernel**self.power)


@dataclass(frozen=True, slots=True)
class Manhattan(_Projected):
    """As :class:`Euclidean`, for the sum of the coordinates' distances: projections are Cauchy instead of normal.

    With c the distance in bandwidths, k(c) = (2/π)·arctan(1/c) − (c/π)·ln(1 + 1/c²). Parameters are the same.

    Examples
    --------
    >>> Manhattan(dim=2, bandwidth=2.0).similarity([[0, 0]], [[1, 1], [10, 10]]).round(3)
    array([[0.279, 0.032]])
    """

    name: ClassVar[str] = "manhattan"

    def similarity(self, points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        """Return the exact kernel between each point and each other, an array of points × others."""
        # At 10⁻¹⁵⁰ the kernel is 1 to the last bit, and 1/c² is still finite.
        c = np.maximum(self._distances(points, others, lambda gaps: np.abs(gaps).sum(axis=-1)), 1e-150)
        kernel = 2 / math.pi * np.arctan(1 / c) - c / math.pi * np.log1p(1 / c**2)
        return np.asarray(kernel**self.power)


@dataclass(frozen=True, slots=True)
class Angular:
    """On which side of ``power`` random planes through the origin: near in direction is alike.

    With θ the angle between two points the kernel is (1 − θ/π)^power (Charikar, 2002). Lengths do not matter, so the
    origin must mean something: centre the data by public knowledge. The origin itself is at a right angle to every
    other point.

    Parameters
    ----------
    dim : int
        Number of coordinates, at least 2.
    power : int
        Planes a row, at most 16; a row has 2^power cells.
    directions : {"stratified", "independent"}
        See :class:`Euclidean`.

    Examples
    --------
    >>> Angular(dim=2, power=4).similarity([[1, 0]], [[2, 0], [1, 1], [-1, 0]]).round(3)
    array([[1.   , 0.316, 0.   ]])
    """

    dim: int
    power: int = 4
    directions: Directions = "stratified"
    name: ClassVar[str] = "angular"

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=LARGEST_DIM)
        hold_whole(self, "power", low=1, high=LARGEST_POWER)
        _check_directions(self.directions)
        if self.dim < 2:
            raise InvalidInput("an angular kernel needs dim of at least 2: on a line there are only two directions.")

    def similarity(self, points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        """Return the exact kernel between each point and each other, an array of points × others."""
        a, b = _unit(_vectors(points, self.dim)), _unit(_vectors(others, self.dim))
        # Half the angle from the rhombus's two diagonals: accurate for small and for flat angles.
        angle = 2 * np.arctan2(_pairwise(a, b, _length), _pairwise(a, -b, _length))
        return np.asarray((1 - angle / math.pi) ** self.power)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The bell curve exp(−c²/2), with c the distance in bandwidths: short tails, and no cells.

    It is an inner product of waves, or of similarities to public landmarks; a sketch of it says which (``features``).

    Parameters
    ----------
    dim : int
        Number of coordinates.
    bandwidth : float or tuple of float
        Its standard deviation, in the coordinates' unit; one for all coordinates, or one for each.

    Examples
    --------
    >>> Gaussian(dim=2, bandwidth=2.0).similarity([[0, 0]], [[0, 0], [2, 0], [20, 0]]).round(3)
    array([[1.   , 0.607, 0.   ]])
    """

    dim: int
    bandwidth: float | tuple[float, ...]
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=LARGEST_DIM)
        object.__setattr__(self, "bandwidth", _bandwidth(self.bandwidth, self.dim))

    def similarity(self, points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        """Return the exact kernel between each point and each other, an array of points × others."""
        scaled = _vectors(points, self.dim) / self.bandwidth, _vectors(others, self.dim) / self.bandwidth
        return np.asarray(np.exp(-(_pairwise(*scaled, _length) ** 2) / 2))


@dataclass(frozen=True, slots=True)
class Linear:
    """The inner product of vectors of length at most 1; longer ones are scaled down to it.

    Examples
    --------
    >>> Linear(dim=2).similarity([[1, 0]], [[0.5, 0.5], [-3, 0]])
    array([[ 0.5, -1. ]])
    """

    dim: int
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=LARGEST_DIM)

    def similarity(self, points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        """Return the exact kernel between each point and each other, an array of points × others."""
        a, b = (
            inside / np.maximum(1 / largest, _length(inside))[:, None]
            for each in (_vectors(points, self.dim), _vectors(others, self.dim))
            for largest in [np.maximum(1, np.abs(each).max(axis=1))]  # squares of large ones would overflow
            for inside in [each / largest[:, None]]
        )
        found = np.empty((len(a), len(b)))
        for place, other in enumerate(b):
            found[:, place] = np.sum(a * other, axis=1)
        return found + 0.0


HashKernel = Euclidean | Manhattan | Angular
Kernel = HashKernel | Gaussian | Linear

NAMES: dict[str, type[Euclidean | Manhattan | Angular | Gaussian | Linear]] = {
    kind.name: kind for kind in (Euclidean, Manhattan, Angular, Gaussian, Linear)
}


def named(name: str, **parameters: Any) -> Kernel:
    """Build a kernel by its name: "euclidean", "manhattan", "angular", "gaussian" or "linear".

    Examples
    --------
    >>> named("euclidean", dim=1, bandwidth=0.5)
    Euclidean(dim=1, bandwidth=0.5, power=1, directions='stratified')
    """
    if name not in NAMES:
        raise InvalidInput(f"unknown kernel {name!r}; there are {', '.join(NAMES)}.")
    kind = NAMES[name]
    known = [field.name for field in fields(kind)]
    if unknown := [parameter for parameter in parameters if parameter not in known]:
        raise InvalidInput(f"the {name} kernel takes {', '.join(known)}, not {', '.join(unknown)}.")
    try:
        return kind(**parameters)
    except TypeError:
        raise InvalidInput(f"the {name} kernel takes {', '.join(known)}; one that has no default is missing.") from None


def _check_directions(directions: str) -> None:
    if directions not in ("stratified", "independent"):
        raise InvalidInput(f"directions is 'stratified' or 'independent', not {directions!r}.")


def _bandwidth(bandwidth: Any, dim: int) -> float | tuple[float, ...]:
    given = list(bandwidth) if isinstance(bandwidth, list | tuple | np.ndarray) else [bandwidth]
    widths = [real_number("bandwidth", width) for width in given]
    if not all(math.isfinite(width) and width > 0 for width in widths):
        raise InvalidInput("bandwidth must be positive and finite.")
    if len(widths) not in (1, dim):
        raise InvalidInput(f"bandwidth must be one number, or one for each of the {dim} coordinates.")
    return float(widths[0]) if len(widths) == 1 else tuple(float(width) for width in widths)


def _vectors(points: npt.ArrayLike, dim: int) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim == 1 and dim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != dim:
        raise InvalidInput(f"points must be an array of n × {dim} numbers, not one of shape {array.shape}.")
    return array


def _pairwise(a: Floats, b: Floats, size: Callable[[Floats], Floats]) -> Floats:
    """Apply a norm to every difference of a line of ``a`` and a line of ``b``, a block of lines at a time."""
    result = np.empty((len(a), len(b)))
    step = max(1, _BLOCK // max(1, b.size))
    for start in range(0, len(a), step):
        result[start : start + step] = size(a[start : start + step, None, :] - b)
    return result


def _length(vectors: Floats) -> Floats:
    return np.asarray(np.sqrt(np.sum(vectors**2, axis=-1)))


def _unit(vectors: Floats) -> Floats:
    lengths = _length(vectors)[:, None]
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
