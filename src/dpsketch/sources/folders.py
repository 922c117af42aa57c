"""Folders of files, and the columns that the names of folders are."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from dpsketch.errors import SourceError

__all__ = ["Constants", "files_below", "hive_columns", "is_hidden"]

Constants = tuple[tuple[str, str | None], ...]

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder by name, without hidden ones and those that a writer keeps for itself."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not is_hidden(path.relative_to(folder))]
    if not found:
        raise SourceError(f"{str(folder)!r} is a folder without files. Check the name.")
    return found


def is_hidden(path: Path) -> bool:
    """Say whether a path below a folder is hidden: ``.crc`` files, ``_SUCCESS``, ``_metadata``, ``__MACOSX``."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def hive_columns(path: Path, base: Path) -> Constants:
    """Return the columns that folders between a base and a file name, as in ``day=2026-11-15``.

    Examples
    --------
    >>> hive_columns(Path("flights/day=2026-11-15/carrier=B%2F6/part.parquet"), Path("flights"))
    (('day', '2026-11-15'), ('carrier', 'B/6'))
    """
    pairs = [part.partition("=") for part in path.relative_to(base).parts[:-1] if "=" in part]
    return tuple((name, None if value == _NO_VALUE else unquote(value)) for name, _, value in pairs if name)
