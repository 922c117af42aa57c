"""Exact records of a table in a private DuckDB. Sensitive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch import files
from dpsketch.arrays import Floats
from dpsketch.errors import FileRefused
from dpsketch.hashing import KeyType
from dpsketch.laws.content import pair_print
from dpsketch.laws.groups import STEP, TableContent, word
from dpsketch.laws.sorted import Records, SortedContent
from dpsketch.sketches.store import (
    Limit,
    PrivateDatabase,
    Rows,
    Store,
    StoreTables,
    one_array,
    plain_column,
    prints_of,
    read_column,
    stored_column,
    to_numpy,
)  # fmt: skip

__all__ = ["LARGEST", "RecordStore", "record_rows"]

# Values are clamped to ±2⁴², so that a record has at most 2⁶² steps.
LARGEST = 2.0**42
_BATCH = 1 << 17
_RECORD_BYTES = 200  # memory that laws need for each record of one user


def record_rows(keys: pa.ChunkedArray, users: pa.ChunkedArray | None, values: Sequence[Floats]) -> Rows:
    """Return records as rows of a store, without those that lack a key, a user or a value."""
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


class RecordTables(StoreTables):
    """Tables of a store of records, for the laws of a release. Sensitive."""

    def __init__(self, database: PrivateDatabase, key_type: KeyType, *, numbered: bool) -> None:
        super().__init__(database, by_user=False, key_type=key_type, limit=None)
        self._numbered = numbered

    def in_order(self, values: Sequence[int]) -> Iterator[Records]:
        """Yield all records in the order of users and groups, with these columns of values."""
        names = ["person", "place", *(["print"] if self._numbered else []), *(f"v{value}" for value in values)]
        for batch in self.stream(f"SELECT {', '.join(names)} FROM ordered"):
            columns = dict(zip(names, batch.columns, strict=True))
            if not self._numbered:
                columns["print"] = prints_of(columns["person"])
            persons, prints, places = (to_numpy(columns[name]) for name in ("person", "print", "place"))
            yield Records(persons, prints, places, {value: np.asarray(columns[f"v{value}"]) for value in values})


class RecordStore(Store):
    """Records with their group, their user if the unit is one, and their values. Sensitive.

    Parameters
    ----------
    by_user : bool
        Whether rows have users.
    values : int
        The number of columns of values.
    totals, samples : sequence of int
        Columns of which each pair of a user and a group has the total, or one value.
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

    def _kind(self, name: str) -> str:
        return "DOUBLE" if name in self._values else super()._kind(name)

    def _insert(self) -> None:
        """Insert the waiting rows into ``kept``: every record is a row."""
        if not self._kept:
            self._create()
        with self._opened().given(waiting=pa.concat_tables(self._waiting)) as run:
            self._kept += run("INSERT INTO kept FROM waiting")
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def content(self) -> TableContent:
        """Return the records for the laws of a release."""
        tables = self.tables()
        if self.by_user and self._users_fit():
            return SortedContent(tables, values=range(len(self._values)), roomy=self.limit is None)
        if not self.by_user:
            return TableContent(tables, by_user=False, columns=self.columns)
        self._make_pairs()
        related = StoreTables(self._opened(), self.by_user, self.key_type or "text", self.limit)
        return TableContent(related, by_user=True, columns=self.columns)

    def tables(self) -> RecordTables:
        """Return the tables of all rows. They are valid until the next row is added."""
        if not isinstance(self._tables, RecordTables):
            self._make_tables()
            self._tables = RecordTables(self._opened(), self.key_type or "text", numbered=self._numbered)
        return self._tables

    def _users_fit(self) -> bool:
        """Say whether the records of every user fit into memory."""
        if self.limit is None:
            return True
        counts = "SELECT count(*) AS held FROM ordered GROUP BY person"
        return self._opened().run(f"SELECT max(held) FROM ({counts})") * _RECORD_BYTES < self.limit.size // 4

    def grouped(self, records: str) -> str:
        """Return SQL that groups a table of records by user and group. Every engine runs it."""
        sums = "".join(f", sum(CAST(floor(v{i} / {STEP!r} + 0.5) AS DECIMAL(38, 0))) AS t{i}" for i in self._totals)
        sums += "".join(f", min_by(v{i}, ({word('id')}, id)) AS s{i}" for i in self._samples)
        return f"SELECT person, place, count(*) AS units{sums} FROM {records} GROUP BY person, place"

    def _make_tables(self) -> None:
        """Make ``keys``, ``people`` if users are texts, and ``records``, in the order of users and groups."""
        if not self._kept:
            self._create()
        rows = "(FROM kept UNION ALL FROM late)" if self._waiting else "kept"
        waiting = {"waiting": pa.concat_tables(self._waiting).combine_chunks()} if self._waiting else {}
        with self._opened().given(**waiting) as run:
            if self._waiting:  # as a table, since DuckDB knows its ranges and sorts narrow columns faster
                run("CREATE OR REPLACE TABLE late AS FROM waiting")
            self._make_keys(run, rows, ", count(*) AS units")
            named, joined, order = "", f"FROM {rows} AS r JOIN keys AS k ON r.key = k.key", ""
            if self.by_user:
                named, order = "r.owner AS person, ", "ORDER BY person, place"
            if self._numbered:
                self._make_people(run, rows)
                named, joined = "p.person, p.print, ", f"{joined} JOIN people AS p ON r.owner = p.owner"
            values = "".join(f", r.{name}" for name in self._values)
            run(f"CREATE OR REPLACE TABLE ordered AS SELECT {named}k.place{values} {joined} {order}")
            run("CREATE OR REPLACE VIEW records AS SELECT rowid AS id, * FROM ordered; DROP TABLE IF EXISTS late")

    @property
    def _numbered(self) -> bool:
        """Whether users are numbered; one that is a whole number has its own."""
        return self.by_user and self.owner_type == "text"

    def _make_pairs(self) -> None:
        """Make ``pairs``, for relational steps."""
        run, joined = self._opened().run, "FROM grouped AS g JOIN keys AS k ON g.place = k.place"
        owner = "p.print" if self._numbered else "print_int(g.person)"
        joined += " JOIN people AS p ON g.person = p.person" if self._numbered else ""
        run(f"CREATE OR REPLACE TABLE grouped AS {self.grouped('records')}")
        run(f"CREATE OR REPLACE TABLE pairs AS SELECT g.*, {pair_print(owner, 'k.print')} AS print {joined}")
        run("DROP TABLE grouped")

    def to_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return the fields of a header, and arrays, in an order that does not depend on how records came."""
        header: dict[str, Any] = {"key_type": self.key_type, "owner_type": self.owner_type}
        if self.key_type is None:
            return header, {}
        tables = self.tables()
        names, joined = ", ".join(self._columns), "FROM records AS r JOIN keys AS k ON r.place = k.place"
        owner = "p.owner" if self._numbered else "r.person AS owner"
        named = ", ".join({"key": "k.key", "owner": owner}.get(name, f"r.{name}") for name in self._columns)
        joined += " JOIN people AS p ON r.person = p.person" if self._numbered else ""
        found = list(tables.stream(f"SELECT {named} {joined} ORDER BY {names}"))
        arrays: dict[str, files.Array] = {}
        for place, name in enumerate(self._columns):
            column = pa.chunked_array([batch.column(place) for batch in found])
            if name in self._values:
                arrays[name] = np.concatenate([np.asarray(chunk) for chunk in column.chunks])
            else:
                arrays |= stored_column(name, one_array(plain_column(column)))
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> int:
        """Add the rows of :meth:`to_document`, and return their number. The file is not trusted."""
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
