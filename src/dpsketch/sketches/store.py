"""The exact content of a sketch in a private DuckDB: keys with units, or who has which key. Sensitive.

Rows wait as Arrow tables until there are many, so that small updates and merges of small partials ask no database. Then
they are inserted into one table, ``kept``, in which equal rows are put together from time to time. Questions are asked
of tables that are made from ``kept`` and the rows that wait (:mod:`dpsketch.laws.content` says what these hold). Making
them changes nothing else: a question that is interrupted, or fails, leaves the content as it was.

Keys and users are compared by exact value. Texts are bytes to DuckDB, because its texts must be valid UTF-8.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch import files
from dpsketch._compiled.hashing import hash_integers
from dpsketch.arrays import Integers
from dpsketch.columns import valid_rows
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput, SourceError
from dpsketch.hashing import FINGERPRINT_SEED, KeyType, dictionary_codes, hash_array, key_type_of, text_buffers
from dpsketch.laws.content import pair_print
from dpsketch.laws.names import text_or_bytes
from dpsketch.sketches.weights import COUNTER_LIMIT, checked_total
from dpsketch.sources.engine import connect, load, private_folder
from dpsketch.sources.failures import guarded

__all__ = [
    "Limit", "PrivateDatabase", "Rows", "Store", "StoreTables", "one_array", "plain_column", "prints_of", "read_column",
    "rows_of", "stored_column", "to_numpy",
]  # fmt: skip

T = TypeVar("T")

_SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LEAST = 256 * 10**6  # with less DuckDB cannot sort much
_TWO_THREADS = 2 * 10**9  # each holds memory of its own
_WAITING_ROWS, _WAITING_BYTES = 1 << 20, 1 << 26
# Equal rows are put together when there are this many, and then when there are twice as many as after the last time.
_SETTLED_ROWS = 1 << 22
_BATCH = 1 << 17
_RANKED_BYTES = 500  # memory that DuckDB needs for a row while it ranks the keys of users
_SQL_TYPES = {"int": "BIGINT", "text": "BLOB"}
_ARROW_TYPES = {"int": pa.int64(), "text": pa.large_binary()}


class Limit(NamedTuple):
    """How much memory a store may take, in bytes, and where the rest goes."""

    size: int
    temp_directory: str | None

    @classmethod
    def of(cls, memory_limit: str, temp_directory: str | None) -> Limit:
        """Read a size as people write it, such as ``"512MB"``."""
        text = memory_limit.strip() if isinstance(memory_limit, str) else ""
        unit = next((unit for unit in _SIZES if text.endswith(unit)), "")
        number = text.removesuffix(unit).strip()
        size = int(number) * _SIZES[unit] if unit and number.isascii() and number.isdigit() else 0
        if size < _LEAST:
            least = f"{_LEAST // 10**6}MB"
            raise InvalidInput(f"memory_limit= must be a size such as '512MB' or '4GB', of {least} at least.")
        return cls(size, temp_directory)


class Rows(NamedTuple):
    """Records as a store takes them: each has a key and counts something. Sensitive.

    Attributes
    ----------
    table : pyarrow.Table
        ``owner`` where the unit is a user, ``key``, and ``units`` unless each row counts once. It shares no memory with
        what a caller may change later.
    skipped : int
        The number of records without a key or a user.
    kept : numpy.ndarray of bool, or None
        Which records have both; None if all have, or records were counted together.
    """

    table: pa.Table
    skipped: int = 0
    kept: npt.NDArray[np.bool_] | None = None


def rows_of(keys: pa.ChunkedArray, users: pa.ChunkedArray | None = None, units: Integers | None = None) -> Rows:
    """Return records as rows of a store; ``units`` are 0 or more, one number a record."""
    if users is None and units is None:
        return _counted(keys)
    columns = {"key": plain_column(keys)}
    if users is not None:
        columns = {"owner": plain_column(users), **columns}
    kept = np.logical_and.reduce([_valid(column) for column in columns.values()])
    there = kept
    if units is not None:
        columns["units"] = pa.chunked_array([_to_arrow(units)])
        there = kept & (units > 0)
    table = pa.table(columns)
    table = _copied(table) if there.all() else table.take(_to_arrow(np.flatnonzero(there)))
    return Rows(table, len(kept) - int(np.count_nonzero(kept)), kept)


def _counted(keys: pa.ChunkedArray) -> Rows:
    """Return the different keys of records, with how many records each has."""
    found: list[tuple[pa.ChunkedArray, Integers]] = []
    plain, skipped = [], 0
    for chunk in keys.chunks:
        if not pa.types.is_dictionary(chunk.type) or len(chunk.dictionary) > len(chunk):
            plain.append(chunk)
            continue
        codes = dictionary_codes(chunk)
        codes = codes[valid_rows(chunk.indices)] if chunk.indices.null_count else codes
        skipped += len(chunk) - len(codes)
        values = plain_column(pa.chunked_array([chunk.dictionary]))
        found.append((values, np.bincount(codes, minlength=len(values))))
    counted = plain_column(pa.chunked_array(plain, keys.type)).value_counts()
    found.append((pa.chunked_array([counted.field("values")]), to_numpy(counted.field("counts"))))
    tables = []
    for values, numbers in found:
        valid = _valid(values)
        skipped += int(numbers[~valid].sum())
        there = np.flatnonzero(valid & (numbers > 0))
        tables.append(pa.table({"key": values.take(_to_arrow(there)), "units": _to_arrow(numbers[there])}))
    return Rows(pa.concat_tables(tables), skipped)


class Store:
    """Keys with units, or users with keys and units. Sensitive.

    Parameters
    ----------
    by_user : bool
        Whether rows have users.
    most : int
        The units that count of one user on one key.
    limit : Limit, optional
        How much memory the store may take. Beyond it rows go to a folder that only its owner can open, and that is
        removed with the store, at the latest with its process. Without a limit nothing goes to disk.

    Attributes
    ----------
    key_type, owner_type : {"int", "text"} or None
        The types of keys and users; None before there are any.
    """

    def __init__(self, *, by_user: bool, most: int = 1, limit: Limit | None = None) -> None:
        self.by_user, self.most, self.limit = by_user, most, limit
        self.key_type: KeyType | None = None
        self.owner_type: KeyType | None = None
        self._names = ["owner", "key"] if by_user else ["key"]
        # A pair that counts once at most has no units.
        self._columns = [*self._names, "units"] if most > 1 or not by_user else self._names
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._kept = self._settled = 0  # rows of ``kept``, now and when equal ones were last put together
        self._database: PrivateDatabase | None = None
        self._tables: StoreTables | None = None

    def add(self, rows: Rows) -> None:
        """Add rows; the units of all rows together must not pass 2**62."""
        table = rows.table
        if not table.num_rows:
            return
        if "units" in self._columns and "units" not in table.column_names:
            table = table.append_column("units", _to_arrow(np.ones(table.num_rows)))
        self.key_type = key_type_of(table.schema.field("key").type)
        if self.by_user:
            self.owner_type = key_type_of(table.schema.field("owner").type)
        self._tables = None
        self._waiting.append(table.select(self._columns))
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        most = _WAITING_BYTES if self.limit is None else min(_WAITING_BYTES, self.limit.size // 16)
        if self._waiting_rows >= _WAITING_ROWS or self._waiting_bytes >= most:
            self._insert()

    def merge(self, other: Store) -> None:
        """Add all rows of another store, which stays as it is."""
        if other._kept:
            for batch in other._opened().stream("FROM kept"):
                columns = {name: plain_column(pa.chunked_array([batch.column(name)])) for name in self._columns}
                self.add(Rows(pa.table(columns)))
        for table in other._waiting:
            self.add(Rows(table))

    def tables(self) -> StoreTables:
        """Return the tables of all rows, which are good until the next row comes."""
        if self._tables is None:
            self._make_tables()
            self._tables = StoreTables(self._opened(), self.by_user, self.key_type or "text", self.limit)
        return self._tables

    def _opened(self) -> PrivateDatabase:
        if self._database is None:
            self._database = PrivateDatabase(self.limit)
        return self._database

    def _create(self) -> None:
        """Make ``kept``, without rows."""
        columns = ", ".join(f"{name} {self._kind(name)}" for name in self._columns)
        self._opened().run(f"CREATE OR REPLACE TABLE kept ({columns})")

    def _kind(self, name: str) -> str:
        """Return the type of a column of ``kept``."""
        types = {"owner": self.owner_type, "key": self.key_type}
        return _SQL_TYPES[types[name] or "text"] if name in types else "BIGINT"

    def _insert(self) -> None:
        """Put the rows that wait into ``kept``."""
        if not self._kept:
            self._create()
        # Records wait as counted batches, which have many keys in common.
        query = "FROM waiting" if self.by_user else self._together("waiting")
        with self._opened().given(waiting=pa.concat_tables(self._waiting)) as run:
            self._kept += run(f"INSERT INTO kept {query}")
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
            if self._kept - self._settled > max(_SETTLED_ROWS, self._settled):
                run(f"CREATE OR REPLACE TABLE settled AS {self._together('kept')}")
                run("BEGIN; DROP TABLE kept; ALTER TABLE settled RENAME TO kept; COMMIT")
                self._kept = self._settled = run("SELECT count(*) FROM kept")

    def _together(self, rows: str) -> str:
        """Return the query for each key, or pair, once; a clipped sum does not depend on the order of its terms."""
        names = ", ".join(self._names)
        if "units" not in self._columns:
            return f"SELECT DISTINCT {names} FROM {rows}"
        return f"SELECT {names}, {self._summed} AS units FROM {rows} GROUP BY {names}"

    @property
    def _summed(self) -> str:
        """The units of all rows of a key, or pair, in SQL."""
        units = "sum(units)" if "units" in self._columns else "1"
        return f"CAST({f'least({units}, {self.most})' if self.by_user else units} AS BIGINT)"

    def _make_tables(self) -> None:
        """Make ``keys``, or ``keys``, ``people`` and ``pairs``, of all rows.

        The statements are many because one that groups and sorts at once needs the memory of both.
        """
        if not self._kept:
            self._create()
        rows = "(FROM kept UNION ALL FROM waiting)" if self._waiting else "kept"
        waiting = {"waiting": pa.concat_tables(self._waiting).combine_chunks()} if self._waiting else {}
        with self._opened().given(**waiting) as run:
            self._make_keys(run, rows, "" if self.by_user else f", {self._summed} AS units")
            if self.by_user:
                self._make_people(run, rows)
                run(
                    f"""CREATE OR REPLACE TABLE pairs AS
                    SELECT person, place, {self._summed} AS units, {pair_print("p.print", "k.print")} AS print
                    FROM {rows} AS r JOIN keys AS k ON r.key = k.key JOIN people AS p ON r.owner = p.owner
                    GROUP BY person, place, p.print, k.print"""
                )

    def _make_keys(self, run: Callable[[str], int], rows: str, more: str) -> None:
        """Make ``keys``: each key once, with its place in their order."""
        run(f"CREATE OR REPLACE TABLE grouped AS SELECT key{more} FROM {rows} GROUP BY key")
        key = "key"
        if self.key_type == "text":  # valid UTF-8 has the order of its bytes, and is sorted in half the time
            run("CREATE OR REPLACE TABLE texts AS SELECT * REPLACE (TRY(decode(key)) AS key) FROM grouped")
            if not run("SELECT count(*) FROM texts WHERE key IS NULL"):
                key = "encode(key)"
                run("DROP TABLE grouped; ALTER TABLE texts RENAME TO grouped")
        run("CREATE OR REPLACE TABLE sorted AS FROM grouped ORDER BY key")
        prints = f", print_{self.key_type or 'text'}({key}) AS print" if self.by_user else ""
        place = f"row_number() OVER () - 1 AS place{prints}"
        run(f"CREATE OR REPLACE TABLE keys AS SELECT * REPLACE ({key} AS key), {place} FROM sorted")
        run("DROP TABLE grouped; DROP TABLE sorted")

    def _make_people(self, run: Callable[[str], int], rows: str) -> None:
        """Make ``people``: each user once, with a number of its own."""
        person = f"row_number() OVER () - 1 AS person, print_{self.owner_type or 'text'}(owner) AS print"
        run(f"CREATE OR REPLACE TABLE grouped AS SELECT DISTINCT owner FROM {rows}")
        run(f"CREATE OR REPLACE TABLE people AS SELECT *, {person} FROM grouped")
        run("DROP TABLE grouped")

    def to_document(self) -> tuple[dict[str, Any], dict[str, files.Array]]:
        """Return the fields of a header, and arrays, in an order that does not depend on how records came."""
        header: dict[str, Any] = {"key_type": self.key_type, "owner_type": self.owner_type}
        if self.key_type is None:
            return {**header, "mass": "0"}, {}
        tables = self.tables()
        arrays = stored_column("key", tables.column("SELECT key FROM keys ORDER BY place"))
        if self.by_user:
            arrays |= stored_column("owner", tables.column("SELECT owner FROM people ORDER BY owner"))
            (people,) = tables.whole("SELECT person FROM people ORDER BY owner")
            turns = np.empty_like(people)
            turns[people] = np.arange(len(people))
            persons, places, units = tables.whole("SELECT person, place, units FROM {pairs}")
            order = np.lexsort((places, turns[persons]))
            arrays["rows_owner"], places, units = turns[persons][order], places[order], units[order]
        else:
            places, units = tables.whole("SELECT place, units FROM {keys} ORDER BY place")
        arrays["rows_key"] = places
        if "units" in self._columns:
            arrays["rows_units"] = units
        return {**header, "mass": str(checked_total(0, units, 1, len(units)))}, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> int:
        """Take the rows of :meth:`to_document`, and return the sum of their units; anyone may have written the file.

        Names or rows that repeat, or stand in another order, do no harm: they are put together as all rows are.
        """
        if header["key_type"] is None:
            return 0
        names = {name: read_column(arrays, name, header[f"{name}_type"]) for name in self._names}
        rows = {name: read_integers(arrays, f"rows_{name}", 0, len(column) - 1) for name, column in names.items()}
        n = len(rows["key"])
        units, high = np.ones(n, np.int64), self.most if self.by_user else COUNTER_LIMIT
        if "units" in self._columns:
            units = read_integers(arrays, "rows_units", 1, high)
        if any(len(each) != n for each in (*rows.values(), units)):
            raise _not_ours()
        try:
            total = checked_total(0, units, 1, n)
        except CounterOverflow:
            raise _not_ours() from None
        for start in range(0, n, _BATCH):
            part = slice(start, start + _BATCH)
            columns = {name: column.take(_to_arrow(rows[name][part])) for name, column in names.items()}
            self.add(Rows(pa.table({**columns, "units": _to_arrow(units[part])})))
        return total


class StoreTables:
    """The tables of a store, as :class:`~dpsketch.laws.groups.GroupTables` asks them. Sensitive."""

    def __init__(self, database: PrivateDatabase, by_user: bool, key_type: KeyType, limit: Limit | None) -> None:
        self._database, self._key_type = database, key_type
        self._parts = 1
        if by_user and limit is not None:
            self._parts = 1 + _RANKED_BYTES * database.run("SELECT count(*) FROM pairs") // limit.size

    def numbers(self, query: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        """Run a query, and yield its columns, all of whole numbers."""
        given = {name: _arrow_table(columns) for name, columns in tables.items()}
        for batch in self._database.stream(_named(query), **given):
            yield tuple(to_numpy(column) for column in batch.columns)

    def make(self, name: str, query: str, **tables: dict[str, Integers]) -> None:
        """Keep the rows of a query as a table of this name."""
        with self._database.given(**{name: _arrow_table(columns) for name, columns in tables.items()}) as run:
            run(f"CREATE OR REPLACE TABLE {name} AS {_named(query)}")

    def whole(self, query: str) -> list[Integers]:
        """Return the columns of a query, all of whole numbers, at once."""
        batches = list(self.numbers(query))
        return [np.concatenate(column) for column in zip(*batches, strict=True)]

    def summed(self, chosen: str, **tables: dict[str, Integers]) -> Iterator[tuple[Integers, ...]]:
        """Yield sums of units by place, in the order of the places; people are chosen from in parts that fit."""
        together = "SELECT place, CAST(sum(units) AS BIGINT) AS units FROM ({}) AS c GROUP BY place"
        if self._parts == 1:
            query = together.format(chosen.replace("{some}", "true"))
        else:
            given = {name: _arrow_table(columns) for name, columns in tables.items()}
            with self._database.given(**given) as run:
                run("CREATE OR REPLACE TABLE chosen (place BIGINT, units BIGINT)")
                for part in range(self._parts):
                    some = together.format(chosen.replace("{some}", f"person % {self._parts} = {part}"))
                    run(f"INSERT INTO chosen {_named(some)}")
            query = together.format("FROM chosen")
        return self.numbers(f"{query} ORDER BY place", **tables)

    def find(self, names: list[Any]) -> Integers:
        """Return the places of keys by their names, −1 for one that nobody has."""
        found = np.full(len(names), -1, np.int64)
        if names and isinstance(names[0], int) == (self._key_type == "int"):
            keys = pa.array(names, _ARROW_TYPES[self._key_type])
            asked = pa.table({"row": _to_arrow(np.arange(len(names))), "key": keys})
            query = "SELECT asked.row, keys.place FROM keys JOIN asked ON keys.key = asked.key"
            for batch in self._database.stream(query, asked=asked):
                found[to_numpy(batch.column(0))] = to_numpy(batch.column(1))
        return found

    def names(self, places: Integers) -> list[Any]:
        """Return the names of the keys at these places, which increase: integers, texts, or bytes that are no text."""
        query = "SELECT keys.key FROM keys JOIN asked ON keys.place = asked.place ORDER BY keys.place"
        column = self.column(query, asked=_arrow_table({"place": places}))
        names = column.to_pylist()
        return names if self._key_type == "int" else [text_or_bytes(name) for name in names]

    def stream(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a query as it comes."""
        return self._database.stream(query)

    def column(self, query: str, **tables: pa.Table) -> pa.Array:
        """Return the keys or users that a query returns."""
        batches = [batch.column(0) for batch in self._database.stream(query, **tables)]
        kind = batches[0].type if batches else _ARROW_TYPES[self._key_type]
        return one_array(plain_column(pa.chunked_array(batches, kind)))


