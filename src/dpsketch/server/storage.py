"""Where the service keeps tokens, releases, collections and reports: SQLite embedded, or PostgreSQL.

Reports are kept in chunks: one row of a table holds the compact reports of one group commit, one after the other. A
report is written once, and a commit costs the same however many reports it carries. The order in which the reports of
a chunk came is not kept.

One process serves a store at a time, because it alone remembers which reports there are. On SQLite the process holds an
exclusive lock on a small database beside the store; on PostgreSQL, an advisory lock in the very session that writes the
reports, so that whoever lost the lock cannot write. Tokens are read and written without that lock.

SQLite runs with a write-ahead log and full synchronisation: a committed report survives a power cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlalchemy import URL, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from dpsketch.errors import InvalidInput
from dpsketch.server.auth import Token, check_scope
from dpsketch.server.refusals import StorageFailed
from dpsketch.server.tables import TABLES, Chunk, CollectionRow, ReleaseRow, metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["Storage"]

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE = 30  # seconds to wait for another process, such as one that makes a token
_LOCK = int.from_bytes(hashlib.sha256(b"dpsketch serve").digest()[:8], signed=True)
_TAKEN = "another process serves this store. One process serves a store at a time: stop it, or name another store."


def _guarded(method: Callable[P, T]) -> Callable[P, T]:
    """Turn the database's errors into one that quotes neither statements nor values."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except SQLAlchemyError as error:
            reason = type(getattr(error, "orig", None) or error).__name__
        raise StorageFailed(f"the store could not be used ({reason}). Nothing was stored; try again.")

    return run


class Storage:
    """The service's tables. Its methods block: the service calls them in threads.

    Parameters
    ----------
    url : str
        A SQLite file, as a path or ``sqlite:///path``, or ``postgresql://user@host/database``.
    """

    def __init__(self, url: str) -> None:
        self._file, self._engine = _open(url)
        self._writer: Connection | None = None
        self._lock: Any = None
        self._next = 1
        self._create()

    @_guarded
    def _create(self) -> None:
        with self._engine.connect() as connection:
            connection.execution_options(dpsketch_begin="BEGIN IMMEDIATE")
            with connection.begin():
                if self._file is None:
                    # Two processes that create one table at a time trip over each other.
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_LOCK + 1,))
                metadata.create_all(connection)

    def close(self) -> None:
        """Let go of the store."""
        self._drop_writer()
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # The one writer of reports.

    @_guarded
    def claim(self) -> None:
        """Become the one process that serves the store, or refuse."""
        if self._file is not None and self._lock is None:
            self._lock = _lock_file(self._file)
        try:
            if self._writer is None:
                self._writer = self._engine.connect()
                if self._file is None:
                    _lock_database(self._writer)
            newest = self._writer.exec_driver_sql("SELECT max(number) FROM dpsketch_chunk").scalar()
            self._writer.commit()
        except Exception:
            # A session that failed once may be dead, or hold no lock: the next attempt begins with a new one.
            self._drop_writer()
            raise
        self._next = int(newest or 0) + 1

    def _drop_writer(self) -> None:
        """Close the writing session, and with it give up its lock."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with contextlib.suppress(Exception):
                writer.invalidate()
                writer.close()

    @property
    def newest(self) -> int:
        """The number of the newest chunk that this process knows of."""
        return self._next - 1

    def append(self, chunks: list[tuple[str, int, bytes]], counters: dict[str, dict[str, int]]) -> list[Chunk]:
        """Write chunks (collection, number of reports, content) and counters in one transaction, durably."""
        return self._write(chunks, [], counters)

    def replace(self, old: list[int], new: tuple[str, int, bytes]) -> Chunk:
        """Put one chunk in the place of several, in one transaction."""
        return self._write([new], old, {})[0]

    def _write(
        self, chunks: list[tuple[str, int, bytes]], old: list[int], counters: dict[str, dict[str, int]]
    ) -> list[Chunk]:
        numbered = [(self._next + i, *chunk) for i, chunk in enumerate(chunks)]
        try:
            self._write_once(numbered, old, counters)
        except Exception:
            # Whether the transaction took place is not known: the next claim() finds out. COPY's errors are psycopg's.
            self._drop_writer()
            raise
        self._next += len(chunks)
        return [Chunk(number, collection, reports) for number, collection, reports, _ in numbered]

    @_guarded
    def _write_once(
        self, numbered: list[tuple[int, str, int, bytes]], old: list[int], counters: dict[str, dict[str, int]]
    ) -> None:
        if self._writer is None:
            raise StorageFailed("the connection to the store was lost. Nothing was stored; try again.")
        with self._writer.begin():
            if old:
                self._writer.execute(TABLES.chunk.delete().where(TABLES.chunk.c.number.in_(old)))
            if numbered and self._file is None:
                _copy(self._writer, numbered)
            elif numbered:
                self._writer.exec_driver_sql("INSERT INTO dpsketch_chunk VALUES (?, ?, ?, ?)", numbered)
            for collection, values in counters.items():
                self._writer.execute(
                    TABLES.collection.update().where(TABLES.collection.c.id == collection).values(**values)
                )

    @_guarded
    def chunks(self, after: int = 0) -> list[Chunk]:
        """List the chunks that are newer than a number, oldest first, without their content."""
        table = TABLES.chunk
        wanted = table.select().with_only_columns(table.c.number, table.c.collection, table.c.reports)
        with self._engine.connect() as connection:
            found = connection.execute(wanted.where(table.c.number > after).order_by(table.c.number))
            return [Chunk(*row) for row in found]

    def contents(self, numbers: list[int]) -> Iterator[bytes]:
        """Read the content of chunks, a hundred at a time."""
        for start in range(0, len(numbers), 100):
            yield from self._contents(numbers[start : start + 100])

    @_guarded
    def _contents(self, numbers: list[int]) -> list[bytes]:
        table = TABLES.chunk
        with self._engine.connect() as connection:
            wanted = table.select().with_only_columns(table.c.content).where(table.c.number.in_(numbers))
            return [bytes(content) for (content,) in connection.execute(wanted.order_by(table.c.number))]

    # Everything else.

    @_guarded
    def ping(self) -> None:
        """Fail where the store does not answer."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM dpsketch_token").scalar()

    @_guarded
    def add_token(self, token: Token, digest: str) -> None:
        """Keep a token's digest, name and scope."""
        values = {"id": token.id, "name": token.name, "scope": token.scope, "digest": digest}
        with self._engine.begin() as connection:
            connection.execute(TABLES.token.insert().values(**values))

    @_guarded
    def tokens(self) -> dict[str, Token]:
        """Return all tokens by their digests."""
        with self._engine.connect() as connection:
            rows = connection.execute(TABLES.token.select().order_by(TABLES.token.c.name, TABLES.token.c.id))
            return {row.digest: Token(row.id, row.name, check_scope(row.scope)) for row in rows}

    @_guarded
    def revoke_token(self, identifier: str) -> bool:
        """Forget a token, and say whether it was there."""
        with self._engine.begin() as connection:
            return connection.execute(TABLES.token.delete().where(TABLES.token.c.id == identifier)).rowcount > 0

    @_guarded
    def add_release(self, release: ReleaseRow, content: bytes) -> None:
        """Keep a release; the same content again takes the new name."""
        table = TABLES.release
        with self._engine.begin() as connection:
            connection.execute(table.delete().where(table.c.id == release.id))
            connection.execute(table.insert().values(id=release.id, name=release.name, content=content))

    @_guarded
    def releases(self) -> list[tuple[ReleaseRow, bytes]]:
        """Return all uploaded releases."""
        with self._engine.connect() as connection:
            rows = connection.execute(TABLES.release.select().order_by(TABLES.release.c.id))
            return [(ReleaseRow(row.id, row.name), bytes(row.content)) for row in rows]

    @_guarded
    def delete_release(self, identifier: str) -> None:
        """Forget a release."""
        with self._engine.begin() as connection:
            connection.execute(TABLES.release.delete().where(TABLES.release.c.id == identifier))

    @_guarded
    def add_collection(self, collection: CollectionRow) -> None:
        """Keep a new collection."""
        with self._engine.begin() as connection:
            connection.execute(TABLES.collection.insert().values(**collection.values()))

    @_guarded
    def collections(self) -> list[CollectionRow]:
        """Return all collections."""
        with self._engine.connect() as connection:
            rows = connection.execute(TABLES.collection.select().order_by(TABLES.collection.c.id))
            return [CollectionRow.read(row) for row in rows]

    @_guarded
    def close_collection(self, identifier: str) -> None:
        """Mark a collection as closed."""
        table = TABLES.collection
        with self._engine.begin() as connection:
            connection.execute(table.update().where(table.c.id == identifier).values(closed=True))

    @_guarded
    def add_history(self, collection: str, reports: int, width: float) -> None:
        """Keep a point of the curve of interval widths; a second one at the same place is dropped."""
        row = {"collection": collection, "reports": reports, "width": width}
        with self._engine.begin() as connection:
            connection.execute(
                text("INSERT INTO dpsketch_history VALUES (:collection, :reports, :width) ON CONFLICT DO NOTHING"), row
            )

    @_guarded
    def history(self, collection: str) -> list[tuple[int, float]]:
        """Return the curve of interval widths, by the number of reports."""
        table = TABLES.history
        with self._engine.connect() as connection:
            rows = connection.execute(table.select().where(table.c.collection == collection).order_by(table.c.reports))
            return [(row.reports, row.width) for row in rows]


