"""Designs: which integer combination of the days' tables is published each day, and what that costs and tells.

**Privacy.** Let c_0 > c_1 ≥ c_2 ≥ … ≥ 0 be the integers by which a day's table enters the publications of that day and
of those that follow. Until a record's day two neighbouring worlds have one law. Given what was published before, take
from y_t what all other records put there: the same in both worlds. What is left is a rounding of c_j·g + N(0, σ²) for
the record's own change g, so all publications together are one Gaussian mechanism with the shift (c_0·g, c_1·g, …), of
norm Δ·‖c‖₂. A user on at most k days, at least b days apart, moves them by at most Δ·‖Σ_{i<k} C[:, i·b]‖₂: the inner
product of two columns falls with their distance and with the later of the two, as c falls. (It need not where c
rises; such a design is refused.) Days that are chosen by what was published change nothing: the squared shifts sum to
at most that on every path, and a Gaussian mechanism whose shifts are chosen so is no worse than one of that norm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dpsketch.arrays import Floats, Integers, read_only
from dpsketch.core.codec import stored
from dpsketch.core.move import Distance, Sensitivity, sqrt_up
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_whole, whole_number

__all__ = ["LONGEST", "ROOM", "Banded", "Contribution", "Design", "Filter", "listed", "rising"]


LONGEST = 2**20
"""A stream has at most so many days; one without an end is calibrated for them."""

ROOM = 2**61
"""What is published stays below this before noise, and noise below 2**61."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """How far one unit moves the days' tables.

    Attributes
    ----------
    distance : Distance
        How far one day's tables of two neighbouring datasets lie apart.
    days, apart : int
        A unit is in at most ``days`` days, each at least ``apart`` days after the one before (1: on the next day).
    step : int
        By about how much one unit moves a cell; a design must have room for many of them.
    """

    distance: Distance
    days: int = 1
    apart: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("days", "apart", "step"):
            hold_whole(self, name, low=1)

    def within(self, horizon: int) -> Contribution:
        """Return this for a number of days: nobody is in more of them than fit."""
        days = min(self.days, -(-horizon // self.apart))
        return replace(self, days=days)


class Design(ABC):
    """A design, as a value. Public."""

    __slots__ = ()

    name: ClassVar[str]
    keeps_noise: ClassVar[bool] = False  # whether what it keeps may be seized

    @property
    @abstractmethod
    def words(self) -> str:
        """The design in a phrase."""

    @property
    @abstractmethod
    def buffers(self) -> int:
        """How many tables it keeps beside today's."""

    @property
    def largest(self) -> int:
        """How often a record enters the publication of its own day."""
        return 1

    @abstractmethod
    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return how far one unit moves all that is published over so many days together."""

    @abstractmethod
    def published(self, day: int) -> int:
        """Return how many tables have been published after so many days."""

    @abstractmethod
    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Take in a day's table, counted from 1, and yield what is published of it before noise, by name.

        ``state`` is changed in place. It starts as zeros, :attr:`buffers` tables of them.
        """


class Filter(Design):
    """A design whose day t enters the publications of days t, t + 1, … by the same numbers, whatever t is."""

    __slots__ = ()

    @property
    @abstractmethod
    def limit(self) -> int:
        """The largest magnitude of a day's cell; a larger one is held to it."""

    @property
    def stray(self) -> float:
        """How far rounding inside the design may move a publication."""
        return 0.0

    @abstractmethod
    def holds(self, state: Integers) -> bool:
        """Say whether days of at most :attr:`limit` a cell can have left this state, so that nothing wraps round."""

    @abstractmethod
    def response(self, days: int) -> Floats:
        """Return what a unit published on one day adds to the decoded total of that day and of those that follow."""

    def published(self, day: int) -> int:
        """Return how many tables have been published: one a day."""
        return day

    def weights(self, first: int, last: int) -> Floats:
        """Return the weights of all tables published by day ``last`` whose sum is days ``first`` to ``last``.

        No others decode without bias: C is square, so that later days tell nothing more.
        """
        totals = self.response(last)
        weights = totals[::-1].copy()
        weights[: first - 1] -= totals[: first - 1][::-1]
        return weights


