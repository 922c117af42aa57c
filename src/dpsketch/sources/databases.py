"""Tables and queries of SQLite and PostgreSQL, streamed from the server and never written to."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa

from dpsketch.canonical import is_canonical
from dpsketch.errors import SourceError
from dpsketch.sources.failures import guarded, guarded_iterator, missing_column, unreadable
from dpsketch.sources.locations import HEAD_BYTES, Database, magic
from dpsketch.sources.records import identities
from dpsketch.sources.text import Piece
from dpsketch.sources.values import Columns, KeyType, Place

# Rows are Python objects here, of some hundred bytes each.
_MOST_ROWS = 32768

# PostgreSQL's names of types: bigint, smallint, integer, oid, real, double precision; numeric.
_INTEGER_CODES = (20, 21, 23, 26, 700, 701)
_NUMERIC_CODE = 1700
_REAL_CODE = 700

# Messages of the drivers quote values; the codes of SQLSTATE and the first words of SQLite do not.
_CAUSES = {
    "42P01": "a table does not exist",
    "42703": "a column does not exist",
    "42601": "the SQL has a syntax error",
    "42501": "this user may not read it",
    "25006": "the query writes, and a source is only read",
    "0A000": "the query writes, or cannot be read step by step",
    "3D000": "the database does not exist",
    "28P01": "the password is wrong",
    "28000": "this user may not connect",
    "no such table": "a table does not exist",
    "no such column": "a column does not exist",
    "attempt to write": "the query writes, and a source is only read",
    "database is locked": "another process has locked it",
    "file is not a database": "the file is not a database",
    "database disk image": "the file is damaged",
    "near ": "the SQL has a syntax error",
    "incomplete input": "the SQL has a syntax error",
}


def read_database(location: Database, columns: Columns, batch_rows: int) -> Generator[Piece, None, None]:
    """Read a table or the result of a query; the count beside each batch is of rows."""

    def explain(error: Exception) -> SourceError:
        return _explain(error, location)

    place = Place(str(location), typed=True, checked=True)
    engine = guarded(lambda: _engine(location), explain)
    try:
        with guarded(engine.connect, explain) as connection:
            size = min(batch_rows, _MOST_ROWS)
            result, kinds = guarded(lambda: _execute(connection, location, columns, size), explain)
            with closing(result):
                names = list(result.keys())
                _check_names(names, columns, location)
                at = [names.index(name) for name in columns.names]
                fixed = {
                    name: "text" if columns.compound else columns.key_type or _key_type(result, kinds, name)
                    for name in columns.parts
                }
                described = {each[0]: each for each in result.cursor.description or ()}
                narrow = {name for name, each in described.items() if each[1] == _REAL_CODE}
                loose = {name for name, each in described.items() if each[1] == _NUMERIC_CODE and each[5] != 0}
                done = 0
                numbers: dict[str, set[bool]] = {name: set() for name in columns.parts}

                def batch(values: Sequence[Sequence[Any]]) -> Any:
                    arrays = {names[i]: _column(values[i], names[i], location, names[i] in narrow) for i in at}
                    if columns.user is not None and columns.user in loose:
                        arrays[columns.user] = _with_fraction(arrays[columns.user], columns.user, location)
                    for name in columns.parts:
                        kind = arrays[name].type
                        numbers[name].update([] if pa.types.is_null(kind) else [pa.types.is_integer(kind)])
                        if len(numbers[name]) > 1:
                            raise _mixed(name, location)
                        arrays[name] = identities(arrays[name], name, "key", fixed[name], place)
                    return pa.record_batch(list(arrays.values()), names=list(arrays))

                # SQLAlchemy ignores the option yield_per for a query given as text, and then fetches single rows.
                for rows in guarded_iterator(result.yield_per(size).partitions(), explain):
                    done += len(rows)
                    yield batch(list(zip(*rows, strict=True))), done
                yield batch([()] * len(names)), done
    finally:
        engine.dispose()


def _engine(location: Database) -> Any:
    import sqlalchemy

    if location.system == "sqlite":
        return _sqlite_engine(location)
    if importlib.util.find_spec("psycopg") is None:
        raise SourceError("reading PostgreSQL needs its driver: pip install 'dpsketch[postgres]'.")
    url = sqlalchemy.make_url(f"postgresql+psycopg://{location.url}")
    return sqlalchemy.create_engine(
        url,
        poolclass=sqlalchemy.pool.NullPool,
        isolation_level="REPEATABLE READ",
        execution_options={"postgresql_readonly": True},
    )


def _sqlite_engine(location: Database) -> Any:
    import sqlalchemy

    path = Path(location.url.partition("?")[0].removeprefix("/"))
    place = f"{str(path)!r} (SQLite)"

    def first_bytes() -> bytes:
        with path.open("rb") as stream:
            return stream.read(HEAD_BYTES)

    head = guarded(first_bytes, lambda error: unreadable(place, error))
    if magic(head) != "an SQLite database":
        looks = magic(head) or ("nothing: it is empty" if not head else "text, or is damaged")
        raise SourceError(f"{place} is not an SQLite database: it looks like {looks}. Check the name.")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlalchemy.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(address, uri=True, check_same_thread=False),
        poolclass=sqlalchemy.pool.NullPool,
    )


def _execute(connection: Any, location: Database, columns: Columns, batch_rows: int) -> tuple[Any, dict[str, Any]]:
    """Return the rows as they come, and the declared types of a table's columns."""
    import sqlalchemy

    # no_parameters: otherwise a % in the query would be taken for a placeholder.
    options = {"stream_results": True, "yield_per": batch_rows, "no_parameters": True}
    if location.table is None:
        return connection.exec_driver_sql(location.query, execution_options=options), {}
    schema, dot, name = location.table.rpartition(".") if location.system == "postgresql" else ("", "", location.table)
    try:
        declared = sqlalchemy.inspect(connection).get_columns(name, schema=schema if dot else None)
    except sqlalchemy.exc.NoSuchTableError:
        declared = None
    if declared is None:
        raise SourceError(f"{location} does not exist, or this user may not see it. Check its name and schema.")
    _check_names([column["name"] for column in declared], columns, location)
    table = sqlalchemy.table(name, schema=schema if dot else None)
    query: Any = sqlalchemy.select(*(sqlalchemy.column(wanted) for wanted in columns.names)).select_from(table)
    return connection.execute(query, execution_options=options), {each["name"]: each["type"] for each in declared}


