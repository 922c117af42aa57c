"""The digest of a file: where it stands, and a file's bytes with their digest, which is worked out while they are read.

A SHA-256 takes twice as long as to copy a file out of the system's cache. A large file is read by a thread of its own,
so that nobody waits for the copy. Every byte is read once, into memory that is ours: what was checked is what is used,
whatever becomes of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from dpsketch import threads
from dpsketch._arrow_stream import CONTINUATION
from dpsketch._header import ZEROS
from dpsketch.errors import FileRefused

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["DAMAGED", "KEY", "MAX_HEADER", "NOT_OURS", "check", "checked_bytes", "digest_place", "digest_text"]

KEY = b"dpsketch"
"""The one key of the metadata in a file's first message."""
MAX_HEADER = 1 << 20
"""The Arrow schema message, with the JSON header in it, is at most so many bytes."""
DAMAGED = (
    "the file is damaged: it was cut short or altered after it was written (its SHA-256 does not match). "
    "Copy it again, or make it again."
)
NOT_OURS = "this is not a dpsketch file. Give a release (*.dps) or a sketch (*.sketch) that dpsketch wrote."
_MARKER = b'"sha256":"'
_MARKED = re.compile(_MARKER + rb'([0-9a-f]{64})"')
_FIRST = 1 << 16  # what is read to see whether a file is ours
_PIECE = 1 << 20
_APART = 1 << 22  # a thread that reads takes as long to start as reading a tenth of this


def digest_place(data: bytes | memoryview) -> int:
    """Find the digest's 64 characters in the schema message; the one thing done before they are checked."""
    end = _schema_end(data)
    head = bytes(data[: min(end, MAX_HEADER + 8)])
    if head[:4] != CONTINUATION or KEY not in head:
        head = bytes(data[: MAX_HEADER + 8])
    if head[:4] != CONTINUATION or KEY not in head:
        raise FileRefused(NOT_OURS)
    found = _MARKED.search(head, 8, end)
    if end > len(head) or found is None or head.count(_MARKER, 8, end) != 1:
        raise FileRefused(DAMAGED)
    return found.start(1)


def digest_text(data: memoryview, place: int) -> bytes:
    """Return the digest of a file whose own stands at a place."""
    return _text(_begun(data, place))


def check(data: memoryview) -> None:
    """Refuse bytes that are not those of which a digest was written."""
    place = digest_place(data)
    _compare(data, place, _begun(data, place))


def checked_bytes(path: str | os.PathLike[str]) -> memoryview:
    """Return what a file or a pipe holds, checked; a large file that is not ours is refused before it is in memory."""
    with Path(path).open("rb", buffering=0) as file:
        head = _some(file, b"", _FIRST)
        if _schema_end(head) > len(head) or KEY not in head:
            head = _some(file, head, MAX_HEADER + 8)
        place = digest_place(head)
        # In one piece, so that nothing is copied together; a pipe, or a file that grows, has more to come.
        data = np.empty(max(len(head), os.fstat(file.fileno()).st_size), np.uint8).data
        data[: len(head)] = head
        digest = _begun(data[: len(head)], place)
        filled = _read(file, data, len(head), digest)
        rest = file.read() if filled == len(data) else b""
    if rest:
        digest.update(rest)
        data = memoryview(b"".join((data, rest)))
    else:
        data = data[:filled].toreadonly()
    _compare(data, place, digest)
    return data


def _schema_end(data: bytes | memoryview) -> int:
    """Return where the first message says that it ends."""
    return 8 + int.from_bytes(data[4:8], "little")


def _begun(data: memoryview, place: int) -> hashlib._Hash:
    """Return a digest that has taken some bytes, its own place as zeros."""
    digest = hashlib.sha256(data[:place])
    digest.update(ZEROS)
    digest.update(data[place + 64 :])
    return digest


def _text(digest: hashlib._Hash) -> bytes:
    return digest.hexdigest().encode()


def _compare(data: memoryview, place: int, digest: hashlib._Hash) -> None:
    if bytes(data[place : place + 64]) != _text(digest):
        raise FileRefused(DAMAGED)


def _some(file: FileIO, head: bytes, size: int) -> bytes:
    """Return the head with what follows it, as far as ``size`` bytes where there are so many."""
    while len(head) < size and (more := file.read(size - len(head))):
        head += more
    return head


def _read(file: FileIO, data: memoryview, start: int, digest: hashlib._Hash) -> int:
    """Fill the rest of a buffer from a file, take it into the digest, and return how far it is filled."""
    filled: SimpleQueue[int | None] = SimpleQueue()
    given_up = False

    def read() -> None:
        at = start
        try:
            while not given_up and (size := file.readinto(data[at : at + _PIECE])):
                at += size
                filled.put(at)
        finally:
            filled.put(None)

    def take() -> int:
        nonlocal given_up
        at = start
        try:
            while (end := filled.get()) is not None:
                digest.update(data[at:end])
                at = end
        except BaseException:
            given_up = True
            raise
        return at

    if len(data) - start >= _APART:
        try:
            return threads.run([take, read])[0] or start
        except RuntimeError:  # no thread is to be had, as where a container bounds them: nothing was read yet
            pass
    read()
    return take()
