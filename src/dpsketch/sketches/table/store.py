"""The exact records of a table in a private DuckDB. Sensitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch import files
from dpsketch.arrays import Floats
from dpsketch.errors import FileRefused
from dpsketch.laws.content import pair_print
from dpsketch.laws.groups import STEP
from dpsketch.sketches.store import Limit, Rows, Store, one_array, plain_column, read_column, stored_column

__all__ = ["LARGEST", "RecordStore", "record_rows"]

# Values are clamped to ±2⁴², so that a record has at most 2⁶² steps.
LARGEST = 2.0**42
_BATCH = 1 << 17


def record_rows(keys: pa.ChunkedArray, users: pa.ChunkedArray | None, values: Sequence[Floats]) -> Rows:
    """Return records as rows of a store; those without a key, a user or a value are left out."""
    columns = {"key": plain_column(keys)}
    if users is not None:
        columns = {"owner": plain_column(users), **columns}
    there = np.ones(len(keys), np.bool_)
    for value in values:
        there &= ~np.isnan(value)
    for column in columns.values():
        there &= np.asarray(column.is_valid())
    for place, value in enumerate(values):
        columns[f"v{place}"] = pa.chunked_array([pa.array(np.clip(value, -LARGEST, LARGEST) + 0.0)])  # −0 is 0
    table = pa.table(columns).filter(pa.array(there))
    return Rows(table, len(there) - int(np.count_nonzero(there)), there)


class RecordStore(Store):
    """Records with their group, their user if the unit is one, and their values. Sensitive.

    Parameters
    ----------
    by_user : bool
        Whether rows have users.
    values : int
        The number of columns of values.
    totals, samples : sequence of int
        The columns whose totals, or of which one value, each pair of a user and a group has.
    limit : Limit, optional
        How much memory the store may take.
    """

    def __init__(
        self, *, by_user: bool, values: int, totals: Sequence[int], samples: Sequence[int], limit: Limit | None = None
    ) -> None:
        super().__init__(by_user=by_user, limit=limit)
        self._values = [f"v{place}" for place in range(values)]
        self._columns = [*self._names, *self._values]
        self._totals, self._samples = totals, samples

    @property
    def columns(self) -> list[str]:
        """The columns of ``pairs``, or of ``records``, beside those that every table has."""
        if not self.by_user:
            return self._values
        return [*(f"t{place}" for place in self._totals), *(f"s{place}" for place in self._samples)]

    def grouped(self, records: str) -> str:
        """Return SQL for what each user has in each group, of a table of records; every engine runs it."""
        sums = "".join(f", sum(CAST(floor(v{i} / {STEP!r} + 0.5) AS DECIMAL(38, 0))) AS t{i}" for i in self._totals)
        sums += "".join(f", min_by(v{i}, {_scrambled(f'v{i}')}) AS s{i}" for i in self._samples)
        return f"SELECT person, place, count(*) AS units{sums} FROM {records} GROUP BY person, place"

    def _kind(self, name: str) -> str:
        return "DOUBLE" if name in self._values else super()._kind(name)

    def _insert(self) -> None:
        """Put the rows that wait into ``kept``: every record is a row."""
        if not self._kept:
            self._create()
        with self._opened().given(waiting=pa.concat_tables(self._waiting)) as run:
            self._kept += run("INSERT INTO kept FROM waiting")
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _make_tables(self) -> None:
        """Make ``keys`` and ``records``, and ``people`` and ``pairs`` where rows have users."""
        if not self._kept:
            self._create()
        rows = "(FROM kept UNION ALL FROM waiting)" if self._waiting else "kept"
        waiting = {"waiting": pa.concat_tables(self._waiting).combine_chunks()} if self._waiting else {}
        with self._opened().given(**waiting) as run:
            self._make_keys(run, rows, ", count(*) AS units")
            values = "".join(f", r.{name}" for name in self._values)
            number = "row_number() OVER () - 1 AS id"
            if not self.by_user:
                query = f"SELECT {number}, k.place{values} FROM {rows} AS r JOIN keys AS k ON r.key = k.key"
                run(f"CREATE OR REPLACE TABLE records AS {query}")
                return
            self._make_people(run, rows)
            query = f"SELECT {number}, p.person, k.place{values} FROM {rows} AS r JOIN keys AS k ON r.key = k.key"
            run(f"CREATE OR REPLACE TABLE records AS {query} JOIN people AS p ON r.owner = p.owner")
            run(f"CREATE OR REPLACE TABLE grouped AS {self.grouped('records')}")
            run(
                f"""CREATE OR REPLACE TABLE pairs AS
                SELECT g.*, {pair_print("p.print", "k.print")} AS print
                FROM grouped AS g JOIN keys AS k ON g.place = k.place JOIN people AS p ON g.person = p.person"""
            )
            run("DROP TABLE grouped")

    def to_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return the fields of a header, and arrays, in an order that does not depend on how records came."""
        header: dict[str, Any] = {"key_type": self.key_type, "owner_type": self.owner_type}
        if self.key_type is None:
            return header, {}
        names, joined = ", ".join(self._columns), "FROM records AS r JOIN keys AS k ON r.place = k.place"
        named = ", ".join({"key": "k.key", "owner": "p.owner"}.get(name, f"r.{name}") for name in self._columns)
        joined += " JOIN people AS p ON r.person = p.person" if self.by_user else ""
        found = list(self.tables().stream(f"SELECT {named} {joined} ORDER BY {names}"))
        arrays: dict[str, files.Array] = {}
        for place, name in enumerate(self._columns):
            column = pa.chunked_array([batch.column(place) for batch in found])
            if name in self._values:
                arrays[name] = np.concatenate([np.asarray(chunk) for chunk in column.chunks])
            else:
                arrays |= stored_column(name, one_array(plain_column(column)))
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> int:
        """Take the rows of :meth:`to_document`, and return their number; anyone may have written the file."""
        if header["key_type"] is None:
            return 0
        columns = {name: read_column(arrays, name, header[f"{name}_type"]) for name in self._names}
        n = len(columns["key"])
        for name in self._values:
            value: Any = arrays.get(name)
            if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != (n,):
                raise FileRefused("the file's records are not ones that dpsketch writes.")
            if not (np.abs(value) <= LARGEST).all():
                raise FileRefused("the file's records are not ones that dpsketch writes.")
            columns[name] = pa.array(value)
        if any(len(column) != n for column in columns.values()):
            raise FileRefused("the file's records are not ones that dpsketch writes.")
        table = pa.table(columns)
        for start in range(0, n, _BATCH):
            self.add(Rows(table.slice(start, _BATCH)))
        return n


def _scrambled(value: str) -> str:
    """Return SQL for an order of values in which none is preferred: the fraction of an irrational multiple."""
    multiple = f"{value} * 0.6180339887498949"
    return f"({multiple} - floor({multiple}))"
