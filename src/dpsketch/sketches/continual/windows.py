"""Some days of a stream together, decoded from what was published: public, and all that answers are made of.

A stream publishes one vector of integers a day, all of it under noise of one law. A kind whose tables want noise of
different sizes has its tables enter the vector times different whole numbers: a table that enters sixteen times and is
divided by sixteen afterwards has a sixteenth of the noise, and lies sixteen times as far apart.

Two answers of one stream share noise: the total of last week is in the total of this one. Their variances do not add.
So an answer carries the weight that every published table of its stream has in it; sums and differences combine the
weights, and the variance follows from those.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats, Integers
from dpsketch.core.drawn import Drawn, Part, Receipt
from dpsketch.core.move import Table
from dpsketch.errors import ReleaseRefused
from dpsketch.laws.designs import Design
from dpsketch.laws.streams import Found, Published, Seizable
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.numbers import whole_number
from dpsketch.privacy import Guarantee
from dpsketch.sketches.continual.decoding import Windowed, weights

__all__ = [
    "Publications",
    "Stretch",
    "Window",
    "combined",
    "daily_shares",
    "joined",
    "law_class",
    "mark_of",
    "scales_for",
    "split",
    "window_law",
]

Marks = npt.NDArray[np.uint64]

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


def daily_shares(spec: Any, names: Sequence[Any] | None) -> dict[Table, float]:
    """Return the tables of a day with their shares of the budget.

    A table whose length the spec leaves open has one cell for each of the names; without names they are to be found.
    """
    found: dict[Table, float] = spec.shares()
    if names is None:
        return found
    listed = len(names)
    return {Table(each.name, (listed,), each.move.within(listed)): share for each, share in found.items()}


def law_class(tables: Iterable[Table], design: Design) -> type[Published]:
    """Return the law that publishes tables: one that finds names where a table's length is still open."""
    if any(table.shape is None for table in tables):
        return Found
    return Seizable if design.keeps_noise else Published


