"""The releases that are served: uploaded ones, which the store keeps, and files in mounted folders."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpsketch.answers import describe
from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.kinds import KINDS, Kind, load
from dpsketch.release import Release
from dpsketch.server.answers import finite
from dpsketch.server.refusals import Refused
from dpsketch.server.storage import ReleaseRow, Storage
from dpsketch.server.telemetry import log
from dpsketch.sketches.kinds import row_of

__all__ = ["Releases", "Served"]

_EXAMPLES = 50
# A folder that was changed so many nanoseconds ago may have been changed twice within one tick of its clock.
_SETTLED = 5_000_000_000
# What the routes call questions that the table of kinds has other names for.
_ROUTES: dict[str, str] = {"keys": "estimate", "point": "density", "rollup": "table"}


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One release: what it is called, what it is, and itself."""

    id: str
    name: str
    kind: str
    size: int
    path: Path | None
    added: float | None
    release: Release
    examples: tuple[str, ...] = ()

    @property
    def mounted(self) -> bool:
        """Whether it is a file of a mounted folder."""
        return self.path is not None

    @property
    def row(self) -> Kind:
        """What its kind says of it."""
        return KINDS[self.kind]

    @property
    def questions(self) -> list[str]:
        """What can be asked of it, by the names of the routes."""
        if self.release.bare_names is not None:
            return []
        # Of published days beside their own questions those of what they count.
        return [_ROUTES.get(one, one) for one in dict.fromkeys((*self.row.answers, *self.counted.answers))]

    @property
    def counted(self) -> Kind:
        """What it counts: its own kind, or that of each of its days."""
        return row_of(self.release)

    def within(self, first: int | None, last: int | None) -> Release:
        """Return the release to ask: of published days those from ``first`` to ``last``, or all; else itself."""
        series: Any = self.release
        if "curve" not in self.row.answers:
            if first is not None or last is not None:
                raise InvalidInput("first and last are days of a stream, and this release is not one.")
            return self.release
        found: Release = series.between(1 if first is None else first, series.days_published if last is None else last)
        return found

    @property
    def text(self) -> str:
        """What a search looks through: its name, its kind, its question and its id."""
        return f"{self.name} {self.kind} {self.row.question} {self.id}".casefold()

    @property
    def needs_candidates(self) -> bool:
        """Whether its keys can be listed only from a list that the caller brings."""
        return "top" in self.counted.answers and not (self.counted.lists_keys and self.release.names_keys)

    def view(self) -> dict[str, Any]:
        """Return what the list says of it."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "answers": self.row.question,
            "counts": self.release.counts,
            "guarantee": finite(self.release.guarantee.to_json()),
            "questions": self.questions,
            "needs_candidates": self.needs_candidates,
            "mounted": self.mounted,
            "added": None if self.added is None else datetime.fromtimestamp(self.added, UTC).isoformat("T", "seconds"),
        }

    def whole(self) -> dict[str, Any]:
        """Return all that is known of it."""
        facts = finite(describe(self.release, self.size))
        space: Any = getattr(self.release, "spec", None) if "point" in self.counted.answers else None
        return {
            **self.view(),
            "spec": facts["spec"],
            "facts": facts,
            "key_type": self.release.key_type,
            "examples": list(self.examples),
            "dimension": None if space is None else space.dim,
            "bounds": None if space is None or space.bounds is None else [list(pair) for pair in space.bounds],
        }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _read(content: bytes, name: str, *, path: Path | None = None, added: float | None = None) -> Served:
    release = load(content)
    return Served(_digest(content), name, release.kind, len(content), path, added, release)


def _name(path: Path) -> str:
    """Return a file's name without its ending; bytes that are not UTF-8 are escaped, as JSON cannot hold them."""
    return os.fsencode(path.stem).decode("utf-8", "backslashreplace")


def _examples(path: Path) -> tuple[str, ...]:
    """Return keys to ask about, from a public list beside a mounted file: NAME.keys, one a line."""
    try:
        with path.with_suffix(".keys").open(encoding="utf-8") as lines:
            return tuple(line.rstrip("\n")[:200] for line in itertools.islice(lines, _EXAMPLES) if line.strip())
    except (OSError, ValueError):
        return ()


def _mounted(path: Path) -> Served | None:
    """Read a file of a mounted folder; None where it is refused."""
    try:
        read = _read(path.read_bytes(), _name(path), path=path, added=path.stat().st_mtime)
        return replace(read, examples=_examples(path))
    except (DpsketchError, OSError) as error:
        log("warning", "mounted file refused", file=f"{_name(path)}.dps", error=type(error).__name__)
        return None


def _holds_state(folder: Path) -> bool:
    from dpsketch.sketches.continual.folder import holds_state

    return holds_state(folder)


