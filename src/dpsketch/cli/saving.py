"""Files that nothing was paid for, and files that must be destroyed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dpsketch.cli.delivery import not_in_place
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import FileRefused, ReleaseNotWritten

__all__ = ["refuse_lasting", "save"]


def refuse_lasting(path: Path) -> None:
    """Refuse to begin with a file that will have to be destroyed and cannot be."""
    if not (os.access(path, os.W_OK) and os.access(Path(os.path.realpath(path)).parent, os.W_OK)):
        raise FileRefused(f"{path} must be destroyed when it is used, and may not be written. Make it writable.")


def save(spool: Spool, data: bytes, *, sensitive: bool, ends: Sequence[Ending] = ()) -> None:
    """Write a file that nothing was paid for."""
    try:
        spool.fit(data, ends)
        spool.write(data, sensitive=sensitive)
        spool.finish()
    except BaseException as error:
        if not spool.complete:
            raise
        raise ReleaseNotWritten(not_in_place(spool, error)) from error