def _key_type(result: Any, kinds: dict[str, Any], name: str) -> KeyType:
    """Say what keys are by the declared type of their column: text where it is no whole number, or nothing is declared.

    PostgreSQL types the columns of every result. SQLite types those of tables only, and there a type is a wish.
    """
    import sqlalchemy

    described = next((each for each in result.cursor.description or () if each[0] == name), None)
    code, scale = (None, None) if described is None else (described[1], described[5])
    whole = code in _INTEGER_CODES or (code == _NUMERIC_CODE and scale == 0)
    return "int" if whole or isinstance(kinds.get(name), sqlalchemy.Integer | sqlalchemy.Float) else "text"


def _check_names(names: list[str], columns: Columns, location: Database) -> None:
    for name in columns.names:
        if name not in names:
            raise missing_column(str(location), name, names, declared=True)
        if names.count(name) > 1:
            raise SourceError(f"{location} has two columns named {name!r}. Give each its own name.")


def _column(values: Sequence[Any], name: str, location: Database, narrow: bool) -> Any:
    """Return values as a column; ``narrow`` floats have 32 bits in the database, and 64 in Python."""

    def array() -> Any:
        ids = any(isinstance(value, UUID) for value in values)
        kind = pa.uuid() if ids else pa.float32() if narrow else None
        found = pa.array([value.bytes if isinstance(value, UUID) else value for value in values], kind)
        # Arrow reads dates of a mixture as times, and booleans as numbers.
        if not is_canonical(found.type) and len({type(value) for value in values} - {type(None)}) > 1:
            raise _mixed(name, location)
        return found

    return guarded(
        array,
        lambda _: _mixed(name, location),
    )


def _with_fraction(column: Any, name: str, location: Database) -> Any:
    """Return decimals with a digit after the point: batches of one column have one type, whatever their values."""
    kind = column.type
    if not pa.types.is_decimal(kind) or kind.scale > 0:
        return column
    return guarded(lambda: column.cast(pa.decimal256(kind.precision + 1, 1)), lambda _: _mixed(name, location))


def _mixed(name: str, location: Database) -> SourceError:
    return SourceError(
        f"{location}: column {name!r} mixes types, or holds one that is no key. Convert it in a query, with CAST."
    )


def _explain(error: Exception, location: Database) -> SourceError:
    original = getattr(error, "orig", None) or error
    code, words = str(getattr(original, "sqlstate", None)), str(original)
    cause = next((text for start, text in _CAUSES.items() if code == start or words.startswith(start)), None)
    if "Could not decode to UTF-8" in words:
        cause = "it holds text that is not UTF-8"
    return SourceError(
        f"{location} could not be read: {cause or type(original).__name__}. Check the address and the SQL, and try it "
        "in the database's own shell."
    )
