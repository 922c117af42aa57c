"""The database under a store, by the driver itself: sessions, failures in a sentence, locks, copies of a SQLite file.

One process serves a store, or several one PostgreSQL. On SQLite the process holds an exclusive lock on a small database
beside the store. On PostgreSQL it holds an advisory lock in the very session that writes the reports, so that whoever
lost the lock cannot write; processes that share a store hold it together, and each takes turns at writing under a
second one.

A SQLite store is a database and its write-ahead log. Neither is a copy of the store alone, and the log of one store
beside the database of another damages it. So a copy is made by SQLite's own backup, which reads both, and is one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpsketch.errors import DpsketchError, FileRefused, InvalidInput

__all__ = [
    "CREATING", "VERSION", "WRITING", "ServiceDatabase", "Session", "StorageFailed", "back_up", "lock_file", "restore",
]  # fmt: skip

VERSION = 1
"""The version of the tables; a store of another version is refused."""

_PATIENCE = 30.0  # seconds to wait for another process that writes, such as one that makes a token
_SERVING = int.from_bytes(hashlib.sha256(b"dpsketch serve").digest()[:8], signed=True)
CREATING = _SERVING + 1
"""The advisory lock that is held while tables are made."""
WRITING = _SERVING + 2
"""The advisory lock of the one of several processes that writes."""

_TAKEN = "another process serves this store. One process serves a store at a time: stop it, or name another store."


class StorageFailed(DpsketchError, RuntimeError):
    """The store could not be read or written; what was to be written may be sent again."""


# What the drivers say, in lower case, and what it means. The first that is found is told.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("connection refused", "the database server does not answer at this address and port: is it running?"),
    ("could not translate host name", "the name of the database server is not known: is it spelt right?"),
    ("failed to resolve host", "the name of the database server is not known: is it spelt right?"),
    ("name or service not known", "the name of the database server is not known: is it spelt right?"),
    ("no such file or directory", "the database server does not answer at this socket: is it running?"),
    ("connection option", "a part of its address is not a number, or not known to PostgreSQL: is it spelt right?"),
    ("password authentication failed", "the database server refused the user or the password."),
    ("no password supplied", "the database server asks for a password; put it into ~/.pgpass or into the address."),
    ("no pg_hba.conf entry", "the database server does not let this user in from this machine (pg_hba.conf)."),
    ("permission denied", "the user may not do this in the database: let it own the service's tables."),
    ("role", "the database server does not know the user."),
    ("too many clients", "the database server has too many connections; raise its limit, or start fewer workers."),
    ("remaining connection slots", "the database server has too many connections; raise max_connections."),
    ("the database system is starting up", "the database server is starting; try again in a moment."),
    ("the database system is shutting down", "the database server is shutting down."),
    ("terminating connection", "the database server ended the connection."),
    ("server closed the connection", "the database server ended the connection."),
    ("connection timeout", "the database server did not answer in time."),
    ("timeout expired", "the database server did not answer in time."),
    ("no space left", "the database server's disk is full."),
    ("could not extend file", "the database server's disk is full."),
    ("read-only transaction", "the database is a read-only copy; name the one that takes writes."),
    ("disk is full", "the disk is full."),
    ("disk i/o error", "the disk did not take it (is it full, or gone?)."),
    ("readonly database", "the store's file may not be written by this user."),
    ("unable to open database", "the store's file cannot be opened by this user."),
    ("database is locked", "another process keeps the store's file locked."),
    ("malformed", "the store's file is damaged: restore a backup."),
    ("not a database", "the store's file is no SQLite database."),
    ("does not exist", "the database, or a table in it, does not exist: create the database first."),
)


def _sentence_of(error: Exception) -> str:
    """Say what a driver's error means, without statements, values or passwords; an unknown one by its name alone."""
    said = str(error).lower()
    for sign, words in _KNOWN:
        if sign in said:
            return words
    return f"the database failed ({type(error).__name__})."


def _failed(error: Exception) -> StorageFailed:
    return StorageFailed(f"the store could not be used: {_sentence_of(error)} Nothing was stored; try again.")


