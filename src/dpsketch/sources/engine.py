"""DuckDB in memory, and a private folder for records that do not fit there.

A process that is killed cannot remove its folder. So each folder has a lock that its process holds, and whoever makes
the next folder in the same place removes those whose lock nobody holds any more.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsketch.errors import SourceError
from dpsketch.sources.failures import guarded

if TYPE_CHECKING:
    import duckdb

__all__ = ["connect", "load", "private_folder"]

_THREADS = 2  # enough to keep pace with a sketch; each holds memory of its own
_PREFIX = "dpsketch-records-"
_LOCK = ".lock"
_BEING_MADE = 60.0  # seconds in which a folder without a lock may be one that is being made


def load() -> None:
    """Load DuckDB's library. An interrupt while it loads aborts the process, so nothing may lie on disk by then."""
    importlib.import_module("duckdb")


def connect(*, memory_limit: str | None = None, temp_directory: str = "") -> duckdb.DuckDBPyConnection:
    """Open a database in memory that loads no extension and writes nowhere but into ``temp_directory``, if given."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": _THREADS,
        "temp_directory": temp_directory,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if memory_limit is not None:
        settings["memory_limit"] = memory_limit
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET enable_progress_bar = false")  # it writes on standard output
    return connection


@contextmanager
def private_folder(parent: str | None) -> Iterator[str]:
    """Make a directory of mode 0700 that is gone when the block ends, and at the latest when the interpreter does.

    Where the process is killed before that, the next call for the same parent removes it.
    """
    place = "the system's temporary directory" if parent is None else f"the temporary directory {parent!r}"
    _remove_abandoned(Path(parent or tempfile.gettempdir()))
    folder, lock = guarded(
        lambda: _locked_folder(parent),
        lambda _: SourceError(f"{place} cannot be written to. Give another with temp_directory=."),
    )
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # a forked child ends before its parent, which still needs the folder
            _remove(Path(folder))

    atexit.register(remove)
    try:
        yield folder
    finally:
        remove()
        atexit.unregister(remove)
        if lock is not None:
            os.close(lock)


def _locked_folder(parent: str | None) -> tuple[str, int | None]:
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        if os.name == "nt":  # where an open file cannot be removed, and folders of killed processes stay
            return folder, None
        path = Path(folder) / _LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Between the two lines above and this one, another process may have taken the folder for an abandoned one.
        if _take(lock) and path.exists():
            return folder, lock
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process has ended; whatever cannot be removed stays, and hinders nothing."""
    if os.name == "nt":
        return
    with suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                found = folder.lstat()
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                    _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    flags = os.O_RDWR
    if not (folder / _LOCK).exists():  # its process was killed while it made or removed the folder
        if time.time() - folder.lstat().st_mtime < _BEING_MADE:
            return
        flags |= os.O_CREAT
    lock = os.open(folder / _LOCK, flags, 0o600)
    try:
        if _take(lock):
            _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock last: a folder that loses its lock first would stay if the process were killed then."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _take(lock: int) -> bool:
    """Take a lock that ends with the process, if nobody holds it."""
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