@stored
@dataclass(frozen=True, slots=True)
class Banded(Filter):
    """Each day's table enters the publications of as many days as there are bands; of one band, of its own day.

    Attributes
    ----------
    bands : tuple of int
        c_0 > c_1 ≥ … > 0. ``(1,)`` publishes every day by itself.

    Privacy
    -------
    The guarantee depends on the days of a unit, not on how many are published, and never ends. The state is the exact
    tables of the last days.
    """

    name: ClassVar[str] = "banded"

    bands: tuple[int, ...]

    def __post_init__(self) -> None:
        bands = tuple(whole_number("a band", band, low=1, high=2**30) for band in listed(self.bands, "bands"))
        object.__setattr__(self, "bands", bands)
        if len(bands) > LONGEST or any(late > early for early, late in pairwise(bands)):
            raise rising()
        if len(bands) > 1 and bands[1] == bands[0]:
            raise rising()

    @property
    def words(self) -> str:
        """The design in a phrase."""
        if self.bands == (1,):
            return "each day by itself"
        return f"correlated over {len(self.bands)} days"

    @property
    def largest(self) -> int:
        """How often a record enters the publication of its own day."""
        return self.bands[0]

    @property
    def buffers(self) -> int:
        """How many tables it keeps beside today's: the days before."""
        return len(self.bands) - 1

    @property
    def limit(self) -> int:
        """The largest magnitude of a day's cell; a larger one is held to it."""
        return ROOM // sum(self.bands)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return Δ·‖Σ_{i<k} C[:, i·b]‖₂, in integers, and in L1 k·Δ₁·Σc."""
        unit = contribution.within(horizon)
        if unit.apart >= len(self.bands):  # columns that do not meet
            squared = unit.days * sum(band**2 for band in self.bands)
        else:
            column = np.zeros(min(horizon, (unit.days - 1) * unit.apart + len(self.bands)), np.int64)
            for i in range(unit.days):
                held = column[i * unit.apart : i * unit.apart + len(self.bands)]
                held += np.array(self.bands[: len(held)], np.int64)
            squared = sum(int(each) ** 2 for each in column)
        l1 = unit.days * unit.distance.l1 * sum(self.bands)
        return Sensitivity(l1, sqrt_up(unit.distance.squared * squared))

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish Σ c_j·x_{t−j}. Today's cells are held to what fits, which brings neighbours no further apart."""
        held = np.clip(today, -self.limit, self.limit)
        table = self.bands[0] * held
        for band, earlier in zip(self.bands[1:], state, strict=True):
            table += band * earlier
        if len(state):
            state[1:] = state[:-1].copy()
            state[0] = held
        yield day, table

    def holds(self, state: Integers) -> bool:
        """Say whether the days before are held to the limit."""
        return bool(np.all((state >= -self.limit) & (state <= self.limit)))

    def response(self, days: int) -> Floats:
        """Return the total's response: the sums of 1/c(z)."""
        return _banded_response(self.bands, days)


def rising() -> InvalidInput:
    """Return the refusal of coefficients that rise."""
    return InvalidInput(
        "a design's coefficients must fall from day to day, the second below the first: the bound on a user's days "
        "does not hold otherwise, nor is what it publishes decoded stably."
    )


def listed(values: object, name: str) -> Sequence[Any]:
    """Return the numbers of a design as a sequence, whoever wrote them."""
    if not isinstance(values, list | tuple) or not values:
        raise InvalidInput(f"the {name} of a design are a list of integers.")
    return values


@lru_cache(maxsize=64)
def _banded_response(bands: tuple[int, ...], days: int) -> Floats:
    inverse = np.zeros(days)
    later = np.array(bands[1:][::-1], np.float64)
    for day in range(days):
        width = min(day, len(later))
        held = float(later[len(later) - width :] @ inverse[day - width : day]) if width else 0.0
        inverse[day] = ((day == 0) - held) / bands[0]
    return read_only(np.cumsum(inverse))
