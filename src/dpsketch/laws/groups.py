"""Queries of a table's laws to its records, as relational steps that bound each unit of privacy.

The steps are one text of SQL, which DuckDB and Spark both run (:class:`GroupTables`). They read three tables:

- ``keys(place, key, units)``: each group once. Places count up from 0 in the order of the keys. ``units`` is the number
  of records, where the unit is a record.
- ``records(id, place, v0, v1, …)``: the records, with their values as floats. Where the unit is a user it also has
  ``person``, which is another value for every other user.
- ``pairs(person, place, units, print, t0, …, s0, …)``: where the unit is a user, each pair of a user and a group once:
  the number of its records, their totals in steps of 2⁻²⁰ as exact whole numbers, and one value of each column.

**One unit, one contribution.** :meth:`TableContent.keep` maps groups to rows, those that are not asked for to one last
row, puts a user's records of one row together, and keeps at most m rows of each user. Which rows are kept depends on
the user's own records and a fresh seed alone (:mod:`dpsketch.laws.content`). Each kept pair of a user and a row then
gives a number of at most ``SCALE`` to a column. Two prints of a user may be equal, and then places decide. A float
touches only what one unit has in one row; sums are of whole numbers, so that they depend on no order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput, ReleaseRefused
from dpsketch.laws.bounds import BINS, EDGES
from dpsketch.laws.choice import RANGES, range_of
from dpsketch.laws.content import Block, Tables, UserContent, fresh_seed
from dpsketch.laws.rounds import WEIGHT_ONE

__all__ = ["LARGEST_SCALE", "SCALE", "STEP", "GroupTables", "Kept", "Measure", "TableContent", "word"]

SCALE = 1 << 28
"""Largest amount that one pair of a unit and a row adds to a column."""
STEP = 2.0**-20
"""Values are added up in whole multiples of it, where the unit is a user."""

# The quotient by a width that is nearly nothing stays finite.
LARGEST_SCALE = 2.0**1000

MeasureKind = Literal["count", "total", "user_mean", "record_mean", "quantiles"]


@stored
@dataclass(frozen=True, slots=True)
class Measure:
    """A number that each pair of a unit and a row contributes to a table. Public.

    Attributes
    ----------
    name : str
        Its name in the release.
    kind : {"count", "total", "user_mean", "record_mean", "quantiles"}
        Number of records; total of a column; its mean; its mean weighted by records; distribution of its values.
    value : int
        The column of values, by its number; −1 for counts.
    low, high : float or None
        Stated bounds; None if they are chosen.
    levels : int
        The levels of a tree of quantiles; 0 for all else.
    grid : float or None
        The public step of the values of quantiles.
    """

    name: str
    kind: MeasureKind
    value: int = -1
    low: float | None = None
    high: float | None = None
    levels: int = 0
    grid: float | None = None

    def __post_init__(self) -> None:
        good = (self.low is None) is (self.high is None) and (self.low is None or self.low <= (self.high or 0.0))
        if not good or (self.levels > 0) is not (self.kind == "quantiles") or self.levels > 12:
            raise InvalidInput("a measure has both bounds or none, and levels if it is of quantiles.")

    @property
    def stated(self) -> tuple[float, float] | None:
        """The stated bounds."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class GroupTables(Tables, Protocol):
    """The tables of records in an engine of SQL, which can also keep the answer to a query. Sensitive."""

    def make(self, name: str, query: str, **tables: dict[str, Integers]) -> None:
        """Keep the rows of a query as a table of this name, in place of an earlier one."""


