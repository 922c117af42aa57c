"""SQL in, a private table out: from a query that groups to a :class:`~dpsketch.Table`, its release, and its rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from dpsketch.columns import as_column
from dpsketch.errors import InvalidInput, SourceError
from dpsketch.numbers import real_number
from dpsketch.sketches import table as tables
from dpsketch.sketches.feed import feed
from dpsketch.sketches.frames import frame_columns
from dpsketch.sketches.table.columns import pair
from dpsketch.sketches.table.rows import typed_names, with_ends
from dpsketch.sketches.table.sketch import declared_type
from dpsketch.sources import Batch, Columns, GroupQuery, open_source, parse_group_query, read_tables
from dpsketch.sources.failures import guarded

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger
    from dpsketch.privacy import Neighbours
    from dpsketch.sketches.table import Column, PrivateTable, Table, TableSpec
    from dpsketch.sketches.table.calibration import Names
    from dpsketch.sketches.table.columns import Over
    from dpsketch.sources.grouping import Aggregate

__all__ = ["TableQuery", "bounded", "sql"]

Range = tuple[float, float]

_KNOWN = (
    "SELECT table_catalog, table_schema, table_name FROM information_schema.tables "
    "WHERE lower(table_name) = lower(?) AND (CAST(? AS VARCHAR) IS NULL OR lower(table_schema) = lower(?))"
)


def sql(
    query: str,
    data: Any = None,
    *,
    user: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    bounds: Mapping[str, Range] | None = None,
    grid: Mapping[str, float] | None = None,
    over: Over = "records",
    groups: Any = None,
    names: Names = "less",
    max_keys: int | Literal["auto"] | None = None,
    max_records: int | Literal["auto"] | None = None,
    neighbours: Neighbours = "add_remove",
    memory_limit: str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | None = None,
    dataset: str | None = None,
    part: str | None = None,
) -> PrivateTable:
    r"""Answer a GROUP BY privately, in one release.

    Parameters
    ----------
    query : str
        ``SELECT`` of group columns and aggregates, ``FROM`` one source, ``WHERE`` a condition on single records,
        ``GROUP BY`` columns, expressions, numbers or ``ALL``; then ``HAVING``, ``ORDER BY`` and ``LIMIT``, which are
        computed from what was released. The aggregates are ``COUNT(*)``, ``COUNT(x)``, ``COUNT(DISTINCT user)``,
        ``SUM``, ``AVG``, ``MEDIAN``, ``QUANTILE_CONT`` and ``QUANTILE_DISC``, of a column or of an expression over one
        record.
    data : mapping of frames, or DuckDB connection, optional
        What ``FROM`` names: a frame by its name in the mapping, or a table or view of the connection. A view is taken
        as it is: its rows are the records. Without it ``FROM`` names a file, folder, glob or database, as the command
        line's sources do.
    user : str, optional
        The column with the user of each record. With it the release protects users, without it single records.
    epsilon, delta, rho : float
        The budget, as for :meth:`dpsketch.Table.release`.
    bounds : mapping, optional
        Ranges by the name of a released column, as in ``{"sum_amount": (0, 500)}``, or by a column of the records, for
        all aggregates of it. Ranges that are not stated are chosen privately.
    grid : mapping, optional
        Public steps of the values of quantiles, by the same names.
    over : {"records", "users"}
        Whether ``AVG`` gives records or users the same weight; in SQL it is records.
    groups, names, max_keys, max_records, neighbours, memory_limit, temp_directory
        As for :class:`dpsketch.Table` and its release.
    ledger, dataset, part : Ledger or URL, str, str, optional
        Where to charge the release; charged before any noise is drawn.

    Returns
    -------
    PrivateTable
        The release. Its frames (``to_polars()`` and the like) have the columns, rows and order of the query, each
        number with its interval ``NAME_low``, ``NAME_high``; an alias is the name. ``groups``, ``others``,
        :meth:`~dpsketch.PrivateTable.rollup` and ``save`` concern the whole release.

    Privacy
    -------
    (ε, δ)-differential privacy for the unit and the neighbour relation, of the whole release, whatever ``HAVING``,
    ``ORDER BY`` and ``LIMIT`` show of it. It holds for the rows that ``FROM`` gives: each must depend on its own user's
    records alone (on its own record, without a user). A view with a public table joined keeps that; one with a window,
    an aggregate, or other users' rows does not, and nothing checks a view. A record with a missing group, user or value
    counts for nothing in any column, also where SQL would count it.

    Examples
    --------
    >>> import dpsketch as dps, pyarrow as pa
    >>> visits = pa.table({"country": ["FR"] * 600 + ["US"] * 900, "amount": [5.0] * 600 + [9.0] * 900})
    >>> query = "SELECT country, COUNT(*) AS n, AVG(amount) FROM visits GROUP BY country ORDER BY n DESC"
    >>> answer = dps.sql(query, {"visits": visits}, epsilon=1.0, delta=1e-6)
    >>> answer.to_arrow().column("country").to_pylist()
    ['US', 'FR']
    >>> answer.columns
    ['country', 'n', 'n_low', 'n_high', 'mean_amount', 'mean_amount_low', 'mean_amount_high']
    """
    asked = TableQuery.read(query, user=user, bounds=bounds, grid=grid, over=over)
    table = asked.table(
        max_keys=max_keys, max_records=max_records, neighbours=neighbours, memory_limit=memory_limit,
        temp_directory=temp_directory,
    )  # fmt: skip
    feed(table, asked.batches(data))
    asked.check(table.spec)
    private = table.release(
        epsilon=epsilon, delta=delta, rho=rho, groups=groups, names=names, ledger=ledger, dataset=dataset, part=part
    )
    return asked.shown(private)


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query as a table: its columns, its source and its rows.

    Attributes
    ----------
    asked : GroupQuery
        What the query says.
    user : str or None
        The column of users.
    columns : tuple of Column
        The table's columns: one for each aggregate.
    """

    asked: GroupQuery
    user: str | None
    columns: tuple[Column, ...]

    @classmethod
    def read(
        cls,
        text: str,
        *,
        user: str | None,
        bounds: Mapping[str, Range] | None = None,
        grid: Mapping[str, float] | None = None,
        over: Over = "records",
    ) -> TableQuery:
        """Read a query; parameters as for :func:`sql`."""
        asked = parse_group_query(text)
        if user is not None and user in {each.name for each in asked.computed}:
            raise InvalidInput(f"the query has the alias {user!r}, which is the column of the user. Rename the alias.")
        for each in asked.aggregates:
            if each.kind == "users" and (user is None or str(each.value).casefold() != user.casefold()):
                raise InvalidInput(
                    "COUNT(DISTINCT …) counts users: it takes the column that user= names. Other different values are "
                    "counted by a DistinctSketch."
                )
        if over == "users" and user is None:
            raise InvalidInput("over='users' weighs users alike: say user= as well, the column that names them.")
        plain = [_column(each, over) for each in asked.aggregates]
        _refuse_shared_names(asked.by, plain)
        columns = bounded(plain, bounds, grid, by_user=user is not None)
        asked.check([*asked.by, *(each for column in columns for name in column.names for each in with_ends(name))])
        return cls(asked, user, columns)

    def table(self, **options: Any) -> Table:
        """Return an empty table; options as for :class:`dpsketch.Table`."""
        return tables.Table(by=self.asked.by, columns=self.columns, user=self.user, **options)

    @property
    def source_columns(self) -> Columns:
        """Columns to read of each record."""
        by = self.asked.by
        values = tuple(dict.fromkeys(column.value for column in self.columns if column.value is not None))
        return Columns(
            key=by if len(by) > 1 else by[0],
            user=self.user,
            points=values,
            where=self.asked.where,
            computed=self.asked.computed,
            named=True,
        )

    @property
    def location(self) -> str:
        """File or database in FROM."""
        if self.asked.schema is not None:
            raise InvalidInput(
                "the query reads a table of a schema, which needs data=connection. The name of a file stands in "
                "quotes: FROM 'events.parquet'."
            )
        return self.asked.source

    def batches(self, data: Any) -> Iterator[Batch]:
        """Read the records: of a frame, of a connection's table, or of a file or database."""
        if data is None:
            return open_source([self.location], self.source_columns)
        if isinstance(data, Mapping):
            if self.asked.schema is not None or self.asked.source not in data:
                raise InvalidInput("the query reads a source that data= does not name. Give it there, under its name.")
            frame = data[self.asked.source]
        elif hasattr(data, "table") and hasattr(data, "execute"):
            frame = _relation(data, self.asked)
        else:
            raise InvalidInput("data is a mapping of names to frames, as in {'visits': frame}, or a DuckDB connection.")
        return read_tables(_arrow(frame, self.source_columns.names), self.source_columns, "the frame")

    def check(self, spec: TableSpec) -> None:
        """Refuse HAVING and ORDER BY that do not fit the types of the released columns, before they are paid for."""
        types = dict(zip(spec.by, spec.types or ("text",) * len(spec.by), strict=True))
        columns = {name: typed_names([], kind) for name, kind in types.items()}
        columns |= {each: pa.array([], pa.float64()) for name in self._names for each in with_ends(name)}
        self.asked.places(pa.table(columns), self._names)

    def shown(self, private: PrivateTable) -> PrivateTable:
        """Return the release with the columns, rows and order of the query."""
        selected = [name if isinstance(name, str) else self._names[name] for name in self.asked.selected]
        try:
            places = self.asked.places(private.to_arrow(), self._names)
        except SourceError:  # a public list may hold what is no date, say; the release is paid for by now
            warnings.warn("HAVING and ORDER BY do not fit the listed groups: all rows are shown.", stacklevel=3)
            return private
        return private.showing(private.rows.arranged(places, selected))

    @property
    def _names(self) -> list[str]:
        """The released column of each aggregate."""
        return [column.names[0] for column in self.columns]


