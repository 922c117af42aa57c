"""Copies of a SQLite store: taken while it is served, and put back in its place while it is not.

A store is a database and its write-ahead log. Neither is a copy of the store alone, and the log of one store beside the
database of another damages it. So a copy is made by SQLite's own backup, which reads both, and is one file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.server.database import locate
from dpsketch.server.failures import sentence_of
from dpsketch.server.locks import lock_file
from dpsketch.server.refusals import StorageFailed
from dpsketch.server.schema import NEWEST

__all__ = ["back_up", "restore"]

_PATIENCE = 30.0  # seconds to wait for another process that writes


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
    file, _ = locate(store)
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
        raise StorageFailed(f"the store could not be copied: {sentence_of(error)}") from None
    except OSError as error:
        raise StorageFailed(f"the copy could not be written: {error.strerror}.") from None
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def _check(copied: sqlite3.Connection) -> None:
    """Refuse a copy that is damaged, is no store, or is the store of a newer dpsketch."""
    if copied.execute("PRAGMA quick_check").fetchone() != ("ok",):
        raise FileRefused("the file is damaged; nothing was changed.")
    if copied.execute("SELECT 1 FROM sqlite_master WHERE name = 'dpsketch_schema'").fetchone() is None:
        raise FileRefused("the file is not a store of `dpsketch serve`; nothing was changed.")
    [version] = copied.execute("SELECT max(version) FROM dpsketch_schema").fetchone()
    if version is None or version > NEWEST:
        raise FileRefused("a newer dpsketch has written the file: upgrade dpsketch. Nothing was changed.")


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