class TableContent:
    """The records of a table, with the queries of its laws. Each answer bounds every unit of privacy. Sensitive.

    Parameters
    ----------
    tables : GroupTables
        The records.
    by_user : bool
        Whether the unit is a user.
    columns : sequence of str
        The columns of ``pairs`` beside those that every table has, or those of ``records``.
    """

    __slots__ = ("_columns", "_tables", "_users", "by_user")

    def __init__(self, tables: GroupTables, *, by_user: bool, columns: Sequence[str]) -> None:
        self._tables, self.by_user, self._columns = tables, by_user, tuple(columns)
        self._users = UserContent(tables)

    def find(self, names: list[Any]) -> Integers:
        """Return the places of groups by their names; −1 for a group without records."""
        return self._tables.find(names)

    def names(self, places: Integers) -> list[Any]:
        """Return the names of the groups at these places, which increase."""
        return self._tables.names(places)

    def places(self) -> Integers:
        """Return the places of all groups."""
        found = [places for (places,) in self._tables.numbers("SELECT place FROM {keys} ORDER BY place")]
        return np.concatenate([np.empty(0, np.int64), *found])

    def weights(self, known: Integers, cap: int) -> Iterator[Block]:
        """Yield the weights of groups that are not known, by which names are found; a record gives 1 to its group."""
        if self.by_user:
            yield from self._users.weights(known, cap)
            return
        query = "SELECT k.place, k.units FROM {keys} AS k ANTI JOIN {asked} AS a ON k.place = a.place ORDER BY k.place"
        for places, units in self._tables.numbers(query, asked={"place": known}):
            yield Block(places, units * WEIGHT_ONE)

    def keep(self, asked: Integers, most: Callable[[Integers], int]) -> Kept:
        """Map groups to rows, and keep at most some rows of each user.

        Parameters
        ----------
        asked : numpy.ndarray of int64
            The places that become rows, each once and in this order; −1 is a row without records.
        most : callable
            Takes how many users have each number of rows, in the ranges of :data:`dpsketch.laws.choice.EDGES`, and
            returns how many rows of a user are kept. It is called once where the unit is a user.
        """
        there, rest = np.flatnonzero(asked >= 0), len(asked)
        rows = "SELECT k.place, CAST(coalesce(a.row, {rest}) AS BIGINT) AS row FROM {keys} AS k "
        rows = rows.replace("{rest}", str(rest)) + "LEFT JOIN {asked} AS a ON k.place = a.place"
        self._tables.make("rows", rows, asked={"place": asked[there], "row": there})
        if not self.by_user:
            named = ", ".join(["p.id", "w.row", "1 AS units", *(f"p.{name}" for name in self._columns)])
            self._tables.make(
                "counted", f"SELECT {named} FROM {{records}} AS p JOIN {{rows}} AS w ON p.place = w.place"
            )
            return Kept(self._tables, rest + 1, by_user=False)
        names = ["person", "row", "units", "print", *self._columns]
        named = ", ".join(f"w.{name}" if name == "row" else f"p.{name}" for name in names)
        own = {"person": "p.person", "row": f"{rest} AS row", "units": "CAST(sum(p.units) AS BIGINT) AS units"}
        own["print"] = "min(p.print) AS print"
        merged = ", ".join(own.get(name) or _together(name) for name in names)
        joined = "FROM {pairs} AS p JOIN {rows} AS w ON p.place = w.place WHERE w.row"
        others = f"SELECT {merged} {joined} = {rest} GROUP BY p.person"
        self._tables.make("merged", f"SELECT {named} {joined} < {rest} UNION ALL {others}")
        self._tables.make("held", "SELECT person, count(*) AS held FROM {merged} GROUP BY person")
        cap = most(self._ranges())
        plain, named = ", ".join(names), ", ".join(f"m.{name}" for name in names)
        joined = "FROM {merged} AS m JOIN {held} AS h ON m.person = h.person WHERE h.held"
        turn = f"row_number() OVER (PARTITION BY m.person ORDER BY {word('m.print')}, m.row) AS turn"
        ranked = f"SELECT {plain} FROM (SELECT {named}, {turn} {joined} > {cap}) AS r WHERE turn <= {cap}"
        self._tables.make("counted", f"SELECT {named} {joined} <= {cap} UNION ALL {ranked}")
        kept = Kept(self._tables, rest + 1, by_user=True)
        kept.check(cap)
        return kept

    def _ranges(self) -> Integers:
        """Return how many users have each number of rows, by range."""
        found = np.zeros(RANGES, np.int64)
        query = "SELECT held, count(*) AS people FROM {held} GROUP BY held"
        for held, people in self._tables.numbers(query):
            np.add.at(found, range_of(held), people)
        return found


