"""Bytes as they come, from a file or a pipe, with a look ahead."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pyarrow as pa

from dpsketch.sources.locations import File, StandardInput

_AT_ONCE = 2 << 20


class _Counted(io.RawIOBase):
    """Bytes of a file or pipe, counted as they are read (compressed ones before they are unpacked)."""

    def __init__(self, raw: Any, *, owned: bool) -> None:
        self._raw = raw
        self._owned = owned
        self.done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.closed:  # Arrow reads ahead, also what was refused; standard input may be another's by then
            return 0
        count = int(self._raw.readinto(buffer) or 0)
        self.done += count
        return count

    def close(self) -> None:
        if self._owned:
            self._raw.close()
        super().close()


class ByteStream:
    """A stream that can be looked into before it is read; Arrow takes it as a Python file."""

    def __init__(self, location: File | StandardInput) -> None:
        raw: Any
        compression = None
        match location:
            case File():
                raw = location.opened()
                compression = location.compression
            case StandardInput():
                # Unbuffered: a thread that waits inside sys.stdin's buffer at exit would abort the interpreter.
                raw = io.FileIO(sys.stdin.fileno(), closefd=False) if _has_descriptor() else sys.stdin.buffer
        self._counted = _Counted(raw, owned=isinstance(location, File))
        self._bytes: Any = self._counted
        if compression is not None:
            self._bytes = pa.CompressedInputStream(pa.PythonFile(self._counted, "r"), compression)
        self._ahead = b""
        self.closed = False

    @property
    def done(self) -> int:
        """Bytes read from the file or pipe so far."""
        return self._counted.done

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or all that are left, without taking them."""
        self._ahead += self._fill(size - len(self._ahead))
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end; all of them if ``size`` is negative."""
        wanted = sys.maxsize if size < 0 else size
        taken, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        return taken + self._fill(wanted - len(taken)) if len(taken) < wanted else taken

    def read_block(self, size: int) -> bytearray:
        """Return what :meth:`read` does, read to where it stays: to touch fresh memory takes longer than to read."""
        block = bytearray(size)
        filled = min(size, len(self._ahead))
        block[:filled], self._ahead = self._ahead[:filled], self._ahead[filled:]
        with memoryview(block) as room:
            while filled < size and (count := self._bytes.readinto(room[filled:])):
                filled += count
        del block[filled:]
        return block

    def put_back(self, taken: bytes) -> None:
        """Let bytes that were taken come again."""
        self._ahead = taken + self._ahead if self._ahead else taken

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self.closed = True
        self._bytes.close()
        self._counted.close()

    def _fill(self, size: int) -> bytes:
        # A pipe hands out 64 kB at a time; whole blocks make whole batches.
        parts = []
        while size > 0 and (part := self._bytes.read(min(size, _AT_ONCE))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},"]')


class ArrayAsLines:
    """The bytes of one JSON array as lines, an element each; it is read as a :class:`ByteStream` is."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ahead = b""  # read, and not yet a line or part of one
        self._ready = b""
        self._depth = 0
        self.closed = False

    @property
    def done(self) -> int:
        """Bytes read from the file or pipe so far."""
        return self._stream.done

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or all that are left, without taking them."""
        self._fill(size)
        return self._ready[:size]

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end; all of them if ``size`` is negative."""
        wanted = sys.maxsize if size < 0 else size
        self._fill(wanted)
        taken, self._ready = self._ready[:wanted], self._ready[wanted:]
        return taken

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self.closed = True
        self._stream.close()

    def _fill(self, size: int) -> None:
        parts = [self._ready]
        held = len(self._ready)
        while held < size and (block := self._stream.read(1 << 20)):
            parts.append(self._lines(self._ahead + block))
            held += len(parts[-1])
        self._ready = b"".join(parts)
        if held < size and (self._depth or self._ahead.strip()):
            raise ValueError("the array does not end, or something follows it")

    def _lines(self, text: bytes) -> bytes:
        """Return what a block adds to the lines: no ends of line, brackets of the array, or commas between elements."""
        # Raw ends of line are in no JSON string, and mean nothing outside of one.
        text = text.replace(b"\r", b" ").replace(b"\n", b" ")
        kept: list[bytes] = []
        start = 0
        for token in _TOKENS.finditer(text):
            mark = token.group()
            if mark == b'"':  # a string that goes on in the next block
                self._ahead = text[token.start() :]
                return b"".join([*kept, text[start : token.start()]])
            if mark in b"[{" and len(mark) == 1:
                self._depth += 1
            elif mark in b"]}" and len(mark) == 1:
                self._depth -= 1
            outermost = (mark == b"[" and self._depth == 1) or (mark == b"]" and self._depth == 0)
            if outermost or (mark == b"," and self._depth == 1):
                kept.append(text[start : token.start()] + (b"" if mark == b"[" else b"\n"))
                start = token.end()
        self._ahead = b""
        return b"".join([*kept, text[start:]])


def _has_descriptor() -> bool:
    try:
        sys.stdin.fileno()
    except (OSError, ValueError):
        return False
    return True