class _Mount:
    """A mounted folder: when it and its files were last changed, and what is served of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = 0
        self._stamps: dict[Path, tuple[int, int]] = {}
        self.served: dict[Path, str] = {}

    def news(self) -> Iterator[tuple[Path, tuple[int, int] | None]]:
        """Yield the files that came or changed since, with their stamps, and those that went, with none."""
        try:
            # A folder that went took along what lay in it.
            stamp = self._folder.stat().st_mtime_ns if self._folder.exists() else 0
            if stamp and stamp == self._stamp and time.time_ns() - stamp > _SETTLED:
                return
            # A state that was begun here since must not be served by its folder.
            empty = not stamp or _holds_state(self._folder)
            # Neither drafts, nor links to nothing, nor pipes, which would be waited for.
            paths = [] if empty else sorted(path for path in self._folder.glob("[!.]*.dps") if path.is_file())
            found = {path: _stamp(path) for path in paths}
        except OSError:
            return  # asked again soon
        self._stamp, before, self._stamps = stamp, self._stamps, found
        yield from ((path, None) for path in before if path not in found)
        yield from ((path, each) for path, each in found.items() if before.get(path) != each)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


class Releases:
    """All releases of a service, by their ids: the first digits of the SHA-256 of the file."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._all: dict[str, Served] = {}
        self._lock = threading.Lock()
        self._changes = 0
        self._mounted: list[_Mount] = []

    def load(self, mounts: tuple[Path, ...]) -> None:
        """Read what the store holds and what lies in the mounted folders; a file that is refused is left out."""
        self.refresh()
        for folder in mounts:
            if not folder.is_dir():
                raise InvalidInput(f"{folder} is not a folder; --mount takes a folder of .dps files.")
            if _holds_state(folder):
                raise InvalidInput(
                    f"{folder} holds the state of a stream, which is sensitive. Mount a folder of what was published: "
                    "save its series there, as a .dps file."
                )
            self._mounted.append(_Mount(folder))
        self.look()

    def look(self) -> None:
        """Take note of files of the mounted folders that came, went or were replaced as a whole."""
        for mount in self._mounted:
            for path, stamp in mount.news():
                before = mount.served.pop(path, None)
                read = None if stamp is None else _mounted(path)
                if read is not None:
                    mount.served[path] = read.id
                    self._put(read)
                others = {each: other for one in self._mounted for other, each in one.served.items()}
                shown = None if before is None else self._all.get(before)
                if before in others and shown is not None and shown.path == path and shown is not read:
                    left = _mounted(others[before])  # another file of the same content
                    if left is not None and left.id == before:
                        self._put(left)
                elif before is not None and before not in others:
                    with self._lock:
                        self._all.pop(before, None)
                        self._changes += 1

    def refresh(self) -> None:
        """Take note of what was uploaded to the store, or deleted there."""
        rows = {row.id: row for row in self._storage.releases()}
        with self._lock:
            known = {one.id: one for one in self._all.values() if not one.mounted}
        for row in rows.values():
            if row.id not in known or known[row.id].name != row.name:
                content = self._storage.release_content(row.id)
                if content is not None:
                    self._put(_read(content, row.name, added=row.added))
        with self._lock:
            for gone in set(known) - set(rows):
                self._all.pop(gone, None)
                self._changes += 1

    def _put(self, served: Served) -> None:
        with self._lock:
            self._all[served.id] = served
            self._changes += 1

    def __len__(self) -> int:
        return len(self._all)

    def views(self, search: str = "") -> list[dict[str, Any]]:
        """Return the list, by name and the newest first: all, or where every word of a search occurs."""
        with self._lock:
            all_of_them = sorted(self._all.values(), key=lambda one: (one.name, one.added or 0.0, one.id))
        words = search.casefold().split()
        found = []
        for _, same in itertools.groupby(all_of_them, key=lambda one: one.name):
            versions = list(same)  # the oldest first
            for version, each in reversed(list(enumerate(versions, 1))):
                if all(word in each.text for word in words):
                    found.append({**each.view(), "version": version, "versions": len(versions)})
        return found

    def view(self, served: Served) -> dict[str, Any]:
        """Return what the list says of a release."""
        return {**served.view(), **self.place(served)}

    def place(self, served: Served) -> dict[str, int]:
        """Return the place of a release among those of its name, which are its versions: the oldest is the first."""
        with self._lock:
            others = [one for one in self._all.values() if one.name == served.name and one.id != served.id]
        # It may have been deleted meanwhile, or added anew: it is counted as it was.
        before = sum((one.added or 0.0, one.id) < (served.added or 0.0, served.id) for one in others)
        return {"version": before + 1, "versions": len(others) + 1}

    @property
    def changes(self) -> int:
        """How often a release came or went."""
        return self._changes

    def get(self, identifier: str) -> Served:
        """Return a release, or refuse."""
        found = self._all.get(identifier)
        if found is None:
            raise Refused(404, "not_found", "There is no such release.")
        return found

    def add(self, content: bytes, name: str) -> Served:
        """Keep an uploaded release; what is sensitive, damaged or forged is refused before it is kept."""
        served = _read(content, name, added=time.time())
        present = self._all.get(served.id)
        if present is not None and present.mounted:
            raise Refused(409, "mounted", "This release is served from a mounted folder already.")
        self._storage.add_release(ReleaseRow(served.id, name), content)
        self._put(served)
        return served

    def content(self, served: Served) -> bytes:
        """Return a release's file as it was uploaded or lies in its folder."""
        if served.path is None:
            content = self._storage.release_content(served.id)
        else:
            try:
                content = served.path.read_bytes()
            except OSError:
                content = None
        if content is None or _digest(content) != served.id:
            raise Refused(404, "not_found", "The file of this release is gone, or was changed since it was read.")
        return content

    def remove(self, identifier: str) -> None:
        """Forget an uploaded release."""
        if self.get(identifier).mounted:
            raise Refused(409, "mounted", "This release lies in a mounted folder: take its file away.")
        self._storage.delete_release(identifier)
        with self._lock:
            self._all.pop(identifier, None)
            self._changes += 1