class Kept:
    """Bounded contributions of all units, by row. Sensitive."""

    __slots__ = ("_by_user", "_joined", "_rows", "_tables")

    def __init__(self, tables: GroupTables, rows: int, *, by_user: bool) -> None:
        self._tables, self._rows, self._by_user = tables, rows, by_user
        self._joined = False

    def check(self, cap: int) -> None:
        """Raise an error if a user has more rows than the law paid for."""
        held = "SELECT count(*) AS held FROM {counted} GROUP BY person"
        for (worst,) in self._tables.numbers(f"SELECT coalesce(max(held), 0) AS held FROM ({held}) AS h"):
            if int(worst.max(initial=0)) > cap:
                raise ReleaseRefused("a user counts in more rows than its bound allows. Nothing was drawn of them.")

    def users(self) -> Integers:
        """Return the number of units in each row."""
        return self._by_row(["count(*)"])[:, 0]

    def shape(self, measure: Measure) -> Integers:
        """Return the bins of one value of each unit, drawn at random from its rows."""
        value = self._sample(measure)
        source = "{counted}"
        if self._by_user:
            one = f"min_by({value}, ({word('print')}, row)) AS value"
            source = f"(SELECT person, {one} FROM {{counted}} GROUP BY person)"
            value = "value"
        binned = f"SELECT {_leaf_of(value, EDGES)} AS leaf FROM {source} AS k"
        query = f"SELECT leaf, count(*) AS units FROM ({binned}) AS l GROUP BY leaf"
        found = np.zeros(BINS, np.int64)
        for leaves, units in self._tables.numbers(query):
            found[leaves] += units
        return found

    def centred(self, measure: Measure, bounds: tuple[float, float], records: int) -> Integers:
        """Return the sums by row of 2y − SCALE, where each unit's y lies between 0 and SCALE.

        ``records`` is the number of records that count of a user in a row, for means over records.
        """
        if measure.kind != "record_mean":
            return self._by_row([f"sum(2 * {_clipped(self._amount(measure), bounds, SCALE)} - {SCALE})"])[:, 0]
        # Each record gives its centred value times min(c, w)/(c·w), cut towards zero: c of them give SCALE at most.
        value = f"(2 * {_clipped(f'v{measure.value}', bounds, SCALE)} - {SCALE})"
        share = f"(least(units, {records}) / (CAST(units AS DOUBLE) * {records}))"
        self._join()
        cut = f"CAST(sign({value}) * floor(abs({value}) * {share}) AS BIGINT)"
        return self._by_row([f"sum({cut})"], self._name)[:, 0]

    def cells(self, measures: Sequence[tuple[Measure, tuple[float, float]]], steps: int) -> Integers:
        """Return the sums by row of all products of y or steps − y over the measures: 2^k cells of k measures.

        Values between two steps are rounded at random, by a word of their own.
        """
        places = []
        for measure, bounds in measures:
            identity = "print" if self._by_user else "id"
            places.append(_clipped(self._amount(measure), bounds, steps, _uniform(identity)))
        source = "{counted}"
        if places:
            listed = "".join(f", {place} AS y{i}" for i, place in enumerate(places))
            self._tables.make("scaled", f"SELECT row{listed} FROM {{counted}} AS k")
            source = "{scaled}"
        found = []
        for cell in range(1 << len(places)):
            factors = [f"y{i}" if cell >> i & 1 else f"({steps} - y{i})" for i in range(len(places))]
            found.append(f"sum({' * '.join(factors) or '1'})")
        return self._by_row(found, source)

    def leaves(self, measure: Measure, edges: Sequence[float], scale: int) -> Integers:
        """Return the mass of each leaf by row: a pair of a unit and a row has ``scale``, its records alike."""
        self._join()
        leaf = _leaf_of(f"v{measure.value}", edges)
        mass = f"CAST(floor({_literal(scale)} / units) AS BIGINT)"
        return self._by_leaf(f"SELECT row, {leaf} AS leaf, {mass} AS mass FROM {self._name}", len(edges) + 1)

    def slots(self, measure: Measure, edges: Sequence[float], firsts: Integers, scale: int) -> Integers:
        """Return the mass of each slot by row, where a record takes one slot of its cell at random.

        ``firsts`` has the first slot of each cell, and one behind the last cell's.
        """
        self._join()
        mass = f"CAST(floor({_literal(scale)} / units) AS BIGINT)"
        cell = f"SELECT row, id, units, {_leaf_of(f'v{measure.value}', edges)} AS cell FROM {self._name}"
        turn = f"CAST(floor({_uniform('id')} * width) AS BIGINT)"
        slot = f"SELECT row, first + {turn} AS leaf, {mass} AS mass"
        query = f"{slot} FROM ({cell}) AS c JOIN {{cells}} AS d ON c.cell = d.cell"
        cells = {"cell": np.arange(len(firsts) - 1), "first": firsts[:-1], "width": np.diff(firsts)}
        return self._by_leaf(query, int(firsts[-1]), cells=cells)

    @property
    def _name(self) -> str:
        return "{joined}" if self._by_user else "{counted}"

    def _join(self) -> None:
        """Make ``joined``: the records of kept pairs, each with the number of records of its pair."""
        if not self._by_user or self._joined:
            return
        query = (
            "SELECT r.*, k.row, k.units FROM {records} AS r JOIN {rows} AS w ON r.place = w.place "
            "JOIN {counted} AS k ON r.person = k.person AND w.row = k.row"
        )
        self._tables.make("joined", query)
        self._joined = True

    def _sample(self, measure: Measure) -> str:
        """Return SQL for the number of a kept pair, or record, that a shape bins."""
        if measure.kind in ("record_mean", "quantiles"):
            return f"s{measure.value}" if self._by_user else f"v{measure.value}"
        return self._amount(measure)

    def _amount(self, measure: Measure) -> str:
        """Return SQL for the number of a kept pair, or record."""
        match measure.kind:
            case "count":
                return "CAST(units AS DOUBLE)"
            case "total" | "user_mean" if not self._by_user:
                return f"v{measure.value}"
            case "total":
                return f"(CAST(t{measure.value} AS DOUBLE) * {_literal(STEP)})"
            case "user_mean":
                return f"(CAST(t{measure.value} AS DOUBLE) * {_literal(STEP)} / units)"
            case _:
                raise InvalidInput("records have no number of their own for that measure.")

    def _by_row(self, sums: Sequence[str], source: str = "{counted}") -> Integers:
        """Return sums by row, one column each; a row without records is 0."""
        casts = ", ".join(f"CAST({each} AS BIGINT) AS c{i}" for i, each in enumerate(sums))
        found = np.zeros((self._rows, len(sums)), np.int64)
        for rows, *columns in self._tables.numbers(f"SELECT row, {casts} FROM {source} AS k GROUP BY row"):
            found[rows] = np.stack(columns, axis=1)
        return found

    def _by_leaf(self, query: str, leaves: int, **tables: dict[str, Integers]) -> Integers:
        found = np.zeros((self._rows, leaves), np.int64)
        sums = f"SELECT row, leaf, CAST(sum(mass) AS BIGINT) AS mass FROM ({query}) AS l GROUP BY row, leaf"
        for rows, places, mass in self._tables.numbers(sums, **tables):
            found[rows, places] = mass
        return found


