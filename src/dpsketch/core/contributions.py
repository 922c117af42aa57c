"""What units contribute to a table, held to the table's move in exact integers before it is added.

A kind spreads the keys of a batch over the cells of its tables (:class:`Cells`), derived tables included, and
:func:`checked` refuses a batch in which one unit moves a table further than the kind states. A kind that adds records
by a faster kernel checks some of each batch, the first units and the heaviest (:func:`sampled`); a test holds such a
kernel equal to the contributions, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import contributions as kernels
from dpsketch._compiled.heavy import add_units
from dpsketch.arrays import Integers
from dpsketch.core.move import Table
from dpsketch.errors import ReleaseRefused

__all__ = ["FIRST", "Cells", "added", "checked", "hold", "sampled"]

# Keys of every batch whose units are checked at the least.
FIRST = 64
_LIMIT = 2**62
_MASK = (1 << kernels.LIMB) - 1
_WRONG = {
    kernels.OUTSIDE: "adds to a cell outside it",
    kernels.TWICE: "names a cell twice",
    kernels.NEGATIVE: "decreases a cell, and its move is not signed",
    kernels.MOST: "moves a cell further than its move states",
    kernels.L1: "has a larger L1 norm than its move states",
    kernels.SQUARED: "has a larger L2 norm than its move states",
    kernels.CELLS: "moves more cells than its move states",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cells:
    """Contributions of units to a table: unit u has the entries from ``starts[u]`` to ``starts[u + 1]``. Sensitive.

    Attributes
    ----------
    starts : numpy.ndarray of int64
        Where each unit's entries start, and where the last one's end.
    cells, amounts : numpy.ndarray of int64
        The cells, counted through all dimensions, and what is added to each. A unit names a cell once.
    """

    starts: Integers
    cells: Integers
    amounts: Integers

    @classmethod
    def of(cls, cells: npt.NDArray[np.integer], amounts: Integers, starts: Integers | None = None) -> Self:
        """Return the contributions of keys that have an entry in each of several slots: an array of keys × slots.

        There is an amount for each entry, or one for each key. Each key is a unit, or unit u has the keys from
        ``starts[u]`` to ``starts[u + 1]``, and its entries of one cell are added up.
        """
        keys, slots = cells.shape
        places = cells.ravel().astype(np.int64, copy=False)
        sums = amounts.ravel() if amounts.ndim == 2 else np.repeat(amounts, slots)
        if starts is None:
            return cls(np.arange(keys + 1) * slots, places, sums)
        owners = np.repeat(np.arange(len(starts) - 1), slots * np.diff(starts))
        order = np.lexsort((places, owners))
        places, owners = places[order], owners[order]
        firsts = np.flatnonzero((np.diff(places, prepend=-1) != 0) | (np.diff(owners, prepend=-1) != 0))
        sums = np.add.reduceat(sums[order], firsts) if len(firsts) else sums
        return cls(np.searchsorted(owners[firsts], np.arange(len(starts))), places[firsts], sums)

    @classmethod
    def dense(cls, amounts: Integers) -> Self:
        """Return the contributions of units that add to every cell: an array of units × cells."""
        return cls.of(np.broadcast_to(np.arange(amounts.shape[1]), amounts.shape), amounts)


def checked(table: Table, given: Cells) -> Cells:
    """Return contributions; refuse them if one unit moves the table further than its move allows.

    Privacy
    -------
    All sums are exact. A unit that adds more than 2⁶² to one cell, or 2⁶³ in all, is refused whatever the move.
    """
    move, size = table.move, _LIMIT if table.size is None else table.size
    squared = min(move.squared, (_LIMIT << 2 * kernels.LIMB) - 1)
    limbs = (squared >> 2 * kernels.LIMB, (squared >> kernels.LIMB) & _MASK, squared & _MASK)
    found = kernels.excess(
        given.starts,
        given.cells,
        given.amounts,
        np.uint64(size),
        np.uint64(min(move.most, _LIMIT)),
        np.uint64(min(move.l1, 2 * _LIMIT)),
        (np.uint64(limbs[0]), np.uint64(limbs[1]), np.uint64(limbs[2])),
        min(move.cells, _LIMIT),
        move.signed,
    )
    if found != kernels.FINE:
        raise ReleaseRefused(
            f"the table {table.name!r}: a unit {_WRONG[found]}. This is an error of the kind, not of the records; they "
            "were not added."
        )
    return given


def added(array: Integers, given: Cells) -> None:
    """Add contributions to the cells of a table, in place."""
    add_units(array.reshape(-1), given.cells, given.amounts)


def hold(tables: Iterable[Table], spread: Mapping[str, Cells]) -> None:
    """Check the contributions of some units to every table of a kind."""
    for table in tables:
        checked(table, spread[table.name])


def sampled(
    n: int, amounts: Integers | int, starts: Integers | None = None
) -> tuple[Integers, Integers, Integers | None]:
    """Choose the units that are checked if a faster kernel adds: the first units of a batch, and the heaviest.

    Each of n keys is a unit, or unit u has the keys from ``starts[u]`` to ``starts[u + 1]``, at least one. Returns the
    places of the chosen units' keys, their amounts, and where each unit's keys start among them.
    """
    if isinstance(amounts, int):
        places = np.arange(min(n, FIRST))
        return places, np.full(len(places), amounts), None
    if starts is None:
        places = np.arange(min(n, FIRST))
        if n > FIRST and (heaviest := int(np.argmax(amounts))) >= FIRST:
            places = np.append(places, heaviest)
        return places, amounts[places], None
    last = min(max(1, int(np.searchsorted(starts, FIRST, "right")) - 1), len(starts) - 1)
    places, edges = np.arange(starts[last]), starts[: last + 1]
    if n > len(places) and (heaviest := int(np.argmax(np.add.reduceat(amounts, starts[:-1])))) >= last:
        places = np.append(places, np.arange(starts[heaviest], starts[heaviest + 1]))
        edges = np.append(edges, len(places))
    return places, amounts[places], edges