def scales_for(shares: Mapping[Table, float], *, pure: bool) -> tuple[int, ...]:
    """Return how many times each table enters a day's vector to get its share of the budget, about."""
    wants = [
        share / table.move.l1 if pure else math.sqrt(share / table.move.squared) for table, share in shares.items()
    ]
    scales = [min(_MOST_STEPS, round(_STEPS * want / min(wants))) for want in wants]
    common = math.gcd(*scales)
    return tuple(scale // common for scale in scales)


def joined(law: Published, tables: Mapping[str, Integers]) -> Integers:
    """Return a day's vector of its tables."""
    found = []
    for each, scale in zip(law.stacked, law.scales, strict=True):
        # Held before it is multiplied: a product that wraps round brings neighbours as far apart as can be.
        found.append(scale * np.clip(tables[each.name], -(_ROOM // scale), _ROOM // scale))
    return np.concatenate([each.ravel() for each in found]).reshape(law.shape)


def split(law: Published, vector: Floats) -> dict[str, Floats]:
    """Return the tables that a decoded vector is made of."""
    found, start = {}, 0
    flat = vector.ravel()
    for each, scale in zip(law.stacked, law.scales, strict=True):
        shape = (len(flat),) if each.shape is None else each.shape
        size = math.prod(shape)
        found[each.name] = flat[start : start + size].reshape(shape) / scale
        start += size
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What of a stream's published tables is in an answer. Public.

    Attributes
    ----------
    stream : str
        What tells the stream from others: a digest of the first table that it published, of its terms and charge.
    law : Noise
        A draw of the noise in each cell of each published table, independent from table to table.
    weights : numpy.ndarray
        The weight of each published table, in the order of publication; of later ones it is 0.
    marks : numpy.ndarray of uint64
        Digests of the published tables, by which copies of a stream that went on apart are told; or none.
    draws : int
        The number of draws in each cell of each published table.
    """

    stream: str
    law: Noise
    weights: Floats
    marks: Marks = field(default_factory=lambda: np.zeros(0, np.uint64))
    draws: int = 1

    def __post_init__(self) -> None:
        self.weights.flags.writeable = False

    @property
    def variance(self) -> float:
        """The variance of the noise in a cell."""
        return self.draws * self.law.variance * float(np.sum(self.weights**2))

    def __repr__(self) -> str:
        return f"<Stretch of stream {self.stream[:8]}, {len(self.weights)} tables>"

    def plus(self, other: Stretch, sign: int) -> Stretch:
        """Return what is in the sum or difference of two answers of one stream."""
        weights = np.zeros(max(len(self.weights), len(other.weights)))
        weights[: len(self.weights)] += self.weights
        weights[: len(other.weights)] += sign * other.weights
        both = min(len(self.marks), len(other.marks))
        if not np.array_equal(self.marks[:both], other.marks[:both]):
            raise ReleaseRefused(
                "cannot combine: these are answers of two copies of one stream that went on apart, with other noise. "
                "Ask one of them."
            )
        longer = self.marks if len(self.marks) >= len(other.marks) else other.marks
        return Stretch(self.stream, self.law, weights, longer, self.draws)


def combined(ours: Iterable[Stretch], theirs: Iterable[Stretch], sign: int) -> tuple[Stretch, ...]:
    """Return the stretches of a sum or difference, one for each stream."""
    found = {each.stream: each for each in ours}
    for each in theirs:
        nothing = Stretch(each.stream, each.law, np.zeros(0), draws=each.draws)
        found[each.stream] = found.get(each.stream, nothing).plus(each, sign)
    return tuple(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Publications:
    """All that was published by a day. Public.

    Attributes
    ----------
    name : str
        What tells the stream from others.
    law : Published
        What is published, and under which noise.
    day : int
        How many days were published.
    tables : sequence of numpy.ndarray
        What was published, in order; at least one.
    marks : numpy.ndarray of uint64
        A digest of each table, by which copies of a stream that went on apart are told; or none.
    names : sequence or None
        The names of the cells, where they have names: the keys of a public list, or those that were found.
    """

    name: str
    law: Published
    day: int
    tables: Sequence[Integers]
    marks: Marks
    names: Sequence[Any] | None = None

    def answer(self, first: int, last: int) -> tuple[Floats, Stretch]:
        """Return the sum of the days ``first`` to ``last``, decoded, and which noise it carries."""
        last = whole_number("last", last, low=1, high=self.day)
        first = whole_number("first", first, low=1, high=last)
        law, design = self.law, self.law.design
        marks = self.marks[: design.published(last)]
        stretch = Stretch(self.name, law.noise, weights(design, first, last), marks, law.draws)
        total = np.zeros(self.tables[0].shape)
        for weight, table in zip(stretch.weights.tolist(), self.tables, strict=False):
            if weight:
                total += weight * table
        return total, stretch


def mark_of(table: Integers) -> int:
    """Return a digest of a published table."""
    return int.from_bytes(hashlib.sha256(table.astype("<i8").tobytes()).digest()[:8], "little")


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some days of a stream together, of which a kind makes a release. Public.

    Attributes
    ----------
    vector : numpy.ndarray
        Their sum, decoded.
    stretch : Stretch
        Which noise of the stream is in it.
    receipt : Receipt
        What was paid for the stream.
    guarantee : Guarantee
        That of the stream.
    published : Publications
        What it is made of.
    signed : bool
        Whether it is the difference of two windows.
    """

    vector: Floats
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

    @property
    def tables(self) -> dict[str, Floats]:
        """The decoded tables by name."""
        return split(self.law, self.vector)

    def drawn(self) -> Drawn:
        """Return the window as a kind's release has it: a part for each table, decoded from the stream's law."""
        law, tables = self.law, self.tables
        parts = {
            each.name: Part(Windowed(law, each, window_law(self.stretch, scale)), {"table": tables[each.name]})
            for each, scale in zip(law.stacked, law.scales, strict=True)
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
    draws = stretch.draws * float(squares.sum()) ** 2 / max(float(np.sum(squares**2)), 1e-300)
    if isinstance(stretch.law, DiscreteLaplace) and draws < _FEW_DRAWS:
        # Of the variance 2a/(1 − a)² with a = exp(−ε).
        middle = 1 + 1 / variance
        return DiscreteLaplace(math.log(middle + math.sqrt(middle**2 - 1)), 1)
    return RoundedGaussian(math.sqrt(variance - 1 / 12 if variance > _LEAST_VARIANCE else variance))
