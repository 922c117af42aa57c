"""Limits on a connection: uvicorn alone waits for ever for a request's head, and for an answer to be taken."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["limited"]

_MOST = 64 << 10  # bytes of address and headers


def limited(seconds: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol for connections that end where nothing goes on for so many seconds.

    The head of a request must arrive whole in that time, and be of a bounded size. Of an answer that waits in memory
    some must be taken in that time. (Bodies have limits of their own, and an idle connection has uvicorn's.)
    """

    class Limited(HttpToolsProtocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._size = 0
            self._end: asyncio.TimerHandle | None = None
            self._left = 0
            self._stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._complete()
            self._flowing()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._begin()

        def on_headers_complete(self) -> None:
            self._complete()
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._end is not None:
                self._size += len(data)
                if self._size > _MOST:
                    self.send_400_response("The head of the request is too large.")

        def _begin(self) -> None:
            if self._end is None:
                self._size = 0
                self._end = self.loop.call_later(seconds, self._let_go)

        def _complete(self) -> None:
            if self._end is not None:
                self._end.cancel()
                self._end = None

        def _let_go(self) -> None:
            self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch()

        def resume_writing(self) -> None:
            self._flowing()
            super().resume_writing()

        def _watch(self) -> None:
            self._left = self.transport.get_write_buffer_size()
            self._stalled = self.loop.call_later(seconds, self._look_again)

        def _look_again(self) -> None:
            if self.transport.get_write_buffer_size() < self._left:
                self._watch()
            else:
                self.transport.abort()  # to close it would wait for whoever takes nothing

        def _flowing(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

    return Limited
