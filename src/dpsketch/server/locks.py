"""One process serves a store, or several one PostgreSQL: how they keep out of each other's way.

On SQLite the process holds an exclusive lock on a small database beside the store. On PostgreSQL it holds an advisory
lock in the very session that writes the reports, so that whoever lost the lock cannot write; processes that share a
store hold it together, and each takes turns at writing under a second one.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from dpsketch.errors import FileRefused

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["CREATING", "WRITING", "lock_database", "lock_file"]

_SERVING = int.from_bytes(hashlib.sha256(b"dpsketch serve").digest()[:8], signed=True)
CREATING = _SERVING + 1
"""Held while tables are made or changed."""
WRITING = _SERVING + 2
"""Held by the one of several processes that writes."""

_TAKEN = "another process serves this store. One process serves a store at a time: stop it, or name another store."


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


def lock_database(connection: Connection, *, shared: bool) -> None:
    """Make a session of PostgreSQL one that writes reports, or refuse."""
    # Whatever the server's default is, a report that is answered survives a power cut.
    connection.exec_driver_sql("SET synchronous_commit = on")
    name = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
    held = connection.exec_driver_sql(f"SELECT {name}(%s)", (_SERVING,)).scalar()
    connection.commit()
    if not held:
        raise FileRefused(_TAKEN)
