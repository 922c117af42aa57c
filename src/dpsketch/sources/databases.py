"""Tables and queries of SQLite and PostgreSQL, streamed and never written to.

A column's type is the one that the database declares. PostgreSQL's driver for Arrow gives it with the result. SQLite
declares types of tables only, and its rows may hold others: a column whose declared type has no numbers, and every
column of a query, is text, a whole number its decimal digits.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from dpsketch.errors import SourceError
from dpsketch.sources.failures import check_columns, guarded, guarded_steps, unreadable
from dpsketch.sources.formats import Piece, nothing_of
from dpsketch.sources.locations import HEAD_BYTES, Database, magic
from dpsketch.sources.values import Columns

# Rows of SQLite are Python objects, of some hundred bytes each.
_MOST_ROWS = 32768
# PostgreSQL's numeric has up to 76 digits here; without a declared scale, thirty of them behind the point.
_DIGITS, _SCALE = 76, 30

# Messages of the drivers quote values; the codes of SQLSTATE and the first words of SQLite do not.
_CAUSES = {
    "42P01": "a table does not exist",
    "42703": "a column does not exist",
    "42601": "the SQL has a syntax error",
    "42501": "this user may not read it",
    "25006": "the query writes, and a source is only read",
    "0A000": "the query writes, or cannot be read step by step",
    "22P02": "a value does not convert to the type asked for",
    "3D000": "the database does not exist",
    "28P01": "the password is wrong",
    "28000": "this user may not connect",
    "no such table": "a table does not exist",
    "no such column": "a column does not exist",
    "attempt to write": "the query writes, and a source is only read",
    "database is locked": "another process has locked it",
    "file is not a database": "the file is not a database",
    "database disk image": "the file is damaged",
    "Could not decode to UTF-8": "it holds text that is not UTF-8",
    "near ": "the SQL has a syntax error",
    "incomplete input": "the SQL has a syntax error",
}


def read_database(location: Database, columns: Columns, batch_rows: int) -> Generator[Piece, None, None]:
    """Read a table or the result of a query; the count beside each batch is of rows."""
    return guarded_steps(_pieces(location, columns, batch_rows), lambda error: _explain(error, location))


def _pieces(location: Database, columns: Columns, batch_rows: int) -> Generator[Piece, None, None]:
    done = 0
    with closing(_connected(location)) as connection, closing(connection.cursor()) as cursor:
        if location.system == "sqlite":
            schema, batches = _sqlite(cursor, location, columns, batch_rows)
        else:
            schema, batches = _postgresql(cursor, location, columns)
        for batch in batches:
            done += batch.num_rows
            yield batch, done
        yield nothing_of(schema), done


def _connected(location: Database) -> Any:
    if location.system == "sqlite":
        path = Path(location.url.partition("?")[0].removeprefix("/"))
        place = f"{str(path)!r} (SQLite)"

        def first_bytes() -> bytes:
            with path.open("rb") as stream:
                return stream.read(HEAD_BYTES)

        head = guarded(first_bytes, lambda error: unreadable(place, error))
        if magic(head) != "an SQLite database":
            looks = magic(head) or ("nothing: it is empty" if not head else "text, or is damaged")
            raise SourceError(f"{place} is not an SQLite database: it looks like {looks}. Check the name.")
        return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, check_same_thread=False)
    if importlib.util.find_spec("adbc_driver_postgresql") is None:
        raise SourceError("reading PostgreSQL needs its driver: pip install 'dpsketch[postgres]'.")
    import adbc_driver_postgresql.dbapi

    return adbc_driver_postgresql.dbapi.connect(f"postgresql://{location.url}")


def _statement(location: Database, wanted: str) -> str:
    """Return the query that a location means; of a table, the columns wanted."""
    if location.table is None:
        return str(location.query)
    schema, _, name = location.table.rpartition(".") if location.system == "postgresql" else ("", "", location.table)
    return f"SELECT {wanted} FROM {f'{_quoted(schema)}.' if schema else ''}{_quoted(name)}"


def _postgresql(cursor: Any, location: Database, columns: Columns) -> tuple[Any, Iterator[Any]]:
    cursor.execute("SET TRANSACTION READ ONLY")
    names = cursor.adbc_execute_schema(_statement(location, "*")).names
    check_columns(str(location), names, columns, declared=True)
    cursor.execute(_statement(location, ", ".join(map(_quoted, columns.names))))
    reader = cursor.fetch_record_batch()
    fields = [reader.schema.field(name) for name in columns.names]
    schema = pa.schema([(field.name, _kind(field)) for field in fields])

    def typed(batch: Any) -> Any:
        arrays = [_as(batch.column(field.name), kind) for field, kind in zip(fields, schema.types, strict=True)]
        arrays = [
            pc.utf8_rtrim(array, characters=" ") if _declared(field) == b"bpchar" else array
            for array, field in zip(arrays, fields, strict=True)
        ]  # blanks at the end of char(n) mean nothing: with them one person could be several
        return pa.record_batch(arrays, schema=schema)

    return schema, map(typed, reader)


def _kind(field: Any) -> Any:
    """Return the type of a column of PostgreSQL, whose numeric comes as text."""
    match _declared(field):
        case b"numeric":
            modifier = int(field.metadata.get(b"POSTGRESQL:typmod", b"-1"))  # the declared digits and scale, -1 without
            # The scale has eleven bits, the first of which is its sign.
            scale = _SCALE if modifier < 0 else max(0, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400)
            if scale > _DIGITS:
                raise SourceError(
                    f"column {field.name!r} has more than {_DIGITS} digits behind the point. Cast it in a query."
                )
            return pa.decimal256(_DIGITS, scale)
        case b"oid":
            return pa.uint32()
        case b"money":  # comes as a number of cents, or of whatever the server's locale has
            raise SourceError(
                f"column {field.name!r} has the type money. Cast it in a query, as in CAST(x AS numeric)."
            )
        case _:
            return field.type


def _declared(field: Any) -> Any:
    return (field.metadata or {}).get(b"POSTGRESQL:type")


def _as(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    return column.view(kind) if pa.types.is_integer(kind) else column.storage.cast(kind)


def _sqlite(cursor: Any, location: Database, columns: Columns, batch_rows: int) -> tuple[Any, Iterator[Any]]:
    declared = {}
    if location.table is not None:
        declared = {row[1]: row[2].upper() for row in cursor.execute(f"PRAGMA table_xinfo({_quoted(location.table)})")}
        if not declared:
            raise _absent(location)
        check_columns(str(location), list(declared), columns, declared=True)
    cursor.execute(_statement(location, ", ".join(map(_quoted, columns.names))))
    names = [each[0] for each in cursor.description or ()]
    check_columns(str(location), names, columns, declared=True)
    schema = pa.schema([(name, _affinity(name, declared.get(name, ""), columns)) for name in columns.names])

    def batches() -> Iterator[Any]:
        while rows := cursor.fetchmany(min(batch_rows, _MOST_ROWS)):
            held = dict(zip(names, zip(*rows, strict=True), strict=True))
            arrays = [
                guarded(lambda: _array(held[name], kind), lambda _: _mixed(name, location))  # noqa: B023
                for name, kind in zip(schema.names, schema.types, strict=True)
            ]
            yield pa.record_batch(arrays, schema=schema)

    return schema, batches()


def _affinity(name: str, declared: str, columns: Columns) -> Any:
    """Return the type of a column of SQLite by its declared type, as SQLite reads that."""
    if name not in columns.identities or any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    if "INT" in declared:
        return pa.int64()
    return pa.binary() if "BLOB" in declared else pa.string()


def _array(values: tuple[Any, ...], kind: Any) -> Any:
    """Return values of SQLite as a column, if all of them are of its type; a number may be digits where text is."""
    fitting = {"int64": int, "double": int | float, "binary": bytes, "string": int | str}[str(kind)]
    if not all(value is None or isinstance(value, fitting) for value in values):
        raise TypeError
    turn = {"double": float, "string": str}.get(str(kind))
    return pa.array(values if turn is None else [None if value is None else turn(value) for value in values], kind)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _mixed(name: str, location: Database) -> SourceError:
    return SourceError(
        f"{location}: column {name!r} mixes types, or holds one that is no key. Convert it in a query, with CAST."
    )


def _absent(location: Database) -> SourceError:
    return SourceError(f"{location} does not exist, or this user may not see it. Check its name and schema.")


def _explain(error: Exception, location: Database) -> SourceError:
    words = str(error)
    # What goes wrong after the first rows has no code.
    code = "25006" if "read-only transaction" in words else str(getattr(error, "sqlstate", None))
    cause = next((text for start, text in _CAUSES.items() if code == start or words.startswith(start)), None)
    if location.table is not None and code == "42P01":
        return _absent(location)
    return SourceError(
        f"{location} could not be read: {cause or type(error).__name__}. Check the address and the SQL, and try it in "
        "the database's own shell."
    )
