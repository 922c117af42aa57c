"""Files of object stores, through Arrow's file systems."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from dpsketch.errors import SourceError
from dpsketch.sources.failures import guarded
from dpsketch.sources.folders import is_hidden

__all__ = ["OBJECT_STORES", "ObjectStore"]

OBJECT_STORES = ("s3", "gs", "gcs")


@dataclass(frozen=True, slots=True, eq=False)
class ObjectStore:
    """An object store. Its options may hold credentials, so that they are never printed."""

    scheme: str
    options: str = field(repr=False)
    filesystem: Any = field(repr=False)

    @classmethod
    def listed(cls, source: str) -> tuple[ObjectStore, Path, list[Path]]:
        """Return the store of an address, where its folders begin, and its files: one, those below, or a glob's."""
        scheme, _, rest = source.partition("://")
        address, _, options = rest.partition("?")
        shown = f"{scheme}://{address.rpartition('@')[2]}"

        def explain(error: Exception) -> SourceError:
            return _unreachable(shown, error)

        def opened() -> tuple[Any, str]:
            from pyarrow import fs

            steady = re.split(r"[*\[]", address)[0]
            found: tuple[Any, str] = fs.FileSystem.from_uri(f"{scheme}://{steady}" + (f"?{options}" if options else ""))
            return found

        filesystem, _ = guarded(opened, explain)
        store = cls(scheme, options, filesystem)
        base, found = guarded(lambda: store._found(address.rpartition("@")[2]), explain)
        if not found:
            raise SourceError(f"{shown!r} names no file. Check the name, and the credentials.")
        return store, base, found

    def _found(self, address: str) -> tuple[Path, list[Path]]:
        from pyarrow import fs

        whole = PurePosixPath(address)
        steady = [part for i, part in enumerate(whole.parts) if not re.search(r"[*\[]", "".join(whole.parts[: i + 1]))]
        base = "/".join(steady)
        if len(steady) == len(whole.parts):
            kind = self.filesystem.get_file_info(base).type
            if kind == fs.FileType.File:
                return Path(base).parent, [Path(base)]
            if kind != fs.FileType.Directory:
                return Path(base), []
        entries = self.filesystem.get_file_info(fs.FileSelector(base, recursive=True))
        below = sorted(Path(entry.path) for entry in entries if entry.type == fs.FileType.File and entry.size)
        if len(steady) == len(whole.parts):
            return Path(base), [path for path in below if not is_hidden(path.relative_to(base))]
        return Path(base), [path for path in below if _matches(path.parts, whole.parts)]

    def address(self, path: Path) -> str:
        """Return how messages name a file."""
        return f"{self.scheme}://{path}"

    def opened(self, path: Path) -> Any:
        """Open a file for reading, at any place of it."""
        return self.filesystem.open_input_file(str(path))


def _matches(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _unreachable(shown: str, error: Exception) -> SourceError:
    """Say why a store did not answer; its own words may quote what was sent to it."""
    words = str(error)
    if isinstance(error, ImportError | NotImplementedError):
        return SourceError(f"{shown!r}: this pyarrow has no such file system. Install another, or copy the files.")
    if isinstance(error, FileNotFoundError) or "NO_SUCH" in words or "404" in words:
        return SourceError(f"{shown!r} does not exist. Check the name.")
    if "ACCESS_DENIED" in words or "403" in words or isinstance(error, PermissionError):
        return SourceError(f"{shown!r} may not be read with these credentials. Set them as for the store's own tools.")
    return SourceError(
        f"{shown!r} could not be reached ({type(error).__name__}). Check the address, the network and the credentials, "
        "and try it with the store's own tools."
    )
