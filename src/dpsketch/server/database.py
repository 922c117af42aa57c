"""The database under a store: how it is opened, and how rows are written into it at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from dpsketch.errors import InvalidInput
from dpsketch.server.failures import storage_failed

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["copy_rows", "locate", "open_database"]

_PATIENCE = 30  # seconds to wait for another process, such as one that makes a token


def locate(url: str) -> tuple[Path | None, URL]:
    """Return the file, of a SQLite store, and the address of the store; nothing is opened or made."""
    expected = "a store is a path, sqlite:///path or postgresql://user@host/database"
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except ArgumentError:
        raise InvalidInput(f"{expected}.") from None
    match parsed.get_backend_name():
        case "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise InvalidInput("a store must outlive the process: give it a file, as in sqlite:///reports.db.")
            file = Path(str(parsed.database)).expanduser().absolute()
            if not file.parent.is_dir():
                raise InvalidInput(f"the folder {file.parent} does not exist; make it first.")
            return file, URL.create("sqlite", database=str(file))
        case "postgresql" | "postgres":
            return None, parsed.set(drivername="postgresql+psycopg")
        case other:
            raise InvalidInput(f"{expected}, not {other!r}.")


def open_database(url: str) -> tuple[Path | None, Engine]:
    """Return the file, of a SQLite store, and the engine that connects to the store."""
    file, address = locate(url)
    if file is None:
        try:
            return None, create_engine(address, pool_pre_ping=True)
        except ModuleNotFoundError:
            raise InvalidInput("a store in PostgreSQL needs psycopg: pip install 'dpsketch[postgres]'.") from None
    # Readable by its owner only, from its first byte on.
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    engine = create_engine(address, connect_args={"timeout": _PATIENCE})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return file, engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # BEGIN is ours
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("dpsketch_begin", "BEGIN"))


def copy_rows(connection: Connection, rows: list[tuple[int, str, int, bytes]]) -> None:
    """Write rows of reports by PostgreSQL's COPY, in its binary form."""
    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor, cursor.copy("COPY dpsketch_chunk FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "text", "int8", "bytea"])
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:
        failure = storage_failed(error)  # SQLAlchemy does not see it, so that it would be psycopg's own
    else:
        return
    raise failure