def _column(each: Aggregate, over: Over) -> Column:
    """Return the column of a table that an aggregate is."""
    value, name = str(each.value), each.alias
    match each.kind:
        case "count":
            return tables.count(name=name)
        case "users":
            return tables.users(name=name)
        case "sum":
            return tables.sum(value, name=name)
        case "mean":
            return tables.mean(value, over=over, name=name)
        case "quantiles":
            return tables.quantiles(value, [each.share or 0.0], name=name)


def _refuse_shared_names(by: Sequence[str], columns: Sequence[Column]) -> None:
    """Refuse two released columns of one name."""
    listed = [*by, *(each for column in columns for name in column.names for each in with_ends(name))]
    if len(set(listed)) < len(listed):
        raise InvalidInput("the query gives two released columns one name. Rename one, with AS.")


def bounded(
    columns: Sequence[Column],
    bounds: Mapping[str, Any] | None = None,
    grid: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    *,
    by_user: bool,
) -> tuple[Column, ...]:
    """Return columns with ranges, steps and weights that are stated by the names of released columns, or of values.

    The name of a value goes for all columns of it. Where the unit is a user, the range of a sum is another than that of
    the value, so that the name of a value which has both a sum and something else is refused.
    """
    found = list(columns)
    for what, stated in (("bounds", bounds), ("grid", grid), ("weights", weights)):
        for name, value in (stated or {}).items():
            places = [i for i, column in enumerate(found) if name in (*column.names, column.stem)]
            own = bool(places)
            places = places or [i for i, column in enumerate(found) if column.value == name]
            places = [i for i in places if _takes(found[i], what)]
            kinds = {found[i].kind for i in places}
            if not places:
                known = [each for column in found if _takes(column, what) for each in column.names]
                raise InvalidInput(f"{what} names {name!r}, which is none of {', '.join(known) or 'the columns'}.")
            if what == "bounds" and by_user and not own and "sum" in kinds and len(kinds) > 1:
                raise InvalidInput(
                    f"the range of a sum is that of one user's total in one group, and that of other columns of one "
                    f"value. State the bounds of {name!r} by the names of the released columns: "
                    f"{', '.join(each for i in places for each in found[i].names)}."
                )
            if what != "weights":  # the quantiles of a value are read off one tree
                trees = {found[i].value for i in places if found[i].kind == "quantiles"}
                places += [i for i, each in enumerate(found) if each.kind == "quantiles" and each.value in trees]
            for i in places:
                found[i] = _with(found[i], what, value)
    return tuple(found)


