"""A connection to a SQLite file or a PostgreSQL database, by the driver itself: the standard library's, or psycopg.

Statements are written once, for both databases, with ``?`` where a value goes. Values never become part of a statement.
"""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from dpsketch.errors import InvalidInput, LedgerError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Connection", "DatabaseTable", "PostgresConnection", "SqliteConnection", "SqliteReading", "locate", "shown"]

# Seconds that a change waits for the one before it.
_PATIENCE = 120
_NUMBERS = {"format": "INTEGER", "rows": "BIGINT", "id": "BIGINT", "day": "BIGINT"}
# A server may be set to answer a COMMIT before it has written it, and would forget a charge in a crash.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"


def locate(url: str | Path) -> Path | dict[str, str]:
    """Return the absolute path of a SQLite file, or the options by which PostgreSQL's library reaches a database.

    A path, ``sqlite:///path`` or ``postgresql://user:password@host:port/database?option=value``, which that library
    takes apart. User, password, database, options and the path may be percent-encoded.
    """
    scheme, separator, rest = str(url).partition("://")
    if isinstance(url, Path) or not separator or scheme == "sqlite":
        path = unquote(rest.partition("/")[2].partition("?")[0]) if scheme == "sqlite" and separator else str(url)
        if path in ("", ":memory:"):
            raise InvalidInput("a ledger must outlive the process: give it a file, as in sqlite:///budget.db.")
        # Absolute, so that a process that changes its folder keeps its database.
        return Path(os.path.normpath(Path(path).expanduser().absolute()))
    if scheme not in ("postgresql", "postgres"):
        raise InvalidInput("a ledger is a path, sqlite:///path or postgresql://user@host/database.")
    errors = PostgresConnection.errors()
    from psycopg.conninfo import conninfo_to_dict

    try:
        options = {name: str(value) for name, value in conninfo_to_dict(str(url)).items()}
    except errors:  # it may quote a password
        options = {"host": "@"}
    # A password with one of these characters ends early, and its rest would be shown as a port, a host or a database.
    port = options.get("port", "").replace(",", "")
    if "@" in options.get("host", "") + options.get("dbname", "") or not (port.isdigit() or not port):
        raise InvalidInput(
            "a ledger's URL is postgresql://user:password@host:port/database?option=value, with options that "
            "PostgreSQL knows. An '@', a '/' or a '%' in a user or a password is written as %40, %2F or %25."
        )
    return options


def shown(place: Path | Mapping[str, str]) -> str:
    """Return where a database lies, for people, without its password."""
    if isinstance(place, Path):
        return str(place)
    user, host = quote(place.get("user", "")), place.get("host", "")
    who = f"{user}{':***' if 'password' in place else ''}"
    where = f"[{host}]" if ":" in host else quote(host, safe=",")
    port = f":{place['port']}" if "port" in place else ""
    return f"postgresql://{who}{'@' if who else ''}{where}{port}/{place.get('dbname', '')}"