def _together(name: str) -> str:
    """Return SQL that merges a column of several pairs of one user: the sum of totals, or one of the values."""
    return f"sum(p.{name}) AS {name}" if name.startswith("t") else f"min_by(p.{name}, (p.print, p.place)) AS {name}"


def _clipped(value: str, bounds: tuple[float, float], steps: int, dither: str = "0.5") -> str:
    """Return SQL for the position of a value between bounds, in whole steps from 0 to ``steps``."""
    low, high = (_literal(bound) for bound in bounds)
    wide = bounds[1] - bounds[0]
    scale = _literal(min(steps / wide, LARGEST_SCALE) if wide > 0 else 0.0)
    place = f"floor((greatest(least({value}, {high}), {low}) - {low}) * {scale} + {dither})"
    return f"least(CAST({place} AS BIGINT), {steps})"


def word(identity: str) -> str:
    """Return SQL for a random number of 64 bits, by a fresh seed."""
    return f"xxhash64(CAST('{fresh_seed()}' AS BIGINT), {identity})"


def _uniform(identity: str) -> str:
    """Return SQL for a random number from 0 to below 1."""
    return f"(({word(identity)} & {(1 << 30) - 1}) * {_literal(2.0**-30)})"


def _leaf_of(value: str, edges: Sequence[float]) -> str:
    """Return SQL for the number of edges at or below a value, by halving; infinite edges are above every value."""
    finite = [edge for edge in edges if edge < math.inf]

    def between(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last) // 2
        return (
            f"CASE WHEN {value} < {_literal(finite[middle])} THEN {between(first, middle)} "
            f"ELSE {between(middle + 1, last)} END"
        )

    return f"CAST({between(0, len(finite))} AS BIGINT)"


def _literal(number: float) -> str:
    """Return a float as SQL that every engine reads as the same float."""
    return f"CAST('{float(number)!r}' AS DOUBLE)"
