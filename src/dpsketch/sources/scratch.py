"""A private place to put records down, which does not outlive its process by long.

A process that is killed cannot remove what it sorted. So each folder has a lock that its process holds, and whoever
makes the next folder in the same place removes those whose lock nobody holds any more.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsketch.errors import SourceError
from dpsketch.sources.failures import guarded

__all__ = ["private_folder"]

_PREFIX = "dpsketch-records-"
_LOCK = ".lock"


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
    try:
        with folder as name:
            yield name
    finally:
        if lock is not None:
            os.close(lock)


def _locked_folder(parent: str | None) -> tuple[tempfile.TemporaryDirectory[str], int | None]:
    while True:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)
        if os.name == "nt":  # where an open file cannot be removed, and folders of killed processes stay
            return folder, None
        path = Path(folder.name) / _LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Between the two lines above and this one, another process may have taken the folder for an abandoned one.
        if _take(lock) and path.exists():
            return folder, lock
        os.close(lock)
        folder.cleanup()


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
    lock = os.open(folder / _LOCK, os.O_RDWR)
    try:
        if _take(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    """Take a lock that ends with the process, if nobody holds it."""
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
