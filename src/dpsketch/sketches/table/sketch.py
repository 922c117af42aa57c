"""The sensitive table: exact records come in, a table of private aggregates by group goes out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from dpsketch.arrays import Floats
from dpsketch.bounding import read_users
from dpsketch.columns import UserType, as_column, has_schema, user_type_of
from dpsketch.compound import compound_keys, join_parts
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.laws.centred import TableState
from dpsketch.laws.groups import TableContent
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget, Neighbours, per_record, per_user
from dpsketch.sketches.frames import frame_columns
from dpsketch.sketches.histogram.named import named_column, names_of
from dpsketch.sketches.stored import StoredSketch
from dpsketch.sketches.table.calibration import Names
from dpsketch.sketches.table.columns import Column, count
from dpsketch.sketches.table.private import PrivateTable
from dpsketch.sketches.table.rows import listed_names
from dpsketch.sketches.table.spec import TableSpec
from dpsketch.sketches.table.store import RecordStore, record_rows
from dpsketch.sketches.weights import checked_total

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Table", "declared_type", "listed_groups"]


class Table(StoredSketch[TableSpec, PrivateTable]):
    """A private GROUP BY: counts, users, sums, means and quantiles of every group, in one release.

    Parameters
    ----------
    by : str or sequence of str
        The columns that name a group.
    columns : Column or sequence of Column, optional
        Aggregates to compute for each group: ``dps.count()``, ``dps.users()``, ``dps.sum("x")``, ``dps.mean("x")``,
        ``dps.quantiles("x", [.5, .9])``. By default the count.
    user : str, optional
        The column with the user of each record. With it a release protects users, without it single records.
    max_keys : int or "auto", optional
        Maximum number of groups in which a user counts. By default each release chooses it privately.
    max_records : int or "auto", optional
        Maximum number of a user's records in one group, for counts and means over records; the range of a user's total
        bounds sums. By default each release chooses it privately.
    neighbours : {"add_remove", "replace"}
        The neighbour relation of the guarantee.
    memory_limit : str, optional
        Approximate memory limit, such as ``"2GB"``; records beyond it go to disk.
    temp_directory : path, optional
        Folder for the files of ``memory_limit``.

    Privacy
    -------
    A release protects one user with all their records, or one record. Names of groups, head counts, columns and chosen
    bounds share one budget. All groups that are not listed form one more row, ``others``.

    Accuracy
    --------
    Each number has an interval for the quantity that was counted: after users were bounded and values were clipped.
    ``cut`` of the release estimates the part that the bounds cut.

    Examples
    --------
    >>> import dpsketch as dps, pyarrow as pa
    >>> visits = pa.table({"country": ["FR"] * 600 + ["US"] * 900, "amount": [5.0] * 600 + [9.0] * 900})
    >>> table = dps.Table(by="country", columns=[dps.count(), dps.mean("amount", bounds=(0, 10))])
    >>> table.update(visits)
    >>> private = table.release(epsilon=1.0, delta=1e-6)
    >>> private.to_arrow().column("country").to_pylist()
    ['FR', 'US']
    """

    kind: ClassVar[str] = "table"
    spec_type: ClassVar[Any] = TableSpec
    release_type: ClassVar[Any] = PrivateTable
    chooses_bounds: ClassVar[bool] = True
    takes: ClassVar[tuple[str, ...]] = ("users",)

    _store: RecordStore

    def __init__(
        self,
        *,
        by: str | Sequence[str],
        columns: Column | Sequence[Column] = (),
        user: str | None = None,
        max_keys: int | Literal["auto"] | None = None,
        max_records: int | Literal["auto"] | None = None,
        neighbours: Neighbours = "add_remove",
        memory_limit: str | None = None,
        temp_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if user is None and not (max_keys is None and max_records is None):
            raise InvalidInput("max_keys= and max_records= bound users: say user= as well, the column that names them.")
        if user is None:
            unit = per_record(neighbours=neighbours)
        else:
            unit = per_user("auto" if max_keys is None else max_keys, neighbours=neighbours)
        names = (by,) if isinstance(by, str) else tuple(by)
        columns = (columns,) if isinstance(columns, Column) else columns
        chosen = max_records is None or max_records == "auto"
        bound = None if chosen else whole_number("max_records", max_records)
        self._start(TableSpec(unit, names, tuple(columns) or (count(),), user, bound))
        self._bound_memory(memory_limit, temp_directory)

    def _start(self, spec: TableSpec) -> None:
        super()._start(spec)
        kinds = {measure.value: set[str]() for measure in spec.measures() if measure.value >= 0}
        for measure in spec.measures():
            if measure.value >= 0:
                kinds[measure.value].add(measure.kind)
        totals = [value for value, each in sorted(kinds.items()) if each & {"total", "user_mean"}]
        samples = [value for value, each in sorted(kinds.items()) if each & {"record_mean", "quantiles"}]
        self._store = RecordStore(
            by_user=spec.unit.level == "user", values=len(spec.values), totals=totals, samples=samples
        )

    def update(self, frame: Any) -> None:  # type: ignore[override]
        """Add the records of a frame.

        Parameters
        ----------
        frame : pandas, polars or Arrow frame, DuckDB relation, or iterator of these
            A frame with the columns that the table names. A record with a missing group, user or value counts in no
            column.
        """
        for records, given in self._batches(frame):
            self._add(records, **given)

    def _batches(self, frame: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield what :meth:`_add` takes for a frame, or for each frame of an iterator."""
        spec = self._spec
        wanted = [*spec.by, *spec.values, *([] if spec.user is None else [spec.user])]
        for columns in frame_columns(frame, wanted):
            groups = [columns[name] for name in spec.by]
            types = [declared_type(column, name) for column, name in zip(groups, spec.by, strict=True)]
            records = groups[0] if len(groups) == 1 else join_parts(groups)
            users = None if spec.user is None else columns[spec.user]
            values = [_numbers(columns[name], name) for name in spec.values]
            yield records, {"users": users, "values": values, "key_types": types}

    def _add(  # type: ignore[override]
        self,
        records: Any,
        *,
        users: Any = None,
        values: Sequence[Any] = (),
        key_types: Sequence[UserType | None] = (),
        disjoint_users: bool = False,
    ) -> None:
        """Add records, as part of a change: their groups, users, and a column of numbers for each value."""
        spec, counted = self._spec, self._counted
        column, found, declared = named_column(records, self._key_type if len(spec.by) == 1 else "text")
        types = () if None in key_types else tuple(each for each in key_types if each is not None)
        if spec.types and types and spec.types != types:
            raise SpecMismatch("the columns of groups have other types than those of the records so far.")
        owners: pa.ChunkedArray | None = None
        if self._protects_users(users, disjoint_users):
            read = read_users(users, len(column))
            owners, counted = read.column, counted.typed(read.user_type)
        numbers = [np.asarray(value, np.float64) for value in values]
        if len(numbers) != len(spec.values) or any(len(value) != len(column) for value in numbers):
            raise InvalidInput("the columns have different lengths; each needs one entry a record.")
        rows = record_rows(column, owners, numbers)
        mass = checked_total(self._mass, 1, 1, rows.table.num_rows)
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._store.add(rows)
        self._skipped += rows.skipped
        self._note_type(found, declared if len(spec.by) == 1 else None)
        if types and not self._spec.types:
            self._spec = replace(self._spec, types=types)

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        groups: Any = None,
        names: Names = "less",
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> PrivateTable:
        """Charge the budget, draw the noise, and return the table that may be published.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee. Groups that are on no public list need δ > 0.
        rho : float
            A zero-concentrated budget instead; goes with ``groups=``.
        groups : list of names or tuples, or a frame with the group columns, optional
            A public list: each of its groups gets a row, even if it has no records. It must not come from the data.
        names : {"less", "more"}
            Share of the budget that finds names: about a quarter, or half. ``"more"`` finds more groups, and adds more
            noise to each number.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Ledger, dataset and part to charge, before any noise is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the table's unit and neighbour relation, of the whole release.
        """
        spec, budget = self._spec, Budget(epsilon, delta, rho)
        listed = None if groups is None else listed_groups(groups, spec)[0]
        (law,) = spec.laws(budget, groups=listed, names=names)
        spelled = [str(name) if spec.key_columns else name for name in listed or []]
        with self._opened() as content:  # before the charge: records that cannot be sorted cost nothing
            permit = self._pay(spec, (law,), budget, self._account(ledger, dataset, part))
            drawn = permit.draw_all(TableState(content, spelled))
        return PrivateTable(spec, drawn)

    @contextmanager
    def _opened(self) -> Iterator[TableContent]:
        """Open the records for the laws of a release."""
        yield self._store.content()