class DatabaseTable(NamedTuple):
    """A table: its name, the columns of its key, and the others. Columns are text or numbers, and never null."""

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, those of the key first."""
        return self.key + self.others

    @property
    def definition(self) -> str:
        """The statement that makes the table."""
        columns = "".join(f"{column} {_NUMBERS.get(column, 'TEXT')} NOT NULL, " for column in self.columns)
        return f"CREATE TABLE {self.name} ({columns}PRIMARY KEY ({', '.join(self.key)}))"


class Connection(ABC):
    """A session. A transaction begins where :meth:`reading` or :meth:`writing` says so."""

    _placeholder: str
    _session: sqlite3.Connection | psycopg.Connection[Any]

    @classmethod
    @abstractmethod
    def errors(cls) -> type[Exception]:
        """Return the class of what the driver raises."""

    def close(self) -> None:
        """End the session; what it did not commit is undone, and what it locked is free."""
        self._session.close()

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """See one state of the database, whatever others write meanwhile."""

    @abstractmethod
    def writing(self, lock: str, make: Iterable[DatabaseTable] = ()) -> AbstractContextManager[None]:
        """Hold a lock of that name alone, make the tables that are missing, and commit at the end or undo it all."""

    @abstractmethod
    def has_table(self, table: DatabaseTable) -> bool:
        """Say whether the database has a table."""

    def insert(self, table: DatabaseTable, **row: Any) -> None:
        """Add a row."""
        marks = ", ".join("?" for _ in table.columns)
        values = [row[column] for column in table.columns]
        self.run(f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})", *values)

    def update(self, table: DatabaseTable, change: Mapping[str, Any], **own: Any) -> int:
        """Change the rows that :meth:`select` would return; say how many there were."""
        changes = ", ".join(f"{column} = ?" for column in change)
        condition, values = _condition(own)
        return self.run(f"UPDATE {table.name} SET {changes}{condition}", *change.values(), *values)

    def delete(self, table: DatabaseTable, **own: Any) -> None:
        """Delete the rows that :meth:`select` would return."""
        condition, values = _condition(own)
        self.run(f"DELETE FROM {table.name}{condition}", *values)

    def select(self, table: DatabaseTable, **own: Any) -> list[dict[str, Any]]:
        """Return the rows whose columns have the values given, or one of those in a list, in the order of the key."""
        condition, values = _condition(own)
        query = f"SELECT {', '.join(table.columns)} FROM {table.name}{condition} ORDER BY {', '.join(table.key)}"
        return [dict(zip(table.columns, row, strict=True)) for row in self.rows(query, *values)]

    def distinct(self, table: DatabaseTable, column: str) -> list[Any]:
        """Return the values that a column has, each once."""
        return [value for (value,) in self.rows(f"SELECT DISTINCT {column} FROM {table.name}")]

    def rows(self, statement: str, *values: Any) -> list[Sequence[Any]]:
        """Run a statement, and return all rows of its answer."""
        return list(self._execute(statement, values).fetchall())

    def run(self, statement: str, *values: Any) -> int:
        """Run a statement without an answer, and return how many rows it changed."""
        return int(self._execute(statement, values).rowcount)

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._session.execute(statement.replace("?", self._placeholder), values)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._execute(begin)
            yield
            self._commit()
        except BaseException:
            # What ended the transaction is told, also where the session broke and there is nothing to undo.
            with suppress(self.errors()):
                self._execute("ROLLBACK")
            raise

    def _commit(self) -> None:
        self._execute("COMMIT")

    def _make_tables(self, tables: Iterable[DatabaseTable]) -> None:
        for table in tables:
            if not self.has_table(table):
                self._execute(table.definition)


class SqliteConnection(Connection):
    """A SQLite file with a write-ahead log and full synchronisation.

    Parameters
    ----------
    file : Path
        The file.
    make : bool
        Whether to make the file where there is none.
    """

    _placeholder = "?"

    def __init__(self, file: Path, *, make: bool = False) -> None:
        self._connect(file, "mode=rwc" if make else "mode=rw")

    def _connect(self, file: Path, mode: str) -> None:
        place = f"file:{quote(os.fsencode(file))}?{mode}"
        # Without an isolation level the driver issues no BEGIN and no COMMIT of its own.
        self._session = sqlite3.connect(place, timeout=_PATIENCE, isolation_level=None, uri=True)
        try:
            self._execute("PRAGMA synchronous = FULL")
            self.rows("SELECT count(*) FROM sqlite_master")  # only now the file is opened
        except BaseException:
            self.close()
            raise

    @classmethod
    def errors(cls) -> type[Exception]:
        """Return what the standard library's driver raises."""
        return sqlite3.Error

    def reading(self) -> AbstractContextManager[None]:
        """Begin to read."""
        return self._transaction("BEGIN")

    @contextmanager
    def writing(self, lock: str, make: Iterable[DatabaseTable] = ()) -> Iterator[None]:
        """Lock the file as a whole before anything is read."""
        self._keep_log()
        with self._transaction("BEGIN IMMEDIATE"):
            self._make_tables(make)
            yield

    def has_table(self, table: DatabaseTable) -> bool:
        """Say whether the file has a table."""
        return self.rows("SELECT count(*) FROM sqlite_master WHERE name = ?", table.name) != [(0,)]

    def _keep_log(self) -> None:
        """Set the file to a write-ahead log."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                if self.rows("PRAGMA journal_mode") != [("wal",)]:
                    self._execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Changing the mode does not wait for others, so we do.
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(random.uniform(0.001, 0.05))


class SqliteReading(SqliteConnection):
    """A SQLite file that is only read, and may be read-only, as may its folder.

    A reader of a write-ahead log writes beside the file. Where it may not, it reads the file as one that nobody writes
    to. That is right if there is no log, and if the file is the same when the reading ends.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before: tuple[int, int] | None = None
        for mode in ("mode=rw", "mode=ro"):
            try:
                self._connect(file, mode)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                    raise
        self._before = self._version()
        self._connect(file, "mode=ro&immutable=1")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Begin to read; refuse what was read if somebody writes to the file."""
        with super().reading():
            yield
        log = Path(f"{self._file}-wal")
        if self._before is not None and (self._version() != self._before or (log.exists() and log.stat().st_size)):
            raise LedgerError(
                f"{self._file} has changes in its log, which cannot be read without the right to write "
                "beside it. Read it again when its writer has ended, or as its owner."
            )

    def _version(self) -> tuple[int, int]:
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size


class PostgresConnection(Connection):
    """A session of PostgreSQL."""

    _placeholder = "%s"

    def __init__(self, options: Mapping[str, str]) -> None:
        import psycopg
        from psycopg.conninfo import make_conninfo

        # Text is text whatever the database is encoded in: of one that does not say, the driver would give bytes.
        place = make_conninfo(**{**options, "client_encoding": "utf8"})
        # Committing at once is the driver's word for issuing no BEGIN and no COMMIT of its own. A prepared statement
        # would be left to the next client of a pooler.
        self._session = psycopg.connect(place, autocommit=True, prepare_threshold=None)

    @classmethod
    def errors(cls) -> type[Exception]:
        """Return what psycopg raises; refuse to go on without it."""
        try:
            from psycopg import Error
        except ImportError:
            raise LedgerError("a database in PostgreSQL needs psycopg: pip install 'dpsketch[postgres]'.") from None
        return Error

    def reading(self) -> AbstractContextManager[None]:
        """Begin to read."""
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ")

    @contextmanager
    def writing(self, lock: str, make: Iterable[DatabaseTable] = ()) -> Iterator[None]:
        """Take the lock, then begin."""
        if make:
            self._lock("")  # two sessions that create one table at a time trip over each other, IF NOT EXISTS or not
        # A transaction sees what was committed before its first statement, so the lock has to come before it. The
        # lock ends with the session, whatever ends the session.
        self._lock(lock)
        with self._transaction("BEGIN ISOLATION LEVEL SERIALIZABLE"):
            self._execute(_DURABLE)
            self._make_tables(make)
            yield

    def has_table(self, table: DatabaseTable) -> bool:
        """Say whether the database has a table where the session looks for tables."""
        return self.rows("SELECT to_regclass(?)", table.name) != [(None,)]

    def _lock(self, name: str) -> None:
        # In one statement: behind a pooler two may go to two sessions, and the second would wait without end.
        lock = "SELECT set_config('lock_timeout', ?, false), pg_advisory_lock(?)"
        self._execute(lock, [f"{_PATIENCE * 1000:.0f}", _lock_key(name)])

    def _commit(self) -> None:
        # PostgreSQL answers the COMMIT of a transaction that failed with a ROLLBACK, and calls that no error.
        if self._execute("COMMIT").statusmessage != "COMMIT":
            raise LedgerError("the transaction was undone by the database. Nothing was charged.")


def _condition(own: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the condition that columns are as given, and its values."""
    terms: list[str] = []
    values: list[Any] = []
    for column, value in own.items():
        if isinstance(value, list):
            terms.append(f"{column} IN ({', '.join('?' for _ in value)})")
            values += value
        else:
            terms.append(f"{column} = ?")
            values.append(value)
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


def _lock_key(name: str) -> int:
    digest = hashlib.sha256(b"dpsketch ledger\0" + name.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