def _connected(place: Path | str) -> Any:
    """Connect to a file of SQLite or an address of PostgreSQL; neither driver is to BEGIN or COMMIT by itself."""
    if isinstance(place, str):
        import psycopg

        return psycopg.connect(place, autocommit=True, client_encoding="utf8")
    driver = sqlite3.connect(place, _PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        driver.execute("PRAGMA journal_mode = WAL")
        driver.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        driver.close()
        raise
    return driver


def _postgres_errors() -> type[Exception]:
    try:
        from psycopg import Error
    except ImportError:
        raise InvalidInput("a store in PostgreSQL needs psycopg: pip install 'dpsketch[postgres]'.") from None
    return Error


class Session:
    """A session with SQLite or PostgreSQL. Statements are written once, with ``?`` where a value goes.

    Each statement is a transaction of its own, except inside :meth:`transaction`. All errors of the driver become
    :class:`StorageFailed`, which quotes neither statements nor values.
    """

    def __init__(self, place: Path | str) -> None:
        self._sqlite = isinstance(place, Path)
        self._errors = sqlite3.Error if self._sqlite else _postgres_errors()
        failure = None
        try:
            self._driver = _connected(place)
        except self._errors as error:
            failure = _failed(error)
        if failure is not None:
            raise failure

    def _execute(self, statement: str, values: Sequence[Any], *, each: bool = False) -> tuple[list[Sequence[Any]], int]:
        try:
            cursor = self._driver.cursor()
            written = statement if self._sqlite else statement.replace("?", "%s")
            (cursor.executemany if each else cursor.execute)(written, values)
            return (cursor.fetchall() if cursor.description else []), cursor.rowcount
        except self._errors as error:
            failure = _failed(error)
        raise failure  # here, so that it does not hold the driver's own error

    def rows(self, statement: str, *values: Any) -> list[Sequence[Any]]:
        """Run a statement and return all rows of its answer."""
        return self._execute(statement, values)[0]

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row of an answer; None where there is no row."""
        found = self.rows(statement, *values)
        return found[0][0] if found else None

    def run(self, statement: str, *values: Any) -> int:
        """Run a statement without an answer, and return how many rows it changed."""
        return self._execute(statement, values)[1]

    def run_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        if rows:
            self._execute(statement, rows, each=True)

    @contextlib.contextmanager
    def transaction(self, begin: str = "BEGIN") -> Iterator[None]:
        """Commit all that is done inside, or undo it."""
        self.run(begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with contextlib.suppress(StorageFailed):  # what ended the transaction is told, not this
                self.run("ROLLBACK")
            raise

    def close(self) -> None:
        """End the session, and with it its locks and what it did not commit."""
        with contextlib.suppress(self._errors):
            self._driver.close()

    def begin_serving(self, *, shared: bool) -> None:
        """Make a session of PostgreSQL one that writes reports, or refuse."""
        # Whatever the server's default is, a report that is answered survives a power cut.
        self.run("SET synchronous_commit = on")
        name = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
        if not self.value(f"SELECT {name}(?)", _SERVING):
            raise FileRefused(_TAKEN)


class ServiceDatabase:
    """Opens sessions with the database at an address, and keeps those that are not in use.

    Attributes
    ----------
    file : Path or None
        The file of a SQLite database; None stands for PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        self.file = _file_at(url)
        self._place: Path | str = url if self.file is None else self.file
        self._idle: queue.SimpleQueue[Session] = queue.SimpleQueue()
        if self.file is not None:
            # Readable by its owner only, from its first byte on.
            os.close(os.open(self.file, os.O_CREAT | os.O_RDWR, 0o600))

    def open(self) -> Session:
        """Open a session of one's own."""
        return Session(self._place)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a session; one in which something failed is not used again."""
        session = self._waiting() or self.open()
        try:
            yield session
        except BaseException:
            session.close()
            raise
        self._idle.put(session)

    def _waiting(self) -> Session | None:
        """Return a session that waits and still answers: the server may have been restarted since."""
        with contextlib.suppress(queue.Empty):
            while True:
                session = self._idle.get_nowait()
                try:
                    session.run("SELECT 1")
                    return session
                except StorageFailed:
                    session.close()
        return None

    def close(self) -> None:
        """End the sessions that wait."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


def _file_at(url: str) -> Path | None:
    """Return the file of a SQLite store, and None of one in PostgreSQL; nothing is opened or made."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        return None
    if separator and scheme != "sqlite":
        raise InvalidInput(f"a store is a path, sqlite:///path or postgresql://user@host/database, not {scheme!r}.")
    place = rest[1:] if separator and rest.startswith("/") else "" if separator else url
    if place in ("", ":memory:"):
        raise InvalidInput("a store must outlive the process: give it a file, as in sqlite:///reports.db.")
    file = Path(place).expanduser().absolute()
    if not file.parent.is_dir():
        raise InvalidInput(f"the folder {file.parent} does not exist; make it first.")
    return file


def lock_file(file: Path) -> sqlite3.Connection:
    """Hold an exclusive lock on a database beside the store, until it is closed or the process ends.

    The file is for its owner alone. A lock that someone else holds on it, who may not serve the store at all, is
    evaded: the file is put aside for a new one.
    """
    beside = Path(f"{file}.lock")
    for attempt in range(2):
        _make_private(beside)
        lock = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            lock.execute("BEGIN EXCLUSIVE")
            return lock
        except sqlite3.DatabaseError:
            lock.close()
            if attempt or not _held_by_strangers(beside, file):
                raise FileRefused(_TAKEN) from None
            beside.unlink()
    raise FileRefused(_TAKEN)


def _make_private(beside: Path) -> None:
    """Make the file if it is not there; let nobody but its owner open it.

    It is not opened where it is there: to close it again would give up every lock of this process on it.
    """
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        if beside.stat().st_uid == os.geteuid() or os.geteuid() == 0:
            beside.chmod(0o600)


def _held_by_strangers(beside: Path, store: Path) -> bool:
    """Say whether all who hold a lock on the file are neither the owner of the store nor root, as far as one can see.

    Linux lists locks with the processes that hold them. Elsewhere, and where a process cannot be seen, the lock counts
    as a service's own.
    """
    try:
        inode, owner = beside.stat().st_ino, store.stat().st_uid
        entries = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = [int(parts[-4]) for parts in entries if parts[-3].rpartition(":")[2] == str(inode)]
        return bool(holders) and all(Path(f"/proc/{pid}").stat().st_uid not in (owner, 0) for pid in holders)
    except (OSError, ValueError, IndexError):
        return False


def back_up(store: str, copy: Path) -> None:
    """Copy a store into a new file, also while a service writes to it."""
    file = _file_of(store)
    if not file.is_file():
        raise FileRefused("there is no store to back up here; --store names its file.")
    if copy.exists():
        raise FileRefused("the file for the backup exists already; name a new one.")
    with _copied(file, copy) as draft:
        draft.replace(copy)
        _settle(copy.parent)


def restore(store: str, copy: Path) -> None:
    """Put a copy in the place of a store that no service serves."""
    file = _file_of(store)
    if not copy.is_file():
        raise FileRefused("there is no such backup to restore.")
    if file.exists() and file.samefile(copy):
        raise InvalidInput("the backup is the store itself; name the file that `dpsketch serve backup` wrote.")
    lock = lock_file(file)
    try:
        with _copied(copy, file) as draft:
            _put_away_log(file)
            draft.replace(file)
            _settle(file.parent)
    finally:
        lock.close()


def _file_of(store: str) -> Path:
    file = _file_at(store)
    if file is None:
        raise InvalidInput("a store in PostgreSQL is backed up by pg_dump and restored by pg_restore.")
    return file


@contextlib.contextmanager
def _copied(source: Path, target: Path) -> Iterator[Path]:
    """Yield a checked copy of a store, as one durable file beside the target, which is removed if it is still there."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # for its owner only
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", _PATIENCE, uri=True)) as old,
            contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # without a log of its own beside it
            _check(new)
        _settle(draft)
        yield draft
    except sqlite3.Error as error:
        raise StorageFailed(f"the store could not be copied: {_sentence_of(error)}") from None
    except OSError as error:
        raise StorageFailed(f"the copy could not be written: {error.strerror}.") from None
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def _check(copied: sqlite3.Connection) -> None:
    """Refuse a copy that is damaged, is no store, or is the store of another version."""
    if copied.execute("PRAGMA quick_check").fetchone() != ("ok",):
        raise FileRefused("the file is damaged; nothing was changed.")
    if copied.execute("SELECT 1 FROM sqlite_master WHERE name = 'dpsketch_schema'").fetchone() is None:
        raise FileRefused("the file is not a store of `dpsketch serve`; nothing was changed.")
    [version] = copied.execute("SELECT max(version) FROM dpsketch_schema").fetchone()
    if version != VERSION:
        raise FileRefused("another version of dpsketch has written the file. Nothing was changed.")


def _put_away_log(file: Path) -> None:
    """Write the log of the store that is replaced into it, and remove the log.

    An end of the process before the replacement then leaves the old store whole. A damaged store keeps no log.
    """
    if file.exists():
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", _PATIENCE, uri=True)) as old,
        ):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