def _takes(column: Column, what: str) -> bool:
    if what == "weights":
        return True
    return column.kind == "quantiles" if what == "grid" else column.value is not None


def _with(column: Column, what: str, value: Any) -> Column:
    match what:
        case "bounds":
            low, high = pair(value)
            return replace(column, low=low, high=high)
        case "grid":
            return replace(column, grid=float(real_number("grid", value)))
        case _:
            return replace(column, weight=float(real_number("weight", value)))


def _relation(connection: Any, asked: GroupQuery) -> Any:
    """Return a table or a view of a DuckDB connection."""
    # The name of a file is no table: DuckDB would read it, and take types from its values.
    known = guarded(
        lambda: connection.execute(_KNOWN, [asked.source, asked.schema, asked.schema]).fetchall(),
        lambda _: SourceError("the connection cannot say which tables it has."),
    )
    if len(known) != 1:
        raise InvalidInput(
            "the connection has no table or view of the name in FROM, or several in different schemas. A file is read "
            "without data=."
        )
    name = ".".join('"' + each.replace('"', '""') + '"' for each in known[0])
    return guarded(
        lambda: connection.table(name),
        lambda _: SourceError("the connection has no table or view of the name in FROM. Check the name."),
    )


def _arrow(frame: Any, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the columns of a frame, or of each frame of an iterator, as Arrow tables whose types are declared."""
    for columns in frame_columns(frame, names):
        arrays = {}
        for name, column in columns.items():
            declared = declared_type(column, name)
            array = as_column(column)
            arrays[name] = array.cast(pa.string()) if pa.types.is_null(array.type) and declared == "text" else array
        yield pa.table(arrays)
