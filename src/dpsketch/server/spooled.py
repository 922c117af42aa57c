"""Answers too large for memory: each in a file without a name, sent to whoever asks a piece at a time."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping

import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dpsketch.server.refusals import StorageFailed

__all__ = ["LARGE", "PIECE", "Pace", "Spooled", "file_response"]

LARGE = 4 << 20  # bytes from which on an answer goes to a file
PIECE = 1 << 18
"""Bytes that are sent at once: so much of an answer a slow connection holds in memory."""
_RATE = 16 << 20  # bytes a second, of all large answers together


class Pace:
    """Turns at sending: all who send together keep to one rate, because the loop that sends takes reports too."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._next = 0.0

    def wait(self, size: int) -> float:
        """Take the next turn to send so many bytes, and return how many seconds it is off."""
        now = self._clock()
        turn = max(now, self._next)
        self._next = turn + size / self._rate
        return turn - now

    async def turn(self, size: int) -> None:
        """Wait for one's turn."""
        await asyncio.sleep(self.wait(size))


_PACE = Pace(_RATE)  # of the process, as the loop is


def file_response(content: bytes, headers: Mapping[str, str], large: int | None = None) -> Response:
    """Return the bytes of a file as an answer, which from ``large`` bytes on lies on the disk."""
    if len(content) < (LARGE if large is None else large):
        return Response(content, media_type="application/octet-stream", headers=headers)
    found = Spooled(content, headers)
    pa.default_memory_pool().release_unused()  # Arrow would keep the room in which it encoded them
    return found


class Spooled(Response):
    """A large answer on the disk: however many take it, and however slowly, each has one piece of it in memory.

    The file has no name, and is gone with the answer.
    """

    media_type = "application/octet-stream"

    def __init__(self, content: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(b"", headers={**headers, "Content-Length": str(len(content))})
        self._size = len(content)
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) :]
                self._file = os.dup(file.fileno())
        except OSError:
            raise StorageFailed("the answer is large, and the folder for temporary files does not take it.") from None
        weakref.finalize(self, os.close, self._file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        sent = StreamingResponse(self._pieces(), headers=dict(self.headers))
        await sent(scope, receive, send)

    async def _pieces(self) -> AsyncIterator[bytes]:
        for start in range(0, self._size, PIECE):
            await _PACE.turn(PIECE)
            # In the loop: the file is so new that the system has it in memory, and a thread would cost more.
            yield os.pread(self._file, PIECE, start)
