"""A table whose cells carry Laplace noise: every column is part of one set of cells, the corners of a cube.

With k linear columns on grids of R steps, a pair of a unit and a row adds Π(yⱼ or R − yⱼ) to each of 2^k cells, one for
each choice. The cells are not negative and add up to R^k = M. Their sum over M is the head count, and the sum over the
cells where column j is taken as yⱼ, over M, is the total of yⱼ/R. k = 1 is the pair of a sum and of what is missing to
the bound.

Privacy
-------
*Cells.* A unit with m rows moves the cells by m·M in L1, and by 2·m·M if it is replaced. With discrete Laplace noise of
scale m·M/ε (or twice that) on every cell they cost ε.

*Names.* Where names are found the unit is a record, and all present groups get noise. A group is listed if the sum of
its noisy cells reaches the cutoff. One that a single record holds has the sum M, and is listed with probability
r = P(Z ≥ cutoff − M), Z the sum of 2^k noises. Outputs that show it have probability r with the record, and 0 without;
on all others the odds are at most 1 from that group. So (ε, δ) holds with δ = r: a record in a shared group costs ε,
and one in a group of its own r, provided that r ≤ 1 − e^(−ε), half of ε under replace: then leaving costs no more.

*All other groups.* A record lies in a listed group or in the last row, so that it pays for the larger of the last row's
cells and of the quantiles in listed rows. Shapes are added.

*The tail.* A discrete Laplace variable is ⌊sE⌋ − ⌊sE'⌋ for exponential E and E', hence below s(E − E') + 1. So Z ≥ t
implies G − G' ≥ (t − n)/s for two Gamma(n) variables, n = 2^k, and

    P(G − G' ≥ x) = e^(−x)·Σ_{l<n} C(n+l−1, l)·2^(−n−l)·Σ_{i<n−l} x^i/i!        (x ≥ 0).

For one cell the tail is a^t/(1 + a) with a = e^(−1/s), exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.core.laws import Arrays, Law, additive_cost, are_integers, is_sane, ratio_up
from dpsketch.core.move import Move, Table
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.files import Array
from dpsketch.laws.bounds import BINS, Bounds, Shape, shape_table
from dpsketch.laws.centred import (
    FOUND,
    LISTED,
    TABLE,
    TableState,
    are_chosen,
    chosen_of,
    column_of,
    shape_of,
)
from dpsketch.laws.groups import Measure
from dpsketch.laws.names import are_names, stored_names
from dpsketch.laws.ranks import RankDraws
from dpsketch.noise import DiscreteLaplace
from dpsketch.numbers import hold_whole
from dpsketch.privacy import ApproximateCost, Cost, Neighbours, PureCost

if TYPE_CHECKING:
    from dpsketch.core.permit import Handle

__all__ = ["CELLS", "MOST_CORNERS", "OTHERS", "CornerTable", "cells_table", "corner_steps", "tail"]

CELLS, OTHERS = "cells", "others"
# Beyond three linear columns corners have more noise than columns of their own.
MOST_CORNERS = 3
_LARGEST_CELL = 30
_ROUNDING = 1 + 1e-9
# Bounds of columns are chosen before names are found, for this number of rows.
_GUESSED_ROWS = 300


def corner_steps(columns: int) -> int:
    """Return the steps of each column's grid: a unit adds at most 2³⁰ to a cell."""
    return 1 << (_LARGEST_CELL // columns if columns else 0)


def cells_table(keys: int, columns: int) -> Table:
    """Return the cells of all rows."""
    corner = corner_steps(columns) ** columns
    return Table(CELLS, None, Move(keys * corner, keys * corner**2, keys << columns, corner))


def tail(noise: DiscreteLaplace, cells: int, beyond: int) -> float:
    """Return P(Z ≥ beyond) for the sum Z of that number of noises, rounded up."""
    scale = noise.sensitivity / noise.epsilon
    if cells == 1:
        return min(1.0, math.exp(-beyond / scale - math.log1p(math.exp(-1 / scale))) * _ROUNDING) if beyond > 0 else 1.0
    x = (beyond - cells) / scale
    if x <= 0:
        return 1.0
    terms = [math.exp(i * math.log(x) - math.lgamma(i + 1) - x) for i in range(cells)]
    sums = np.cumsum(terms)
    weights = [math.comb(cells + i - 1, i) * 2.0 ** (-cells - i) for i in range(cells)]
    return min(1.0, math.fsum(weights[i] * float(sums[cells - 1 - i]) for i in range(cells)) * _ROUNDING)


@stored
@dataclass(frozen=True, slots=True)
class CornerTable(Law):
    """The columns of a table as corners with Laplace noise, and the names of its groups if they are found.

    Attributes
    ----------
    neighbours : {"add_remove", "replace"}
        The neighbour relation.
    by_user : bool
        Whether the unit is a user.
    keys : int
        The number of rows of a unit that count.
    measures : tuple of Measure
        The linear columns.
    quantiles : tuple of Measure
        The columns of quantiles.
    cells : DiscreteLaplace
        The noise of one cell.
    shapes : tuple of DiscreteLaplace
        The noise of each shape. Columns of one value have one shape where the unit is a record.
    draws : tuple of RankDraws
        How the quantiles of each column are drawn.
    cutoff : int or None
        The least sum of noisy cells that is listed; None if names are public.
    others : DiscreteLaplace or None
        The noise of the last row's cells, if names are found.
    rows : int or None
        The number of rows of a public list, with the last one; None if names are found.
    """

    name: ClassVar[str] = TABLE

    neighbours: Neighbours
    by_user: bool
    keys: int
    measures: tuple[Measure, ...]
    quantiles: tuple[Measure, ...]
    cells: DiscreteLaplace
    shapes: tuple[DiscreteLaplace, ...]
    draws: tuple[RankDraws, ...]
    cutoff: int | None = None
    others: DiscreteLaplace | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        hold_whole(self, "keys", low=1)
        hold_whole(self, "rows", low=1, optional=True)
        hold_whole(self, "cutoff", low=1, optional=True)
        good = len(self.draws) == len(self.quantiles) and len(self.shapes) == len(set(self._shaped))
        good = good and (self.cutoff is None) is (self.others is None) and None in (self.cutoff, self.rows)
        good = good and len(self.measures) <= MOST_CORNERS
        if not good or (self.cutoff is not None and (self.by_user or self.keys > 1)):
            raise InvalidInput("corners have at most three columns, and find names only where the unit is a record.")
        if any(measure.kind in ("record_mean", "quantiles") for measure in self.measures):
            raise InvalidInput("corners have linear columns: counts, totals and means over users.")

    @property
    def all_measures(self) -> tuple[Measure, ...]:
        """All columns."""
        return (*self.measures, *self.quantiles)

    @property
    def _shaped(self) -> tuple[int, ...]:
        """The number of the shape that each column has."""
        found: dict[Any, int] = {}
        return tuple(found.setdefault(self._shape_key(each), len(found)) for each in self.all_measures)

    def _shape_key(self, measure: Measure) -> Any:
        return measure if self.by_user else measure.value

    @property
    def words(self) -> str:
        """The law in a phrase."""
        names = (
            "a public list of groups"
            if self.cutoff is None
            else f"groups listed from {self.cutoff / self.corner:.4g} on"
        )
        scale = self.cells.sensitivity / self.cells.epsilon / self.corner
        count = len(self.measures)
        what = f"corners of {count} column{'' if count == 1 else 's'}" if count else "head counts"
        return f"{what} with discrete Laplace noise, scale = {scale:.4g}; {names}"

    @property
    def steps(self) -> int:
        """The steps of each column's grid."""
        return corner_steps(len(self.measures))

    @property
    def corner(self) -> int:
        """Sum of the cells of one pair."""
        return int(self.steps ** len(self.measures))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The cells, and the shapes."""
        named = {
            shape: measure.name for shape, measure in reversed([*zip(self._shaped, self.all_measures, strict=True)])
        }
        return (self._cells, *(shape_table(named[shape]) for shape in sorted(named)))

    @property
    def _cells(self) -> Table:
        return cells_table(self.keys, len(self.measures))

    @property
    def _most(self) -> int:
        """The number of rows of a unit that count at most."""
        return self.keys if self.rows is None else min(self.keys, self.rows)

    def with_names(self, cutoff: int, others: DiscreteLaplace) -> CornerTable:
        """Return the law with a cutoff by which names are found."""
        return replace(self, cutoff=cutoff, others=others)

    def slots(self) -> Mapping[str, Any]:
        """Return the noise of cells, of the last row and of shapes, and the draws of quantiles."""
        found: dict[str, Any] = {f"shape {place}": noise for place, noise in enumerate(self.shapes)}
        found[CELLS] = self.cells
        if self.others is not None:
            found[OTHERS] = self.others
        return found | {f"quantiles {place}": draws for place, draws in enumerate(self.draws)}

    def costs(self) -> tuple[Cost, ...]:
        """Return ε, and the probability that a name shows where names are found."""
        twice = 2 if self.neighbours == "replace" else 1
        cells = self._loss(self.cells)
        quantiles = twice * self._most * sum((draws.loss for draws in self.draws), Fraction(0))
        rest = Fraction(0)
        for table, noise in zip(self.tables[1:], self.shapes, strict=True):
            cost = additive_cost(noise, table.between(self.neighbours))
            assert isinstance(cost, PureCost)
            rest += Fraction(cost.epsilon)
        if self.cutoff is None or self.others is None:
            return (PureCost(ratio_up(cells + quantiles + rest)),)
        epsilon = cells + max(self._loss(self.others), quantiles) + rest
        shown = tail(self.cells, 1 << len(self.measures), self.cutoff - self.corner)
        if shown > -math.expm1(-float(cells) / twice):
            shown = 1.0
        return (ApproximateCost(ratio_up(epsilon), shown),)

    def _loss(self, noise: DiscreteLaplace) -> Fraction:
        moved = cells_table(self._most, len(self.measures)).between(self.neighbours).l1
        return Fraction(noise.epsilon) * moved / noise.sensitivity

    def draw(self, state: TableState, handle: Handle) -> Arrays:
        """Return names, cells and quantiles; bounds are chosen first, from the shapes."""
        content = state.content
        if self.rows is not None and self.rows != len(state.listed) + 1:
            raise ReleaseRefused("the law was paid for a list of another length. Nothing was drawn.")
        everyone = content.places() if self.cutoff is not None else content.find(state.listed)
        kept = content.keep(everyone, lambda _: self._most)
        arrays: dict[str, Array] = {}
        for place, measure in enumerate(self.all_measures):
            shape = self._shaped[place]
            if shape_of(shape) not in arrays:
                arrays[shape_of(shape)] = handle.add(kept.shape(measure), f"shape {shape}")
        for place, measure in enumerate(self.measures):
            if measure.stated is None:
                guess = len(everyone) + 1 if self.cutoff is None else _GUESSED_ROWS
                arrays[chosen_of(place)] = self._chosen(place, arrays, guess)
        bounds = [self.range_of(place, arrays)[:2] for place in range(len(self.measures))]
        exact = kept.cells([*zip(self.measures, bounds, strict=True)], self.steps)
        if self.cutoff is None:
            arrays[LISTED], arrays[FOUND] = stored_names(state.listed), stored_names([])
            arrays[CELLS] = handle.add(exact, CELLS)
            rows = np.arange(len(everyone))
        else:
            noisy = handle.add(exact[:-1], CELLS)
            passed = noisy.sum(axis=1) >= self.cutoff
            rows = np.flatnonzero(passed)
            names = content.names(everyone[rows]) if len(rows) else []
            arrays[LISTED], arrays[FOUND] = stored_names([]), stored_names(names)
            others = handle.add(exact[:-1][~passed].sum(axis=0, keepdims=True), OTHERS)
            arrays[CELLS] = np.concatenate([noisy[rows], others])
        for place, (measure, draws) in enumerate(zip(self.quantiles, self.draws, strict=True)):
            values = self.shape(len(self.measures) + place, arrays)
            edges, firsts = values.quantile_cells(draws.slots, measure.grid, measure.stated)
            arrays[chosen_of(len(self.measures) + place)], arrays[_firsts_of(place)] = edges, firsts
            mass = kept.slots(measure, edges.tolist(), firsts, draws.mass)
            arrays[column_of(place)] = handle.draw(f"quantiles {place}", mass[rows])
        return arrays

    def listed(self, arrays: Arrays) -> int:
        """Return the number of listed groups: rows but the last."""
        return len(arrays[LISTED]) + len(arrays[FOUND])

    def rows_of_a_user(self, arrays: Arrays) -> int:
        """Return how many rows of a unit count."""
        return self._most

    def users_cut(self, arrays: Arrays) -> float | None:
        """Return the part of users' rows that the bound cuts: nothing of records, and unknown of users."""
        return None if self.by_user else 0.0

    @property
    def head_error(self) -> float:
        """The standard deviation of a head count."""
        return math.sqrt(self.cells.variance * (1 << len(self.measures))) / self.corner

    def shape(self, place: int, arrays: Arrays) -> Shape:
        """Return the published shape of a column, linear ones first."""
        shape = self._shaped[place]
        return Shape(np.asarray(arrays[shape_of(shape)]), self.shapes[shape])

    def range_of(self, place: int, arrays: Arrays) -> Bounds:
        """Return the bounds of a linear column, stated or chosen."""
        low, high = self.measures[place].stated or np.asarray(arrays[chosen_of(place)], np.float64).tolist()
        return Bounds(low, high, self.shape(place, arrays).cut(low, high))

    def _chosen(self, place: int, arrays: Arrays, rows: int) -> Floats:
        """Return the bounds of a linear column with the least predicted error, by its shape."""
        measure, shape = self.measures[place], self.shape(place, arrays)
        variance = self.cells.variance * (1 << len(self.measures)) / self.corner**2
        values = max(float(np.sum(shape.bins)), 1.0) * self._most
        found = shape.choose(rows=rows, spread=1 / rows, values=values, column=variance, users=variance)
        return np.array([1.0, max(1.0, float(round(found.high)))] if measure.kind == "count" else found[:2])

    def domain(self, place: int, arrays: Arrays) -> tuple[Floats, Integers]:
        """Return the edges of the cells of a column of quantiles, and the first slot of each, with one behind all."""
        edges, firsts = arrays[chosen_of(len(self.measures) + place)], arrays[_firsts_of(place)]
        return np.asarray(edges, np.float64), np.asarray(firsts, np.int64)

    def slot_values(self, place: int, arrays: Arrays) -> tuple[Floats, Floats]:
        """Return the least and the largest value of the cell of each slot."""
        measure, shape = self.quantiles[place], self.shape(len(self.measures) + place, arrays)
        edges, firsts = self.domain(place, arrays)
        low, high = shape.domain(measure.stated)
        starts, ends = np.append(min([low, *edges, high]), edges), np.append(edges, max([high, *edges]))
        if measure.grid is not None:
            ends[:-1] = np.maximum(ends[:-1] - measure.grid, starts[:-1])
        cells = np.repeat(np.arange(len(starts)), np.diff(firsts))
        return starts[cells], ends[cells]

    def fits(self, arrays: Arrays) -> bool:
        """Check the names and shapes of all arrays, since a file is not trusted."""
        wanted = {LISTED, FOUND, CELLS, *(shape_of(place) for place in range(len(self.shapes)))}
        wanted |= {name(place) for place in range(len(self.quantiles)) for name in (column_of, _firsts_of)}
        first = len(self.measures)
        bounds = {chosen_of(place): each.kind for place, each in enumerate(self.measures) if each.stated is None}
        edges = {chosen_of(first + place): _firsts_of(place) for place in range(len(self.quantiles))}
        if set(arrays) != wanted | bounds.keys() | edges.keys() or not are_names(arrays[LISTED], arrays[FOUND]):
            return False
        if (len(arrays[FOUND]) and self.cutoff is None) or (len(arrays[LISTED]) and self.cutoff is not None):
            return False
        rows = self.listed(arrays)
        if self.rows not in (None, rows + 1):
            return False
        good = are_integers(arrays, CELLS, (rows + 1, 1 << len(self.measures)))
        good = good and all(are_integers(arrays, shape_of(place), (BINS,)) for place in range(len(self.shapes)))
        good = good and all(are_chosen(arrays[name], 2, kind) for name, kind in bounds.items())
        for place, draws in enumerate(self.draws):
            name, starts = column_of(place), np.asarray(arrays[_firsts_of(place)])
            good = good and are_integers(arrays, _firsts_of(place), None) and starts.ndim == 1 and len(starts) > 1
            good = good and int(starts[0]) == 0 and int(starts[-1]) == draws.slots
            good = good and bool((np.diff(starts.astype(np.int64)) > 0).all())
            good = good and are_chosen(arrays[chosen_of(first + place)], len(starts) - 2, "edges")
            good = good and are_integers(arrays, name, (rows, 3, len(draws.shares)))
            good = good and (not rows or 0 <= int(np.min(arrays[name])) <= int(np.max(arrays[name])) < draws.slots)
        good = good and all(is_sane(arrays[name]) for name in wanted - {LISTED, FOUND})
        if good and self.cutoff is not None and rows:
            good = int(np.asarray(arrays[CELLS])[:-1].sum(axis=1).min()) >= self.cutoff
        return good


def _firsts_of(place: int) -> str:
    """Return the name of the first slots of a column of quantiles among the arrays."""
    return f"firsts{place}"