class PrivateDatabase:
    """The DuckDB of a store, and the folder that it may write to."""

    def __init__(self, limit: Limit | None) -> None:
        load()
        with ExitStack() as stack:
            folder = "" if limit is None else stack.enter_context(private_folder(limit.temp_directory))
            size = None if limit is None else f"{limit.size // 2 // 10**6}MB"  # Arrow and the rest need memory too
            self._connection = _run(lambda: connect(memory_limit=size, temp_directory=folder))
            stack.callback(self._connection.close)
            if limit is not None and limit.size < _TWO_THREADS:
                self.run("SET threads = 1")
            create: Any = self._connection.create_function
            for name, function, kinds in _FUNCTIONS:
                create(name, function, kinds, "BIGINT", type="arrow")
            weakref.finalize(self, _close, os.getpid(), stack.pop_all())
        _OPEN.add(self)

    def run(self, statement: str) -> int:
        """Run a statement, and return the first number of its answer."""
        answer = _run(lambda: self._connection.execute(statement).fetchall())  # an unread answer blocks the next
        return int(answer[0][0]) if answer and isinstance(answer[0][0], int) else 0

    @contextmanager
    def given(self, **tables: pa.Table) -> Iterator[Callable[[str], int]]:
        """Give the tables to the statements of a block."""
        for name, table in tables.items():
            _run(lambda: self._connection.register(name, table))  # noqa: B023
        try:
            yield self.run
        finally:
            for name in tables:
                _run(lambda: self._connection.unregister(name))  # noqa: B023

    def stream(self, query: str, **tables: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a query as it comes."""
        with self._connection.cursor() as cursor:
            for name, table in tables.items():
                _run(lambda: cursor.register(name, table))  # noqa: B023
            reader = _run(lambda: cursor.sql(query).to_arrow_reader(_BATCH))
            while (batch := _run(lambda: next(reader, None))) is not None:
                yield batch


_OPEN: weakref.WeakSet[PrivateDatabase] = weakref.WeakSet()


def _close(process: int, stack: ExitStack) -> None:
    if os.getpid() == process:
        stack.close()


def _keep_open() -> None:
    """Keep databases open in a forked child: to close one waits for threads that the child does not have."""
    for database in _OPEN:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_keep_open)


def prints_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the fingerprints of keys or users."""
    array = one_array(column)
    found = np.empty(len(array), np.uint64)
    hash_array(array, found)
    return _to_arrow(found.view(np.int64))


def _words(seeds: pa.Array | pa.ChunkedArray, prints: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ``xxhash64`` of a seed, which is the same in all rows, and a print, as Spark computes it."""
    values = to_numpy(prints).view(np.uint64)
    start, found = np.empty(1, np.uint64), np.empty(len(values), np.uint64)
    if len(values):
        hash_integers(to_numpy(seeds)[:1].view(np.uint64), FINGERPRINT_SEED, start)
        hash_integers(values, start[0], found)
    return _to_arrow(found.view(np.int64))


_FUNCTIONS = (
    ("print_int", prints_of, ["BIGINT"]),
    ("print_text", prints_of, ["BLOB"]),
    ("xxhash64", _words, ["BIGINT", "BIGINT"]),
)


def _run(step: Callable[[], T]) -> T:
    """Run a step of DuckDB, whose errors may quote records."""
    return guarded(
        step,
        lambda error: SourceError(
            f"the records could not be grouped ({type(error).__name__}). Most likely the memory or the temporary "
            "directory is too small. Give memory_limit= and temp_directory=, or larger ones."
        ),
    )


class _Names(dict[str, str]):
    """The names of tables in queries, which are their own."""

    def __missing__(self, name: str) -> str:
        return name


def _named(query: str) -> str:
    return query.format_map(_Names())


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return keys or users without dictionaries: integers of 64 bits, or the bytes of texts. Nulls stay."""
    kind = _ARROW_TYPES[key_type_of(column.type) or "text"]
    return pa.chunked_array([_plain_array(chunk, kind) for chunk in column.chunks], kind)


def _plain_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _plain_array(array.dictionary, kind).take(array.indices)
    return array.view(kind) if pa.types.is_uint64(array.type) else array.cast(kind)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _copied(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.concatenate([valid_rows(chunk) for chunk in column.chunks])


def _arrow_table(columns: Mapping[str, Integers]) -> pa.Table:
    return pa.table({name: _to_arrow(column) for name, column in columns.items()})


def _to_arrow(values: Any) -> pa.Array:
    """Return whole numbers as Arrow has them, without a copy; Arrow's own conversion imports pandas."""
    whole = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def to_numpy(column: pa.Array | pa.ChunkedArray) -> Integers:
    """Return int64 without nulls as NumPy has it; Arrow's own conversion imports pandas."""
    array = one_array(column)
    return np.frombuffer(array.buffers()[1] or b"", np.int64, len(array), array.offset * 8)


def stored_column(name: str, column: pa.Array) -> dict[str, files.Array]:
    """Return keys or users as arrays of a file: integers, or the bytes of all texts and the edges between them."""
    if pa.types.is_integer(column.type):
        return {f"{name}_numbers": to_numpy(column)}
    data, edges = text_buffers(column)
    return {f"{name}_bytes": data[edges[0] : edges[-1]], f"{name}_edges": edges - edges[0]}


def read_column(arrays: Mapping[str, Any], name: str, kind: object) -> pa.Array:
    """Return what :func:`stored_column` wrote; anyone may have written the file."""
    if kind == "int":
        return _to_arrow(read_integers(arrays, f"{name}_numbers", -(2**63), 2**63 - 1))
    edges = read_integers(arrays, f"{name}_edges", 0, 2**62)
    data: Any = arrays.get(f"{name}_bytes")
    good = kind == "text" and isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1
    if not good or not len(edges) or edges[0] != 0 or edges[-1] != len(data) or (np.diff(edges) < 0).any():
        raise _not_ours()
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)


def read_integers(arrays: Mapping[str, Any], name: str, low: int, high: int) -> Integers:
    array: Any = arrays.get(name)
    good = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == np.int64
    if not good or (len(array) and not low <= int(array.min()) <= int(array.max()) <= high):
        raise _not_ours()
    return np.ascontiguousarray(array)


def _not_ours() -> FileRefused:
    return FileRefused("the file's records are not ones that dpsketch writes.")
