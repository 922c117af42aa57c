"""The database under a ledger: one lock a dataset, one serialisable transaction a change.

SQLite: a write-ahead log with full synchronisation, and ``BEGIN IMMEDIATE``, so that one process changes the file at a
time and a committed charge survives a power cut. PostgreSQL: a session's advisory lock on the dataset, taken before a
``SERIALIZABLE`` transaction begins, so that waiting processes see what the one before them wrote; what the lock does
not order (a pooler that shares sessions, say) the isolation level refuses, and is tried again.

Nothing is kept open between calls: a process that forks or dies leaves no lock and no connection behind.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dpsketch.errors import InvalidInput, LedgerError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Table

__all__ = ["Store", "Tables", "has_table", "tables"]

T = TypeVar("T")

_PATIENCE = 120
_TRIES = 50
# Serialisation failure, deadlock, and a row that another transaction has just added: PostgreSQL's codes for what a
# second try decides.
_RETRY = ("40001", "40P01", "23505")


class Tables(NamedTuple):
    """The tables of a ledger."""

    datasets: Table
    entries: Table
    deliveries: Table
    singles: Table
    members: Table
    origins: Table
    sources: Table
    days: Table


# The name in the database, the columns of the key, and the others.
_LAYOUT = {
    "datasets": ("dpsketch_dataset", "name", "format rows head"),
    "entries": ("dpsketch_entry", "dataset id", "kind time costs total unit note previous digest"),
    "deliveries": ("dpsketch_delivery", "dataset id", "charge binding state digest"),
    "singles": ("dpsketch_once", "name", "dataset id charge digest"),
    "members": ("dpsketch_member", "dataset name", "part id charge digest"),
    "origins": ("dpsketch_origin", "dataset id", "charge output columns who digest"),
    "sources": ("dpsketch_source", "source", "dataset"),
    "days": ("dpsketch_day", "stream day", "dataset id publication digest"),
}


@lru_cache(maxsize=1)
def tables() -> Tables:
    """Return the tables. Columns hold text, and none may be null; a few are numbers."""
    from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

    metadata = MetaData()
    numbers = {"format": Integer, "rows": BigInteger, "id": BigInteger, "day": BigInteger}
    made = {}
    for field, (name, keys, others) in _LAYOUT.items():
        key = [Column(each, numbers.get(each, Text), primary_key=True, autoincrement=False) for each in keys.split()]
        rest = [Column(each, numbers.get(each, Text), nullable=False) for each in others.split()]
        made[field] = Table(name, metadata, *key, *rest)
    return Tables(**made)


class Store:
    """A database that ledgers live in; picklable, and safe to use in a forked process.

    Parameters
    ----------
    url : str or Path
        A SQLite file, as a path or ``sqlite:///path``, or ``postgresql://user@host/database``.
    """

    def __init__(self, url: str | Path) -> None:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        self._engine: Engine | None = None
        self.file: Path | None = None
        if isinstance(url, Path) or "://" not in url:
            self._set_file(str(url))
            return
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise InvalidInput("a ledger is a path, sqlite:///path or postgresql://user@host/database.") from None
        match parsed.get_backend_name():
            case "sqlite":
                self._set_file(parsed.database or "")
            case "postgresql" | "postgres":
                self.url: URL = parsed.set(drivername="postgresql+psycopg")
            case _:
                raise InvalidInput(
                    f"a ledger is a SQLite file or a PostgreSQL database, not {parsed.get_backend_name()!r}."
                )

    def _set_file(self, path: str) -> None:
        from sqlalchemy import URL

        if path in ("", ":memory:"):
            raise InvalidInput("a ledger must outlive the process: give it a file, as in sqlite:///budget.db.")
        # Absolute, so that a process that changes its folder keeps its ledger.
        self.file = Path(path).expanduser().absolute()
        self.url = URL.create("sqlite", database=str(self.file))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (self.url.render_as_string(hide_password=False),))

    def __str__(self) -> str:
        return str(self.file) if self.file else self.url.render_as_string(hide_password=True)

    def write(self, dataset: str, work: Callable[[Connection], T]) -> T:
        """Run ``work`` alone on a dataset, in one transaction; everything it wrote is undone if it raises."""
        if self.file is not None:
            _make_folder(self.file)
        for attempt in range(_TRIES):
            try:
                return self._guarded(lambda: self._write_once(dataset, work))
            except _TryAgain:
                time.sleep(random.uniform(0.0, 0.01 * 2 ** min(attempt, 6)))
        raise LedgerError(f"the ledger {self} is too busy: {_TRIES} attempts were overtaken. Nothing was charged.")

    def read(self, work: Callable[[Connection], T], empty: T) -> T:
        """Run ``work`` on one state of the ledger; return ``empty`` where no ledger was written yet."""
        if self.file is not None and not self.file.exists():
            return empty
        return self._guarded(lambda: self._read_once(work, empty))

    def _guarded(self, run: Callable[[], T]) -> T:
        """Turn the database's errors into the ledger's, without statements or parameters."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            return run()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) in _RETRY:
                raise _TryAgain from None
            reason = str(error.orig).strip().partition("\n")[0]
            raise LedgerError(f"the ledger {self} could not be used: {reason}.") from None
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self} could not be used ({type(error).__name__}).") from None

    def _write_once(self, dataset: str, work: Callable[[Connection], T]) -> T:
        with self._open().connect() as connection:
            if self.file is not None:
                connection.execution_options(dpsketch_begin="BEGIN IMMEDIATE")
                with connection.begin():
                    if not _has_all_tables(connection):
                        tables().datasets.metadata.create_all(connection)
                    return work(connection)
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"SET lock_timeout = '{_PATIENCE}s'")
            if not _has_all_tables(connection):
                # Two sessions that create one table at a time trip over each other, IF NOT EXISTS or not.
                connection.exec_driver_sql("SELECT pg_advisory_lock(%s)", (_lock_key(""),))
                tables().datasets.metadata.create_all(connection)
                connection.exec_driver_sql("SELECT pg_advisory_unlock(%s)", (_lock_key(""),))
            # A transaction sees what was committed before its first statement, so the lock has to come before it. The
            # lock ends with the session, whatever ends the session.
            connection.exec_driver_sql("SELECT pg_advisory_lock(%s)", (_lock_key(dataset),))
            connection.commit()
            connection.execution_options(isolation_level="SERIALIZABLE")
            with connection.begin():
                return work(connection)

    def _read_once(self, work: Callable[[Connection], T], empty: T) -> T:
        with self._open().connect() as connection:
            if self.file is None:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                return work(connection) if has_table(connection, tables().entries) else empty

    def _open(self) -> Engine:
        """Return the engine, which holds no connection between calls."""
        if self._engine is None:
            from sqlalchemy import NullPool, create_engine, event

            if self.file is not None:
                self._engine = create_engine(self.url, poolclass=NullPool, connect_args={"timeout": _PATIENCE})
                event.listen(self._engine, "connect", _prepare_sqlite)
                event.listen(self._engine, "begin", _begin_sqlite)
            else:
                try:
                    self._engine = create_engine(self.url, poolclass=NullPool)
                except ModuleNotFoundError:
                    raise LedgerError(
                        "a ledger in PostgreSQL needs psycopg: pip install 'dpsketch[postgres]'."
                    ) from None
        return self._engine


class _TryAgain(Exception):
    """Another transaction came first."""


def has_table(connection: Connection, table: Table) -> bool:
    """Say whether the database has a table; a ledger of an earlier version may lack one until it is written to."""
    if connection.dialect.name == "sqlite":
        query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
        return bool(connection.exec_driver_sql(query, (table.name,)).scalar())
    return connection.exec_driver_sql("SELECT to_regclass(%s)", (table.name,)).scalar() is not None


def _has_all_tables(connection: Connection) -> bool:
    return all(has_table(connection, table) for table in tables())


def _make_folder(file: Path) -> None:
    """Make the folder that a ledger's file goes into, where there is none yet."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(
            f"the ledger {file} cannot be kept there: {error.strerror}. Nothing was charged. Name a file that you may "
            "write, as in DPSKETCH_LEDGER=sqlite:///budget.db."
        ) from None


def _lock_key(dataset: str) -> int:
    digest = hashlib.sha256(b"dpsketch ledger\0" + dataset.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Set a new connection to a write-ahead log and full synchronisation."""
    import sqlite3

    # SQLAlchemy's BEGIN is issued below; the driver must not issue its own.
    connection.isolation_level = None
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for others, so we do.
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.001, 0.05))
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("dpsketch_begin", "BEGIN"))