def _open(url: str) -> tuple[Path | None, Engine]:
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
            # Readable by its owner only, from its first byte on.
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            engine = create_engine(URL.create("sqlite", database=str(file)), connect_args={"timeout": _PATIENCE})
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return file, engine
        case "postgresql" | "postgres":
            try:
                return None, create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
            except ModuleNotFoundError:
                raise InvalidInput("a store in PostgreSQL needs psycopg: pip install 'dpsketch[postgres]'.") from None
        case other:
            raise InvalidInput(f"{expected}, not {other!r}.")


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # BEGIN is ours
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("dpsketch_begin", "BEGIN"))


def _lock_file(file: Path) -> Any:
    """Hold an exclusive lock on a database beside the store, until it is closed or the process ends."""
    import sqlite3

    lock = sqlite3.connect(f"{file}.lock", timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        lock.close()
        raise InvalidInput(_TAKEN) from None
    return lock


def _lock_database(connection: Connection) -> None:
    """Make a session of PostgreSQL the one that writes reports, or refuse."""
    # Whatever the server's default is, a report that is answered survives a power cut.
    connection.exec_driver_sql("SET synchronous_commit = on")
    held = connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).scalar()
    connection.commit()
    if not held:
        raise InvalidInput(_TAKEN)


def _copy(connection: Connection, rows: list[tuple[int, str, int, bytes]]) -> None:
    """Write rows by PostgreSQL's COPY, in its binary form."""
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy("COPY dpsketch_chunk FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int8", "text", "int8", "bytea"])
        for row in rows:
            copy.write_row(row)
