"""How days are decoded from what a stream published, and with which error. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsketch.arrays import Floats
from dpsketch.core.codec import stored
from dpsketch.core.drawn import Derived
from dpsketch.core.laws import Arrays, Law
from dpsketch.core.move import Table
from dpsketch.errors import InvalidInput
from dpsketch.files import Array
from dpsketch.laws.blocks import Blocks
from dpsketch.laws.designs import Design, Filter
from dpsketch.laws.streams import Published
from dpsketch.noise import Noise

__all__ = ["Windowed", "are_finite", "errors", "weights"]


def weights(design: Design, first: int, last: int) -> Floats:
    """Return the weights of all tables published by day ``last`` whose sum is days ``first`` to ``last``."""
    match design:
        case Filter():
            return design.weights(first, last)
        case Blocks():
            return _LeastSquares(design).of(first, last)
        case _:
            raise TypeError(f"{type(design).__name__} has no decoding.")


def errors(design: Design, horizon: int, window: int | None = None) -> Floats:
    """Return the variance of totals, or of windows of a number of days, for noise of variance 1 in what is published.

    One for each day on which it can be asked: day 1, or day ``window``, to the last.
    """
    if not isinstance(design, Filter):
        days = range(window or 1, horizon + 1)
        return np.array([np.sum(weights(design, day - window + 1 if window else 1, day) ** 2) for day in days])
    decoded = design.response(horizon).copy()
    if window is None:
        return np.cumsum(decoded**2)
    decoded[window:] -= design.response(horizon)[: horizon - window]
    found: Floats = np.cumsum(decoded**2)[window - 1 :]
    return found


@dataclass(frozen=True, slots=True)
class _LeastSquares:
    """The decoding of blocks, over all that was published by the last day of the question.

    A block's own noise and that of the blocks in it are independent and of one variance.
    """

    design: Blocks

    def of(self, first: int, last: int) -> Floats:
        """Return the weights of least squares: for one block by all in it, and for a part of one, by all in it too."""
        weights, start = np.zeros(self.design.published(last)), 0
        for level in reversed(range(len(self.design.sizes))):
            while start + self.design.sizes[level] <= last:
                self._spread(weights, level, start // self.design.sizes[level], 1.0, 0.0, first - 1, last)
                start += self.design.sizes[level]
        return weights

    def _place(self, level: int, index: int) -> int:
        """Return the place of a block among all that are published."""
        return self.design.published((index + 1) * self.design.sizes[level] - 1) + level

    def _ratio(self, level: int) -> int:
        return self.design.sizes[level] // self.design.sizes[level - 1]

    def _variance(self, level: int) -> float:
        """Return the variance of a whole block's estimate by all in it; of its own publication, 1."""
        if level == 0:
            return 1.0
        inner = self._ratio(level) * self._variance(level - 1)
        return inner / (inner + 1)

    def _overlap(self, level: int, index: int, start: int, end: int) -> int:
        """Return how many of a block's days are in a window."""
        size = self.design.sizes[level]
        return max(0, min(end, (index + 1) * size) - max(start, index * size))

    def _covariance(self, level: int, index: int, start: int, end: int) -> float:
        """Return the covariance of a block's estimate with that of its part in a window."""
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.design.sizes[level]):
            return self._variance(level) if overlap else 0.0
        ratio = self._ratio(level)
        inner = sum(self._covariance(level - 1, ratio * index + i, start, end) for i in range(ratio))
        return inner / (ratio * self._variance(level - 1) + 1)

    def _spread(
        self, weights: Floats, level: int, index: int, window: float, whole: float, start: int, end: int
    ) -> None:
        """Add ``window`` times the estimate of a block's part in a window, and ``whole`` times that of the block.

        The estimate of the block is Σ children + λ·(y − Σ children), and that of its part Σ parts + κ·(y − Σ children),
        with λ and κ the regression of either on the block's own publication y.
        """
        overlap = self._overlap(level, index, start, end)
        if overlap in (0, self.design.sizes[level]):
            whole, window = whole + (window if overlap else 0.0), 0.0
        if whole == window == 0:
            return
        if level == 0:
            weights[self._place(level, index)] += whole
            return
        share = self._variance(level) * whole
        if window:
            share += self._covariance(level, index, start, end) * window
        weights[self._place(level, index)] += share
        for i in range(self._ratio(level)):
            self._spread(weights, level - 1, self._ratio(level) * index + i, window, whole - share, start, end)


@stored
@dataclass(frozen=True, slots=True)
class Windowed(Derived):
    """A table of some days of a stream together, decoded.

    Attributes
    ----------
    publications : Published
        The stream's law.
    table : Table
        The table.
    noise : Noise
        A law with the variance of the noise in a decoded cell.
    """

    publications: Published
    table: Table
    noise: Noise

    def __post_init__(self) -> None:
        if self.table not in self.publications.stacked:
            raise InvalidInput("a window has the tables of its stream.")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The stream's law."""
        return (self.publications,)

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is one table of finite numbers."""
        return set(arrays) == {"table"} and are_finite(arrays["table"], self.table.shape)


def are_finite(array: Array, shape: tuple[int, ...] | None) -> bool:
    """Say whether an array holds finite numbers and has a shape."""
    good = isinstance(array, np.ndarray) and array.dtype == np.float64 and shape in (None, array.shape)
    return good and bool(np.isfinite(array).all())