def declared_type(column: Any, name: str) -> UserType | None:
    """Return the declared type of a frame's column. Its values have no influence."""
    found = as_column(column)
    if not has_schema(column):
        kind = getattr(found.type, "value_type", found.type)
        if not (pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidInput(
                f"the column {name!r} has no type of its own, and holds something else than text. Give it a type, as "
                "in frame.astype({...})."
            )
        return "text"
    return user_type_of(found.type)


def _numbers(column: Any, name: str) -> Floats:
    """Return a column of values as floats; missing ones are NaN."""
    found = as_column(column)
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    kind = found.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (numeric or pa.types.is_null(kind)):
        raise InvalidInput(f"the column {name!r} does not hold numbers. Convert it first.")
    # A large integer becomes the nearest float: Arrow would refuse it, with a message that quotes it.
    values: Floats = np.asarray(found.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    return values


def listed_groups(groups: Any, spec: TableSpec) -> tuple[list[Any], tuple[UserType, ...]]:
    """Return the names of a public list, each once, and the types of its columns.

    The names are written as records of these types are named. Where no record has stated the types, a frame does.
    """
    types: list[UserType | None] = list(spec.types) or [None]
    if hasattr(groups, "columns") or hasattr(groups, "column_names"):
        (columns,) = frame_columns(groups, list(spec.by))
        if not spec.types:
            types = [declared_type(columns[name], name) for name in spec.by]
        parts = [as_column(columns[name]).to_pylist() for name in spec.by]
        groups = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    stated = tuple(each for each in types if each is not None)
    if len(stated) == len(spec.by):
        groups = _as_records(groups, stated, spec)
    names = compound_keys(groups, spec.by) if spec.key_columns else names_of(groups, spec)
    if not names:
        raise InvalidInput("the public list of groups is empty.")
    return list(dict.fromkeys(names)), stated


def _as_records(groups: Any, types: Sequence[UserType], spec: TableSpec) -> Any:
    """Return the groups of a list as records of these types are named; what is no list of groups stays as it is."""
    rows = groups.tolist() if isinstance(groups, np.ndarray) else groups
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        return groups
    if len(types) == 1:
        return listed_names(rows, types[0], spec.by[0])
    if any(not isinstance(row, Sequence) or isinstance(row, str) or len(row) != len(types) for row in rows):
        return groups
    parts = zip(zip(*rows, strict=True), types, spec.by, strict=True)
    columns = [listed_names(column, kind, name) for column, kind, name in parts]
    return list(zip(*columns, strict=True))
