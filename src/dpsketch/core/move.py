"""How far one unit moves a table, and how far two neighbouring datasets lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole
from dpsketch.privacy import Neighbours

__all__ = ["AcuteMove", "Distance", "Move", "Sensitivity", "Table", "sqrt_up"]


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the tables of two neighbouring datasets lie apart: upper bounds.

    Attributes
    ----------
    l1 : int
        The L1 norm.
    squared : int
        The squared L2 norm.
    cells : int
        The number of cells that differ.
    most : int
        The largest difference in one cell.
    """

    l1: int
    squared: int
    cells: int
    most: int

    def __post_init__(self) -> None:
        for name in ("l1", "squared", "cells", "most"):
            hold_whole(self, name, low=1)

    @property
    def l2(self) -> float:
        """The L2 norm, rounded up."""
        return sqrt_up(self.squared)

    def scaled(self, times: int) -> Distance:
        """Return the distance of tables that are multiplied by a whole number."""
        return Distance(times * self.l1, times**2 * self.squared, self.cells, times * self.most)

    def beside(self, other: Distance) -> Distance:
        """Return the distance of two tables together."""
        cells, most = self.cells + other.cells, max(self.most, other.most)
        return Distance(self.l1 + other.l1, self.squared + other.squared, cells, most)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far all that a stream publishes of two neighbouring datasets lies apart: L1 and L2 norms, upper bounds."""

    l1: int
    l2: float

    def __post_init__(self) -> None:
        hold_whole(self, "l1", low=0)
        hold_real(self, "l2")


@stored
@dataclass(frozen=True, slots=True)
class Move:
    """How far one unit that is *added* moves a table: exact upper bounds.

    Attributes
    ----------
    l1, squared, cells, most : int
        The L1 norm, the squared L2 norm, the number of cells, and the change of one cell.
    signed : bool
        Whether a cell may decrease, as in a CountSketch.

    Examples
    --------
    >>> Move.each(5, 1, signed=True).between("replace")
    Distance(l1=10, squared=20, cells=10, most=2)
    """

    l1: int
    squared: int
    cells: int
    most: int
    signed: bool = False

    def __post_init__(self) -> None:
        for name in ("l1", "squared", "cells", "most"):
            hold_whole(self, name, low=1)
        if not isinstance(self.signed, bool):
            raise InvalidInput("signed is True or False.")

    @classmethod
    def each(cls, cells: int, most: int, *, signed: bool = False) -> Self:
        """Return the move of a unit that changes ``cells`` cells by at most ``most`` each."""
        return cls(cells * most, cells * most**2, cells, most, signed)

    @classmethod
    def heaped(cls, cells: int, total: int, *, signed: bool = False) -> Self:
        """Return the move of a unit that adds at most ``total`` to ``cells`` cells, perhaps all of it to one."""
        return cls(total, total**2, cells, total, signed)

    def stacked(self, tables: int) -> Self:
        """Return the move of several tables that are kept as one, each of which the unit moves by this."""
        return type(self)(tables * self.l1, tables * self.squared, tables * self.cells, self.most, self.signed)

    def within(self, cells: int) -> Self:
        """Return the move in a table of so many cells, in each of which the unit changes no more than before."""
        most = self.most
        return type(self)(
            min(self.l1, cells * most), min(self.squared, cells * most**2), min(self.cells, cells), most, self.signed
        )

    def beside(self, other: Move) -> Move:
        """Return the move of two tables that are kept as one."""
        return Move(
            self.l1 + other.l1,
            self.squared + other.squared,
            self.cells + other.cells,
            max(self.most, other.most),
            self.signed or other.signed,
        )

    def between(self, neighbours: Neighbours, *, one_cell: bool = False) -> Distance:
        """Return how far the tables of two neighbouring datasets lie apart.

        Parameters
        ----------
        neighbours : {"add_remove", "replace"}
            The neighbour relation.
        one_cell : bool
            Whether the table has one cell, and is published once.

        Privacy
        -------
        Let D be the records that both datasets share, f the table, g = f(D + unit) − f(D), and h the same for the other
        unit. Under add/remove the datasets differ by g. Under replace they differ by g − h. Its L1 norm is at most
        twice the bound on one, and so is the number of cells. ‖g − h‖² = ‖g‖² + ‖h‖² − 2⟨g, h⟩ is at most four times
        the bound; it is at most twice the bound if no cell decreases, because ⟨g, h⟩ is not negative then. One cell
        changes by at most ``most``, or twice that if it may decrease. If a table that is not signed has one cell, g and
        h lie in [0, most], and so does |g − h|. The function f need not be linear. In a stream one unit may be replaced
        by another on a different day, so that even one cell moves twice: ``one_cell`` is for a single publication.
        """
        if neighbours == "add_remove" or (one_cell and not self.signed):
            return Distance(self.l1, self.squared, self.cells, self.most)
        return Distance(
            2 * self.l1,
            (4 if self._opposed else 2) * self.squared,
            2 * self.cells,
            (2 if self.signed else 1) * self.most,
        )

    @property
    def _opposed(self) -> bool:
        """Whether the contributions of two units may have a negative inner product."""
        return self.signed


@stored
@dataclass(frozen=True, slots=True)
class AcuteMove(Move):
    """A move whose cells may decrease, although the contributions of two units never oppose each other.

    Privacy
    -------
    The inner product ⟨g, h⟩ of the contributions of any two units must not be negative, as for sums of q qᵀ, where it
    is (q·r)². The bound of :meth:`Move.between` on ‖g − h‖² then holds as if no cell decreased; one cell still changes
    by up to twice ``most``. A kind that states such a move proves it.
    """

    @property
    def _opposed(self) -> bool:
        """Whether the contributions of two units may have a negative inner product."""
        return False


@stored
@dataclass(frozen=True, slots=True)
class Table:
    """An integer table of a kind: public facts.

    Attributes
    ----------
    name : str
        The table's name in the kind, and in a file.
    shape : tuple of int or None
        Its shape; None if its length follows from the data.
    move : Move
        How far one added unit moves it.
    """

    name: str
    shape: tuple[int, ...] | None
    move: Move

    @property
    def size(self) -> int | None:
        """The number of cells, if it is known beforehand."""
        return None if self.shape is None else math.prod(self.shape)

    def between(self, neighbours: Neighbours) -> Distance:
        """Return how far the tables of two neighbouring datasets lie apart in one publication."""
        return self.move.between(neighbours, one_cell=self.size == 1)

    def covers(self, other: Table) -> bool:
        """Say whether this is the other table, with its length filled in where the other leaves it open.

        A unit changes no more cells than there are: the move may be the one :meth:`Move.within` that length.
        """
        if self.name != other.name or other.shape not in (None, self.shape):
            return False
        return self.move == other.move or bool(self.size and self.move == other.move.within(self.size))


def sqrt_up(n: int) -> float:
    """Return the smallest float that is not below √n.

    Examples
    --------
    >>> sqrt_up(0), sqrt_up(4), sqrt_up(2)
    (0.0, 2.0, 1.4142135623730951)
    """
    root = math.sqrt(n)
    while Fraction(root) ** 2 < n:
        root = math.nextafter(root, math.inf)
    while root > 0 and Fraction(below := math.nextafter(root, 0.0)) ** 2 >= n:
        root = below
    return root
