"""What a day's integers are made of.

A stream publishes one vector of integers a day, all of it under noise of one law. A kind whose tables want noise of
different sizes has its tables enter the vector times different whole numbers: a table that enters sixteen times and is
divided by sixteen afterwards has a sixteenth of the noise, and lies sixteen times as far apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.drawn import Drawn, Part, Receipt
from dpsketch.core.move import Table
from dpsketch.laws.streams import Published
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.privacy import Guarantee
from dpsketch.sketches.continual.decoding import Windowed
from dpsketch.sketches.continual.publications import Publications
from dpsketch.sketches.continual.stretches import Stretch

__all__ = ["Layout", "Window", "window_law"]


# The table that wants the most noise enters this many times; others enter more often as they want less, rounded.
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
class Layout:
    """The tables of a day's vector, and how many times each enters it. Public."""

    tables: tuple[Table, ...]
    scales: tuple[int, ...]

    @classmethod
    def balanced(cls, shares: Mapping[Table, float], *, pure: bool) -> Self:
        """Return the layout that gives each table its share of the budget, about."""
        wants = [
            share / table.move.l1 if pure else math.sqrt(share / table.move.squared) for table, share in shares.items()
        ]
        scales = [min(_MOST_STEPS, round(_STEPS * want / min(wants))) for want in wants]
        common = math.gcd(*scales)
        return cls(tuple(shares), tuple(scale // common for scale in scales))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a day's vector: that of the only table, or flat."""
        shapes = [table.shape or (0,) for table in self.tables]
        return shapes[0] if len(shapes) == 1 else (sum(math.prod(shape) for shape in shapes),)

    def joined(self, tables: Mapping[str, Integers]) -> Integers:
        """Return a day's vector of its tables."""
        found = []
        for each, scale in zip(self.tables, self.scales, strict=True):
            # Held before it is multiplied: a product that wraps round brings neighbours as far apart as can be.
            found.append(scale * np.clip(tables[each.name], -(_ROOM // scale), _ROOM // scale))
        return np.concatenate([each.ravel() for each in found]).reshape(self.shape)

    def split(self, vector: Floats) -> dict[str, Floats]:
        """Return the tables that a decoded vector is made of."""
        found, start = {}, 0
        flat = vector.ravel()
        for each, scale in zip(self.tables, self.scales, strict=True):
            shape = (len(flat),) if each.shape is None else each.shape
            size = math.prod(shape)
            found[each.name] = flat[start : start + size].reshape(shape) / scale
            start += size
        return found

    def laws(self, stretch: Stretch) -> dict[str, Noise]:
        """Return the law of the noise in a cell of each table of a decoded vector."""
        return {each.name: window_law(stretch, scale) for each, scale in zip(self.tables, self.scales, strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some days of a stream together, of which a kind makes a release. Public.

    Attributes
    ----------
    tables, laws : dict
        The decoded tables by name, and the law of the noise in a cell of each.
    stretch : Stretch
        Which noise of the stream that is.
    receipt : Receipt
        What was paid for the stream.
    guarantee : Guarantee
        That of the stream.
    published : Publications
        What it is made of.
    signed : bool
        Whether it is the difference of two windows.
    """

    tables: dict[str, Floats]
    laws: dict[str, Noise]
    stretch: Stretch
    receipt: Receipt
    guarantee: Guarantee
    published: Publications
    signed: bool = False

    @property
    def law(self) -> Published:
        """The stream's law."""
        (law,) = self.receipt.laws
        assert isinstance(law, Published)
        return law

    def drawn(self) -> Drawn:
        """Return the window as a kind's release has it: a part for each table, decoded from the stream's law."""
        parts = {
            table.name: Part(Windowed(self.law, table, self.laws[table.name]), {"table": self.tables[table.name]})
            for table in self.law.stacked
        }
        return Drawn((self.receipt,), parts, self.guarantee)


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
