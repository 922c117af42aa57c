"""Search for the smallest table that reaches an error, over odd rows and widths that are powers of two."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from dpsketch.errors import InvalidInput
from dpsketch.plan.values import out_of_reach

__all__ = ["WIDTHS", "TableShape", "screen", "settle"]

WIDTHS = tuple(1 << bits for bits in range(6, 23))
# Without a wanted error: the smallest table within so much of the least error.
_NEARLY = 1.05
# The formula is close: rehearse a few of the shapes it names, no more.
_REHEARSALS = 8

Predicted = TypeVar("Predicted")


@dataclass(frozen=True, slots=True, order=True)
class TableShape:
    """A shape; smaller ones come first."""

    cells: int = field(init=False)
    rows: int
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", self.rows * self.width)


def screen(
    error: Callable[[TableShape], float], rows: tuple[int, ...], most_cells: int, target: float | None
) -> tuple[list[TableShape], float]:
    """Return, for each number of rows, the smallest table that reaches the target by a formula; and the target.

    Without a target it is 5% above the least error of all tables. The error falls with the width.
    """
    known: dict[TableShape, float] = {}

    def of(table: TableShape) -> float:
        if table not in known:
            known[table] = error(table)
        return known[table]

    allowed = {k: [width for width in WIDTHS if k * width <= most_cells] for k in rows}
    widest = [TableShape(k, widths[-1]) for k, widths in allowed.items() if widths]
    if not widest:
        raise InvalidInput("not even the smallest table fits into this memory: allow more.")
    least = min(of(table) for table in widest)
    wanted = _NEARLY * least if target is None else target
    if wanted < least:
        raise out_of_reach(wanted, least, f"with tables of at most {most_cells:,} counters")
    found = []
    for table in widest:
        if of(table) > wanted:
            continue
        widths = allowed[table.rows]
        low, high = 0, len(widths) - 1
        while low < high:
            middle = (low + high) // 2
            if of(TableShape(table.rows, widths[middle])) <= wanted:
                high = middle
            else:
                low = middle + 1
        found.append(TableShape(table.rows, widths[high]))
    return sorted(found), wanted


def settle(
    tables: list[TableShape],
    rehearse: Callable[[TableShape], tuple[float, Predicted]],
    most_cells: int,
    target: float | None,
) -> tuple[TableShape, Predicted]:
    """Return the smallest table whose rehearsal reaches the target, trying wider ones where one falls short.

    Without a target the smallest table of the formula's is taken.
    """
    left = list(tables)
    heapq.heapify(left)
    least = math.inf
    for _ in range(_REHEARSALS):
        if not left:
            break
        table = heapq.heappop(left)
        error, predicted = rehearse(table)
        if target is None or error <= target:
            return table, predicted
        least = min(least, error)
        wider = TableShape(table.rows, 2 * table.width)
        if wider.cells <= most_cells and wider.width <= WIDTHS[-1]:
            heapq.heappush(left, wider)
    raise out_of_reach(target or 0.0, least, f"with tables of at most {most_cells:,} counters")
