"""What a law is, and the law that most parts follow: additive integer noise on a table."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.move import Distance, Sensitivity, Table
from dpsketch.errors import ReleaseRefused
from dpsketch.files import Array
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian
from dpsketch.privacy import Again, Cost, GaussianCost, Neighbours, PureCost, Unit

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = [
    "Additive", "Arrays", "ClassCounters", "Law", "OneTable", "additive_cost", "are_integers", "is_sane", "ratio_up",
]  # fmt: skip

# Numbers of a file stay below this, so that two of them add up in 64 bits.
_MOST = 2**62

# The arrays that a law publishes, by name.
Arrays = Mapping[str, Array]


class Law(ABC):
    """How one part of a release is drawn. A subclass is a frozen dataclass whose fields decide its cost.

    A law never receives a cost, and cannot choose its noise while it draws: it asks a handle for one of its
    :meth:`slots` by name.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """The name of the part, in the release and in its file."""

        @property
        def neighbours(self) -> Neighbours:
            """The neighbour relation that its cost is for."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The law in a phrase."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables whose moves its cost relies on."""

    @property
    def at_once(self) -> bool:
        """Whether every draw takes all slots; a stream draws them over its days."""
        return True

    @property
    def chooses(self) -> bool:
        """Whether it chooses the bound on a user's keys."""
        return False

    def pieces(self, slot: str) -> int:
        """Return how many times a slot is drawn at most: once, or once a day in a stream."""
        return 1

    def caveat(self, unit: Unit) -> str | None:
        """Return the conditions under which its cost holds, if there are any."""
        return None

    @property
    def counted_again(self) -> Again | None:
        """Where a user may count more than once in an answer: on several days of a stream."""
        return None

    @abstractmethod
    def slots(self) -> Mapping[str, Any]:
        """Return what it draws with, by name: noise, a family of noises by member, or what draws by itself."""

    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Return what drawing it costs, computed from its fields."""

    @abstractmethod
    def draw(self, state: Any, handle: Handle) -> Arrays:
        """Return what is published of a sensitive state."""

    @abstractmethod
    def fits(self, arrays: Arrays) -> bool:
        """Say whether it may have drawn these arrays: anyone may have written a file."""


@dataclass(frozen=True, slots=True)
class OneTable(Law):
    """A law of one table, under whose name its part is published.

    Attributes
    ----------
    table : Table
        The table.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    """

    table: Table
    neighbours: Neighbours

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def tables(self) -> tuple[Table, ...]:
        """The only table."""
        return (self.table,)


@stored
@dataclass(frozen=True, slots=True)
class Additive(OneTable):
    """Fresh integer noise on every cell of a table.

    Attributes
    ----------
    table : Table
        The table.
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    noise : Noise
        The noise of one cell.

    Privacy
    -------
    A rounded Gaussian on integers is a rounding of the continuous Gaussian mechanism's output, so that noise of
    standard deviation σ on a table of L2 distance Δ is a Gaussian mechanism with μ = Δ/σ. Discrete Laplace noise of
    scale s costs Δ₁/s. Several tables compose: μ² adds up, also if a table depends on what was drawn of another (Dong,
    Roth and Su 2022), and so does ε.
    """

    noise: Noise

    @property
    def words(self) -> str:
        """The noise in a phrase."""
        return self.noise.words

    def slots(self) -> Mapping[str, Any]:
        """Return the noise."""
        return {"noise": self.noise}

    def costs(self) -> tuple[Cost, ...]:
        """Return Δ₂/σ for Gaussian noise, Δ₁/scale for Laplace noise."""
        return (additive_cost(self.noise, self.table.between(self.neighbours)),)

    def draw(self, state: Any, handle: Handle) -> Arrays:
        """Return the table of this name with noise."""
        exact = state[self.table.name]
        if self.table.shape not in (None, exact.shape):
            raise ReleaseRefused(f"{self.name}: the state has another shape than the table that was paid for.")
        return {"table": handle.add(exact, "noise")}

    def fits(self, arrays: Arrays) -> bool:
        """Say whether there is one array of integers, of the table's shape."""
        return set(arrays) == {"table"} and are_integers(arrays, "table", self.table.shape)


def are_integers(arrays: Arrays, name: str, shape: tuple[int, ...] | None) -> bool:
    """Say whether an array of a part holds signed integers and has a shape, without making it wide."""
    narrow = getattr(arrays, "narrow", arrays.get)
    array = narrow(name)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or shape not in (None, array.shape):
        return False
    return array.dtype != np.uint64 or not array.size or int(array.max()) < 2**63


def is_sane(array: Any) -> bool:
    """Say whether numbers of a file are small enough to add up."""
    found = np.asarray(array)
    return not found.size or (int(found.min()) > -_MOST and int(found.max()) < _MOST)


def additive_cost(noise: Noise, distance: Distance | Sensitivity) -> Cost:
    """Return what noise on tables that lie so far apart costs."""
    match noise:
        case RoundedGaussian(sigma):
            return GaussianCost(ratio_up(Fraction(distance.l2) / Fraction(sigma)))
        case DiscreteLaplace(epsilon, sensitivity):
            return PureCost(ratio_up(Fraction(epsilon) * distance.l1 / sensitivity))
        case never:
            assert_never(never)


def ratio_up(ratio: Fraction) -> float:
    """Return the least float that is not below a ratio."""
    found = float(ratio)
    return found if Fraction(found) >= ratio else math.nextafter(found, math.inf)


@stored
@dataclass(frozen=True, slots=True)
class ClassCounters(Additive):
    """Noise on the counters of all classes, which are drawn class by class."""

    def draw(self, state: Iterable[Integers], handle: Handle) -> Arrays:
        """Return the counters of each class with noise; the state yields one class after the other."""
        add = handle.adder("noise")
        table = np.stack([add(each) for each in state])
        if table.shape != self.table.shape:
            raise ReleaseRefused(f"{self.name}: the state has another shape than the table that was paid for.")
        return {"table": table}
