"""What a device remembers of its reports, and the file it keeps that in, which one process at a time may change.

Beside the file lies a lock (``<name>.lock``, empty, never deleted by us). Whoever wants to report holds it while the
file is read, changed and written, so that two processes cannot spend one budget. A lock belongs to the system's open
file: it ends with the process, however that ends. The file itself is replaced whole (:func:`dpsketch.files.write`), so
that it can be read at any time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from dpsketch import files
from dpsketch.errors import FileRefused, SpecMismatch
from dpsketch.local.catalogue import protocol_from_json
from dpsketch.local.protocol import LocalProtocol
from dpsketch.noise import random_bytes
from dpsketch.numbers import whole_number
from dpsketch.processes import OneProcess

__all__ = ["Memory", "MemoryInFile", "MemoryInProcess", "Terms", "Unchanged", "locked"]

KIND = "local-client"
_PATIENCE = 60.0  # seconds that a process waits for the others; each holds the lock for milliseconds
_PAUSE = 0.005
_SECRET_BYTES = 32
_NOT_OURS = "the file is not the state of a client as dpsketch writes it; nothing was drawn."

Unchanged = Literal["same", "fresh"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a device agreed to when its memory began; none of it changes afterwards."""

    protocol: LocalProtocol
    budget: float
    unchanged: Unchanged

    def to_header(self) -> dict[str, Any]:
        """Return the terms as JSON-ready values."""
        return {"spec": self.protocol.to_json(), "budget": self.budget, "unchanged": self.unchanged}

    @classmethod
    def from_document(cls, document: files.Document) -> Terms:
        """Read the terms of a device's file, whoever wrote it."""
        if document.kind != KIND or not document.sensitive:
            raise FileRefused("the file is not the state of a client.")
        header = document.header
        budget, unchanged = header.get("budget"), header.get("unchanged")
        if not isinstance(budget, float) or unchanged not in ("same", "fresh"):
            raise FileRefused(_NOT_OURS)
        return cls(protocol_from_json(header.get("spec", {})), budget, unchanged)


@dataclass(slots=True)
class Memory:
    """The last set with its answer, the messages sent, and how many draws were charged. Sensitive."""

    secret: bytes = field(default_factory=lambda: random_bytes(_SECRET_BYTES), repr=False)
    made: int = 0
    last: tuple[bytes, bytes] | None = field(default=None, repr=False)  # a digest of the set, and the content drawn
    sent: dict[str, bytes] = field(default_factory=dict, repr=False)

    def to_document(self, terms: Terms) -> files.Document:
        """Return the memory as a document of the file format."""
        arrays: dict[str, Any] = {
            "secret": [self.secret],
            "last": list(self.last or ()),
            "periods": list(self.sent),
            "messages": list(self.sent.values()),
        }
        return files.Document(KIND, True, {**terms.to_header(), "made": self.made}, arrays)

    @classmethod
    def from_document(cls, document: files.Document, terms: Terms) -> Memory:
        """Rebuild a memory, which must be of these terms."""
        if Terms.from_document(document) != terms:
            raise SpecMismatch(
                "the client's file is of another protocol or budget. Open it with those it was made with; "
                "a second budget for one person would add to the first."
            )
        arrays: Mapping[str, Any] = document.arrays
        try:
            last = tuple(bytes(each) for each in arrays["last"])
            memory = cls(
                bytes(arrays["secret"][0]),
                whole_number("made", document.header["made"], low=0, high=2**31),
                (last[0], last[1]) if last else None,
                {str(name): bytes(sent) for name, sent in zip(arrays["periods"], arrays["messages"], strict=True)},
            )
        except (KeyError, IndexError, TypeError, ValueError):
            memory = cls(b"")
        # An answer without a charge would be a budget that was written down by somebody else.
        if len(memory.secret) != _SECRET_BYTES or (memory.last is not None and memory.made == 0):
            raise FileRefused(_NOT_OURS)
        return memory


class MemoryInProcess(OneProcess):
    """A memory that ends with the process; threads take turns, and a forked child has no part in it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turn = threading.Lock()

    def look(self) -> Memory:
        """Return the memory as it is."""
        self._refuse_copy()
        return self._memory

    @contextmanager
    def changing(self) -> Iterator[Memory]:
        """Have the memory for oneself."""
        self._refuse_copy()
        with self._turn:
            yield self._memory

    def save(self, memory: Memory) -> None:
        """Keep what was changed: nothing to do."""


class MemoryInFile:
    """A memory in a file, read anew whenever it is used, because others may use it too."""

    def __init__(self, path: str | PathLike[str], terms: Terms) -> None:
        self._path = Path(os.path.realpath(path))  # one lock, by whatever link the file is reached
        self._lock = self._path.with_name(self._path.name + ".lock")
        self._terms = terms
        self._known: tuple[bytes, int] | None = None  # the secret, and the charges seen
        self.look()

    def look(self) -> Memory:
        """Read the file; without one, a new memory.

        Raises
        ------
        FileRefused
            It is damaged, or older than what this process saw before: restored from a copy, or gone.
        """
        known = self._known  # before the read: another thread may write meanwhile
        try:
            document = files.read(self._path, allow_sensitive=True)
        except FileNotFoundError:
            if known is not None:
                raise _rolled_back() from None
            return Memory()
        memory = Memory.from_document(document, self._terms)
        if known is not None and (memory.secret != known[0] or memory.made < known[1]):
            raise _rolled_back()
        self._known = memory.secret, memory.made
        return memory

    @contextmanager
    def changing(self) -> Iterator[Memory]:
        """Have the file for oneself; what is not saved is forgotten."""
        with locked(self._lock):
            yield self.look()

    def save(self, memory: Memory) -> None:
        """Have the memory on the disk before anything else happens."""
        files.write(self._path, memory.to_document(self._terms))
        self._known = memory.secret, memory.made


def _rolled_back() -> FileRefused:
    return FileRefused(
        "the client's file is gone, or older than when this program last used it: somebody deleted it, or put a copy "
        "back. What was reported meanwhile would not be counted. Nothing was drawn; bring the newest file back."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that one process (and one thread of it) has at a time; the system ends it with the process.

    Raises
    ------
    FileRefused
        Somebody else held it for a minute.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if _acquire(descriptor):
                try:
                    # Had somebody deleted the file in between, the next one would lock another.
                    if _is_at(descriptor, path):
                        yield
                        return
                finally:
                    _give_up(descriptor)
        finally:
            os.close(descriptor)
        if time.monotonic() > end:
            raise FileRefused(
                "another process has kept the client's file locked for a minute; nothing was drawn. End it first."
            )
        time.sleep(_PAUSE)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _acquire(descriptor: int) -> bool:
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _give_up(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _acquire(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _give_up(descriptor: int) -> None:
        # Closing alone would leave the lock to a child that was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
