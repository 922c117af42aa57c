"""What a day's integers are made of, and how far one unit moves them.

A stream publishes one vector of integers a day, all of it under noise of one law. A kind whose tables want noise of
different sizes has its tables enter the vector times different whole numbers: what enters sixteen times and is divided
by sixteen afterwards has a sixteenth of the noise, and its sensitivity is sixteen times as large.

**Sensitivity.** Each portion says how far one unit that is *added on one day* moves it. What several days come to, and
that a unit may be replaced, a :class:`~dpsketch.sketches.continual.designs.Contribution` adds. Where a unit is
replaced, it may have been on other days than what it is replaced by, so that not even a total stays as it was. Let g
and h be what the two put into all publications. ‖g − h‖² = ‖g‖² + ‖h‖² − 2⟨g, h⟩: at most four times the bound on one,
and twice the bound where nothing counts downwards, since a design's numbers are not negative either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.errors import FileRefused
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import whole_number
from dpsketch.privacy import Guarantee, Unit
from dpsketch.sketches.continual.designs import Contribution
from dpsketch.sketches.continual.publications import Publications
from dpsketch.sketches.continual.stretches import Stretch

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = ["Layout", "Portion", "Window", "other_tables", "window_law"]


# The smallest portion enters so many times, the others as many times more as they want less noise, rounded.
_STEPS = 8
_MOST_STEPS = 2**12
# What enters the vector stays below this; a design holds it to less.
_ROOM = 2**62
# A sum of fewer equal Laplace draws than this is nearer to one of them than to the normal law.
_FEW_DRAWS = 1.5
# Where a cell's variance is below this, rounding to integers is most of a rounded Gaussian's.
_LEAST_VARIANCE = 0.25
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Portion:
    """A table of a day.

    Attributes
    ----------
    name : str
        What it is.
    shape : tuple of int
        Its shape.
    l1, squared, cells : int
        One unit that is added on one day: its L1 norm, its squared L2 norm and the number of cells that it can move.
    share : float
        How much of the budget the table is to get, beside the others.
    signed : bool
        Whether a unit may move cells downwards, as it does in a CountSketch.
    """

    name: str
    shape: tuple[int, ...]
    l1: int
    squared: int
    cells: int
    share: float = 1.0
    signed: bool = False

    @property
    def most(self) -> int:
        """The most by which one unit moves a cell."""
        return self.l1 // self.cells if self.cells * self.squared == self.l1**2 else self.l1

    @property
    def size(self) -> int:
        """How many cells it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The portions of a day's vector, and how many times each enters it. Public."""

    portions: tuple[Portion, ...]
    scales: tuple[int, ...]

    @classmethod
    def balanced(cls, portions: Sequence[Portion], *, pure: bool) -> Self:
        """Return the layout that gives each portion its share of the budget, about."""
        wants = [each.share / each.l1 if pure else math.sqrt(each.share / each.squared) for each in portions]
        scales = [min(_MOST_STEPS, round(_STEPS * want / min(wants))) for want in wants]
        common = math.gcd(*scales)
        return cls(tuple(portions), tuple(scale // common for scale in scales))

    @classmethod
    def stored(cls, portions: Sequence[Portion], scales: Any) -> Self:
        """Return the layout of a file, which may have been written by anyone."""
        if not isinstance(scales, list) or len(scales) != len(portions):
            raise other_tables()
        return cls(tuple(portions), tuple(whole_number("a scale", each, low=1, high=_MOST_STEPS) for each in scales))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a day's vector: that of the only table, or flat."""
        return self.portions[0].shape if len(self.portions) == 1 else (sum(each.size for each in self.portions),)

    def contribution(self, unit: Unit, days: int, apart: int) -> Contribution:
        """Return how far one unit moves the vectors of the days: a record one of them, a user so many, so far apart."""
        pairs, replaced = list(zip(self.portions, self.scales, strict=True)), unit.neighbours == "replace"
        squares = [(scale**2 * each.squared, 4 if each.signed else 2) for each, scale in pairs]
        return Contribution(
            sum(scale * each.l1 for each, scale in pairs),
            sum(squared for squared, _ in squares),
            sum(each.cells for each in self.portions),
            days,
            apart,
            replaced,
            max(scale * each.most for each, scale in pairs),
            sum(squared * (times if replaced else 1) for squared, times in squares),
        )

    def joined(self, tables: Mapping[str, Integers]) -> Integers:
        """Return a day's vector of its tables."""
        found = []
        for each, scale in zip(self.portions, self.scales, strict=True):
            # Held before it is multiplied: a product that wraps round brings neighbours as far apart as can be.
            found.append(scale * np.clip(tables[each.name], -(_ROOM // scale), _ROOM // scale))
        return np.concatenate([each.ravel() for each in found]).reshape(self.shape)

    def split(self, vector: Floats) -> dict[str, Floats]:
        """Return the tables that a decoded vector is made of."""
        found, start = {}, 0
        flat = vector.ravel()
        for each, scale in zip(self.portions, self.scales, strict=True):
            found[each.name] = flat[start : start + each.size].reshape(each.shape) / scale
            start += each.size
        return found

    def laws(self, stretch: Stretch) -> dict[str, Noise]:
        """Return the law of the noise in a cell of each table of a decoded vector."""
        return {each.name: window_law(stretch, scale) for each, scale in zip(self.portions, self.scales, strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some days of a stream together, of which a kind makes a release. Public.

    Attributes
    ----------
    tables, laws : dict
        The decoded tables by the names of their portions, and the law of the noise in a cell of each.
    stretch : Stretch
        Which noise of the stream that is.
    guarantee, charge
        Those of the stream.
    published : Publications
        What it is made of.
    signed : bool
        Whether it is the difference of two windows.
    """

    tables: dict[str, Floats]
    laws: dict[str, Noise]
    stretch: Stretch
    guarantee: Guarantee
    charge: Charge | None
    published: Publications
    signed: bool = False


def other_tables() -> FileRefused:
    """Return the refusal of a file whose tables are not a kind's."""
    return FileRefused("the file's tables are not those of its kind.")


def window_law(stretch: Stretch, scale: int = 1) -> Noise:
    """Return a law with the variance of the noise in an answer's cell: that of a weighted sum of many draws.

    A weighted sum of Gaussian draws is Gaussian. One of Laplace draws is nearly so, unless a single draw makes up most
    of it.
    """
    # None at all is left where a window is taken from itself, or where the noise rounds to nothing.
    variance = max(stretch.variance / scale**2, _NO_VARIANCE)
    squares = stretch.weights**2
    draws = float(squares.sum()) ** 2 / max(float(np.sum(squares**2)), 1e-300)
    if isinstance(stretch.law, DiscreteLaplace) and draws < _FEW_DRAWS:
        # Of the variance 2a/(1 − a)² with a = exp(−ε).
        middle = 1 + 1 / variance
        return DiscreteLaplace(math.log(middle + math.sqrt(middle**2 - 1)), 1)
    return RoundedGaussian(math.sqrt(variance - 1 / 12 if variance > _LEAST_VARIANCE else variance))
