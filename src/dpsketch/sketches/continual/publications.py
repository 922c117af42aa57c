"""What a stream has published: public, and all that answers are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.laws.designs import Design
from dpsketch.noise import Noise
from dpsketch.numbers import whole_number
from dpsketch.sketches.continual.decoding import weights
from dpsketch.sketches.continual.stretches import Stretch

__all__ = ["Publications", "mark_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Publications:
    """All that was published by a day. Public.

    Attributes
    ----------
    name : str
        What tells the stream from others.
    design : Design
        How the days enter the tables.
    day : int
        How many days were published.
    noise : Noise
        In each cell of each table, independent from table to table.
    tables : sequence of numpy.ndarray
        What was published, in order; at least one.
    marks : numpy.ndarray of uint64
        A digest of each table, by which copies of a stream that went on apart are told; or none.
    names : sequence or None
        Where keys are found: those that were, in their order.
    ceiling : tuple of float or None
        Where keys are found: what the total of one that was not found did not pass, and the deviation of its noise.
    """

    name: str
    design: Design
    day: int
    noise: Noise
    tables: Sequence[Integers]
    marks: npt.NDArray[np.uint64]
    names: Sequence[Any] | None = None
    ceiling: tuple[float, float] | None = None

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries."""
        last = whole_number("last", last, low=1, high=self.day)
        first = whole_number("first", first, low=1, high=last)
        marks = self.marks[: self.design.published(last)]
        stretch = Stretch(self.name, self.noise, weights(self.design, first, last), marks)
        total = np.zeros(self.tables[0].shape)
        for weight, table in zip(stretch.weights.tolist(), self.tables, strict=False):
            if weight:
                total += weight * table
        return total, stretch


def mark_of(table: Integers) -> int:
    """Return a digest of a published table."""
    return int.from_bytes(hashlib.sha256(table.astype("<i8").tobytes()).digest()[:8], "little")
